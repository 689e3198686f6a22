"""A run whose data is poisoned for a stretch, under Stoker: what the daemon did, and what its ranks have read.

The run is small, so it has pages of its own (`small_run_pages`, `runbooks_folder` in cluster.yaml), as a user of small runs has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.drills.bare_runs import poison
from tests.drills.observed_run import SMALL_RUN_PAGES, Outcome, Setup, outcome_of, start_run
from tests.e2e.cluster_harness import ClusterHarness
from tests.trainer.sample_order import ReadStep, contributing_steps, due_steps

# Two replicas, which read different halves of each batch.
TRAINER: dict[str, Any] = {
    "recipe": "tiny_cpu",
    "steps": 200,
    "checkpoint_every": 10,
    "validate_every": 200,
    "validation_batches": 8,
    "layout": {"tensor": 1, "pipeline": 1, "data": 2},
    "batch": {"global_batch": 16, "micro_batch": 8},
    "optimizer": {"lr": 2e-3},
    "log_every": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """What came of a poisoned run. `skipped`: data steps that it leaves out in the end; `read`, `due`: by step."""

    outcome: Outcome
    skipped: tuple[tuple[int, int], ...]
    read: Mapping[int, ReadStep]
    due: Mapping[int, ReadStep]

    def num_read(self, first: int, length: int) -> int:
        """Return how many steps that count have read one of these data steps."""
        return sum(first <= step.data_step < first + length for step in self.read.values())


def play_poisoned(
    harness: ClusterHarness, trainer: Mapping[str, Any], *, first: int, length: int, **run: Any
) -> Poisoned:
    """Run to the end with `length` poisoned data steps from `first` on, which no one tells Stoker of."""
    record = harness.folder / "samples"
    settings = {**trainer, "data": {"source": "stdlib", "record_samples": str(record)}}
    environment = poison(harness.folder, first, first + length - 1)
    setup = Setup(
        trainer=settings,
        ranks_per_node=1,
        spares=0,
        run={**run, "environment": environment},
        pages=SMALL_RUN_PAGES,
    )
    outcome = outcome_of(harness, start_run(harness, setup))
    kept = [one for one in outcome.remedies if one.state != "reverted" and one.name == "skip_steps"]
    skipped = tuple((low, high) for one in kept for low, high in one.value)
    return Poisoned(
        outcome=outcome,
        skipped=skipped,
        read=contributing_steps(record),
        due=due_steps(settings, int(trainer["steps"]), left_out=skipped),
    )
