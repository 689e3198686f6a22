"""Real gangs of torch ranks over gloo that a fault makes hang, and the flight records that they write. A program and its caller.

The program imports torch once, forks the ranks of each gang, waits until nothing moves, has each rank write its record from a
thread, and ends all of them. A rank ends with the program, however that ends.
"""

import ctypes
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("left out", "SIGSTOP", "sleep", "lock", "order", "size", "exit")
STEPS = 12
# Chosen: seconds between looks at the ranks, looks in a row at which nothing moved, and looks in all.
LOOK_SECONDS, QUIET_LOOKS, MAX_LOOKS = 0.15, 4, 250
RECORD_SECONDS = 1.0


class Call(NamedTuple):
    """A collective of one kind of group: of all ranks, of a pair, or of a row of every second rank."""

    group: str
    operation: str
    size: int


class Gang(NamedTuple):
    """What a seed draws: ranks, the calls of a step, and a fault of one rank at one call of one step."""

    kind: str
    num_ranks: int
    calls: tuple[Call, ...]
    culprit: int
    step: int
    at: int
    has_descriptions: bool

    def program(self, rank: int) -> list[Call]:
        """Return what a rank calls, all steps one after the other, with its fault where that is a matter of calls."""
        calls = [call for _ in range(STEPS) for call in self.calls]
        place = self.step * len(self.calls) + self.at
        if rank != self.culprit:
            return calls
        if self.kind == "left out":
            del calls[place]
        elif self.kind == "order":
            other = place + 1
            while other + 1 < len(calls) and calls[other] == calls[place]:
                other += 1
            calls[place], calls[other] = calls[other], calls[place]
        elif self.kind == "size":
            calls[place] = calls[place]._replace(size=calls[place].size + 3)
        return calls


def draw(seed: int) -> Gang:
    """Return the gang of a seed."""
    dice = random.Random(seed)
    num_ranks = dice.randint(2, 8)
    kinds = ["all", "pair", "row"] if num_ranks in (4, 6, 8) else ["all"]
    operations = ("all_reduce", "broadcast", "all_gather", "reduce")
    calls = tuple(
        Call(dice.choice(kinds), dice.choice(operations), dice.choice((4, 16, 64)))
        for _ in range(dice.randint(2, 5))
    )
    # Each step ends with all ranks, as a training loop's does.
    calls = (*calls, Call("all", "all_reduce", 1))
    return Gang(
        KINDS[seed % len(KINDS)],
        num_ranks,
        calls,
        culprit=dice.randrange(num_ranks),
        step=dice.randint(STEPS // 2, STEPS - 3),
        at=dice.randrange(len(calls)),
        has_descriptions=dice.random() < 0.5,
    )


def record_gangs(seeds: Sequence[int], folder: Path) -> None:
    """Write the records of gangs to `folder/SEED/rank_N`, in a process of its own; raises CalledProcessError."""
    arguments = [str(folder), *(str(seed) for seed in seeds)]
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, *arguments], check=True, env=environment)


# ---- the program


def main(folder: Path, seeds: Sequence[int]) -> None:
    """Play gangs one after the other."""
    import torch.distributed  # noqa: F401 - the ranks inherit it

    for seed in seeds:
        (folder / str(seed)).mkdir(parents=True)
        play(draw(seed), folder / str(seed))


def play(gang: Gang, folder: Path) -> None:
    """Run a gang until nothing moves, and have it write its records."""
    # A byte of each rank: it is in the first call; and one that asks for records.
    shared = mmap.mmap(-1, gang.num_ranks + 1)
    pids = [_fork(partial(_run, gang, rank, folder, shared)) for rank in range(gang.num_ranks)]
    try:
        _wait_until_quiet(pids, shared)
        shared[gang.num_ranks] = 1
        until = time.monotonic() + RECORD_SECONDS
        while time.monotonic() < until and len(_records(folder)) < gang.num_ranks:
            time.sleep(0.02)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    for part in folder.glob("*.part"):
        part.unlink()
    (folder / "store").unlink()


def _records(folder: Path) -> list[Path]:
    return [path for path in folder.glob("rank_*") if path.suffix != ".part"]


def _fork(run: Callable[[], None]) -> int:
    pid = os.fork()
    if not pid:
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            run()
        finally:
            os._exit(1)
    return pid


def _wait_until_quiet(pids: Sequence[int], shared: mmap.mmap) -> None:
    """Wait until all ranks began, and no thread of theirs ran or is about to."""
    before, quiet = list[object](), 0
    for _ in range(MAX_LOOKS):
        time.sleep(LOOK_SECONDS)
        now = [_main_thread(pid) for pid in pids]
        is_quiet = now == before and all(shared[: len(pids)]) and not any(map(_is_running, pids))
        before, quiet = now, quiet + 1 if is_quiet else 0
        if quiet >= QUIET_LOOKS:
            return
    raise TimeoutError("the gang does not come to rest")


def _main_thread(pid: int) -> object:
    """Return what changes whenever a rank's main thread runs."""
    try:
        return Path(f"/proc/{pid}/task/{pid}/status").read_text().split("voluntary")[-2:]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _is_running(pid: int) -> bool:
    for task in _tasks(pid):
        try:
            if task.read_text().rpartition(")")[2].split()[0] == "R":
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def _tasks(pid: int) -> Iterator[Path]:
    try:
        yield from Path(f"/proc/{pid}/task").glob("*/stat")
    except (FileNotFoundError, ProcessLookupError):
        return


# ---- a rank


def _run(gang: Gang, rank: int, folder: Path, shared: mmap.mmap) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=gang.num_ranks
    )
    groups = _groups(gang, rank)
    threading.Thread(target=_record_when_asked, args=(folder, rank, shared), daemon=True).start()
    shared[rank] = 1
    place = gang.step * len(gang.calls) + gang.at
    try:
        for number, call in enumerate(gang.program(rank)):
            if rank == gang.culprit and number == place:
                _injure(gang.kind)
            _call(call, groups)
    except RuntimeError as error:
        # A peer is gone, or sent another size. Programs end with it.
        sys.stderr.write(f"rank {rank}: {str(error)[:100]}\n")
        os._exit(1)
    time.sleep(1000)


def _groups(gang: Gang, rank: int) -> dict[str, Any]:
    import torch.distributed as dist

    num = gang.num_ranks
    members = {
        "pair": [[a, a + 1] for a in range(0, num - 1, 2)],
        "row": [list(range(a, num, 2)) for a in (0, 1)],
    }
    found: dict[str, Any] = {"all": (dist.group.WORLD, list(range(num)))}
    for kind, parts in members.items() if num in (4, 6, 8) else ():
        for part in parts:
            group = dist.new_group(part, group_desc=kind if gang.has_descriptions else None)
            if rank in part:
                found[kind] = group, part
    return found


def _injure(kind: str) -> None:
    if kind == "SIGSTOP":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "sleep":
        time.sleep(1000)
    elif kind == "lock":
        # PyDLL, other than CDLL, holds the lock of the interpreter.
        ctypes.PyDLL(None).sleep(1000)
    elif kind == "exit":
        os._exit(1)


def _call(call: Call, groups: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist

    group, ranks = groups[call.group]
    tensor = torch.ones(call.size)
    if call.operation == "all_reduce":
        dist.all_reduce(tensor, group=group)
    elif call.operation == "broadcast":
        dist.broadcast(tensor, src=ranks[0], group=group)
    elif call.operation == "reduce":
        dist.reduce(tensor, dst=ranks[-1], group=group)
    else:
        dist.all_gather([torch.ones(call.size) for _ in ranks], tensor, group=group)


def _record_when_asked(folder: Path, rank: int, shared: mmap.mmap) -> None:
    from torch._C import _distributed_c10d as c10d

    while not shared[len(shared) - 1]:
        time.sleep(0.05)
    # Torch writes either.
    is_json = rank % 2
    recorder: Any = c10d
    data = (
        recorder._dump_fr_trace_json()
        if is_json
        else recorder._dump_fr_trace(includeStackTraces=False)
    )
    name = f"rank_{rank}.json" if is_json else f"rank_{rank}"
    (folder / f"{name}.part").write_bytes(data if isinstance(data, bytes) else data.encode())
    (folder / f"{name}.part").rename(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(f"[{','.join(sys.argv[2:])}]"))
