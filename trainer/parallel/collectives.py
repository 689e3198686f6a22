"""Collectives of the tensor axis, and the meter that separates communication from computation.

Every collective of a training step, ours and DeepSpeed's, passes through one `Meter`; the seconds
spent in it are what `compute_seconds` leaves out.
"""

from collections.abc import Callable
from time import perf_counter
from typing import ParamSpec, TypeVar

import torch
import torch.distributed as dist

P = ParamSpec("P")
R = TypeVar("R")


class Meter:
    """Adds up the seconds spent inside metered calls, the outermost only.

    On a CPU a collective blocks its caller, so the caller's clock is right. On a GPU it is queued:
    there, events on the current stream bracket it, and they measure the wait for other ranks too.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._inside = False
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def wrap(self, call: Callable[P, R]) -> Callable[P, R]:
        """Return `call` with its time metered."""

        def metered(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._inside:
                return call(*args, **kwargs)
            self._inside = True
            started = self._start()
            try:
                return call(*args, **kwargs)
            finally:
                self._stop(started)
                self._inside = False

        return metered

    @property
    def seconds(self) -> float:
        """Seconds on a CPU since the last `pop_seconds`."""
        return self._seconds

    def pop_seconds(self) -> float:
        """Return the seconds since the last call and start again; on a GPU, call after a sync."""
        seconds = self._seconds
        for begin, end in self._events:
            end.synchronize()
            seconds += begin.elapsed_time(end) / 1000.0
        self._events.clear()
        self._seconds = 0.0
        return seconds

    def _start(self) -> float | torch.cuda.Event:
        if not self._on_gpu:
            return perf_counter()
        return _mark()

    def _stop(self, started: float | torch.cuda.Event) -> None:
        if isinstance(started, float):
            self._seconds += perf_counter() - started
            return
        self._events.append((started, _mark()))


def _mark() -> torch.cuda.Event:
    """Record an event on the current stream."""
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


class TensorAxis:
    """The ranks that share each layer's matrices. With one rank, nothing is sent."""

    def __init__(
        self, group: dist.ProcessGroup | None, *, rank: int, size: int, meter: Meter
    ) -> None:
        self.rank = rank
        self.size = size
        self._group = group
        self._all_reduce = meter.wrap(dist.all_reduce)
        self._all_gather = meter.wrap(dist.all_gather)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group; None with one rank."""
        return self._group

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over the axis; a contiguous `tensor` is overwritten with it."""
        if self.size == 1:
            return tensor
        tensor = tensor.contiguous()
        self._all_reduce(tensor, group=self._group)
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return every rank's tensor, stacked along a new dim 0 in rank order."""
        if self.size == 1:
            return tensor.unsqueeze(0)
        parts = tensor.new_empty((self.size, *tensor.shape))
        self._all_gather(list(parts.unbind(0)), tensor.contiguous(), group=self._group)
        return parts
