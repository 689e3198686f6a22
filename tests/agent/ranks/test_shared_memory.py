"""However ranks end, nothing that they had in shared memory remains."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import LaunchPlan
from runner.keeper import orphans, procfs, protocol
from runner.providers.local import LocalProvider
from tests.agent.node import WAIT_SECONDS, Node, is_in, wait_until

pytestmark = pytest.mark.e2e

SHARED = Path("/dev/shm")
# a cleaner on a loaded machine may need seconds
KILL_WAIT_SECONDS = 20.0

# A queue and its semaphores, and a named block, shared with a child that never ends by itself.
SHARER = """
import multiprocessing, os, pathlib, time
from multiprocessing import shared_memory

def idle(queue):
    queue.put(os.getpid())
    time.sleep(1000)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    block = shared_memory.SharedMemory(create=True, size=4096)
    context.Process(target=idle, args=(queue,)).start()
    queue.get()
    pathlib.Path(f"sharing-{os.environ['STOKER_ATTEMPT']}-{os.environ['RANK']}").write_text(block.name)
    time.sleep(1000)
"""

# `file_system` lets a manager of torch's own own the files; `file_descriptor` is the default.
LOADER = """
import os, pathlib, sys
import torch
import torch.multiprocessing

torch.multiprocessing.set_sharing_strategy(sys.argv[1])

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        return torch.full((1000,), float(index))

if __name__ == "__main__":
    batches = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    kept = []
    for number, batch in enumerate(batches):
        kept = kept[-3:] + [batch]
        if number == 5:
            name = f"sharing-{os.environ['STOKER_ATTEMPT']}-{os.environ['RANK']}"
            pathlib.Path(name).write_text("")
"""


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """Give a node where what is killed has time to go."""
    return make_node(kill_wait_seconds=KILL_WAIT_SECONDS)


class Shared:
    """What the ranks of an attempt have in shared memory. Other programs of this machine share memory too, and do not count."""

    def __init__(self, node: Node, plan: LaunchPlan, pids: dict[int, int]) -> None:
        self.plan = plan
        self.pids = pids
        self._all = node.marked()
        self._names: set[str] = set()
        for pid in self._all:
            try:
                maps = Path(f"/proc/{pid}/maps").read_text()
            except OSError:
                # it has ended meanwhile
                continue
            self._names.update(re.findall(rf"{SHARED}/(\S+)(?! \(deleted\))", maps))

    def left(self) -> set[str]:
        """Name what is there now of what they had mapped, and what torch has named after one of them."""
        named = {path.name for pid in self._all for path in SHARED.glob(f"torch_{pid}_*")}
        return named | {name for name in self._names if (SHARED / name).exists()}


def share(
    node: Node, *, script: str = SHARER, generation: int = 1, least: int = 2, **fields: Any
) -> Shared:
    """Run a script until each rank has something in shared memory, `least` files or more."""
    (node.state / "share.py").write_text(script)
    attempt = AttemptId(1, 1, generation)
    preload = fields.pop("preload", ())
    plan = replace(
        node.plan("pass"),
        attempt=attempt,
        command=("{python}", "share.py"),
        output_folder=str(node.state / "attempts" / str(attempt)),
    )
    plan = replace(plan, **fields)
    pids = node.launch(plan, generation, preload=preload)
    for rank in plan.ranks:
        is_there = (node.state / f"sharing-{attempt}-{rank}").exists
        wait_until(is_there, f"rank {rank} shares memory; its stderr: {errors_of(plan, rank)}")
    shared = Shared(node, plan, pids)
    assert len(shared.left()) >= least * len(pids), "nothing is shared, so nothing would be shown"
    return shared


def errors_of(plan: LaunchPlan, rank: int) -> str:
    """Return what a rank wrote on standard error so far."""
    path = Path(plan.output_folder, f"rank{rank}.err")
    return path.read_text() if path.exists() else ""


def must_be_clean(node: Node, shared: Shared, *, generation: int = 1) -> None:
    """Require that nothing of the ranks is left, neither file nor process, when the agent reports them terminated."""
    gone = node.wait_for("RanksTerminated", partial(is_in, generation))
    assert shared.left() == set()
    assert gone.left_behind == ()
    assert all(protocol.KEEPER_VARIABLE in procfs.read_environment(pid) for pid in node.marked())


@pytest.mark.parametrize("preload", [(), ("json",)], ids=["fresh", "forked"])
def test_idle_ends_ranks_and_leaves_nothing_in_shared_memory(
    node: Node, preload: tuple[str, ...]
) -> None:
    """Semaphores, queues and named blocks of killed ranks are gone when the node reports its ranks terminated."""
    node.start_agent()
    shared = share(node, preload=preload)
    node.assign(None, generation=1)
    must_be_clean(node, shared)


def test_a_rank_that_is_killed_takes_along_what_it_shared(node: Node) -> None:
    """After SIGKILL of one rank, idle leaves nothing of either; the next attempt of the node does the same."""
    node.start_agent()
    for generation in (1, 2):
        shared = share(node, generation=generation)
        os.kill(shared.pids[1], signal.SIGKILL)
        node.wait_for("RankExited", partial(is_in, generation, rank=1))
        node.assign(None, generation=generation)
        must_be_clean(node, shared, generation=generation)


def test_a_stopped_cleaner_is_resumed(node: Node) -> None:
    """A stop of the whole process group stops its cleaner too: the agent cleans up all the same."""
    node.start_agent()
    shared = share(node)
    os.killpg(shared.pids[0], signal.SIGSTOP)
    node.assign(None, generation=1)
    must_be_clean(node, shared)


def test_a_keeper_that_dies_leaves_the_cleaners_their_work(node: Node) -> None:
    """SIGKILL of the keeper: its ranks die with it, their children are swept, and nothing stays in shared memory."""
    node.start_agent()
    shared = share(node)
    os.kill(node.keeper, signal.SIGKILL)
    for rank in (0, 1):
        node.wait_for("RankExited", partial(is_in, 1, rank=rank))
    assert shared.left() == set()


def test_a_killed_node_that_comes_back_clears_up(node: Node) -> None:
    """The drill `kill-node` spares children of ranks; the node's next agent ends them and removes what they shared."""
    node.start_agent()
    shared = share(node)
    node.answer(node.ask("drill", fault="kill-node"))
    node.agents[-1].wait(WAIT_SECONDS)
    node.start_agent()
    assert shared.left() == set()


def test_a_node_that_is_ended_from_outside_is_left_clean(node: Node) -> None:
    """`stop_agent` of a place sweeps what a node left that was killed whole, and lets the cleaners work."""
    node.start_agent()
    shared = share(node)
    node.answer(node.ask("drill", fault="kill-node"))
    node.agents[-1].wait(WAIT_SECONDS)
    place = LocalProvider(node.cluster, node.store)
    assert place.stop_agent("n1")[0] == "done"
    assert shared.left() == set()
    assert node.marked() == []


def test_only_what_cleans_up_is_taken_for_a_cleaner(tmp_path: Path) -> None:
    """Helpers are known by their command line, and a spawned child of multiprocessing is none."""
    tracker = "from multiprocessing.resource_tracker import main;main(0)"
    spawned = (
        "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=0, pipe_handle=0)"
    )
    of_joblib = "from joblib.externals.loky.backend.resource_tracker import main; main(0, False)"
    backend = tmp_path / "joblib" / "externals" / "loky" / "backend"
    backend.mkdir(parents=True)
    (backend / "resource_tracker.py").write_text("def main(fd, verbose): open(fd).read()")
    manager = tmp_path / "torch_shm_manager"
    manager.symlink_to("/bin/sleep")
    commands = {
        (sys.executable, "-c", tracker): (True, False),
        (sys.executable, "-c", of_joblib): (True, False),
        (sys.executable, "-c", spawned): (False, False),
        (str(manager), "1000"): (False, True),
        ("sleep", "1000"): (False, False),
    }
    for command, kinds in commands.items():
        child = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE)
        try:
            wait_until(
                lambda child=child, name=command[0]: (
                    name.encode()  # type: ignore[misc]
                    in Path(f"/proc/{child.pid}/cmdline").read_bytes()
                ),
                "the command",
            )
            assert (
                orphans.is_python_tracker(child.pid),
                orphans.is_torch_manager(child.pid),
            ) == kinds, command
        finally:
            child.kill()
            child.communicate()


@pytest.fixture
def lingering() -> Iterator[subprocess.Popen[bytes]]:
    """Give a tracker that keeps waiting: its pipe stays open."""
    code = "from multiprocessing.resource_tracker import main;main(0)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


def test_a_cleaner_that_does_not_end_is_killed(lingering: subprocess.Popen[bytes]) -> None:
    """One that something keeps from its work holds up a sweep only for its while, not for ever."""
    wait_until(lambda: orphans.is_python_tracker(lingering.pid), "the tracker")
    kill_times: list[float] = []

    def find() -> dict[int, dict[str, str]]:
        kill_times.append(time.monotonic())
        return {lingering.pid: {}} if lingering.poll() is None else {}

    assert orphans.kill_orphans(find, wait_seconds=0.5) == {}
    assert lingering.returncode == -signal.SIGKILL
    assert len(kill_times) > 3, "it had no time to end by itself"


@pytest.mark.trainer
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_workers_of_torch_leave_nothing(node: Node, strategy: str) -> None:
    """DataLoader workers of the spawn context, one rank killed, the other ended: nothing stays, whatever torch's strategy."""
    node.start_agent()
    command = ("{python}", "share.py", strategy)
    shared = share(node, script=LOADER, command=command, least=1)
    os.kill(shared.pids[1], signal.SIGKILL)
    node.wait_for("RankExited", partial(is_in, 1, rank=1))
    node.assign(None, generation=1)
    node.wait_for("RanksTerminated")
    # Torch's manager waits two seconds for another client before it removes its files; ranks may start meanwhile.
    wait_until(lambda: not shared.left(), "shared memory is as before")
