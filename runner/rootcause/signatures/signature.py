"""The row of a signature table."""

from __future__ import annotations

from dataclasses import dataclass

from runner.facts.matches import Layer, Role, Scope, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One kind of line. `pattern` may match anywhere in a line; a set engine runs it too: no look-around, no back-references.

    Named groups become `Match.named`. `fault`: "" if the line only supports others. `source`: where the wording is known from.
    `sample` matches; `near` is similar and does not.
    """

    name: str
    pattern: str
    fault: str
    layer: Layer
    scope: Scope
    source: str
    sample: str
    near: str
    weight: Weight = "primary"
    role: Role = ""
    is_lasting: bool = False


def any_of(*patterns: str, ignore_case: bool = False) -> str:
    """Return the pattern that matches where any of these does."""
    return f"{'(?i)' if ignore_case else ''}(?:{'|'.join(patterns)})"
