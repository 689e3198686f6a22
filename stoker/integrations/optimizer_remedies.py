"""Remedies of how an optimizer of torch steps: its rate whatever schedules it, its betas, and where its trainer clips gradients.

Rate and betas are changed for the time of the optimizer's step alone: before it a hook changes them, and after it another brings
the script's own back. So any scheduler, recursive or not, goes on undisturbed, checkpoints hold the script's own values, and a
resume applies each remedy once. What is read back is what the optimizer stepped with.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stoker.run import Run

OF_RATE = ("lr_factor", "lr_peak", "lr")
# Of a group, what a step changes.
_CHANGED = ("lr", "betas")
# Clipped gradients are a little shorter or longer than the norm by rounding.
_CLIP_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Clipping:
    """The norm at which a trainer clips gradients, as it is set there. `read` returns it, `write` changes it."""

    read: Callable[[], float | None]
    write: Callable[[float], None]


class OptimizerRemedies:
    """Applies the run's remedies to optimizers, from their next step on, and reports after that step what took effect.

    `done`: steps already done. `clipping`: None where the trainer clips in a way that is not known. `read`: other settings that
    were read back, for the same report. `in_effect`: the rate of the first optimizer's first group in its last step; None before,
    and without Stoker, where nothing is done.
    """

    def __init__(
        self,
        run: Run,
        optimizers: Iterable[Any],
        *,
        done: int,
        clipping: Clipping | None = None,
        read: Mapping[str, Any] | None = None,
    ) -> None:
        self.in_effect: float | None = None
        self._run, self._clipping, self._read = run, clipping, read or {}
        self._done: int | None = done
        # What a step changes, as the script has it, of an optimizer that is stepping now.
        self._own: dict[int, list[dict[str, Any]]] = {}
        self._gradient_norm: float | None = None
        self._optimizers = list(map(_innermost, optimizers)) if run.is_supervised else []
        groups = [group for each in self._optimizers for group in each.param_groups]
        names = [*OF_RATE]
        if groups and all("betas" in group for group in groups):
            names.append("betas")
        if clipping is not None:
            names.append("clip")
        self._ordered = run.remedies(*names)
        if clipping is not None and "clip" in self._ordered:
            clipping.write(self._ordered["clip"])
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._before)
            optimizer.register_step_post_hook(self._after)

    def _before(self, optimizer: Any, *_: Any) -> None:
        groups = optimizer.param_groups
        # A step that raised has not brought them back.
        self._restore(optimizer)
        if self._done is not None and self._clipping is not None:
            self._gradient_norm = gradient_norm(optimizer) if _are_whole(groups) else None
        self._own[id(optimizer)] = [
            {name: group[name] for name in _CHANGED if name in group} for group in groups
        ]
        if self._ordered:
            first = groups[0]["lr"]
            for group in groups:
                group["lr"] = self._rate(group, first)
                if "betas" in self._ordered:
                    group["betas"] = tuple(self._ordered["betas"])

    def _after(self, optimizer: Any, *_: Any) -> None:
        if optimizer is self._optimizers[0]:
            group, own = optimizer.param_groups[0], self._own[id(optimizer)][0]
            self.in_effect = float(group["lr"])
            if self._done is not None:
                self._read_back(group, float(own["lr"]))
        self._restore(optimizer)

    def _restore(self, optimizer: Any) -> None:
        own = self._own.pop(id(optimizer), [])
        for group, values in zip(optimizer.param_groups, own, strict=False):
            group.update(values)

    def _rate(self, group: dict[str, Any], first: Any) -> Any:
        """Return the rate of a group: scaled as ordered. `first`: the schedule's rate of the first group."""
        rate = self._ordered.get("lr")
        if rate is None:
            return group["lr"] * self._scale(group)
        # Other groups keep their ratio to the first.
        return rate * (group["lr"] / first) if first else rate

    def _scale(self, group: dict[str, Any]) -> float:
        factor: float = self._ordered.get("lr_factor", 1.0)
        peak = self._ordered.get("lr_peak")
        return factor if peak is None else factor * peak / _peak(group)

    def _read_back(self, group: dict[str, Any], scheduled: float) -> None:
        """Report the remedies as rates, betas and gradients in the step show them."""
        done, self._done = self._done, None
        assert done is not None
        wanted = self._scale(group)
        rate = float(group["lr"])
        # Of a rate that the schedule has at nothing, as at the begin of a warm-up, no ratio can be read.
        was_scaled = "lr" not in self._ordered and scheduled != 0
        deviation = rate / (scheduled * wanted) if was_scaled else 1.0
        values = {
            "lr": rate,
            "lr_factor": self._ordered.get("lr_factor", 1.0) * deviation,
            "lr_peak": self._ordered.get("lr_peak", _peak(group)) * deviation,
            **self._read,
        }
        if self._clipping is not None:
            values["clip"] = self._clip_in_effect(self._clipping.read())
        others = {name: group[name] for name in ("betas", "eps", "weight_decay") if name in group}
        self._run.read_back(done, **values, **others)

    def _clip_in_effect(self, norm: float | None) -> float | None:
        """Return the norm that the trainer has, or that of the gradients where it has not clipped them at that."""
        found = self._gradient_norm
        if norm and found is not None and found > norm * (1 + _CLIP_TOLERANCE):
            return found
        return norm or None


def gradient_norm(optimizer: Any) -> float:
    """Return the norm of all gradients of an optimizer, which must be whole on this rank."""
    gradients = [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    norms = torch._foreach_norm(gradients) if gradients else [torch.zeros(())]
    return float(
        torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
    )


def _are_whole(groups: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no gradient is a sharded tensor's, or a sparse one."""
    gradients = (parameter.grad for group in groups for parameter in group["params"])
    return all(
        type(each) is torch.Tensor and each.layout is torch.strided
        for each in gradients
        if each is not None
    )


def _peak(group: dict[str, Any]) -> float:
    """Return the highest rate of a group's schedule: schedulers note it in the group."""
    return float(group.get("max_lr") or group.get("initial_lr") or group["lr"])


def _innermost(optimizer: Any) -> Any:
    """Return the optimizer of torch inside the wrappers of libraries, whose own hooks are never called."""
    inner = getattr(optimizer, "optimizer", None)
    while hasattr(inner, "param_groups"):
        optimizer, inner = inner, getattr(inner, "optimizer", None)
    if not hasattr(optimizer, "register_step_pre_hook"):
        raise TypeError(
            f"stoker: {type(optimizer).__name__} has no register_step_pre_hook, by which remedies change the learning rate; "
            "it needs to be an optimizer of torch 2.0 or newer"
        )
    return optimizer
