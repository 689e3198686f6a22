"""The keeper by itself, driven over its socket: what any agent, this one or the next, can rely on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.agent.config import AgentConfig
from runner.agent.launch import keeper_client
from runner.errors import PermanentError
from runner.facts.specs.cluster import ClusterSpec
from runner.keeper import orphans, procfs, protocol
from tests.agent.node import WAIT_SECONDS, is_alive, wait_until

pytestmark = pytest.mark.e2e

# Reports without end, dropping what the channel does not take: a rank while no agent listens.
FLOOD = """
import json, os, socket, time
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))
channel.setblocking(False)
for step in range(1, 10**9):
    try:
        channel.send(json.dumps({"kind": "step", "step": step, "pad": "x" * 300}).encode())
    except BlockingIOError:
        pass
    time.sleep(0.0002)
"""


def interpreters() -> list[str]:
    """Return this Python, and a 3.9 if the machine has one that starts."""
    found = [sys.executable]
    oldest = shutil.which("python3.9")
    if oldest is not None:
        # a shim may have none to offer
        asked = [oldest, "-c", "import sys; print(sys.executable)"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        found += [answer.stdout.strip()] if answer.returncode == 0 else []
    return found


class Driver:
    """A keeper and our end of its socket."""

    def __init__(self, place: AgentConfig) -> None:
        self.place = place
        self.link, self.child = keeper_client.start(place)
        self.messages: list[dict[str, Any]] = []

    def wait_for(self, kind: str) -> dict[str, Any]:
        """Return the first message of this kind."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for message in self.messages:
                if message["kind"] == kind:
                    self.messages.remove(message)
                    return message
            self.messages += self.link.receive()
            time.sleep(0.002)
        raise AssertionError(f"the keeper never sent {kind}: {self.messages}")

    def spawn(self, script: str, *, num_ranks: int = 1) -> dict[int, int]:
        """Start ranks; return their pids."""
        ranks = [
            {
                "rank": rank,
                "command": [sys.executable, "-S", "-c", script],
                "environment": {"RANK": str(rank)},
                "output": str(self.place.folder / f"{rank}.out"),
                "errors": str(self.place.folder / f"{rank}.err"),
            }
            for rank in range(num_ranks)
        ]
        mark = {**self.place.rank_variables, "STOKER_ATTEMPT": "1.1.0"}
        self.link.send(
            "spawn",
            attempt="1.1.0",
            generation=1,
            annotations={"of": "ours"},
            working_directory="",
            environment={"PATH": os.environ["PATH"], **mark},
            ranks=ranks,
        )
        return {item["rank"]: item["pid"] for item in self.wait_for("started")["ranks"]}


@pytest.fixture(params=interpreters(), ids=lambda path: Path(path).name)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """Give a keeper in each interpreter; afterwards it and all its ranks are gone."""
    cluster = ClusterSpec(
        name=f"keeper-{os.getpid()}-{time.monotonic_ns()}",
        hard_cap_seconds=0.4,
        fence_seconds=0.4,
        # A loaded machine takes its time to reap the dead.
        kill_wait_seconds=20.0,
    )
    # Longer than the address of a socket may be.
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    made = Driver(AgentConfig(node="n1", folder=folder, cluster=cluster, python=request.param))
    yield made
    made.child.send_signal(signal.SIGCONT)
    made.child.terminate()
    made.child.wait(WAIT_SECONDS)
    made.link.close()
    assert orphans.find_orphans(made.place.rank_variables) == {}


def test_a_keeper_has_a_pid_file_while_it_runs(driver: Driver) -> None:
    """`keeper.json` names the process for probes; after SIGTERM it, the socket and the ranks are gone."""
    pid_file = json.loads((driver.place.folder / protocol.PID_FILE_NAME).read_text())
    process = procfs.read_process(pid_file["pid"])
    assert process is not None
    assert process.start_ticks == pid_file["start_ticks"]
    pids = driver.spawn("import time; time.sleep(1000)", num_ranks=2)
    driver.child.terminate()
    assert driver.child.wait(WAIT_SECONDS) == 0
    assert not any(is_alive(pid) for pid in pids.values())
    assert not (driver.place.folder / protocol.PID_FILE_NAME).exists()
    assert not (driver.place.folder / protocol.SOCKET_NAME).exists()


def test_a_second_keeper_of_a_folder_is_refused(driver: Driver) -> None:
    """One folder has one keeper; the second ends at once and names the owner."""
    with pytest.raises(PermanentError, match=r"keeper\.err"):
        keeper_client.start(driver.place)
    assert "another keeper" in (driver.place.folder / "keeper.err").read_text()


def test_what_an_agent_missed_is_handed_to_the_next(driver: Driver) -> None:
    """Without an agent the newest reports are kept as the channel fills up, and a new agent gets them with the channels."""
    driver.spawn(FLOOD)
    driver.link.close()
    time.sleep(2.0)
    again = keeper_client.connect(driver.place.folder)
    assert again is not None
    driver.link = again
    state = again.state()
    assert (state.attempt, state.generation, state.annotations) == ("1.1.0", 1, {"of": "ours"})
    buffered = [json.loads(packet)["step"] for packet in state.buffered[0]]
    channel = state.channels[0]
    channel.settimeout(5.0)
    following = json.loads(channel.recv(65536))["step"]
    assert buffered == sorted(buffered)
    assert following > buffered[-1]
    assert buffered[-1] > 500
    channel.close()


def test_exits_are_kept_until_acknowledged(driver: Driver) -> None:
    """A keeper hands an exit to new agents, marked once it was acknowledged; a kill clears everything."""
    pids = driver.spawn("import os, time; time.sleep(0.05); os._exit(7)")
    assert driver.wait_for("exited")["exit_code"] == 7
    driver.link.send("acknowledge", generation=1, rank=0)
    (rank,) = driver.link.state().ranks
    assert rank == {
        "rank": 0,
        "pid": pids[0],
        "exit_code": 7,
        "end_requested": False,
        "acknowledged": True,
    }
    driver.link.send("kill", generation=1)
    assert driver.wait_for("terminated")["left_behind"] == []
    assert driver.link.state().ranks == []


def test_nothing_escapes_a_kill(driver: Driver) -> None:
    """A daemon that forked twice, left the session and dropped its environment is found and ended all the same."""
    script = (
        "import os, subprocess, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.execve(sys.executable, [sys.executable, '-S', '-c', 'import time; time.sleep(1000)'], {})\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "time.sleep(1000)"
    )
    driver.spawn(script)
    found = wait_until(
        lambda: [
            pid
            for pid in orphans.find_orphans({}, keeper=driver.child.pid)
            if _parent(pid) == driver.child.pid
        ][1:],
        "the daemon below the keeper",
    )
    driver.link.send("kill", generation=1)
    assert driver.wait_for("terminated")["left_behind"] == []
    assert not any(is_alive(pid) for pid in found)


def test_requests_of_another_release_do_no_harm(driver: Driver) -> None:
    """A keeper logs a request that it does not know, and keeps its ranks."""
    pids = driver.spawn("import time; time.sleep(1000)")
    driver.link.send("dance")
    driver.link.send("signal")
    assert driver.link.state().ranks[0]["exit_code"] is None
    assert is_alive(pids[0])
    assert "dance" in (driver.place.folder / "keeper.err").read_text()


def test_ranks_are_killed_fast(
    driver: Driver, record_property: Callable[[str, object], None]
) -> None:
    """From the request to the certainty that none is left."""
    driver.spawn("import time; time.sleep(1000)", num_ranks=4)
    time.sleep(0.2)
    stop_requested_at = time.monotonic()
    driver.link.send("kill", generation=1)
    driver.wait_for("terminated")
    seconds = time.monotonic() - stop_requested_at
    record_property("kill_seconds", seconds)
    print(f"four ranks killed and seen to be gone: {seconds * 1000:.1f} ms")
    assert seconds < 1.0


def _parent(pid: int) -> int:
    seen = procfs.read_process(pid)
    return seen.parent if seen is not None else 0
