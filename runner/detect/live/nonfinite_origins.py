"""Whose gradient was not finite before it was reduced: a NaN came from that rank, and all others only got it from there."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from runner.facts.faults import Finding
from runner.facts.messages.signals import StepRecord

# Newest steps for which such ranks are kept; chosen.
MAX_STEPS = 64
SEVERAL = 2
# Steps that one rank alone has spoilt, for it to be named the origin; chosen.
LEAST_SKIPPED = 3


@dataclass(slots=True)
class NonfiniteOrigins:
    """What the nodes of one attempt report of it."""

    # Step -> nodes (two at most) with ranks whose own gradient was not finite -> that rank; None: several.
    _origins: dict[int, dict[str, int | None]] = field(default_factory=dict)
    # Of these steps, those that the trainer skipped.
    _skipped: dict[int, None] = field(default_factory=dict)
    # Node -> the last step that it reported.
    _last_steps: dict[str, int] = field(default_factory=dict)
    # Node -> the last gap in the steps that it reported: a heartbeat was lost.
    _gaps: dict[str, range] = field(default_factory=dict)

    def record(self, node: str, record: StepRecord) -> None:
        """Record what a node reports of a step."""
        before = self._last_steps.get(node, record.step - 1)
        if record.step > before + 1:
            self._gaps[node] = range(before + 1, record.step)
        self._last_steps[node] = record.step
        norm, rank = record.local_grad_norm_max, record.local_grad_norm_max_rank
        if norm is None or rank is None or math.isfinite(norm):
            return
        is_alone = (record.num_nonfinite or 1) == 1
        nodes = self._origins.setdefault(record.step, {})
        if len(nodes) < SEVERAL or node in nodes:
            nodes[node] = rank if is_alone else None
        if record.skipped:
            self._skipped[record.step] = None
        if len(self._origins) > MAX_STEPS:
            oldest = next(iter(self._origins))
            self._skipped.pop(oldest, None)
            del self._origins[oldest]

    def named(self, finding: Finding, nodes: Iterable[str]) -> Finding | None:
        """Name the rank whose own gradient, and no other's, was not finite to begin with; None: not known."""
        onset = finding.step or 0
        if finding.fault == "nan_loss":
            # A step's NaN is in the weights, and in the loss, at the next step.
            spoilt = [step for step in self._origins if step not in self._skipped]
            first = next((step for step in (onset - 1, onset) if step in spoilt), None)
            steps, least = ([first] if first is not None else []), 1
        else:
            steps, least = [step for step in self._origins if step >= onset], LEAST_SKIPPED
        until = max([onset, *steps])
        # A node that has not reported all these steps may be the origin.
        for node in nodes:
            has_missed = any(step in self._gaps.get(node, ()) for step in steps)
            if self._last_steps.get(node, -1) < until or has_missed:
                return None
        spoilt_by = {
            (node, rank): True for step in steps for node, rank in self._origins[step].items()
        }
        found = {node: True for node, _ in spoilt_by}
        if len(found) != 1 or len(steps) < least:
            return None
        node = next(iter(found))
        rank = next(iter(spoilt_by))[1] if len(spoilt_by) == 1 else None
        who = f"ranks on {node}" if rank is None else f"rank {rank} on {node}"
        origin = (
            f"{who} alone had a gradient of their own that was not finite, at step {min(steps)}"
        )
        return replace(finding, evidence=f"{finding.evidence}; {origin}", node=node, rank=rank)
