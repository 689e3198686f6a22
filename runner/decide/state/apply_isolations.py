"""Apply, the part about isolations."""

from collections.abc import Callable
from typing import Any

from runner.decide.state.cluster_state import State, shared_fields
from runner.decide.state.isolation import Isolation
from runner.facts.messages import isolation as i

# Of isolations that are over; the journal has all. Chosen.
MAX_JUDGED_KEPT = 10


def _wanted(state: State, record: i.IsolationWanted) -> None:
    fields = {**shared_fields(record, Isolation), "nodes": list(record.nodes)}
    state.isolations[record.isolation] = Isolation(**fields, wanted_at=state.now)
    state.next_isolation += 1
    state.count("isolations")


def _begun(state: State, record: i.IsolationBegun) -> None:
    known = state.isolations[record.isolation]
    known.begun_at = state.now
    known.participants = {name: state.nodes[name].incarnation for name in record.nodes}
    known.known_good = list(record.known_good)


def _round_begun(state: State, record: i.IsolationRoundBegun) -> None:
    known = state.isolations[record.isolation]
    known.asked, known.ends = record.measure, []


def _measured(state: State, record: i.IsolationMeasured) -> None:
    known = state.isolations[record.isolation]
    known.trouble = record.trouble or known.trouble
    if record.alone is not None:
        known.alone.append(record.alone)
        if record.hardware_class:
            known.hardware_classes[record.alone.node] = record.hardware_class
    if record.pair is not None:
        known.pairs.append(record.pair)
        known.ends = [end for end in known.ends if end.nodes != record.pair.nodes]
    if record.end is not None:
        known.ends.append(record.end)


def _judged(state: State, record: i.IsolationJudged) -> None:
    known = state.isolations[record.isolation]
    known.judged, known.asked = record.judged, None
    known.alone, known.pairs, known.ends = [], [], []
    over = [name for name, each in state.isolations.items() if each.judged is not None]
    for name in over[:-MAX_JUDGED_KEPT]:
        del state.isolations[name]


OF_ISOLATIONS: dict[type, Callable[[State, Any], None]] = {
    i.IsolationWanted: _wanted,
    i.IsolationBegun: _begun,
    i.IsolationRoundBegun: _round_begun,
    i.IsolationMeasured: _measured,
    i.IsolationJudged: _judged,
}
