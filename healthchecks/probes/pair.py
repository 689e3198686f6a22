"""pair: one rank of an all-reduce between two nodes: how long it took by this rank's own clock, and whether all values were right.

Each GPU of both nodes has a rank, or each node one on its CPU. They meet in a TCPStore at `address:port` of end 0. Then all of
them reduce together, and, where both nodes have several, those of one rail alone: number i here with number i there. What is
sent, and how a result is verified, is that of the probe `collectives`, whose file this one loads as `start.py` loads both.
Clocks of nodes differ, so nothing is compared with another rank's: a small all-reduce before each large one lets all ranks
arrive at the same time.

The answer: `size` of a message and `times` of it, `others` with those of the other collectives, `rails` with the times of this
rank's rail, `wrong_words` here and
`all_wrong_words`; or `error`, with `at_fault` as this rank sees it ("self", "peer", or "" where it does not show), or
`not_measured` where no hardware of either node is the reason.

Faults for the self test are those of `collectives`; `op` of a rail is "all_reduce". {"kind": "exit", "rank": R, "after": N}
ends the rank before its message N + 1.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import socket
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

COLLECTIVES = runpy.run_path(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "collectives.py")
)
Operation, Faults = COLLECTIVES["Operation"], COLLECTIVES["Faults"]
# Whose rate counts; the others, by shorter messages, so that a link at a tenth of its rate still has time for them. Chosen.
OPERATION, OTHERS, OTHERS_PART = "all_reduce", ("all_gather", "reduce_scatter", "all_to_all"), 8
# Of the time for the measurement, all others together have this share. Chosen, not measured.
SHARE_OF_OTHERS = 0.2
# Messages that do not count, and that a rank sends at most. Chosen, not measured.
NUM_WARM_UPS, MOST = 1, 1000
# Of the time for the measurement, all ranks together have this share where there are rails. Chosen, not measured.
SHARE_OF_ALL = 0.5
# For the others to leave the store before it closes. Chosen, not measured.
LEAVE_SECONDS = 2.0
# For the reason of a rank that is gone to arrive in the store. Chosen, not measured.
REASON_SECONDS = 1.0
# Between two tries to reach end 0, which may be later than this one. Chosen, not measured.
RETRY_SECONDS = 0.1
MAX_ERROR_CHARACTERS = 200
# Parts of errors by which torch and NCCL say that a port is not to be had, that this device failed, or that the other side is gone.
NO_PORT = ("EADDRINUSE", "EACCES", "EADDRNOTAVAIL", "address already in use", "permission denied")
OWN_DEVICE = ("cuda error", "hip error", "uncorrectable", "out of memory")
GONE = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "connection refused",
    "remote process exited",
    "connection was likely closed",
    "failed to recv",
)


class NotMeasured(Exception):
    """Nothing was measured, and no hardware is the reason."""


class PeerMissing(Exception):
    """The other node never came."""


class Meeting:
    """Where the ranks of both nodes meet, and what they are then: numbers of a world."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.end, self.local = asked["end"], asked["local"]
        self.is_host = self.end == 0 and self.local == 0
        self.store = _store(asked, is_host=self.is_host)
        self._kind = asked["device"].partition(":")[0]
        if asked["is_loopback"]:
            self._kind += " by loopback"
        self.store.set(f"{self.end}/{self.local}", self._kind)
        counts = self._counts(asked)
        self._leaving = [f"left/{end}/{local}" for end in (0, 1) for local in range(counts[end])]
        self._compare_kinds()
        self.rails = min(counts)
        self.world = sum(counts)
        self.rank = self.local + (counts[0] if self.end else 0)
        self.members = [(rail, counts[0] + rail) for rail in range(self.rails)]

    def _counts(self, asked: dict[str, Any]) -> list[int]:
        """Return how many ranks each end has, once all of them are there."""
        if self.local == 0:
            self.store.set(f"count/{self.end}", str(asked["num_local"]))
        until = asked["began"] + asked["meet_seconds"]
        try:
            counts = []
            for end in (0, 1):
                self.store.wait([f"count/{end}"], _left(until))
                counts.append(int(self.store.get(f"count/{end}")))
                names = [f"{end}/{local}" for local in range(counts[-1])]
                self.store.wait(names, _left(until))
        except (RuntimeError, dist.DistError) as error:
            raise _missing(1 - self.end, error, at="the store") from error
        return counts

    def _compare_kinds(self) -> None:
        kind = self.store.get(f"{1 - self.end}/0").decode()
        if kind != self._kind:
            self.leave()
            raise NotMeasured(f"the other node measures on {kind}, this one on {self._kind}")

    def join(self, asked: dict[str, Any]) -> None:
        """Make the group of all ranks; an operation that hangs, the last one too, is an error before this program is killed."""
        left = _left(asked["began"] + asked["end_seconds"] - asked["measure_seconds"])
        dist.init_process_group(
            asked["backend"],
            store=self.store,
            rank=self.rank,
            world_size=self.world,
            timeout=left,
        )

    def report(self, at_fault: str) -> str:
        """Let the other end know why this rank ends early; return who is at fault in the light of what it knows itself.

        A rank that runs out of time closes its connections as one that dies does. So a peer that has given a reason of its own
        is not at fault for being gone.
        """
        try:
            self.store.set(f"reason/{self.end}", at_fault)
            if at_fault == "peer":
                reason = f"reason/{1 - self.end}"
                self.store.wait([reason], timedelta(seconds=REASON_SECONDS))
                at_fault = "peer" if self.store.get(reason) == b"self" else ""
        except (RuntimeError, dist.DistError):
            # The peer gave none, or the store has gone with it.
            return at_fault
        self.leave()
        return at_fault

    def leave(self) -> None:
        """Leave in order. The host of the store waits for the others, which may not have read yet what it holds."""
        try:
            self.store.set(f"left/{self.end}/{self.local}", "")
            if self.is_host:
                self.store.wait(self._leaving, timedelta(seconds=LEAVE_SECONDS))
        except (RuntimeError, dist.DistError):
            # There is no more to be done.
            pass


def measure(
    operation: Any, faults: Any, seconds: float, group: dist.ProcessGroup | None
) -> dict[str, Any]:
    """Repeat one operation for so long by the clock of any rank, once at least; verify each result."""
    device = operation.output.device
    name = operation.name
    ends = {each["after"] for each in faults.of("exit", name) if name == OPERATION}
    pause = sum(each["seconds"] for each in faults.of("sleep", name))
    for _ in faults.of("input", name):
        operation.input[3] += 1
    times: list[float] = []
    wrong_words = 0
    until = time.monotonic() + seconds
    while len(times) < MOST:
        operation.prepare()
        enough = len(times) > NUM_WARM_UPS and time.monotonic() >= until
        is_over = torch.full((1,), float(enough), device=device)
        dist.all_reduce(is_over, op=dist.ReduceOp.MAX, group=group)
        if is_over:
            break
        if len(times) in ends:
            os._exit(3)
        time.sleep(pause)
        arrived, ended = operation.run()
        times.append(ended - arrived)
        for _ in faults.of("flip", name):
            operation.output[5] += 1
        wrong_words += operation.wrong_words()
    return {"times": times[NUM_WARM_UPS:], "size": operation.size, "wrong_words": wrong_words}


def measure_all(asked: dict[str, Any], faults: Sequence[dict[str, Any]], meeting: Meeting) -> Any:
    """Measure all ranks together, then each rail while the others wait; return the answer's numbers."""
    device = torch.device(asked["device"])
    own = Faults(list(faults), meeting.rank)
    has_rails = meeting.rails > 1
    whole = asked["measure_seconds"] * (1 - SHARE_OF_OTHERS)
    operation = Operation(OPERATION, asked["bytes"], meeting.rank, device)
    found = measure(operation, own, whole * (SHARE_OF_ALL if has_rails else 1), None)
    answer = {"world": meeting.world, **found, "rails": {}, "others": {}}
    for name in OTHERS:
        seconds = asked["measure_seconds"] * SHARE_OF_OTHERS / len(OTHERS)
        operation = Operation(name, asked["bytes"] // OTHERS_PART, meeting.rank, device)
        found = measure(operation, own, seconds, None)
        answer["others"][name] = {"times": found["times"], "size": found["size"]}
        answer["wrong_words"] += found["wrong_words"]
    if has_rails:
        seconds = whole * (1 - SHARE_OF_ALL) / meeting.rails
        for rail, members in enumerate(meeting.members):
            group = dist.new_group(list(members))
            if meeting.rank in members:
                number = members.index(meeting.rank)
                operation = Operation(OPERATION, asked["bytes"], number, device, group)
                found = measure(operation, own, seconds, group)
                answer["rails"][str(rail)] = {"times": found["times"], "size": found["size"]}
                answer["wrong_words"] += found["wrong_words"]
            # The next rail starts when this one is done.
            dist.all_reduce(torch.zeros(1, device=device))
    total = torch.tensor([float(answer["wrong_words"])], device=device)
    dist.all_reduce(total)
    answer["all_wrong_words"] = int(total)
    return answer


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Be rank `asked["local"]` of `asked["num_local"]` at end `asked["end"]` of the pair."""
    asked["began"] = asked["until"] - asked["seconds"]
    answer: dict[str, Any] = {"local": asked["local"]}
    meeting: Meeting | None = None
    try:
        _enter(answer, "the start")
        _take_device(asked["device"])
        _enter(answer, "the rendezvous")
        meeting = Meeting(asked)
        _enter(answer, "the measurement")
        meeting.join(asked)
        answer |= measure_all(asked, faults, meeting)
        answer["at"] = "the end"
        dist.destroy_process_group()
        meeting.leave()
    except NotMeasured as error:
        answer |= {"error": str(error), "not_measured": True}
    except PeerMissing as error:
        answer |= {"error": str(error), "at_fault": "peer"}
    except (RuntimeError, dist.DistError) as error:
        at_fault = _at_fault(str(error))
        at_fault = meeting.report(at_fault) if meeting is not None else at_fault
        answer |= {"error": _first_line(error), "at_fault": at_fault}
    return answer


def _enter(answer: dict[str, Any], at: str) -> None:
    """Report how far this rank has come, in case that it does not come to an answer."""
    answer["at"] = at
    sys.stdout.write(json.dumps({"at": at}) + "\n")
    sys.stdout.flush()


def _take_device(name: str) -> None:
    device = torch.device(name)
    torch.set_num_threads(1)
    if device.type == "cuda":
        if torch.cuda.device_count() <= device.index:
            raise NotMeasured(f"torch {torch.__version__} sees no {name}")
        torch.cuda.set_device(device)


def _store(asked: dict[str, Any], *, is_host: bool) -> Any:
    address, port = asked["address"], asked["port"]
    until = asked["began"] + asked["meet_seconds"]
    if not is_host:
        _await_host(asked, until)
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=is_host, wait_for_workers=False, timeout=_left(until)
        )
    except (RuntimeError, dist.DistError) as error:
        if is_host and _has(str(error), NO_PORT):
            reason = f"port {port} is not to be had here: {_first_line(error)}"
            raise NotMeasured(reason) from error
        raise _missing(1 - asked["end"], error, at=f"{address} port {port}") from error


def _await_host(asked: dict[str, Any], until: float) -> None:
    """Wait for the store to listen. Raises PeerMissing when it does not in time, with what the network says of it."""
    address, port = asked["address"], asked["port"]
    while True:
        try:
            left = _left(until).total_seconds()
            socket.create_connection((address, port), timeout=left).close()
            return
        except OSError as error:
            if time.monotonic() >= until:
                raise _missing(0, error, at=f"{address} port {port}") from error
        time.sleep(RETRY_SECONDS)


def _missing(missing_end: int, error: Exception, *, at: str) -> PeerMissing:
    return PeerMissing(f"end {missing_end} did not come to {at}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """Return what an error says, without its place in torch's source and its advice."""
    line = re.sub(r"^\[\S+:\d+\] ", "", (str(error).splitlines() or [""])[0])
    return line.partition(". This is typically")[0][:MAX_ERROR_CHARACTERS]


def _at_fault(error: str) -> str:
    """Return who ended a collective by what its error says; "" where that does not show."""
    if _has(error, OWN_DEVICE):
        return "self"
    return "peer" if _has(error, GONE) else ""


def _has(text: str, parts: Sequence[str]) -> bool:
    return any(part.lower() in text.lower() for part in parts)


def _left(until: float) -> timedelta:
    return timedelta(seconds=max(0.1, until - time.monotonic()))
