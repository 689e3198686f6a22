"""A supervisor with a minimal run: two ranks on two nodes that step until the file `enough` exists."""

import subprocess
import sys

from tests.e2e.cluster_harness import ClusterHarness, run_of
from tests.e2e.scripts import STEPPING


def led_run(harness: ClusterHarness, **limits: object) -> subprocess.Popen[bytes]:
    """Start a supervisor and submit the run; return the supervisor."""
    harness.write_cluster(nodes=2, slots=1, limits=limits)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    handed = harness.stoker("run", "run.yaml", "--detach")
    assert handed.returncode == 0, handed
    return supervisor


def finish(harness: ClusterHarness, supervisor: subprocess.Popen[bytes]) -> None:
    """Let the ranks reach their goal, then shut the cluster down."""
    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    ended = harness.stoker("shutdown")
    assert ended.returncode == 0, ended
    assert supervisor.wait(30) == 0
