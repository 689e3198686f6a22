"""One run on a real cluster, struck by one drill, and what Stoker made of it as an operator sees it."""

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.checkpoints import list_sealed
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.messages.requests import Drill
from tests.drills.cases import (
    FIRST_STEP,
    LAST_STEP,
    RANKS,
    RANKS_PER_NODE,
    TRAINER,
    Case,
)
from tests.e2e.cluster_harness import ClusterHarness, newest_run, run_of

# A run that is neither over nor further after so long is given up.
STUCK_SECONDS = 240.0
_VALIDATION = re.compile(r"^step (\d+)  validation loss (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What came of a run. `rank`, `step`: where the drill struck; `loss`: of the last validation, None without one."""

    state: str
    rank: int
    step: int
    incidents: tuple[IncidentStatus, ...]
    node: str
    loss: float | None
    num_attempts: int
    note: str = ""


def play(folder: Path, case: Case, seed: int) -> Observed:
    """Start a cluster, strike its run at a step and rank drawn by the seed, and wait for the run's end."""
    dice = random.Random(f"{seed} {case.name}")
    step, rank = dice.randint(FIRST_STEP, LAST_STEP), dice.randrange(RANKS)
    harness = ClusterHarness(folder)
    with harness.observer:
        harness.write_cluster(nodes=2, slots=RANKS_PER_NODE, spares=1)
        trainer = {**TRAINER, **case.trainer}
        harness.write_run(trainer=trainer, nodes=2, ranks_per_node=RANKS_PER_NODE, **case.run)
        try:
            return _watch(harness, case, step=step, rank=rank)
        finally:
            harness.end()


def _watch(harness: ClusterHarness, case: Case, *, step: int, rank: int) -> Observed:
    process = harness.start("run", "run.yaml")
    node, note = "", ""
    if case.fault:
        run = harness.wait(lambda view: _past(view, step), f"step {step}", seconds=STUCK_SECONDS)
        node = run.nodes[rank // RANKS_PER_NODE]
        note = _drill(harness, case.fault, rank if case.takes_rank else None, **case.options)
    if case.then_kill:
        _wait_for_save(run)
        note += _drill(harness, "kill-rank", rank)
    try:
        harness.finish(process, seconds=STUCK_SECONDS)
    except AssertionError:
        note += "; not over"
        harness.stoker("shutdown", seconds=120)
    view = harness.view()
    run = run_of(view)
    assert view is not None
    return Observed(
        state=run.state,
        rank=rank,
        step=step,
        incidents=tuple(reversed([each for each in view.incidents if each.run == run.run])),
        node=node,
        loss=_last_validation(Path(run.folder)),
        num_attempts=run.num_attempts,
        note=note,
    )


def _past(view: ClusterStatus, step: int) -> RunStatus | None:
    run = newest_run(view)
    return run if run is not None and run.step >= step else None


def _drill(harness: ClusterHarness, fault: str, rank: int | None, **options: Any) -> str:
    """Ask for a drill, without the command's seconds on a loaded machine; return "" or why it was not done."""
    name = f"drill-{fault}-{time.monotonic_ns()}"
    request = Drill(
        id=name,
        by="make drills",
        sent_at=time.time(),
        run=harness.name,
        fault=fault,  # type: ignore[arg-type]
        rank=rank,
        **options,
    )
    answer = harness.ask(request, seconds=90)
    return "" if answer.state == "done" else f"{answer.state}: {answer.message}"


def _wait_for_save(run: RunStatus) -> None:
    """Wait until the next checkpoint is sealed: the one that is damaged, or that comes after it."""
    before = list_sealed(Path(run.checkpoints))[:1]
    deadline = time.monotonic() + STUCK_SECONDS
    while list_sealed(Path(run.checkpoints))[:1] == before and time.monotonic() < deadline:
        time.sleep(0.1)


def _last_validation(folder: Path) -> float | None:
    """Return the validation loss of the furthest step that rank 0 of any attempt logged; the newest attempt's of several."""
    found: dict[int, float] = {}
    for path in sorted(folder.glob("attempts/*/rank0.out"), key=lambda path: path.stat().st_mtime):
        for step, loss in _VALIDATION.findall(path.read_text(errors="replace")):
            found[int(step)] = float(loss)
    return found[max(found)] if found else None
