"""The examples, byte for byte as delivered: a rank killed, its newest save torn, the learning rate cut, and on to the last step.

What counts is read from outside: the lines that the scripts print, the folders that they write, and what `stoker` answers.
"""

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from runner.checkpoints import MANIFEST
from tests.e2e.cluster_harness import ClusterHarness, kill

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[3] / "examples"
# As a user has it who activated the environment in which torch is.
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
# Of rates that are printed with four or five digits.
ROUNDING = 1e-3
# Lines of an attempt before the next thing happens to it.
NUM_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A folder of examples/: what its script prints and writes, and what its run.yaml has it do.

    `saves`: of each save the file with the weights. `line` finds the number that `step` turns into a step, and the rate.
    `first_step`: of the first line after so many updates. `schedule`: the rate at a step, with `lr` of run.yaml.
    """

    folder: str
    saves: str
    line: str
    step: Callable[[str], int]
    first_step: Callable[[int], int]
    last_step: int
    schedule: Callable[[int], float]

    @property
    def run(self) -> str:
        """The run's name in run.yaml."""
        return self.folder.replace("_", "-")

    def rates(self, harness: ClusterHarness) -> dict[str, dict[int, float]]:
        """Read what rank 0 of each attempt printed: the rate of each step."""
        outputs = sorted(harness.state.glob(f"runs/*-{self.run}/attempts/*/rank0.out"))
        return {path.parent.name: dict(self._pairs(path)) for path in outputs}

    def _pairs(self, output: Path) -> Iterator[tuple[int, float]]:
        for number, rate in re.findall(self.line, output.read_text(), re.MULTILINE):
            yield self.step(number), float(rate)


def cosine(step: int) -> float:
    """Return the rate of nanogpt/run.yaml at an iteration: 20 to warm up, then down to nothing at 400."""
    if step < 20:
        return 1e-3 * (step + 1) / 21
    return 1e-3 * 0.5 * (1 + math.cos(math.pi * (step - 20) / 380))


NANOGPT = Example(
    folder="nanogpt",
    saves="out/ckpt.pt",
    line=r"^iter (\d+): loss \S+, time \S+ms, lr (\S+)$",
    step=int,
    # Iterations are counted from 0: number N comes after N updates.
    first_step=lambda updates: updates,
    last_step=399,
    schedule=cosine,
)
HUGGING_FACE = Example(
    folder="hugging_face",
    saves="out/checkpoint-*/model.safetensors",
    line=r"^\{'loss': \S+ 'grad_norm': \S+ 'learning_rate': '(?=\S+ 'epoch': '(\S+)')(\S+)'",
    # The lines have no step; an epoch is 20,000 examples, 2 ranks with 8 of them at a time.
    step=lambda number: round(float(number) * 1250),
    first_step=lambda updates: updates + 2,
    last_step=300,
    # Its line shows the rate with which the step was made.
    schedule=lambda step: 1e-3 * (1 - (step - 1) / 300),
)


@pytest.mark.parametrize("example", [NANOGPT, HUGGING_FACE], ids=lambda example: example.folder)
def test_an_example_goes_on_from_its_last_whole_save_and_takes_a_lower_rate(
    harness: ClusterHarness, example: Example
) -> None:
    """SIGKILL to a rank as its newest save is cut off, then `stoker lr x0.5`: no step is lost but those since the save before."""
    shutil.copytree(EXAMPLES / example.folder, harness.folder, dirs_exist_ok=True)
    run = harness.start("run", "run.yaml", environment=ENVIRONMENT)
    with harness.until(
        lambda: open_unsealed(harness, example), "a save after a sealed one"
    ) as save:
        kill(harness.observer.gang()[0])
        # The file itself, wherever it may be moved to.
        save.truncate(os.fstat(save.fileno()).st_size // 2)
    sealed = sealed_steps(harness)
    harness.until(lambda: has_lines(harness, example, num_attempts=2), "steps of another attempt")
    sealed_again = sealed_steps(harness)
    answer = harness.stoker("lr", example.run, "x0.5")
    assert answer.returncode == 0, answer
    assert "in effect from step" in answer.stdout
    sealed_again += sealed_steps(harness)
    code, output = harness.finish(run)
    assert code == 0, output
    print(output)

    before, torn, lowered = example.rates(harness).items()
    print(
        f"sealed {sealed}; {[(a, min(steps), max(steps)) for a, steps in (before, torn, lowered)]}"
    )
    assert min(torn[1]) in [example.first_step(step) for step in sealed]
    assert min(torn[1]) < max(before[1])
    assert min(lowered[1]) in [example.first_step(step) for step in sealed_again]
    assert max(lowered[1]) == example.last_step
    for (_, rates), factor in ((before, 1.0), (torn, 1.0), (lowered, 0.5)):
        due = {step: pytest.approx(factor * example.schedule(step), rel=ROUNDING) for step in rates}
        assert rates == due
    assert remedies(harness, example) == [("lr_factor", 0.5, "in_effect")]
    steps = json.loads(harness.stoker("steps", example.run, "--json").stdout)
    read = {row["step"]: row["lr"] for row in steps if row["attempt"] == lowered[0] and row["lr"]}
    assert read.items() <= lowered[1].items()
    assert len(read) > len(lowered[1]) / 2


def test_a_rate_that_the_script_does_not_get_fails_the_remedy(harness: ClusterHarness) -> None:
    """The placeholder went into the name of the run only: its lines show the old rate, and the answer says so."""
    shutil.copytree(EXAMPLES / "nanogpt", harness.folder, dirs_exist_ok=True)
    spec = harness.folder / "run.yaml"
    rate = "--learning_rate={lr}"
    assert rate in spec.read_text()
    spec.write_text(spec.read_text().replace(rate, "--learning_rate=1e-3 --run_name=lr-{lr}"))
    run = harness.start("run", "run.yaml", environment=ENVIRONMENT)
    harness.until(lambda: has_lines(harness, NANOGPT, num_attempts=1), "steps")
    answer = harness.stoker("lr", "nanogpt", "x0.5")
    assert answer.returncode != 0, answer
    assert "launched with {lr} = 0.0005, its lines were to show a rate of" in answer.stderr
    # The status is published after the answer, half a second at most.
    harness.until(
        lambda: remedies(harness, NANOGPT) == [("lr_factor", 0.5, "failed")],
        "the remedy that failed in the status",
        seconds=10,
    )
    assert harness.stoker("stop", "nanogpt").returncode == 0
    harness.finish(run)


def open_unsealed(harness: ClusterHarness, example: Example) -> BinaryIO | None:
    """Open the newest save, if one before it is sealed and it is not yet; a sealed copy has the time of what it was made of."""
    sealed = [path for path in (harness.folder / "checkpoints").glob("*/*") if path.is_file()]
    newest = max(harness.folder.glob(example.saves), key=_time, default=None)
    is_new = newest is not None and _time(newest) not in map(_time, sealed)
    return newest.open("r+b") if newest and is_new and sealed_steps(harness) else None


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def sealed_steps(harness: ClusterHarness) -> list[int]:
    """Return the steps of the checkpoints that are sealed now."""
    manifests = (harness.folder / "checkpoints").glob(f"*/{MANIFEST}")
    return sorted(int(path.parent.name.rpartition("-")[2]) for path in manifests)


def has_lines(harness: ClusterHarness, example: Example, *, num_attempts: int) -> bool:
    """Whether there are so many attempts, with lines of the newest, and Stoker has read any."""
    rates = list(example.rates(harness).values())
    view = harness.view()
    is_read = view is not None and bool(view.runs) and view.runs[-1].last is not None
    return len(rates) == num_attempts and len(rates[-1]) >= NUM_LINES and is_read


def remedies(harness: ClusterHarness, example: Example) -> list[tuple[str, Any, str]]:
    """Return the remedies of the run as `stoker status --json` has them: name, value and state."""
    status = json.loads(harness.stoker("status", "--json").stdout)["status"]
    (run,) = (run for run in status["runs"] if run["name"] == example.run)
    return [
        (each["name"], each["value"], each.get("state", "ordered"))
        for each in run["applied_remedies"]
    ]
