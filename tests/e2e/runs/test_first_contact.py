"""The first run on a machine as containers are by default: little shared memory, few processes."""

import os
import subprocess
import sys

import pytest

from tests.e2e.cluster_harness import STOKER, WAIT_SECONDS, ClusterHarness, run_of
from tests.e2e.scripts import STEPPING

# From this kernel on `pid_max` is of a pid namespace; before, it would be the whole machine's.
OWN_PID_MAX = (6, 14)
SHARED_MEMORY = "mount -t tmpfs -o size=64m stoker-test /dev/shm"
NUM_PIDS = "echo 1000 > /proc/sys/kernel/pid_max"


def small_machine() -> tuple[list[str], bool]:
    """Return a command that runs what follows on a small machine, and whether its processes are limited too.

    All of it ends with the command.
    """
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    has_few_pids = release >= OWN_PID_MAX
    script = " && ".join([SHARED_MEMORY, *([NUM_PIDS] if has_few_pids else []), '"$@"; exit $?'])
    spaces = [
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    return ["unshare", *spaces, "sh", "-c", script, "sh"], has_few_pids


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system can be mounted by root only")
def test_a_small_machine_is_told_what_is_short_and_trains(harness: ClusterHarness) -> None:
    """64 MB of /dev/shm and 1,000 processes: local nodes serve, and the command names what both are short of, and the way out."""
    harness.write_cluster(nodes=2, slots=8)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, ranks_per_node=2, python=sys.executable)
    (harness.folder / "enough").touch()
    small, has_few_pids = small_machine()
    done = subprocess.run(
        [*small, STOKER, "run", "run.yaml"],
        cwd=harness.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert run_of(harness.view()).state == "finished"
    lines = [line for line in done.stdout.splitlines() if "serves, but is short" in line]
    assert lines, done.stdout
    assert "free_bytes of /dev/shm 64 MiB, at least 1,024 MiB: `mount -o remount" in lines[0]
    assert not has_few_pids or "free_threads of pid_max" in lines[0]
