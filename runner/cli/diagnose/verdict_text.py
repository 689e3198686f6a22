"""Verdicts as text: the root cause in five lines, every other incident in one, and the evidence with file and line."""

from collections.abc import Iterator, Sequence

from runner.collect.log_folders.flight_incidents import SIGNATURE
from runner.collect.log_folders.incidents import LaunchIncident
from runner.facts.causes import Verdict
from runner.facts.matches import KnownBy, Match
from runner.load.fault_meanings import ACTION_MEANINGS, MEANINGS

MAX_SHOWN = 160
_UNLISTED = "a fault that this version does not describe"
_KNOWN_BY: dict[KnownBy, str] = {
    "signature": "a line that is known",
    "catalogue": "the words of the program that wrote the line",
    "traceback": "the exception and its frames",
    "family": "the kind of program that wrote the line, or its plain words, no more",
}


def escaped(text: str) -> str:
    r"""Write what a terminal would obey as text: a line's end in a file's name is `\n`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "replace").decode()
        for char in text
    )


def lines_of(incidents: Sequence[LaunchIncident], *, with_evidence: bool) -> Iterator[str]:
    """Yield the lines for people. The first incident is the root cause."""
    first, *others = incidents
    yield from _five_lines(first)
    if with_evidence:
        yield from _evidence(first.verdict.evidence)
    for other in others:
        yield f"besides:   {_one_line(other)}"
        if with_evidence:
            yield from _evidence(other.verdict.evidence)


def _five_lines(incident: LaunchIncident) -> Iterator[str]:
    verdict = incident.verdict
    cause = verdict.cause
    meaning = MEANINGS.get(cause.fault)
    what = meaning.what if meaning is not None else _UNLISTED
    yield f"what:      {cause.fault}: {what}{_recovery(incident)}"
    yield f"whose:     {_whose(incident)}"
    yield f"how sure:  {cause.confidence:.0%}, by {_source_of(_deciding(verdict))}"
    yield f"because:   {place(_deciding(verdict))}"
    advice = f"; {meaning.advice}" if meaning is not None else ""
    action = ACTION_MEANINGS[cause.action_class]
    yield f"to do:     {cause.action_class}: {action}{advice} (`stoker runbook {cause.fault}`)"


def _one_line(incident: LaunchIncident) -> str:
    cause = incident.verdict.cause
    culprit = f", {cause.culprit.kind} {escaped(cause.culprit.id)}" if cause.culprit else ""
    head = f"{cause.fault}{culprit} ({cause.confidence:.0%}; {cause.action_class}){_recovery(incident)}"
    return f"{head}: {place(_deciding(incident.verdict))}"


def _recovery(incident: LaunchIncident) -> str:
    parts = [
        f"of {incident.launch_name}" if incident.launch_name else "",
        "the run recovered" if incident.verdict.recovered else "",
    ]
    words = ", ".join(part for part in parts if part)
    return f" ({words})" if words else ""


def _whose(incident: LaunchIncident) -> str:
    """Name the culprit, and where the deciding line was written."""
    verdict = incident.verdict
    cause = verdict.cause
    local_rank = f", local rank {incident.local_rank}" if incident.local_rank is not None else ""
    on_node = (f", on {escaped(cause.node)}" if cause.node else "") + local_rank
    ranks = [match.rank for match in verdict.evidence if match.signature == SIGNATURE]
    if len(ranks) > 1:
        return f"ranks {', '.join(str(rank) for rank in ranks)}"
    if cause.culprit is not None:
        is_node = cause.culprit.kind == "node" and cause.culprit.id == cause.node
        return f"{cause.culprit.kind} {escaped(cause.culprit.id)}{'' if is_node else on_node}"
    files = len(dict.fromkeys(match.file for match in verdict.evidence))
    several = f"; {files} files show it" if files > 1 else ""
    return f"no culprit can be named{on_node} (it affects: {cause.scope}{several})"


def _deciding(verdict: Verdict) -> Match:
    return verdict.evidence[0]


def _source_of(match: Match) -> str:
    if match.signature == "metrics":
        return "the numbers of the run's steps"
    if match.signature == SIGNATURE:
        return "the flight records of the ranks"
    return _KNOWN_BY[match.known_by]


def _evidence(evidence: Sequence[Match]) -> Iterator[str]:
    yield from (f"  {place(match)}" for match in evidence)


def place(match: Match) -> str:
    """Write a line of a log with its file, its number, and its writer."""
    rank = f" rank {match.rank}" if match.rank is not None else ""
    line = f":{match.line}" if match.line else ""
    return f"{escaped(match.file)}{line}{rank}: {escaped(match.text.strip()[:MAX_SHOWN])}"
