"""The observer itself: which processes it counts as ranks."""

import os
import signal
import subprocess
from pathlib import Path

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.observer import Observer, is_same_process, stat_of

MARKS = {
    "STOKER_ATTEMPT": "1.1.0",
    "STOKER_GENERATION": "1",
    "STOKER_RUN": "1",
    "RANK": "0",
    "WORLD_SIZE": "1",
}


def test_a_child_of_a_rank_is_no_rank_whatever_its_parent(tmp_path: Path) -> None:
    """Children of a rank carry its marks, orphaned ones too; a rank is the leader of a session."""
    harness = ClusterHarness(tmp_path)
    script = "(sleep 1000 & echo $!); sleep 1000 & echo $!; exec sleep 1000"
    with Observer(harness.name) as observer:
        rank = subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, **MARKS, "STOKER_CLUSTER": harness.name},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert rank.stdout is not None
            orphan, child = int(rank.stdout.readline()), int(rank.stdout.readline())
            harness.until(lambda: observer.gang() == {0: rank.pid}, "the rank is seen")
            harness.until(lambda: parent_of(orphan) != rank.pid, "the orphan has another parent")
            assert parent_of(child) == rank.pid
            looked = observer.num_sweeps
            harness.until(lambda: observer.num_sweeps >= looked + 3, "all have been looked at")
        finally:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.communicate()
    observer.check()
    assert observer.starts() == {"1.1.0": 1}


def parent_of(pid: int) -> int:
    """Return the parent of a living process."""
    stat = stat_of(pid)
    assert stat is not None
    assert is_same_process(pid, stat[2])
    return stat[1]
