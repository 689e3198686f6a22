"""Real trainers, unchanged, with what they print: three kills in one run, and a NaN or a hang at any step."""

import json

import pytest

from tests.e2e.cluster_harness import ClusterHarness, kill
from tests.e2e.trainers.accounts import figures_must_follow
from tests.e2e.trainers.scripts import SCRIPTS, stamps, start
from tests.suite.share import current

pytestmark = [pytest.mark.e2e, pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

LAST_STEP = 200
# Kills come after these steps, and between two saves: a save that is torn ends a script that trusts its newest.
KILLED_AFTER = (43, 94, 145)
# A commit plays one of them, and for faults the next one.
TRAINERS = [
    pytest.param(trainer, marks=pytest.mark.shared(number))
    for number, trainer in enumerate(SCRIPTS)
]
OTHERS = [
    pytest.param(trainer, marks=pytest.mark.shared(number + 1))
    for number, trainer in enumerate(SCRIPTS)
]
FAULTS = [(fault, step) for fault in ("nan", "hang") for step in (3, 30, 300)]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_after_three_kills_the_figures_are_those_of_the_scripts_stamps(
    harness: ClusterHarness, trainer: str
) -> None:
    """The run finishes; lineage, steps lost, productive time and each recovery follow from what the trainer printed."""
    start(harness, trainer, LAST_STEP, "none", 0)
    run = harness.start("run", "run.yaml")
    for step in KILLED_AFTER:
        kill_after(harness, step)
    code, output = harness.finish(run)
    assert code == 0, harness.report()
    assert "fresh processes" not in output, output
    made = stamps(harness)
    attempts = list(dict.fromkeys(stamp.attempt for stamp in made))
    assert len(attempts) == 4, attempts
    figures_must_follow(harness, made, output)
    incidents = json.loads(harness.stoker("incidents", "--json").stdout)
    assert [one["state"] for one in incidents] == ["resolved"] * 3


def kill_after(harness: ClusterHarness, step: int) -> None:
    """Kill rank 1 after a step of the newest attempt, and wait for a step of the next."""
    harness.until(lambda: [one for one in stamps(harness) if one.step > step], f"step {step}")
    attempt, gang = stamps(harness)[-1].attempt, harness.observer.gang()
    kill(gang[1])
    harness.until(lambda: stamps(harness)[-1].attempt != attempt, "steps of the next attempt")


@pytest.mark.parametrize("trainer", OTHERS)
def test_a_nan_and_a_hang_are_found_at_any_step(make_cluster: object, trainer: str) -> None:
    """By what the trainer prints and leaves out. A commit plays one of the cases, `make soak` all of them."""
    share = current()
    cases = FAULTS if share.part is None else [share.dice(trainer).choice(FAULTS)]
    for fault, step in cases:
        print(trainer, fault, step)
        found_must_be(make_cluster(), trainer, fault, step)  # type: ignore[operator]


def found_must_be(harness: ClusterHarness, trainer: str, fault: str, step: int) -> None:
    """Run a trainer with a fault until the incident is there."""
    start(harness, trainer, 100_000, fault, step, progress_seconds=5)
    run = harness.start("run", "run.yaml")

    def faults() -> set[str]:
        found = json.loads(harness.stoker("incidents", "--json").stdout or "[]")
        return {one["fault"] for one in found}

    wanted = {"nan": {"nan_loss"}, "hang": {"no_progress"}}[fault]
    harness.until(lambda: faults() & wanted, f"{fault} at step {step} of {trainer}")
    assert harness.stoker("stop", harness.name).returncode == 0
    harness.finish(run)
