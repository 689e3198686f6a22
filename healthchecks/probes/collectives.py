"""collectives: one rank of collectives between ranks of this node: what it got, and when it arrived and left.

Every rank is a process that runs this. Values are integers that the type holds exactly, whatever the order of summing: each
value of a result is compared with the one that arithmetic gives. Times are of the machine's monotonic clock, which all ranks of
a node share, so that the check can distinguish a late rank from a slow link. An error is part of the answer: that another rank
is gone, for example, or later than the timeout.

Faults for the self test: {"kind": "flip", "rank": R, "op": NAME} changes a value of a result; {"kind": "input", "op": NAME} changes
the same input on all ranks; {"kind": "sleep", "rank": R, "seconds": S} sleeps before each operation; {"kind": "exit", "rank": R,
"op": NAME} ends the rank before that operation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

# Between ranks of one node; each is read once, when a group is made. A late rank is to be an error here, not an abort.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")

import torch
import torch.distributed as dist

MODULUS = 1009
FACTOR, RANK_STEP = 7, 13
WORD_BYTES = 4
# Of one operation: between two looks at the time, at most, and those that do not count. Chosen, not measured.
ROUND, MOST, NUM_WARM_UPS = 4, 60, 1


def values(rank: int, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return what rank `rank` sends from position `first` on."""
    at = torch.arange(first, first + count, dtype=torch.int64, device=device)
    return ((at * FACTOR + rank * RANK_STEP) % MODULUS).to(torch.float32)


class Operation:
    """One kind of collective: buffers of this rank, the call, and what must come out. `size`: as nccl-tests counts it.

    `group`: the ranks that take part, all where it is None; `rank` is this one's number among them.
    """

    def __init__(
        self,
        name: str,
        num_bytes: int,
        rank: int,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        world = dist.get_world_size(group)
        part = max(1, num_bytes // WORD_BYTES // world)
        whole = part * world
        self.name, self.size = name, whole * WORD_BYTES
        ranks, mine = range(world), rank * part
        self._in_place = name == "all_reduce"
        if name == "all_reduce":
            self.input = values(rank, 0, whole, device)
            self.expected = total(ranks, 0, whole, device)
            self._call: Callable[[], object] = lambda: dist.all_reduce(self.output, group=group)
        elif name == "all_gather":
            self.input = values(rank, 0, part, device)
            self.expected = torch.cat([values(each, 0, part, device) for each in ranks])
            self._call = lambda: dist.all_gather_into_tensor(self.output, self.input, group=group)
        elif name == "reduce_scatter":
            self.input = values(rank, 0, whole, device)
            self.expected = total(ranks, mine, part, device)
            self._call = lambda: dist.reduce_scatter_tensor(self.output, self.input, group=group)
        elif name == "all_to_all":
            self.input = values(rank, 0, whole, device)
            self.expected = torch.cat([values(each, mine, part, device) for each in ranks])
            self._call = lambda: dist.all_to_all_single(self.output, self.input, group=group)
        else:
            raise ValueError(f"no operation {name!r}")
        self.output = torch.empty_like(self.expected)

    def prepare(self) -> None:
        """Make sure that an earlier result is not taken for this one."""
        if self._in_place:
            self.output.copy_(self.input)
        else:
            self.output.zero_()

    def run(self) -> tuple[float, float]:
        """Run it; return when this rank arrived and left."""
        synchronize(self.output.device)
        arrived = time.monotonic()
        self._call()
        synchronize(self.output.device)
        return arrived, time.monotonic()

    def wrong_words(self) -> int:
        """Count values of the result that are not what they must be; NaN is one."""
        return int((self.output != self.expected).sum())


def total(ranks: range, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return the sum of what all ranks send, in integers."""
    whole = torch.zeros(count, dtype=torch.int64, device=device)
    for rank in ranks:
        whole += values(rank, first, count, device).to(torch.int64)
    return whole.to(torch.float32)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Faults:
    """Damages data and ranks, for the self test."""

    def __init__(self, faults: list[dict[str, Any]], rank: int) -> None:
        self._faults = [each for each in faults if each.get("rank", rank) == rank]

    def of(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return the faults of a kind that concern an operation."""
        faults = [each for each in self._faults if each["kind"] == kind]
        return [each for each in faults if each.get("op", name) == name]


def measure(operation: Operation, faults: Faults, until: float) -> dict[str, Any]:
    """Repeat one operation until the time is over, a few times at least; all ranks agree on how often."""
    if faults.of("exit", operation.name):
        os._exit(3)
    for _ in faults.of("input", operation.name):
        operation.input[3] += 1
    pause = sum(each["seconds"] for each in faults.of("sleep", operation.name))
    times: list[tuple[float, float]] = []
    is_over = torch.zeros(1, device=operation.output.device)
    while len(times) < MOST and not is_over:
        for _ in range(ROUND):
            operation.prepare()
            time.sleep(pause)
            times.append(operation.run())
        is_over.fill_(time.monotonic() >= until)
        # One rank that has no time left ends it for all.
        dist.all_reduce(is_over, op=dist.ReduceOp.MAX)
    times = times[NUM_WARM_UPS:]
    for _ in faults.of("flip", operation.name):
        operation.output[5] += 1
    return {
        "size": operation.size,
        "arrivals": [arrived for arrived, _ in times],
        "ends": [ended for _, ended in times],
        "wrong_words": operation.wrong_words(),
    }


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Be rank `asked["rank"]` of `asked["world"]`; they meet in the file `asked["store"]`."""
    device, rank = torch.device(asked["device"]), asked["rank"]
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    found: dict[str, Any] = {}
    answer: dict[str, Any] = {"rank": rank, "ops": found, "at": "the rendezvous"}
    try:
        dist.init_process_group(
            asked["backend"],
            init_method=f"file://{asked['store']}",
            rank=rank,
            world_size=asked["world"],
            timeout=timedelta(seconds=asked["timeout_seconds"]),
        )
        for number, name in enumerate(asked["ops"]):
            answer["at"] = name
            operation = Operation(name, asked["bytes"], rank, device)
            share = (asked["until"] - time.monotonic()) / (len(asked["ops"]) - number)
            found[name] = measure(operation, Faults(faults, rank), time.monotonic() + share)
        answer["at"] = "the end"
        dist.destroy_process_group()
    except (RuntimeError, dist.DistError) as error:
        answer["error"] = str(error).splitlines()[0]
    return answer
