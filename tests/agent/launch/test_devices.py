"""A launch on a node with GPUs waits until their memory is released. A stand-in for nvidia-smi answers the queries."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.agent.agent import Agent
from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.launch.devices import FREE_MIB, Device, Devices, DevicesBusy, visible
from runner.facts.messages.assignments import LaunchPlan
from runner.store.sqlite.store import SqliteStore
from tests.agent.node import REPORTER, Node, is_alive, wait_until
from tests.interpreter import shebang

FIRST = "GPU-5af4bc55-2c1f-4a53-a0c5-1d0ac1a2d0f1"
SECOND = "GPU-77e1b0a9-93e0-4c63-8a07-cf0f6a40a2b2"

# Prints the contents of files beside it: one per query, `exit` for the exit code, `hang` to hang like a driver in trouble.
PROGRAM = """
import pathlib, sys, time
folder = pathlib.Path(__file__).parent.parent
with open(folder / "asked", "a") as asked:
    asked.write(sys.argv[1] + "\\n")
assert sys.argv[2] == "--format=csv,noheader,nounits", sys.argv
if (folder / "hang").exists():
    time.sleep(1000)
if (folder / "exit").exists():
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    sys.exit(int((folder / "exit").read_text()))
answer = folder / sys.argv[1].split("=")[0].strip("-") / sys.argv[1].split("=")[1]
if not answer.exists():
    print(f'Field "{sys.argv[1].rpartition(",")[2]}" is not a valid field to query.')
    sys.exit(2)
sys.stdout.buffer.write(answer.read_bytes())
"""


class Machine:
    """A machine with two GPUs as nvidia-smi shows it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "gpus"
        (self.folder / "dev").mkdir(parents=True)
        for name in ("nvidia0", "nvidia1", "nvidiactl"):
            (self.folder / "dev" / name).touch()
        (self.folder / "bin").mkdir()
        program = self.folder / "bin" / "nvidia-smi"
        program.write_text(shebang(self.folder) + PROGRAM)
        program.chmod(0o755)
        self.uses(4, 4)
        self.holds()

    def uses(self, first: object, second: object) -> None:
        """Let the devices have so many MiB in use; a text makes the answer no number."""
        output = f"0, {FIRST}, {first}\n1, {SECOND}, {second}\n"
        self._answer("query-gpu", "index,uuid,memory.used", output)

    def holds(self, *processes: tuple[str, int, object]) -> None:
        """Let processes hold memory: (uuid, pid, MiB)."""
        output = "".join(f"{uuid}, {pid}, {mib}\n" for uuid, pid, mib in processes)
        self._answer("query-compute-apps", "gpu_uuid,pid,used_gpu_memory", output)

    def shares_memory(self, mode: str) -> None:
        """Set how GPU memory is addressed, as newer drivers report it."""
        self._answer("query-gpu", "index,addressing_mode", f"0, {mode}\n1, {mode}\n")

    def _answer(self, kind: str, query: str, output: str) -> None:
        path = self.folder / kind / query
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_name("part")
        scratch.write_text(output)
        scratch.rename(path)

    @property
    def asked(self) -> list[str]:
        """The queries that nvidia-smi received so far."""
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Give a machine whose nvidia-smi is found on the PATH."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """Give a loop that is closed afterwards."""
    made = EventLoop(lambda seconds: None)
    yield made
    made.close()


def devices(machine: Machine, loop: EventLoop) -> Devices:
    """Make what an agent asks."""
    return Devices("n1", loop, lambda: None, folder=machine.folder / "dev")


def test_without_gpus_nothing_is_started(machine: Machine, loop: EventLoop) -> None:
    """Without a device file, or with a limit of 0, the agent never runs nvidia-smi."""
    for name in ("nvidia0", "nvidia1"):
        (machine.folder / "dev" / name).unlink()
    machine.uses(70000, 70000)
    devices(machine, loop).wait({}, 60.0, lambda: True)
    (machine.folder / "dev" / "nvidia0").touch()
    devices(machine, loop).wait({}, 0.0, lambda: True)
    assert machine.asked == []


def test_free_devices_cost_one_question(machine: Machine, loop: EventLoop) -> None:
    """Memory that an idle driver keeps is no use, up to the limit; the agent makes no other query."""
    machine.uses(FREE_MIB, 4)
    devices(machine, loop).wait({}, 60.0, lambda: True)
    assert machine.asked == ["--query-gpu=index,uuid,memory.used"]


def test_the_wait_ends_when_the_memory_is_released(machine: Machine, loop: EventLoop) -> None:
    """A launch waits while a device is in use, and continues once the device is free."""
    machine.uses(4, 70012)
    done = threading.Event()

    def wait() -> None:
        devices(machine, loop).wait({}, 60.0, lambda: True)
        done.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: len(machine.asked) >= 3, "a second look")
    assert not done.is_set()
    machine.uses(4, 4)
    waiting.join()
    assert done.is_set()


def test_a_device_that_stays_in_use_is_named(machine: Machine, loop: EventLoop) -> None:
    """After the limit the wait fails; the error names the device, the amount and the time waited."""
    machine.uses(4, 70012)
    with pytest.raises(DevicesBusy, match=r"^GPU 1 has 70012 MiB in use after 0\.2 s$"):
        devices(machine, loop).wait({}, 0.2, lambda: True)


def test_a_wait_that_is_not_wanted_ends(machine: Machine, loop: EventLoop) -> None:
    """A launch that was called off meanwhile does not keep its thread."""
    machine.uses(4, 70012)
    devices(machine, loop).wait({}, 1000.0, lambda: False)
    assert len(machine.asked) == 3


@pytest.mark.parametrize(
    ("selected", "is_held"),
    [
        (None, True),
        ("0", False),
        ("1", True),
        ("0,1", True),
        ("", False),
        ("-1", False),
        (SECOND, True),
        (SECOND[:12], True),
        (FIRST, False),
        ("7,1", False),
        ("MIG-9c1f", False),
    ],
)
def test_only_devices_the_ranks_may_use_are_waited_for(
    machine: Machine, loop: EventLoop, selected: str | None, is_held: bool
) -> None:
    """CUDA_VISIBLE_DEVICES counts as CUDA reads it: indices or UUIDs, and nothing behind the first that is unknown."""
    machine.uses(4, 70012)
    environment = {} if selected is None else {"CUDA_VISIBLE_DEVICES": selected}
    assert bool(devices(machine, loop).busy_reason(environment)) is is_held


def test_a_device_that_does_not_report_its_use_delays_no_launch(
    machine: Machine, loop: EventLoop
) -> None:
    """Text in place of a number, as some boards and parts of devices give, is no reason to wait."""
    machine.uses("[N/A]", "[Insufficient Permissions]")
    assert devices(machine, loop).busy_reason({}) == ""


@pytest.mark.parametrize(("code", "words"), [(9, "ended with 9: NVIDIA-SMI has failed"), (0, "")])
def test_a_driver_that_fails_is_not_taken_for_free(
    machine: Machine, loop: EventLoop, code: int, words: str
) -> None:
    """nvidia-smi that fails, or prints what is no device, leaves the node in doubt."""
    (machine.folder / "exit").write_text(str(code))
    output = devices(machine, loop).busy_reason({})
    assert words in output
    assert output.startswith("nvidia-smi")


def test_bytes_that_are_no_text_are_shown_as_such(machine: Machine, loop: EventLoop) -> None:
    """A driver's answer that is not UTF-8 still tells which devices there are; its bytes are escaped."""
    answer = machine.folder / "query-gpu" / "index,uuid,memory.used"
    answer.write_bytes(b"0, GPU-\xff\xfe, 4\n")
    assert devices(machine, loop).uuids() == [r"GPU-\xff\xfe"]


def test_a_driver_that_hangs_is_given_up(
    machine: Machine, loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that does not come in time is a reason, and costs the asking thread no more than its limit."""
    monkeypatch.setattr("runner.agent.launch.devices.ANSWER_SECONDS", 0.3)
    (machine.folder / "hang").touch()
    assert devices(machine, loop).busy_reason({}).startswith("nvidia-smi did not answer within")


def test_a_neighbours_ranks_are_not_waited_for(machine: Machine, loop: EventLoop) -> None:
    """Where nodes share a machine, a launch ignores memory held by another node's ranks, and counts that of its own ranks."""

    def rank_of(node: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(1000)"],
            env={"STOKER_NODE": node, "STOKER_ATTEMPT": "1.1.0"},
        )

    ours, theirs = rank_of("n1"), rank_of("n2")
    try:
        wait_until(lambda: is_alive(ours.pid) and is_alive(theirs.pid), "both processes")
        wait_until(lambda: Path(f"/proc/{theirs.pid}/environ").read_bytes(), "an environment")
        machine.uses(40000, 40000)
        machine.holds((FIRST, theirs.pid, 39800), (SECOND, ours.pid, 39800))
        asked = devices(machine, loop)
        assert asked.busy_reason({}) == "GPU 1 has 40000 MiB in use"
        machine.holds((FIRST, theirs.pid, "[N/A]"), (SECOND, theirs.pid, 20000))
        assert asked.busy_reason({}) == "GPU 1 has 20000 MiB in use"
    finally:
        for child in (ours, theirs):
            child.kill()
            child.wait()


def test_memory_of_the_system_counts_while_its_process_is_alive(
    machine: Machine, loop: EventLoop
) -> None:
    """Where GPU memory is a part of the system's (ATS), it stays in use after its process, which is no reason to wait."""
    machine.uses(40000, 4)
    machine.shares_memory("ATS")
    asked = devices(machine, loop)
    assert asked.busy_reason({}) == ""
    machine.holds((FIRST, 1, 30000))
    assert asked.busy_reason({}) == "GPU 0 has 40000 MiB in use"
    machine.holds()
    machine.shares_memory("None")
    assert asked.busy_reason({}) == "GPU 0 has 40000 MiB in use"


def test_the_order_of_selected_devices_is_kept() -> None:
    """Devices come in the order in which they are selected."""
    found = [Device(index=index, uuid=f"GPU-{index}", used_mib=0) for index in range(3)]
    assert [device.index for device in visible(found, "2,0")] == [2, 0]
    assert visible(found, None) == found


# ---- through an agent -----------------------------------------------------------------------------------------------


@pytest.fixture
def start(
    make_node: Callable[..., Node], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Node]]:
    """Give a maker of a node on that machine, whose agent runs in a thread of this process."""
    monkeypatch.setattr("runner.agent.launch.devices.WATCH_SECONDS", 0.1)
    agents: list[tuple[Agent, threading.Thread, SqliteStore]] = []

    def make(**limits: float) -> Node:
        node = make_node(**limits)
        store = SqliteStore(node.state / "store")
        place = AgentConfig(
            node=node.name,
            folder=node.folder,
            cluster=node.cluster,
            slots=4,
            device_files=machine.folder / "dev",
        )
        agent = Agent(store, place)
        thread = threading.Thread(target=agent.run)
        agents.append((agent, thread, store))
        thread.start()
        return node

    yield make
    for agent, thread, store in agents:
        agent.leave()
        thread.join()
        store.close()


def plan_of(node: Node) -> LaunchPlan:
    """Return a plan of ranks that report."""
    return node.plan(REPORTER, {"pause": 0.05})


@pytest.mark.e2e
def test_ranks_are_started_once_the_devices_are_free(
    start: Callable[..., Node], machine: Machine
) -> None:
    """The agent keeps sending heartbeats while a launch waits, and starts the ranks when the memory is released."""
    machine.uses(70012, 4)
    node = start()
    node.assign(plan_of(node), 1)
    wait_until(lambda: len(machine.asked) >= 6, "looks at the devices")
    assert node.signals("RanksStarted") == []
    assert next(node.heartbeats()).node == "n1"
    machine.uses(4, 4)
    assert node.wait_for("RanksStarted").generation == 1
    assert node.signals("LaunchFailed") == []


@pytest.mark.e2e
def test_a_launch_gives_up_and_the_agent_reports_when_the_devices_are_free(
    start: Callable[..., Node], machine: Machine
) -> None:
    """After the limit the launch fails with devices_busy; once they are free the agent reports it and starts ranks again."""
    machine.uses(70012, 4)
    node = start(device_release_seconds=0.3)
    node.assign(plan_of(node), 1)
    failed = node.wait_for("LaunchFailed")
    assert failed.devices_busy
    assert failed.reason == "GPU 0 has 70012 MiB in use after 0.3 s"
    node.assign(None, 2)
    node.wait_for("RanksTerminated")
    assert node.signals("DevicesReleased") == []
    machine.uses(4, 4)
    node.wait_for("DevicesReleased")
    assert len(node.launch(plan_of(node), 3)) == 2
    assert len(node.signals("DevicesReleased")) == 1


@pytest.mark.e2e
def test_the_supervisor_can_cancel_a_launch_that_waits_for_devices(
    start: Callable[..., Node], machine: Machine
) -> None:
    """An idle assignment ends the wait at once: nothing was started, and the node is clear."""
    machine.uses(70012, 4)
    node = start()
    node.assign(plan_of(node), 1)
    wait_until(lambda: len(machine.asked) >= 3, "a look at the devices")
    node.assign(None, 2)
    assert node.wait_for("RanksTerminated").generation == 1
    num_asked = len(machine.asked)
    # longer than a pause between two polls
    time.sleep(1.2)
    assert len(machine.asked) <= num_asked + 3
    assert node.signals("LaunchFailed") == []


@pytest.mark.e2e
def test_ranks_that_use_no_device_do_not_wait(start: Callable[..., Node], machine: Machine) -> None:
    """run.yaml's environment decides: a run without devices starts on a node whose devices are held."""
    machine.uses(70012, 70012)
    node = start()
    plan = replace(plan_of(node), environment={"CUDA_VISIBLE_DEVICES": ""})
    assert len(node.launch(plan, 1)) == 2
