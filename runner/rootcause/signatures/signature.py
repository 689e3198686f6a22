"""What a signature is."""

from __future__ import annotations

from dataclasses import dataclass

from runner.facts.matches import Layer, Role, Scope, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One kind of line. `pattern` is searched for anywhere in a line, and runs in a set engine too.

    So it has neither look-around nor back-references. Named groups say what a line names (`Match.named`). `source`: where the
    wording is known from. `sample` matches; `near` looks much like it, and does not.
    """

    name: str
    pattern: str
    # "": it only supports others
    fault: str
    layer: Layer
    scope: Scope
    source: str
    sample: str
    near: str
    weight: Weight = "names"
    role: Role = ""
    is_lasting: bool = False


def any_of(*patterns: str, ignore_case: bool = False) -> str:
    """Return the pattern that matches what any of these does."""
    return f"{'(?i)' if ignore_case else ''}(?:{'|'.join(patterns)})"
