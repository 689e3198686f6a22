"""Four drills on one run of the built-in trainer, at steps and ranks drawn by the commit: the right fault and rank are named."""

import time
from pathlib import Path

import pytest

from runner.checkpoints import list_sealed, verify
from runner.errors import CheckpointRefused
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus
from tests.e2e.cluster_harness import ClusterHarness, run_of
from tests.suite.share import current

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(600)]

RANKS, RANKS_PER_NODE = 4, 2
# Steps that the detectors have seen before the spike.
CALM_STEPS = 60
TRAINER = {
    "recipe": "tiny_cpu",
    "steps": 100_000,
    "checkpoint_every": 10,
    "validate_every": 0,
    "batch": {"global_batch": 4},
    "optimizer": {"lr": 2e-3},
}
SPIKES = ("loss_spike", "grad_norm_spike", "divergence")
NOT_FINITE = ("nan_loss", "skipped_steps")
# Of the drill that a rewind may end.
MAX_TRIES = 4
# For a drill to have its effect.
PATIENCE_SECONDS = 60.0


def test_a_killed_rank_a_damaged_checkpoint_a_spike_and_a_nan(harness: ClusterHarness) -> None:
    """Each is asked for by the command; what Stoker names is the fault's effect, on the rank that was drawn."""
    dice = current().dice("drills")
    ranks = {name: dice.randrange(RANKS) for name in ("kill-rank", "corrupt", "nan")}
    calm_steps = CALM_STEPS + dice.randrange(20)
    print(f"ranks {ranks}, {calm_steps} calm steps")
    harness.write_cluster(nodes=2, slots=RANKS_PER_NODE)
    harness.write_run(trainer=TRAINER, nodes=2, ranks_per_node=RANKS_PER_NODE)
    process = harness.start("run", "run.yaml")

    # A checkpoint is damaged after it was sealed; a rank dies: the run goes on from an older one.
    now = harness.training(past_step=21)
    root = Path(_folder(harness))
    drill(harness, "corrupt-checkpoint", "--damage", "byte", "--rank", str(ranks["corrupt"]))
    damaged = _damaged(root)
    drill(harness, "kill-rank", "--rank", str(ranks["kill-rank"]))
    crash = incident(harness, ("rank_crash",))
    assert crash.rank == ranks["kill-rank"]
    now = harness.training(after=now.attempt)
    resumed = harness.observer.resumes()[str(now.attempt)]
    given = [text for text in harness.observer.unsealed_resumes if damaged in text]
    # It may have been given to ranks, who refuse it, if no node had looked at it since.
    assert resumed != damaged or given
    harness.observer.unsealed_resumes[:] = []

    harness.training(past_step=now.step + calm_steps)
    drill(harness, "loss-spike", "--strength", "3")
    assert incident(harness, SPIKES).run is not None

    num_asked = 3
    while not (found := _not_finite(harness, ranks["nan"], num_asked - 3)):
        num_asked += 1
    assert found.rank == ranks["nan"], found
    asked = harness.stoker("story").stdout
    assert asked.count("asks for the drill") == num_asked + 1
    # It may end with a checkpoint or without one: no step is good any more.
    harness.stoker("stop", seconds=120)
    harness.finish(process)


def _not_finite(harness: ClusterHarness, rank: int, num_tries: int) -> IncidentStatus | None:
    """Ask for NaN, and return the incident that names its rank; None if the run went back for the spike meanwhile."""
    assert num_tries < MAX_TRIES
    attempt = harness.training().attempt
    done = harness.stoker("drill", "nan", "--steps", "5000", "--rank", str(rank))
    if done.returncode == 2 and "has no running attempt" in done.stderr:
        # It goes back for the spike at this very moment.
        return None
    assert done.returncode == 0, done

    def look(view: ClusterStatus) -> IncidentStatus | str | None:
        named = [each for each in view.incidents if each.fault in NOT_FINITE]
        if found := [each for each in named if each.rank is not None]:
            return found[0]
        # The drill ended with its attempt.
        is_gone = not named and run_of(view).attempt != attempt
        return "gone back" if is_gone else None

    seen = harness.wait(look, f"an incident of {NOT_FINITE}")
    return seen if isinstance(seen, IncidentStatus) else None


def drill(harness: ClusterHarness, *words: str) -> None:
    """Ask for a drill, as an operator does."""
    done = harness.stoker("drill", *words)
    assert done.returncode == 0, done


def incident(
    harness: ClusterHarness, faults: tuple[str, ...], *, is_named: bool = False
) -> IncidentStatus:
    """Wait for an incident with one of these faults, and until its rank is known if `is_named`; return it."""

    def look(view: ClusterStatus) -> IncidentStatus | None:
        found = (each for each in view.incidents if each.fault in faults)
        return next((each for each in found if each.rank is not None or not is_named), None)

    return harness.wait(look, f"an incident of {faults}")


def _damaged(root: Path) -> str:
    """Wait for the drill's effect, which comes after a step; return the name of the checkpoint whose bytes do not verify."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        for folder in list_sealed(root):
            try:
                verify(folder)
            except CheckpointRefused:
                if folder.exists():
                    return folder.name
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint in {root} was damaged")


def _folder(harness: ClusterHarness) -> str:
    view = harness.view()
    assert view is not None
    return view.runs[-1].checkpoints
