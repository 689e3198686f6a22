import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.cli.foreground.leftovers import (
    SHARED_MEMORY,
    kill_all,
    new_shared_memory,
    processes_of,
    shared_memory,
)
from runner.keeper import procfs
from tests.cli.conftest import Cluster


@pytest.fixture
def empty(folder: Path) -> Iterator[Cluster]:
    """A cluster with a node's folder and nothing running."""
    made = Cluster(folder / ".stoker" / "tiny")
    (Path(made.spec.state) / "nodes" / "n1").mkdir(parents=True)
    yield made
    made.store.close()


def sleeper(output: Path = Path(os.devnull), **environment: str) -> subprocess.Popen[bytes]:
    """Start a process with marks in its environment, and `output` for its standard output."""
    with output.open("wb") as file:
        return subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}, stdout=file)


def test_ranks_are_found_by_mark_and_by_the_folder_of_their_output(empty: Cluster) -> None:
    """A rank of this cluster is found; one of another cluster of the same name is not."""
    output = Path(empty.spec.state) / "rank3.out"
    ours = sleeper(output, STOKER_CLUSTER="tiny", STOKER_NODE="n1", RANK="3")
    theirs = sleeper(STOKER_CLUSTER="tiny", STOKER_NODE="n1", RANK="3")
    try:
        assert [(left.pid, left.what) for left in processes_of(empty.spec)] == [
            (ours.pid, "rank 3 of n1")
        ]
        assert kill_all(empty.spec) == []
        assert ours.wait(timeout=5) == -9
        assert theirs.poll() is None
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_agents_and_keepers_are_found_by_their_pid_files(empty: Cluster) -> None:
    """A pid file names a process by pid and start time; the command leaves alone a process that reuses the pid."""
    agent = sleeper()
    try:
        seen = procfs.read_process(agent.pid)
        assert seen is not None
        note = Path(empty.spec.state) / "nodes" / "n1" / "agent.lock"
        note.write_text(json.dumps({"pid": agent.pid, "start_ticks": seen.start_ticks + 1}))
        assert processes_of(empty.spec) == []
        note.write_text(json.dumps({"pid": agent.pid, "start_ticks": seen.start_ticks}))
        assert [left.what for left in processes_of(empty.spec)] == ["agent of n1"]
        assert kill_all(empty.spec) == []
        assert agent.wait(timeout=5) == -9
        note.write_text("malformed")
        assert processes_of(empty.spec) == []
    finally:
        agent.kill()
        agent.wait()


def test_unused_shared_memory_is_a_leftover() -> None:
    """A new file is in use as long as a process has it open or mapped, and a leftover afterwards."""
    before, name = shared_memory(), f"stoker-test-{uuid.uuid4().hex[:8]}"
    path = SHARED_MEMORY / name
    code = f"import time; f = open({str(path)!r}, 'wb'); print('open', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as user:
        try:
            assert user.stdout is not None
            user.stdout.readline()
            assert name not in new_shared_memory(before)
            user.kill()
            user.wait()
            deadline = time.monotonic() + 5
            while name not in new_shared_memory(before) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert name in new_shared_memory(before)
        finally:
            user.kill()
            path.unlink(missing_ok=True)
    assert name not in new_shared_memory(before)
