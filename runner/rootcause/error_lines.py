"""Error lines: what those most likely mean that are known to be errors, and no more, by their families and wordings.

The answer is weaker than that of a signature, a catalogue or a traceback: it counts where none of them names a cause. A rank that
has reported a lost peer or a timeout explains that in what it writes next: no such line names a cause.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import ECHOES, Match
from runner.rootcause.statements import statement_of, with_statement
from runner.rootcause.tracebacks.single_lines import (
    QUALIFIED_CLASS,
    finding_of_line,
    finding_of_message,
)
from runner.rootcause.wordings import Wordings, judge_line

# An exception of a module, at the start of a line.
QUALIFIED = re.compile(rf"\s*(?:{QUALIFIED_CLASS}): ")
# Below it a line stays unknown: a guess that is wrong more often than right answers worse than none.
LEAST_CONFIDENCE = 0.5
# Words of a line that the model must know to decide: of fewer, one decides alone. Chosen.
LEAST_KNOWN = 5
# Lines of one log that are judged: the first ones matter. Chosen.
MAX_JUDGED = 200


def with_likeliest(matches: Sequence[Match], wordings: Wordings) -> list[Match]:
    """Return matches of one log in which unknown errors have the likeliest fault of their words, where that is likely enough."""
    named = {match.line: True for match in matches if _names(match)}
    num_judged = 0
    found = []
    # Ranks that reported an echo; None: a line without a rank did.
    echoed: dict[int | None, bool] = {}
    for match in sorted(matches, key=lambda match: match.line):
        is_open = match.fault == "unknown" and match.layer == "other" and match.weight == "primary"
        if _names(match) and match.layer in ECHOES:
            echoed[match.rank] = True
        is_after = match.rank in echoed
        if is_open and not is_after and match.line not in named and num_judged < MAX_JUDGED:
            num_judged += 1
            match = _likeliest(match, wordings)
        found.append(match)
    return found


def _names(match: Match) -> bool:
    return match.weight == "primary" and match.fault not in ("", "unknown")


def _likeliest(match: Match, wordings: Wordings) -> Match:
    is_raised = match.role == "exception" or QUALIFIED.match(match.text) is not None
    finding = finding_of_line(match.text) if is_raised else None
    if finding is None and match.role != "exception":
        finding = finding_of_message(match.text)
    if finding is not None and finding.fault == "unknown":
        return replace(match, layer=finding.layer)
    if finding is not None:
        scope = FAULTS[finding.fault].scope
        return replace(match, fault=finding.fault, layer=finding.layer, scope=scope)
    if (statement := statement_of(match.text)) is not None:
        return with_statement(match, statement)
    verdict = judge_line(match.text, wordings)
    if (
        verdict is None
        or 0 < verdict.num_known < LEAST_KNOWN
        or verdict.fault == "unknown"
        or verdict.layer == "launcher"
        or verdict.confidence < LEAST_CONFIDENCE
    ):
        return match
    return replace(
        match,
        fault=verdict.fault,
        layer=verdict.layer,
        scope=verdict.scope,
        known_by="family",
        named={**match.named, "confidence": f"{verdict.confidence:.2f}", "why": verdict.why},
    )
