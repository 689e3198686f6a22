"""The examples with the client, byte for byte as delivered: a torn checkpoint, a kill, two remedies, a swap, a stop, and on.

Each example goes through all of it in one run, and the next run goes on where it was stopped.
"""

import itertools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from tests.e2e.cluster_harness import ClusterHarness, kill, run_of

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[3] / "examples"
# As a user has it who activated the environment in which torch is.
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
LAST_STEP = 3000
# Of rates that are reported with all their digits.
ROUNDING = 1e-6


# A remedy beside the rate that the example's library applies, and what the answer says of it.
SKIP = (("skip", "2990", "2999"), "skipped data [[2990, 2999]]")
CLIP = (("clip", "0.25"), "clip 0.25")


@pytest.mark.parametrize(
    ("folder", "remedy"),
    [
        ("client_pytorch", SKIP),
        # Of these a commit plays one at most.
        pytest.param("client_huggingface", CLIP, marks=pytest.mark.shared(0)),
        pytest.param("client_lightning", CLIP, marks=pytest.mark.shared(1)),
    ],
)
def test_an_example_with_the_client_goes_through_all_that_may_happen(
    harness: ClusterHarness, folder: str, remedy: tuple[tuple[str, ...], str]
) -> None:
    """Only a kill costs steps: the swap, remedies and the stop go on where they stopped; and the next run does so, too."""
    shutil.copytree(EXAMPLES / folder, harness.folder, dirs_exist_ok=True)
    harness.write_cluster(nodes=1, slots=2, spares=1)
    name = folder.replace("_", "-")
    run = harness.start("run", "run.yaml", "--cluster", "cluster.yaml", environment=ENVIRONMENT)
    saved = harness.folder / "checkpoints"
    whole, torn = harness.until(lambda: two_sealed(saved), "two sealed checkpoints")
    first = harness.training()
    tear(torn)
    kill(first.pids[1])

    second = harness.training(past_step=whole, after=first.attempt)
    answer = ask(harness, "lr", name, "x0.5")
    assert "in effect from step" in answer
    assert "factor 0.5" in answer
    lowered = harness.training(past_step=second.step + 2, after=second.attempt)
    (word, *values), read_back = remedy
    command = [word, name] if word == "skip" else ["remedy", name, word]
    answer = ask(harness, *command, *values)
    assert read_back in answer
    changed = harness.training(past_step=lowered.step + 2, after=lowered.attempt)
    ask(harness, "swap", "n1", "--reason", "loud fans")
    swapped = harness.training(past_step=changed.step + 2, after=changed.attempt)
    assert run_of(harness.view()).nodes == ("n2",)
    ask(harness, "stop", name)
    code, output = harness.finish(run)
    assert code != 1, output
    # Each was forked.
    assert "fresh processes" not in output

    rows = json.loads(ask(harness, "lineage", name, "--json"))
    print(rows)
    assert [row["resume_step"] for row in rows[:2]] == [0, whole]
    for before, after in itertools.pairwise(rows[1:]):
        assert after["resume_step"] == before["last_step"] > before["resume_step"]
    last = [str(each.attempt) for each in (lowered, changed, swapped)]
    assert [row["attempt"] for row in rows[-3:]] == last
    assert len(rows) == 5
    stopped_at = rows[-1]["last_step"]
    assert checkpoints.read_manifest(checkpoints.list_sealed(saved)[0]).step == stopped_at
    factors = dict(zip((row["attempt"] for row in rows), (1.0, 1.0, 0.5, 0.5, 0.5), strict=True))
    rates_must_be_scaled(harness, name, factors)
    assert no_losses_are_missing(harness, name)

    again = harness.start("run", "run.yaml", "--cluster", "cluster.yaml", environment=ENVIRONMENT)
    harness.wait(lambda view: view.runs[-1].run == 2 or None, "the next run")
    harness.training(past_step=stopped_at + 2, after=swapped.attempt)
    ask(harness, "stop", name)
    code, output = harness.finish(again)
    assert code != 1, output
    (row,) = json.loads(ask(harness, "lineage", "2", "--json"))
    assert row["resume_step"] == stopped_at
    # A run that goes on under its name keeps its remedies, each once.
    rates_must_be_scaled(harness, "2", {row["attempt"]: 0.5})


def ask(harness: ClusterHarness, *words: str) -> str:
    """Run a command, which must succeed; return its answer."""
    done = harness.stoker(*words, seconds=100)
    assert done.returncode == 0, done
    return done.stdout.strip()


def two_sealed(saved: Path) -> tuple[int, Path] | None:
    """Return the step of the last sealed checkpoint but one, and the folder of the last; None before there are two."""
    sealed = checkpoints.list_sealed(saved)
    if len(sealed) < 2:
        return None
    return checkpoints.read_manifest(sealed[1]).step, sealed[0]


def tear(checkpoint: Path) -> None:
    """Cut its largest file in half."""
    largest = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def steps_of(harness: ClusterHarness, run: str) -> list[dict[str, Any]]:
    """Return the numbers of a run's steps."""
    found: list[dict[str, Any]] = json.loads(ask(harness, "steps", run, "--json"))
    return found


def rates_must_be_scaled(harness: ClusterHarness, run: str, factors: dict[str, float]) -> None:
    """Compare each attempt's rates with the schedule: in line from 1e-3 to nothing."""
    rates: dict[str, dict[int, float]] = {attempt: {} for attempt in factors}
    for row in steps_of(harness, run):
        if row["lr"] is not None:
            rates[row["attempt"]][row["step"]] = row["lr"]
    for attempt, factor in factors.items():
        due = {
            step: pytest.approx(factor * 1e-3 * (1 - (step - 1) / LAST_STEP), rel=ROUNDING)
            for step in rates[attempt]
        }
        assert rates[attempt] == due
        assert rates[attempt]


def no_losses_are_missing(harness: ClusterHarness, run: str) -> bool:
    """Whether at least half of the steps have a loss; transformers' Trainer logs each other one."""
    rows = steps_of(harness, run)
    return len([row for row in rows if row["loss"] is not None]) >= 0.4 * len(rows)
