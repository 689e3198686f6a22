"""Rules that give messages a class by what they say, where files and functions do not decide it. The first that applies counts."""

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass

from runner.facts.matches import Layer, Scope
from tools.catalogues.rows import Level, Row

ALL_LEVELS: tuple[Level, ...] = ("error", "warning", "info", "debug")
AT_FAULT: tuple[Level, ...] = ("error", "warning")


@dataclass(frozen=True, slots=True)
class Rule:
    """Formats that match `pattern`, any case, in files below `paths`, at these levels. `why` goes into the row.

    `is_understated`: what the emitter writes at level info reports the fault all the same, so its row counts as an error.
    """

    pattern: str
    fault: str
    why: str = ""
    _: KW_ONLY
    paths: tuple[str, ...] = ("",)
    levels: tuple[Level, ...] = AT_FAULT
    layer: Layer | None = None
    scope: Scope | None = None
    lasting: bool = False
    is_understated: bool = False

    def applies(self, at: str, text: str, level: Level) -> bool:
        """Whether this rule judges a format."""
        is_here = level in self.levels and at.startswith(self.paths)
        return is_here and bool(re.search(self.pattern, text, re.IGNORECASE))


def first_rule(rules: Iterable[Rule], at: str, text: str, level: Level) -> Rule | None:
    """Return the first rule that judges a format; None where none does."""
    return next((rule for rule in rules if rule.applies(at, text, level)), None)


def judged(row: Row, rule: Rule | None) -> Row:
    """Return a row with the class that a rule gives it."""
    if rule is None:
        return row
    return Row(
        row.at,
        row.format,
        "error" if rule.is_understated and row.level == "info" else row.level,
        rule.fault,
        layer=rule.layer,
        scope=rule.scope,
        style=row.style,
        requires=row.requires,
        lasting=rule.lasting,
        why=rule.why,
    )
