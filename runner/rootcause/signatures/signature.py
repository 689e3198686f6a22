"""The row of a signature table."""

from dataclasses import KW_ONLY, dataclass

from runner.facts.matches import Layer, Role, Scope, Weight


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of line. `pattern` may match anywhere in a line; a set engine runs it too: no look-around, no back-references.

    Of a pattern on several lines, those that begin with `|` begin with another alternative of the whole pattern. Named groups
    become `Match.named`. `fault`: "" if the line only supports others. `source`: where the wording is known from. `sample`
    matches; `near` is similar and does not.
    """

    name: str
    pattern: str
    _: KW_ONLY
    fault: str
    layer: Layer
    scope: Scope
    source: str
    sample: str
    near: str
    weight: Weight = "primary"
    role: Role = ""
    is_lasting: bool = False
