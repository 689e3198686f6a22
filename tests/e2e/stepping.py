"""A supervisor with the plainest run there is: two ranks on two nodes that step until they are told that it is enough."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.scripts import STEPPING
from tests.e2e.stand import RankStack, run_of


def led_run(stand: RankStack, **limits: object) -> subprocess.Popen[bytes]:
    """Start a supervisor and hand it the run; return the supervisor."""
    stand.write_cluster(nodes=2, slots=1, limits=limits)
    stand.write_script(STEPPING)
    stand.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    supervisor = stand.start("supervise")
    stand.until(stand.view, "a first View")
    handed = stand.stoker("run", "run.yaml", "--detach")
    assert handed.returncode == 0, handed
    return supervisor


def finish(stand: RankStack, supervisor: subprocess.Popen[bytes]) -> None:
    """Let the ranks reach their goal, then end the cluster in order."""
    (stand.folder / "enough").touch()
    stand.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    ended = stand.stoker("shutdown")
    assert ended.returncode == 0, ended
    assert supervisor.wait(30) == 0
