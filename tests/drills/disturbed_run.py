"""One run on a real cluster, disturbed by one drill."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

from runner.checkpoints import list_sealed
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from tests.drills.cases import (
    FIRST_STEP,
    LAST_STEP,
    RANKS,
    RANKS_PER_NODE,
    TRAINER,
    Case,
)
from tests.drills.observed_run import (
    STUCK_SECONDS,
    Outcome,
    Setup,
    order_drill,
    outcome_of,
    own_cluster,
    start_run,
)
from tests.e2e.cluster_harness import ClusterHarness, newest_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    """Where a drill disturbed, and what came of the run."""

    rank: int
    step: int
    node: str
    outcome: Outcome


def play(case: Case, seed: int) -> Disturbed:
    """Start a cluster, strike its run at a step and rank drawn by the seed, and wait for the run's end."""
    dice = random.Random(f"{seed} {case.name}")
    step, rank = dice.randint(FIRST_STEP, LAST_STEP), dice.randrange(RANKS)
    trainer = {**TRAINER, **case.trainer}
    setup = Setup(trainer=trainer, ranks_per_node=RANKS_PER_NODE, run=case.run, pages=case.pages)
    with own_cluster() as harness:
        process = start_run(harness, setup)
        node, note = _disturb(harness, case, step=step, rank=rank)
        outcome = outcome_of(harness, process, note=note, seconds=case.seconds)
    return Disturbed(rank=rank, step=step, node=node, outcome=outcome)


def _disturb(harness: ClusterHarness, case: Case, *, step: int, rank: int) -> tuple[str, str]:
    """Order the drill once the run is past a step; return the rank's node, and why it was not done."""
    if not case.fault:
        return "", ""
    run = harness.wait(lambda view: _past(view, step), f"step {step}", seconds=STUCK_SECONDS)
    note = order_drill(harness, case.fault, rank if case.takes_rank else None, **case.options)
    if case.then_kill:
        _wait_for_save(run)
        note += order_drill(harness, "kill-rank", rank)
    return run.nodes[rank // RANKS_PER_NODE], note


def _past(view: ClusterStatus, step: int) -> RunStatus | None:
    run = newest_run(view)
    return run if run is not None and run.step >= step else None


def _wait_for_save(run: RunStatus) -> None:
    """Wait until the next checkpoint is sealed: the one that is damaged, or that comes after it."""
    before = list_sealed(Path(run.checkpoints))[:1]
    deadline = time.monotonic() + STUCK_SECONDS
    while list_sealed(Path(run.checkpoints))[:1] == before and time.monotonic() < deadline:
        time.sleep(0.1)
