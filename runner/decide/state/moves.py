"""Moves: a decision may move nothing in a way that the life cycles lack.

Checked where a decision is made, not where it is applied: a refused decision is recorded as failed and its input is passed over,
while a journal that holds such a move still loads.
"""

from collections.abc import Callable, Iterable
from typing import Any

from runner.decide.state.cluster_state import State
from runner.errors import IllegalMove
from runner.facts import lifecycles
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p

# What a record moves, by which table, from where (None: it is new, or older than what is kept), and to where.
_Move = tuple[str, lifecycles.Table, str | None, str]


def check_moves(state: State, records: Iterable[object]) -> None:
    """Raise IllegalMove if one of these records, applied to this state in turn, makes a move that its table lacks."""
    moved: dict[str, str] = {}
    for record in records:
        read = _MOVES.get(type(record))
        if read is None:
            continue
        who, table, before, to = read(state, record)
        before = moved.get(who, before)
        if before is not None and to not in table[before]:
            allowed = ", ".join(table[before]) or "nothing: it is over"
            raise IllegalMove(f"{who} cannot move from {before} to {to}; allowed: {allowed}")
        moved[who] = to


def _node(state: State, record: r.NodeChanged) -> _Move:
    node = state.nodes.get(record.node)
    before = node.state if node is not None else "absent"
    return f"node {record.node}", lifecycles.NODE, before, record.state


def _run(state: State, record: r.RunChanged) -> _Move:
    return f"run {record.run}", lifecycles.RUN, state.runs[record.run].state, record.state


def _attempt(state: State, record: r.AttemptChanged | r.AttemptPrepared) -> _Move:
    attempt = state.attempt_of(record.attempt)
    to = record.state if isinstance(record, r.AttemptChanged) else "prepared"
    before = attempt.state if attempt is not None else None
    return f"attempt {record.attempt}", lifecycles.ATTEMPT, before, to


def _incident(state: State, record: r.IncidentOpened | r.IncidentChanged | r.RungTaken) -> _Move:
    known = state.incidents.get(record.incident)
    opened_or_acting = "open" if isinstance(record, r.IncidentOpened) else "acting"
    to = record.state if isinstance(record, r.IncidentChanged) else opened_or_acting
    before = known.state if known is not None else None
    return f"incident {record.incident}", lifecycles.INCIDENT, before, to


def _action(state: State, record: r.ActionEnded) -> _Move:
    before = "issued" if record.id in state.actions else None
    return f"action {record.id}", lifecycles.ACTION, before, record.outcome


def _proposal(state: State, record: p.ProposalDecided) -> _Move:
    known = state.proposals.get(record.action)
    before = known.state if known is not None else None
    return f"action {record.action}", lifecycles.ACTION, before, record.state


_MOVES: dict[type, Callable[[State, Any], _Move]] = {
    r.NodeChanged: _node,
    r.RunChanged: _run,
    r.AttemptChanged: _attempt,
    r.AttemptPrepared: _attempt,
    r.IncidentOpened: _incident,
    r.IncidentChanged: _incident,
    r.RungTaken: _incident,
    r.ActionEnded: _action,
    p.ProposalDecided: _proposal,
}
