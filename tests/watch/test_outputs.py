"""Outputs as trainers leave them: files that come, go, are truncated and rotated; bars, colours, wrong steps; pipes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.facts.messages.signals import StepRecord
from runner.watch.child import Child
from runner.watch.outputs import Outputs
from runner.watch.processes import find_ranks
from runner.watch.targets import Target
from tests.watch.watch_harness import JOB, watch, watch_pid


@pytest.fixture
def follow(tmp_path: Path) -> Callable[[str], list[StepRecord]]:
    """Give what appends text to a log that is followed, and returns the steps that were read of it."""
    log = tmp_path / "train.log"
    log.write_text("starting\n")
    outputs = Outputs(patterns=[str(tmp_path / "*.log")])
    outputs.refresh(0.0)
    now = 100.0

    def append(text: str) -> list[StepRecord]:
        nonlocal now
        with log.open("a") as file:
            file.write(text)
        found: list[StepRecord] = []
        for _ in range(3):
            # A bar without an end is held for a while.
            now += 1.0
            found += [record for report in outputs.poll(now) for record in report.records]
        return found

    return append


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("step 5 loss 1.5\n", [5]),
        ("\x1b[1m\x1b[32mstep 5\x1b[0m loss 1.5\n", [5]),
        (
            "\rtrain:  10%|#  | 5/50 [00:01, loss=1.5]\rtrain:  12%|# | 6/50 [00:01, loss=1.4]",
            # The last state of a bar may go on.
            [5],
        ),
        ("loading\ncompiling\nno number here\n", []),
    ],
)
def test_steps_are_read_as_anywhere(
    follow: Callable[[str], list[StepRecord]], text: str, steps: list[int]
) -> None:
    """Colours and bars included."""
    assert [record.step for record in follow(text)] == steps


def test_a_file_that_is_truncated_removed_or_rotated_is_read_on(tmp_path: Path) -> None:
    """Nothing is read twice, and what is lost is counted."""
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 1.0\n")
    troubles: list[str] = []
    outputs = Outputs(patterns=[str(tmp_path / "train.log")], on_trouble=troubles.append)
    now = time.monotonic()
    outputs.refresh(now)

    def steps(after: float) -> list[int]:
        outputs.refresh(now + after)
        reports = [*outputs.poll(now + after), *outputs.poll(now + after + 2)]
        return [record.step for report in reports for record in report.records]

    assert steps(1) == [1]
    log.write_text("step 2 loss 1.0\n")
    assert steps(10) == [2]
    log.rename(tmp_path / "train.log.1")
    log.write_text("step 3 loss 1.0\n")
    assert steps(20) == [3]
    log.unlink()
    assert steps(30) == []
    log.write_text("step 4 loss 1.0\n")
    assert steps(40) == [4]
    outputs.close()


def test_files_that_are_no_logs_are_left_out_and_named(tmp_path: Path) -> None:
    """A checkpoint beside the logs matches a wide pattern."""
    (tmp_path / "rank0.log").write_text("step 1 loss 1.0\n")
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 8)
    troubles: list[str] = []
    outputs = Outputs(patterns=[str(tmp_path / "*")], on_trouble=troubles.append)
    outputs.refresh(time.monotonic())
    assert list(outputs.files) == [str(tmp_path / "rank0.log")]
    assert len(troubles) == 1
    assert "model.pt is left out" in troubles[0]


def test_of_too_many_files_the_newest_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message names it."""
    monkeypatch.setattr("runner.watch.outputs.MAX_FILES", 3)
    for number in range(5):
        path = tmp_path / f"rank{number}.log"
        path.write_text("step 1 loss 1.0\n")
        os.utime(path, (number, number))
    troubles: list[str] = []
    outputs = Outputs(patterns=[str(tmp_path / "*.log")], on_trouble=troubles.append)
    outputs.refresh(time.monotonic())
    assert sorted(outputs.files.values()) == [2, 3, 4]
    assert troubles == ["5 files match, of which 3 are followed: the newest"]
    outputs.close()


@pytest.mark.e2e
def test_a_script_that_prints_no_step_is_watched_by_its_writes(tmp_path: Path) -> None:
    """No step is claimed, and its end is no incident."""
    script = "import time\nfor _ in range(30): print('working', flush=True); time.sleep(0.1)"
    with (tmp_path / "out.log").open("w") as out:
        job = subprocess.Popen([sys.executable, "-c", script], stdout=out, stderr=out)
        watched = watch_pid(job.pid)
        job.wait()
    assert (watched.run.state, watched.run.step, watched.incidents) == ("finished", 0, [])
    assert watched.run.ettr_ratio is None


@pytest.mark.e2e
def test_steps_that_cannot_be_are_not_believed(tmp_path: Path) -> None:
    """1e18, one that is far ahead, and steps that are printed backwards: the furthest real one counts."""
    script = (
        "import time\n"
        "for i in [1, 2, 3, 10**18, 4, 900000, 5, 3, 2, 6, 7, 8]:\n"
        "    print(f'step {i} loss 1.0', flush=True); time.sleep(0.1)\n"
        "time.sleep(1.5)\n"
    )
    with (tmp_path / "out.log").open("w") as out:
        job = subprocess.Popen([sys.executable, "-c", script], stdout=out, stderr=out)
        watched = watch_pid(job.pid)
        job.wait()
    assert watched.incidents == []
    assert watched.run.state == "finished"
    assert max(one.runs[-1].step for one in watched.screen.statuses if one.runs) == 8


@pytest.mark.e2e
def test_a_pipe_that_others_read_is_named_with_the_way_out() -> None:
    """Its steps are not known; its exit is."""
    script = "import time\nfor i in range(20): print('step', i, flush=True); time.sleep(0.1)"
    job = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert job.stdout is not None
    with job.stdout:
        watched = watch_pid(job.pid)
        job.wait()
    (note,) = [one for one in watched.screen.notes if "pipe" in one]
    assert "--logs GLOB" in note
    assert "--tee 3" in note
    assert watched.run.step == 0


@pytest.mark.e2e
def test_the_output_of_a_command_is_read_to_its_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All 20 steps, the first and the last included, are read and passed on."""
    child = Child([sys.executable, str(JOB), str(tmp_path), "20", "nothing", "0"])
    watched = watch(Target(child=child))
    assert (watched.exit_code, watched.run.state, watched.run.step) == (0, "finished", 20)
    assert watched.run.first_loss == 4.0
    printed = capfd.readouterr().out.splitlines()
    assert [line.split("/")[0] for line in printed] == [f"step {step}" for step in range(1, 21)]


@pytest.mark.e2e
def test_a_pid_that_ends_while_it_is_looked_at_is_no_error(tmp_path: Path) -> None:
    """Its ranks are gone before they are found."""
    job = subprocess.Popen(["sleep", "0.2"])
    watched = watch_pid(job.pid)
    job.wait()
    assert watched.incidents == []
    assert not find_ranks(job.pid).ranks
    assert os.getpid() not in {job.pid}
