"""A run of the built-in trainer on a real cluster, and what came of it as an operator sees it."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.facts.messages.cluster_status import IncidentStatus
from runner.facts.messages.requests import Drill
from runner.facts.remedies.applied import AppliedRemedy
from tests.e2e.cluster_harness import ClusterHarness, run_of

# A run that is neither over nor further after so long is given up.
STUCK_SECONDS = 240.0
# For runs of which Stoker's own pages, which go back hundreds of steps, would leave nothing.
SMALL_RUN_PAGES = Path(__file__).with_name("small_run_pages")
_VALIDATION = re.compile(r"^step (\d+)  validation loss (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What runs, and on what. `run`: further fields of run.yaml; `pages`: a folder with the site's pages."""

    trainer: Mapping[str, Any]
    nodes: int = 2
    ranks_per_node: int = 2
    spares: int = 1
    run: Mapping[str, Any] = field(default_factory=dict)
    pages: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run. `loss`: of the last validation, None without one; `logbook`: as `stoker logbook` prints it."""

    state: str
    incidents: tuple[IncidentStatus, ...]
    remedies: tuple[AppliedRemedy, ...]
    loss: float | None
    num_attempts: int
    logbook: str
    note: str = ""


@contextmanager
def own_cluster() -> Iterator[ClusterHarness]:
    """Give a harness in a folder of its own; at the end nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="drills-", ignore_cleanup_errors=True) as folder:
        harness = ClusterHarness(Path(folder) / "cluster")
        with harness.observer:
            try:
                yield harness
            finally:
                harness.end()


def start_run(harness: ClusterHarness, setup: Setup) -> subprocess.Popen[bytes]:
    """Write the files of a run and its cluster, and start it."""
    nodes, ranks = setup.nodes, setup.ranks_per_node
    limits = {"runbooks_folder": str(setup.pages)} if setup.pages is not None else None
    harness.write_cluster(nodes=nodes, slots=ranks, spares=setup.spares, limits=limits)
    trainer = dict(setup.trainer)
    harness.write_run(trainer=trainer, nodes=nodes, ranks_per_node=ranks, **setup.run)
    return harness.start("run", "run.yaml")


def outcome_of(
    harness: ClusterHarness,
    process: subprocess.Popen[bytes],
    *,
    note: str = "",
    seconds: float = STUCK_SECONDS,
) -> Outcome:
    """Wait for the run's end, so long at most, and return what came of it."""
    try:
        harness.finish(process, seconds=seconds)
    except AssertionError:
        note += "; not over"
        harness.stoker("shutdown", seconds=120)
    view = harness.view()
    run = run_of(view)
    assert view is not None
    return Outcome(
        state=run.state,
        incidents=tuple(reversed([each for each in view.incidents if each.run == run.run])),
        remedies=run.applied_remedies,
        loss=_last_validation(Path(run.folder)),
        num_attempts=run.num_attempts,
        logbook=harness.stoker("logbook", seconds=120).stdout,
        note=note,
    )


def order_drill(harness: ClusterHarness, fault: str, rank: int | None, **options: Any) -> str:
    """Ask for a drill, without the command's seconds on a loaded machine; return "" or why it was not done."""
    request = Drill(
        id=f"drill-{fault}-{time.monotonic_ns()}",
        by="make drills",
        sent_at=time.time(),
        run=harness.name,
        fault=fault,  # type: ignore[arg-type]
        rank=rank,
        **options,
    )
    answer = harness.ask(request, seconds=90)
    return "" if answer.state == "done" else f"{answer.state}: {answer.message}"


def _last_validation(folder: Path) -> float | None:
    """Return the validation loss of the furthest step that rank 0 of any attempt logged; the newest attempt's of several."""
    found: dict[int, float] = {}
    for path in sorted(folder.glob("attempts/*/rank0.out"), key=lambda path: path.stat().st_mtime):
        for step, loss in _VALIDATION.findall(path.read_text(errors="replace")):
            found[int(step)] = float(loss)
    return found[max(found)] if found else None
