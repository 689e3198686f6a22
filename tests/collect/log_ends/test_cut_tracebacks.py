"""Logs that end within a traceback: its exception is missing, and that something failed is all that is known."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEPS = "".join(f"step {400 + 10 * n} loss {3.1 - 0.02 * n:.4f} lr 3.00e-04\n" for n in range(8))
# Without its header, and without its exception.
FRAMES = (
    '  File "/opt/job/spin.py", line 31, in spin\n'
    "    return self.turn(wheel)\n"
    '  File "/opt/job/wheels.py", line 7, in turn\n'
    "    self.axle.turn(\n"
)
QUOTED = (
    "ray.exceptions.RayTaskError(RuntimeError): ray::Wheel.turn() (pid=7, ip=10.0.0.3, repr=<Wheel>)\n"
    + FRAMES
)


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=9501) "])
@pytest.mark.parametrize("cut", [FRAMES, QUOTED])
@pytest.mark.parametrize("before", ["", STEPS])
def test_a_log_that_ends_within_a_traceback_is_sick(before: str, cut: str, prefix: str) -> None:
    """It is an unknown fault with a template, whatever is before it and before its lines."""
    lines = "".join(f"{prefix}{line}\n" for line in cut.splitlines())
    found = verdicts_of(before + lines)
    assert [one.cause.fault for one in found] == ["unknown"]
    assert found[0].cause.template


def test_frames_that_steps_follow_are_no_incident() -> None:
    """A dump of stacks in the middle of a run is none."""
    assert not verdicts_of(STEPS + FRAMES + STEPS)


def test_words_of_a_path_are_no_words_of_an_error() -> None:
    """The last line names a file, and nothing shows what is wrong."""
    frames = FRAMES.replace("wheels.py", "truncated_corrupt.py").removesuffix(
        "    self.axle.turn(\n"
    )
    assert [one.cause.fault for one in verdicts_of(frames)] == ["unknown"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("*** An error occurred in MPI_Init_thread", "rendezvous"),
        ("*** An error occurred in MPI_Allreduce", "unknown"),
        (" Error invalid configuration argument at line 7 in file /src/spin.cu", "config_error"),
        ("CUDA error at spin.cu:7 : invalid argument", "config_error"),
        ("usage: spin.py [-h] [--wheel N]", "config_error"),
        ("F0203 04:05:06.789 7 spin.cc:12] Check failed: num_wheels == 4 ", "unknown"),
    ],
)
def test_errors_of_libraries_and_programs_of_c(line: str, fault: str) -> None:
    """What C++ and MPI print without a level, and argparse before its error, is never nothing."""
    assert [one.cause.fault for one in verdicts_of(f"{line}\n")] == [fault]


@pytest.mark.parametrize(
    "line",
    [
        "/opt/PIL/TiffImagePlugin.py:900: UserWarning: Corrupt EXIF data.  Expecting to read 4 bytes but only got 0. ",
        "/opt/multiprocessing/resource_tracker.py:237: UserWarning: '/a': [Errno 2] No such file or directory: '/a'",
        "Using pad_token, but it is not set yet.",
        "2021-04-04 10:01:00 | INFO | fairseq.nan_detector | Detected nan/inf grad norm, dumping norms...",
    ],
)
def test_what_is_warned_of_and_steps_follow_is_no_incident(line: str) -> None:
    """The words are those of exceptions, and the emitter only warns or notes."""
    assert not verdicts_of(f"{STEPS}{line}\n{STEPS.replace('step 4', 'step 5')}")
