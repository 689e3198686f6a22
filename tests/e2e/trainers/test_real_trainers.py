"""Real trainers, unchanged, with what they print: three kills in one run, and a NaN or a hang at any step."""

import itertools
import json
import re
import sys
import time

import pytest

from tests.e2e.cluster_harness import ClusterHarness, kill
from tests.e2e.trainers.scripts import PRELOAD, SCRIPTS, Stamp, stamps, write
from tests.suite.share import current

pytestmark = [pytest.mark.e2e, pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

LAST_STEP = 200
# Kills come after these steps, and between two saves: a save that is torn ends a script that trusts its newest.
KILLED_AFTER = (43, 94, 145)
TOLERANCE_SECONDS = 1.0
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


def start(harness: ClusterHarness, trainer: str, *words: object, **fields: object) -> None:
    """Write a trainer's script and its run, of two ranks that are forked."""
    write(harness, trainer)
    command = " ".join(["{python} main.py", *map(str, words)])
    harness.write_run(
        command=command,
        python=sys.executable,
        nodes=1,
        ranks_per_node=2,
        preload=PRELOAD[trainer],
        environment={"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        **fields,
    )


@pytest.mark.parametrize("trainer", TRAINERS)
def test_after_three_kills_the_figures_are_those_of_the_scripts_stamps(
    harness: ClusterHarness, trainer: str
) -> None:
    """The run finishes; lineage, steps lost, productive time and each recovery follow from what the trainer printed."""
    start(harness, trainer, LAST_STEP, "none", 0)
    run = harness.start("run", "run.yaml")
    killed_at = [kill_after(harness, step) for step in KILLED_AFTER]
    code, output = harness.finish(run)
    assert code == 0, harness.report()
    assert "fresh processes" not in output, output
    made = stamps(harness)
    attempts = list(dict.fromkeys(stamp.attempt for stamp in made))
    assert len(attempts) == 4, attempts
    lineage = json.loads(harness.stoker("lineage", "--json").stdout)
    print(lineage, output)
    assert [row["attempt"] for row in lineage] == attempts

    expected = kept_steps(made)
    lost = 0
    for row, (first, last) in zip(lineage, expected, strict=True):
        # Steps within a second of one another count as the same: output is read as it comes.
        for step, due in zip(row["contributes"], (first, last), strict=True):
            assert abs(seconds(made, step, row["attempt"]) - due.at) <= TOLERANCE_SECONDS
        lost += max(s.step for s in made if s.attempt == row["attempt"]) - last.step
    shown = json.loads(harness.stoker("lineage", "--figures", "--json").stdout)
    productive = sum(last.at - first.at for first, last in expected)
    tolerance = TOLERANCE_SECONDS * len(attempts)
    assert abs(shown["productive_seconds"] - productive) <= tolerance, (shown, productive)
    pace = (expected[0][1].step - expected[0][0].step) / (expected[0][1].at - expected[0][0].at)
    (read_lost,) = re.findall(r"^  steps lost +(\d+)$", output, re.MULTILINE)
    assert abs(int(read_lost) - lost) <= pace * tolerance, (read_lost, lost)

    incidents = json.loads(harness.stoker("incidents", "--json").stdout)
    assert [one["state"] for one in incidents] == ["resolved"] * 3
    for at, row, attempt in zip(killed_at, lineage[1:], attempts[1:], strict=True):
        first_stamp = next(stamp for stamp in made if stamp.attempt == attempt)
        recovery, shown_recovery = first_stamp.at - at, row["first_step_at"] - at
        assert abs(shown_recovery - recovery) <= TOLERANCE_SECONDS, (row, recovery)


def kill_after(harness: ClusterHarness, step: int) -> float:
    """Kill rank 1 after a step of the newest attempt, and wait for a step of the next; return when it was killed."""
    harness.until(lambda: [one for one in stamps(harness) if one.step > step], f"step {step}")
    attempt, gang = stamps(harness)[-1].attempt, harness.observer.gang()
    at = time.time()
    kill(gang[1])
    harness.until(lambda: stamps(harness)[-1].attempt != attempt, "steps of the next attempt")
    return at


def kept_steps(made: list[Stamp]) -> list[tuple[Stamp, Stamp]]:
    """Fold the stamps: of each attempt the first and the last step that the next one did not make again."""
    by_attempt = [list(group) for _, group in itertools.groupby(made, key=lambda one: one.attempt)]
    kept = []
    for own, after in itertools.zip_longest(by_attempt, by_attempt[1:]):
        end = after[0].step if after else own[-1].step + 1
        kept.append((own[0], [one for one in own if one.step < end][-1]))
    return kept


def seconds(made: list[Stamp], step: int, attempt: str) -> float:
    """Return when an attempt made a step, or the one nearest to it."""
    own = [one for one in made if one.attempt == attempt]
    return min(own, key=lambda one: abs(one.step - step)).at


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
