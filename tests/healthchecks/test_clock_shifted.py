"""clock: its child under clocks that are wrong for real: shifted by faketime, or stepped again and again while it waits."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthchecks.check import Outcome, from_plain
from tests.clock import JumpingClock
from tests.healthchecks.check_harness import child_command, named, program, seen

STEP_SECONDS = 30


@pytest.mark.costly
@pytest.mark.skipif(
    shutil.which("faketime") is None, reason="faketime is not installed: tests/install-tools.sh"
)
@pytest.mark.parametrize(
    ("shift", "limit"),
    [
        ("+0", ""),
        pytest.param("-10y", "earliest_year", marks=pytest.mark.proves("clock.earliest_year")),
        pytest.param("+100y", "latest_year", marks=pytest.mark.proves("clock.latest_year")),
    ],
)
def test_a_clock_that_is_years_off_fails(shift: str, limit: str) -> None:
    """Ten years ago, or in a hundred years; one that is not shifted passes under the same library."""
    code, lines = program("--check", "clock", within=("faketime", "-f", shift))
    assert code == (1 if limit else 0), lines
    failed = [each["name"] for each in lines[0]["evidence"] if each["outcome"] == "FAIL"]
    assert failed == ([f"clock.{limit}"] if limit else [])


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[JumpingClock]:
    """Have a wall clock that jumps ahead ten times a second; faketime cannot: it would shift the clock of sleeps, too."""
    clock, over = JumpingClock(tmp_path / "clock"), threading.Event()

    def step() -> None:
        number = 0
        while not over.wait(0.1):
            number += 1
            clock.set("nodes", number * STEP_SECONDS)

    thread = threading.Thread(target=step)
    thread.start()
    yield clock
    over.set()
    thread.join()


@pytest.mark.proves("clock.step_seconds")
def test_a_clock_that_is_stepped_fails(stepped: JumpingClock) -> None:
    """The wall clock leaves the monotonic one behind while the check waits."""
    environment = {**os.environ, **stepped.environment}
    command = child_command(str(os.getpid()), "clock")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    verdict = seen(from_plain(json.loads(done.stdout), check="clock"))
    step = named(verdict, "step_seconds")
    assert step.outcome is Outcome.FAIL, verdict
    assert step.value is not None
    assert step.value >= STEP_SECONDS - 1
    assert named(verdict, "slew_ratio").outcome is not Outcome.FAIL
