"""Requests reach the ranks at different moments; the ranks agree on the step after which each takes effect.

One small maximum over all ranks per step, on a group of its own. It starts before the step's
work and is read after it, so no rank waits for it. A request takes effect on all ranks once one
of them had received it when the step began. What a drill says does not fit into a number: a rank that
receives it only after that step begins with it then.
"""

import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from time import thread_time
from typing import Any

import torch
import torch.distributed as dist

from stoker.channel import Channel
from trainer.faults.drills import Drill, read_drill

# One number per kind of request: a hash of its id in the upper bits, an argument in the lower ones.
KINDS = ("checkpoint", "stop", "drill")
_PAYLOAD_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What all ranks do after this step, the same on each; `drills`: with the step that was agreed on, once this rank has them."""

    checkpoint: bool = False
    stop: bool = False
    drills: tuple[tuple[Drill, int], ...] = ()


_NOTHING = Decision()


class Agreement:
    """Collects this rank's requests and agrees with the other ranks on them, once per step."""

    def __init__(self, channel: Channel, group: dist.ProcessGroup, world_size: int) -> None:
        self._channel = channel
        self._group = group
        self._world_size = world_size
        # number -> request's id, index in KINDS
        self._pending: dict[int, tuple[str, int]] = {}
        # number -> step after which it took effect
        self._settled: dict[int, int] = {}
        # number -> what this rank has received and not begun with
        self._drills: dict[int, Drill] = {}
        self._numbers = torch.zeros(len(KINDS), dtype=torch.int64)
        self._tensors = [self._numbers]
        # In nearly all steps there is no request, and nothing to write.
        self._is_zero = True
        # the same memory, cheaper to read and write
        self._view = self._numbers.numpy()
        self._maximum = dist.AllreduceOptions()
        self._maximum.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
        self._work: dist.Work | None = None
        # CPU time of this thread in here; waiting for other ranks takes none.
        self.seconds = 0.0

    def begin(self) -> None:
        """Accept new requests and start the exchange. Call before the step's work."""
        started = thread_time()
        for request in self._channel.requests():
            self._accept(request)
        if self._pending or not self._is_zero:
            self._write_numbers()
        if self._world_size > 1:
            # The group's own method: torch's wrapper costs as much again in every step.
            self._work = self._group.allreduce(self._tensors, self._maximum)
        self.seconds += thread_time() - started

    def end(self, step: int) -> Decision:
        """Finish the exchange; return what takes effect after `step`, and acknowledge it to the agent."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        started = thread_time()
        numbers: list[int] = self._view.tolist()
        decision = self._settle(numbers, step) if any(numbers) or self._drills else _NOTHING
        self.seconds += thread_time() - started
        return decision

    def _write_numbers(self) -> None:
        numbers = [0] * len(KINDS)
        for number, (_, kind) in self._pending.items():
            numbers[kind] = max(numbers[kind], number)
        self._view[:] = numbers
        self._is_zero = not self._pending

    def _settle(self, numbers: list[int], step: int) -> Decision:
        """Acknowledge what the ranks agreed on: a number of each kind, 0 for none."""
        self._is_zero = False
        for number in filter(None, numbers):
            self._settled[number] = step
            if number in self._pending:
                self._channel.report("taken", request=self._pending.pop(number)[0], step=step)
        checkpoint, stop, _ = numbers
        begun = [number for number in self._drills if number in self._settled]
        return Decision(
            checkpoint=bool(checkpoint) or bool(_payload(stop)),
            stop=bool(stop),
            drills=tuple((self._drills.pop(number), self._settled[number]) for number in begun),
        )

    def _accept(self, request: Mapping[str, Any]) -> None:
        try:
            number = _number(request)
            kind = KINDS.index(request["request"])
            if request["request"] == "drill":
                self._drills[number] = read_drill(request)
        except (KeyError, TypeError, ValueError) as error:
            sys.stderr.write(f"request ignored, it cannot be read: {request} ({error!r})\n")
            return
        if number in self._settled:
            # Another rank received it a step earlier: it took effect then.
            step = self._settled[number]
            self._channel.report("taken", request=request["id"], step=step)
        else:
            self._pending[number] = (str(request["id"]), kind)


def _number(request: Mapping[str, Any]) -> int:
    payload = 0
    if request["request"] == "stop":
        payload = int(bool(request.get("checkpoint", False)))
    # 31 bits, never 0
    mark = zlib.crc32(str(request["id"]).encode()) >> 1 or 1
    return mark << _PAYLOAD_BITS | payload


def _payload(number: int) -> int:
    return number & ((1 << _PAYLOAD_BITS) - 1)
