"""Gradient watch: what DeepSpeed computes about gradients and does not report.

It wraps methods of DeepSpeed's optimizers at two points of a step. Just before gradients are reduced
over the replicas, it computes this rank's own norm from the flat buckets: one pass over memory that
is read next anyway. Just before a skipped step's gradients are discarded, it records the layers with
numbers that are not finite. ZeRO's optimizer and the one for bf16 differ in both. Callbacks of other
modules run at the first point, before the norm is computed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import thread_time
from typing import Any

import torch

Gradients = Sequence[torch.Tensor] | None


class GradientWatch:
    """This rank's gradient norm before reduction, and the layers whose gradients are not finite.

    `seconds` is the thread's CPU time that it has cost so far.
    """

    def __init__(self, engine: Any, layers: Mapping[int, int]) -> None:
        """Watch a DeepSpeed engine; `layers` gives the layer of each parameter by its id()."""
        self._layers = layers
        self._square: torch.Tensor | None = None
        self.nonfinite_layers: list[int] = []
        self.seconds = 0.0
        # Called once, in the next step; and called with each flat gradient of every step.
        self.before_reduction: list[Callable[[], object]] = []
        self.on_gradient: list[Callable[[torch.Tensor], None]] = []
        if hasattr(engine.optimizer, "average_tensor"):
            self._watch_zero(engine.optimizer)
        else:
            self._watch_bf16(engine, engine.optimizer)

    def begin_step(self) -> None:
        """Reset what the previous step recorded."""
        self._square = None
        self.nonfinite_layers = []

    def local_norm(self) -> float:
        """Return the norm of this step's gradients, scaled as the loss was; nan before there are any."""
        return math.nan if self._square is None else math.sqrt(float(self._square))

    def _watch_zero(self, optimizer: Any) -> None:
        reduce, update_scale = optimizer.average_tensor, optimizer._update_scale

        def reduce_watched(bucket: torch.Tensor, *arguments: Any) -> Any:
            self._add(bucket)
            return reduce(bucket, *arguments)

        def update_scale_watched(has_overflow: bool = False) -> Any:
            if has_overflow:
                for i, gradients in optimizer.averaged_gradients.items():
                    self._record_nonfinite(optimizer.params_in_partition[i], gradients)
            return update_scale(has_overflow)

        optimizer.average_tensor = reduce_watched
        optimizer._update_scale = update_scale_watched

    def _watch_bf16(self, engine: Any, optimizer: Any) -> None:
        reduce, clear = engine._bf16_reduce_grads, optimizer.clear_hp_grads

        def reduce_watched() -> Any:
            for flat in optimizer.fp32_groups_actual_gradients_flat:
                self._add(flat)
            return reduce()

        def clear_watched() -> Any:
            if optimizer.overflow:
                for parameters, gradients in zip(
                    optimizer.bf16_groups, optimizer.fp32_groups_gradients, strict=True
                ):
                    self._record_nonfinite(parameters, gradients)
            return clear()

        engine._bf16_reduce_grads = reduce_watched
        optimizer.clear_hp_grads = clear_watched

    def notify(self, flat: torch.Tensor) -> None:
        """Pass a flat gradient that has not been reduced to every `on_gradient` callback."""
        for call in self.on_gradient:
            call(flat)

    def _add(self, flat: torch.Tensor) -> None:
        while self.before_reduction:
            self.before_reduction.pop(0)()
        self.notify(flat)
        started = thread_time()
        # One pass in one call; a product in half precision would overflow.
        full = flat if flat.dtype == torch.float32 else flat.float()
        square = torch.dot(full, full)
        self._square = square if self._square is None else self._square + square
        self.seconds += thread_time() - started

    def _record_nonfinite(self, parameters: Iterable[torch.Tensor], gradients: Gradients) -> None:
        # ZeRO's list ends with padding that belongs to no parameter.
        for parameter, gradient in zip(parameters, gradients or (), strict=False):
            if not bool(torch.isfinite(gradient).all()):
                self.nonfinite_layers.append(self._layers[id(parameter)])
