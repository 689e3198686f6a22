"""What was kept of the ranks' output with an incident: lines that were found, last words of ranks, and stacks."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from runner.facts.ids import AttemptId
from runner.facts.matches import Match
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.rank_stacks import RankStack


@dataclass(frozen=True, slots=True, kw_only=True)
class LastOutput:
    """The last lines that a rank wrote to standard error, at most 2 KB of them."""

    node: str
    rank: int
    exit_code: int | None
    text: str


@dataclass(slots=True, kw_only=True)
class IncidentOutput:
    """What was kept with one incident, in the order in which it came; stacks by node."""

    attempt: AttemptId | None
    lines: list[Match] = field(default_factory=list)
    last: list[LastOutput] = field(default_factory=list)
    stacks: list[tuple[str, RankStack]] = field(default_factory=list)


def incident_output(
    entries: Iterable[r.JournalEntry], incident: str, attempt: AttemptId | None
) -> IncidentOutput:
    """Fold entries into what was kept with an incident about `attempt`."""
    kept = IncidentOutput(attempt=attempt)
    for entry in entries:
        match entry.input:
            case s.RankExited() as exited if exited.attempt == attempt and exited.stderr_tail:
                kept.last.append(
                    LastOutput(
                        node=exited.node,
                        rank=exited.rank,
                        exit_code=exited.exit_code,
                        text=exited.stderr_tail,
                    )
                )
            case s.RanksTerminated() as ended if ended.attempt == attempt:
                kept.stacks += [(ended.node, stack) for stack in ended.rank_stacks]
        for record in entry.records:
            if isinstance(record, r.IncidentDiagnosed) and record.incident == incident:
                kept.lines += [match for match in record.matches if match not in kept.lines]
    return kept
