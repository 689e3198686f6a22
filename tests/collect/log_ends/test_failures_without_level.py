"""Ends of logs whose emitters write no level, or one of their own: what they mean, and what is harmless."""

import pytest

from runner.collect.log_ends.line_kinds import kind_of
from tests.collect.diagnosed_logs import verdicts_of

STEPS = "".join(f"step {400 + 10 * n} loss {3.1 - 0.02 * n:.4f} lr 3.00e-04\n" for n in range(8))
# The last lines of a run that stopped -> its fault.
FAILURES = {
    "tee: /scratch/run7/out.log: No space left on device": "filesystem",
    "sh: 3: fork: Cannot allocate memory": "host_oom",
    "rsync: write failed on '/mnt/a/b': Stale file handle": "filesystem",
    "./launch.sh: line 9: mytorchrun: command not found": "config_error",
    "node-3:12:19 [0] transport/net_socket.cc:77 NCCL WARN the magic of the peer is wrong": "nccl_network",
    "mmfsd: [X] GPFS: the file system gpfs1 has lost its disks": "filesystem",
    "(raylet) [2026-02-03 04:05:06,789 E 31 31] the raylet is out of memory": "host_oom",
    "2026-02-03 04:05:06.789012: F tensorflow/core/platform/env.cc:12] the GPU is lost": "gpu_lost",
    "=   KILLED BY SIGNAL: 9 (Killed)": "host_oom",
    "**Killed**": "host_oom",
    "mount.beegfs: the mount of /mnt/b failed: I/O error": "filesystem",
}
HARMLESS = (
    "INFO fetcher: the cache entry was lost, downloading",
    "[DEBUG] ring 3: cannot use the fast path",
    "node-3:12:19 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.",
    "W0203 04:05:06.789 12 pump.cc:12] the pump could not be primed",
    "python3: the plugin is not found, using the built-in one instead",
    "mce: 2 corrected errors were logged on CPU 3",
    "node-3:12:19 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    "the tokenizer has no padding token",
)


@pytest.mark.parametrize(("line", "fault"), FAILURES.items())
def test_a_failed_end_without_a_level_is_named(line: str, fault: str) -> None:
    """The causes of failed calls, letters of loggers, and words of failure in a line whose family is known."""
    assert [one.cause.fault for one in verdicts_of(f"{STEPS}{line}\n")] == [fault]


@pytest.mark.parametrize("line", FAILURES)
def test_steps_after_it_show_that_it_was_survived(line: str) -> None:
    """The run went on."""
    later = STEPS.replace("step 4", "step 5")
    verdicts = verdicts_of(f"{STEPS}{line}\n{later}")
    assert [one for one in verdicts if one.cause.fault not in ("gpu_lost",)] == []


@pytest.mark.parametrize("line", [line for line in FAILURES if line.startswith(("sh", "./"))])
def test_a_good_end_before_it_makes_it_tear_down(line: str) -> None:
    """Training was over."""
    assert verdicts_of(f"{STEPS}Training completed in 0:12:03\n{line}\n") == []


@pytest.mark.parametrize("line", HARMLESS)
def test_lower_levels_and_what_was_handled_are_no_failures(line: str) -> None:
    """Neither at the end of a run nor as the only line of a log."""
    assert verdicts_of(f"{STEPS}{line}\n") == []
    assert verdicts_of(f"{line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "2026-02-03 04:05:06 Failed - Training job failed",
        "CloudCompute job failed. See the portal of the service",
        "replica 3: the whole task has failed.",
        "State: FAILED",
    ],
)
def test_a_service_that_states_that_the_job_failed_is_believed(line: str) -> None:
    """Its log is never nothing."""
    assert kind_of(line).name == "exit"
    assert [one.cause.fault for one in verdicts_of(f"{STEPS}{line}\n")] == ["unknown"]


def timed_steps(minutes: int, last: int) -> str:
    """Return a log with a step each so many minutes."""
    return "".join(
        f"2026-02-03 {at // 60:02d}:{at % 60:02d}:00,000 INFO step {at} loss 2.{900 - at}\n"
        for at in range(0, last, minutes)
    )


def other_lines(first: int, last: int) -> str:
    """Return lines of another thread, one a minute."""
    return "".join(
        f"2026-02-03 {at // 60:02d}:{at % 60:02d}:30,000 INFO exporter: GET /metrics 200\n"
        for at in range(first, last)
    )


def test_other_lines_that_go_on_long_after_the_last_step_show_a_hang() -> None:
    """Long is measured by how far two steps were apart before."""
    hung = timed_steps(1, 30) + other_lines(30, 80)
    assert [one.cause.fault for one in verdicts_of(hung)] == ["hang_no_error"]
    assert verdicts_of(timed_steps(1, 30) + other_lines(30, 50)) == []
    # Steps of ten minutes: an hour is nothing.
    assert verdicts_of(timed_steps(10, 120) + other_lines(120, 180)) == []


def test_an_error_that_holds_a_step_is_an_error() -> None:
    """It is no progress of the run."""
    text = f"{STEPS}ERROR:trainer:the model diverged with loss = NaN at step 480\n"
    assert [one.cause.fault for one in verdicts_of(text)] == ["nan_loss"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "ERROR uploader: put to s3://b/k: HTTP 503, retrying (3 of 3)\nERROR uploader: gave up after 3 retries",
            "filesystem",
        ),
        ("ERROR opening /mnt/nfs/part-3: Stale file handle, all 5 retries failed", "filesystem"),
        ("OSError: [Errno 28] No space left on device, max retries exceeded", "filesystem"),
    ],
)
def test_an_error_at_the_last_attempt_is_not_survived(text: str, fault: str) -> None:
    """Words of retries alone tell nothing."""
    assert [one.cause.fault for one in verdicts_of(f"{STEPS}{text}\n")] == [fault]


def test_an_error_with_a_later_good_try_is_survived() -> None:
    """The run went on."""
    text = "ERROR opening /mnt/nfs/part-3: Stale file handle, retrying (1 of 5)\n"
    assert verdicts_of(f"{STEPS}{text}{STEPS.replace('step 4', 'step 5')}") == []


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("77_4        pre-8b    gpu   acct   64    TIMEOUT      0:0", ["preemption"]),
        (
            "JobId=77 JobName=pre-8b\n   JobState=NODE_FAIL Reason=NodeDown Dependency=(null)",
            ["node_failure"],
        ),
        ("77.0            python            OUT_OF_ME+    0:9", ["host_oom"]),
        (
            "Slurm Job_id=77 Name=pre-8b Ended, Run time 12:00:04, TIMEOUT, ExitCode 0",
            ["preemption"],
        ),
        ("pre-8b-worker-3   0/1   ImagePullBackOff   0   4m", ["config_error"]),
        ("pre-8b-worker-3   0/1   Error   2   4m", ["unknown"]),
        ("77.batch   batch  gpu   acct   64    FAILED      1:0", ["unknown"]),
        ("77.0     python    gpu   acct   64  COMPLETED      0:0", []),
        ("pre-8b-worker-3   1/1   Running   0   4m", []),
        ("   JobState=RUNNING Reason=None TimeLimit=1-00:00:00", []),
    ],
)
def test_states_in_tables_are_read(text: str, faults: list[str]) -> None:
    """Of scontrol, sacct, mails and kubectl."""
    assert [one.cause.fault for one in verdicts_of(f"{text}\n")] == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("zookeeper.client.ConnectionRefused: no member of the ensemble answered", 1),
        ("planner.stage.PlanNotFound: no plan fits 3 stages", 1),
        ("INFO planner.stage.Plan: found", 0),
    ],
)
def test_an_exception_class_of_any_name_is_one(text: str, faults: int) -> None:
    """Classes whose names do not end with Error."""
    trace = f'Traceback (most recent call last):\n  File "/src/run.py", line 3, in <module>\n    main()\n{text}\n'
    assert len(verdicts_of(STEPS + (trace if faults else f"{text}\n"))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (
            "smartd[811]: Device: /dev/nvme3, Critical Warning (0x04): Reliability",
            ["host_hardware"],
        ),
        (
            "smartd[811]: Device: /dev/sdb [SAT], 16 Currently unreadable (pending) sectors",
            ["host_hardware"],
        ),
        (
            "smartd[811]: Device: /dev/sdb [SAT], SMART Usage Attribute: 194 Temperature_Celsius changed from 69 to 70",
            [],
        ),
        ("kubelet[99]: Node gpu-12 status is now: NodeHasInsufficientMemory", ["host_oom"]),
        ("kubelet[99]: Node gpu-12 status is now: NodeHasSufficientMemory", []),
    ],
)
def test_states_of_disks_and_nodes_are_known(text: str, faults: list[str]) -> None:
    """Daemons of the machine."""
    assert [one.cause.fault for one in verdicts_of(f"{text}\n")] == faults
