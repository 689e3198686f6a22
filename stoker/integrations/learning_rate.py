"""Remedies of the learning rate, for any optimizer of torch and whatever schedules its rate.

The rate is changed for the time of the optimizer's step alone: before it a hook scales the rate, and after it another brings the
schedule's back. So any scheduler, recursive or not, goes on undisturbed, checkpoints hold the script's own rates, and a resume
applies each remedy once. What is read back is the rate that the optimizer stepped with.
"""

from collections.abc import Iterable
from typing import Any

from stoker.run import Run

NAMES = ("lr_factor", "lr_peak", "lr")


class LearningRate:
    """Applies the run's remedies to optimizers, from their next step on, and reports after that step what took effect.

    `done`: steps already done. `in_effect`: the rate of the first optimizer's first group in its last step; None before, and
    without Stoker, where nothing is done.
    """

    def __init__(self, run: Run, optimizers: Iterable[Any], *, done: int) -> None:
        self.in_effect: float | None = None
        self._run = run
        self._done: int | None = done
        self._ordered = run.remedies(*NAMES)
        # Rates of the schedule of an optimizer that is stepping now.
        self._scheduled: dict[int, list[Any]] = {}
        self._optimizers = list(map(_innermost, optimizers)) if run.is_supervised else []
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._before)
            optimizer.register_step_post_hook(self._after)

    def _before(self, optimizer: Any, *_: Any) -> None:
        groups = optimizer.param_groups
        # A step that raised has not brought them back.
        self._restore(optimizer)
        self._scheduled[id(optimizer)] = [group["lr"] for group in groups]
        if self._ordered:
            first = groups[0]["lr"]
            for group in groups:
                group["lr"] = self._rate(group, first)

    def _after(self, optimizer: Any, *_: Any) -> None:
        if optimizer is self._optimizers[0]:
            group, scheduled = optimizer.param_groups[0], self._scheduled[id(optimizer)][0]
            self.in_effect = float(group["lr"])
            if self._done is not None:
                self._read_back(group, float(scheduled))
        self._restore(optimizer)

    def _restore(self, optimizer: Any) -> None:
        rates = self._scheduled.pop(id(optimizer), [])
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            group["lr"] = rate

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
        """Report the remedies as the rates before and in the step show them."""
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
        }
        others = {name: group[name] for name in ("betas", "eps", "weight_decay") if name in group}
        self._run.read_back(done, **values, **others)


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
