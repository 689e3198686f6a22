"""Confidence: how often a verdict that was reached like this one is right."""

from collections.abc import Sequence

from runner.facts.matches import KnownBy, Layer, Match

# Of a hand-written signature of this layer; chosen, in the order of how often such lines were the cause in real logs.
BY_LAYER: dict[Layer, float] = {
    "device": 0.95,
    "link": 0.9,
    "machine": 0.9,
    "program": 0.85,
    "metrics": 0.8,
    "consequence": 0.6,
    "network": 0.75,
    "collective": 0.6,
    "scheduler": 0.9,
    "launcher": 0.5,
    "other": 0.4,
}
# Times that, for what is known in another way; chosen.
BY_KNOWLEDGE: dict[KnownBy, float] = {
    "signature": 1.0,
    "catalogue": 0.95,
    "traceback": 0.85,
    "family": 0.7,
}
# At most, of a traceback, by what of it shows the fault (`rootcause.tracebacks.rules.By`); chosen.
BY_SHOWN = {"confirmed": 0.85, "class": 0.85, "package": 0.8, "phase": 0.6, "nothing": 0.4}
# Times that, when the same layer names other faults too; chosen.
DISPUTED = 0.8
# What a family's own confidence is at least; chosen.
LEAST_FAMILY = 0.3


def confidence_in(root: Match, rivals: Sequence[Match]) -> float:
    """Return the confidence, between 0 and 1, in the fault of `root` among matches that count as much."""
    confidence = BY_LAYER[root.layer] * BY_KNOWLEDGE[root.known_by]
    if root.known_by == "family" and (stated := root.named.get("confidence", "")):
        confidence = _bounded(stated)
    if root.known_by == "traceback":
        confidence = min(confidence, BY_SHOWN.get(root.named.get("shown", ""), confidence))
    if any(match.fault != root.fault for match in rivals):
        confidence *= DISPUTED
    return round(confidence, 2)


def _bounded(text: str) -> float:
    """Return the confidence that a match of a family carries, within bounds: its text may come from another node."""
    try:
        return min(LEAST_FAMILY + 0.6, max(LEAST_FAMILY, float(text)))
    except ValueError:
        return LEAST_FAMILY
