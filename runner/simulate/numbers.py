"""The numbers of a simulated run: a loss that falls, data that ruins it, a learning rate that is too high, hardware that makes NaN.

What has ruined the weights is in its checkpoints, and in all steps after them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from runner.facts.messages.signals import StepRecord
from runner.facts.remedies.skipped_steps import data_step
from runner.simulate.training import Training

USUAL_SCALE = 2.0**15
VALIDATE_EVERY = 10


@dataclass(slots=True, kw_only=True)
class SimNumbers:
    """The weights of one gang, as far as they show in its loss."""

    training: Training
    remedies: Mapping[str, Any]
    nodes: tuple[str, ...]
    lr_peak: float
    base: int
    # The data step that it had read when it was sealed.
    position: int
    # Since which step, and how; "": they are sound.
    ruined_at: int = 0
    ruin: str = ""
    records: list[StepRecord] = field(default_factory=list)
    # Node -> how many of them it has reported.
    reported: dict[str, int] = field(default_factory=dict)

    @property
    def lr_factor(self) -> float:
        """The learning rate over that of the start."""
        rate = self.remedies.get("lr", self.remedies.get("lr_peak", self.lr_peak))
        return float(rate) / self.lr_peak * float(self.remedies.get("lr_factor", 1.0))

    def data_position(self, step: int) -> int:
        """Return the data step that a training step reads."""
        if step <= self.base:
            return self.position
        skipped = self.remedies.get("skip_steps", ())
        return data_step(step, skipped, after=(self.base, self.position))

    def advance(self, step: int) -> StepRecord:
        """Make a step, and keep its record for the next heartbeats."""
        faults, read = self.training, self.data_position(step)
        if self.ruin == "spike" and step > self.ruined_at + (faults.heals_after or math.inf):
            self.ruin = ""
        if faults.poisoned_from <= read <= faults.poisoned_to:
            self._ruin(step, "spike")
        for how, after in (
            ("divergence", faults.diverges_after),
            ("norm", faults.norm_jumps_after),
            ("drift", faults.norm_drifts_after),
            ("scale", faults.scale_falls_after),
        ):
            if after is not None and step > after and self.lr_factor > faults.stable_lr_factor:
                self._ruin(step, how)
        if faults.skipping_node in self.nodes and step > faults.skip_after:
            self._ruin(step, "skip")
        if faults.nan_node in self.nodes and step > faults.nan_after:
            self._ruin(step, "nan")
        self.records.append(self._record(step))
        return self.records[-1]

    def _ruin(self, step: int, how: str) -> None:
        if not self.ruin:
            self.ruined_at, self.ruin = step, how

    def _record(self, step: int) -> StepRecord:
        """Return what ranks report: the noise is a function of the step, so that it is the same when it is done again."""
        usual = 3.0 * math.exp(-0.0005 * step) * (1 + 0.01 * math.sin(12.9898 * step))
        norm = 1.0 + 0.05 * math.sin(78.233 * step)
        since = step - self.ruined_at
        if self.ruin == "nan":
            return StepRecord(step=step, loss=math.nan if since else usual, grad_norm=math.nan)
        if self.ruin == "skip":
            return StepRecord(step=step, loss=usual, grad_norm=math.nan, skipped=True)
        if self.ruin == "spike":
            return StepRecord(step=step, loss=2.5 * usual, grad_norm=4.0 * norm)
        if self.ruin == "divergence":
            risen = min(4.0, 1.1 + 0.1 * since)
            return StepRecord(step=step, loss=usual * risen, grad_norm=2.0 * norm)
        if self.ruin == "drift":
            risen = 1 + min(2.0, 0.01 * since)
            return StepRecord(
                step=step,
                loss=usual * (1 + 0.1 * (risen - 1)),
                grad_norm=risen * norm,
                lr=1e-3 * self.lr_factor,
            )
        sound = StepRecord(step=step, loss=usual, grad_norm=norm)
        return replace(sound, **self._beside(step, since))

    def _beside(self, step: int, since: int) -> dict[str, Any]:
        """Return the numbers beside loss and norm that this run's ranks report."""
        faults, found = self.training, dict[str, Any]()
        if faults.norm_drifts_after is not None:
            found["lr"] = 1e-3 * self.lr_factor
        if self.ruin == "norm":
            found["grad_norm"] = 20.0
        if faults.scale_falls_after is not None:
            found["loss_scale"] = USUAL_SCALE
            found["activation_norm"] = 10.0 * math.exp(-0.001 * step)
        if self.ruin == "scale":
            found["loss_scale"] = max(1.0, USUAL_SCALE / 2 ** (since // 4))
            found["activation_norm"] = 10.0 + 0.01 * since
        if faults.slows_after is not None:
            found["tokens_per_second"] = 700.0 if step > faults.slows_after else 1000.0
        if faults.overfits_after is not None and step % VALIDATE_EVERY == 0:
            found["validation_loss"] = 2.6 if step > faults.overfits_after else 2.0
        return found

    def unreported(self, node: str, rank: int) -> tuple[StepRecord, ...]:
        """Return the steps since a node's last heartbeat as it saw them; `rank` is its first."""
        new = self.records[self.reported.get(node, 0) :]
        self.reported[node] = len(self.records)
        return tuple(self._as_seen(record, node, rank) for record in new)

    def _as_seen(self, record: StepRecord, node: str, rank: int) -> StepRecord:
        """A NaN is born on one node, and is in all weights at the next step, unless that step is skipped."""
        if self.ruin == "skip":
            own = record.step >= self.ruined_at and node == self.training.skipping_node
            norm = math.nan if own else 1.0
            return replace(record, local_grad_norm_max=norm, local_grad_norm_max_rank=rank)
        is_spoilt = self.ruin == "nan" and record.step >= self.ruined_at
        own = is_spoilt and (node == self.training.nan_node or record.step > self.ruined_at)
        norm = math.nan if own else 1.0
        return replace(record, local_grad_norm_max=norm, local_grad_norm_max_rank=rank)
