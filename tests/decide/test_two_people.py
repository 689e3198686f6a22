"""Two people and faults at once, in every mode: budgets hold, a suspended ladder takes no rung, a request has one final answer."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.consent import is_pending
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import State
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.specs.runbook import MODES, PASSIVE_VERBS, Mode, PageLimits
from tests.decide.random_faults import NODES, RandomFaults, policy

DEEDS = (
    RandomFaults.ask_as_person,
    RandomFaults.ask_as_person,
    RandomFaults.ask_as_person,
    RandomFaults.bring_up,
    RandomFaults.bring_up,
    RandomFaults.end_rank,
    RandomFaults.end_gang,
    RandomFaults.clear,
    RandomFaults.report,
    RandomFaults.find,
    RandomFaults.answer,
    RandomFaults.pass_time,
    RandomFaults.restart,
)
NUMBERS = st.integers(0, 999)
STREAMS = st.lists(
    st.tuples(st.integers(0, len(DEEDS) - 1), NUMBERS, NUMBERS), min_size=10, max_size=60
)
PER_DAY = 3


def bounded(mode: Mode) -> Policy:
    """Return the policy of the other random faults in this mode, its pages with a limit by the day."""
    given = policy()
    limits = PageLimits(per_day=PER_DAY)
    books = tuple(replace(book, limits=limits) for book in given.runbooks)
    return Policy(cluster=replace(given.cluster, mode=mode), runbooks=books)


def play(mode: Mode, deeds: list[tuple[int, int, int]]) -> RandomFaults:
    """Start a run on nodes that have joined, then let people and faults come."""
    faults = RandomFaults(bounded(mode))
    for pick in range(4):
        faults.join(pick, 10)
    faults.ask(1, 8)
    faults.bring_up(0, 1)
    for which, pick, how in deeds:
        DEEDS[which](faults, pick, how)
    return faults


def come_to_rest(faults: RandomFaults) -> None:
    """Stop all runs, let every action end and every node confirm that it is clear."""
    faults.take(q.ShutDown(id="the-end"))
    for _ in range(30):
        for item in list(faults.state.actions.values()):
            faults.take(ActionResult(id=item.action.id, outcome="unknown"))
        for name in NODES:
            node = faults.state.nodes.get(name)
            if node is not None and node.ranks_may_run is not None:
                where: dict[str, Any] = {"node": name, "incarnation": node.incarnation}
                where["instance_id"] = node.instance_id
                attempt = node.ranks_may_run
                gone = s.RanksTerminated(**where, attempt=attempt, generation=node.generation)
                faults.read(gone)
        faults.now += 60.0
        faults.take(r.Tick())
        if not any(run.is_alive for run in faults.state.runs.values()):
            return


def check_rungs(faults: RandomFaults) -> None:
    """Follow the journal: no rung while a person's request or hold stands, and none above the limit of the day."""
    state, taken = State(), Counter[tuple[int | None, str]]()
    for entry in faults.entries:
        state.now, state.sequence = max(state.now, entry.now), entry.sequence
        for record in entry.records:
            if isinstance(record, r.RungTaken) and record.do not in PASSIVE_VERBS:
                number = state.incidents[record.incident].run
                run = state.runs.get(number or 0)
                if run is not None and not record.by:
                    waited = [x for x in run.pending_requests if is_pending(x, run.attempt)]
                    assert not waited, f"{record} while {waited}"
                    assert run.hold is None, f"{record} while {run.hold}"
                    # All within one day.
                    taken[number, record.runbook] += 1
            apply_record(state, record)
    assert max(taken.values(), default=0) <= PER_DAY


@given(st.sampled_from(MODES), STREAMS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_people_and_the_ladder_do_not_get_into_each_others_way(
    mode: Mode, deeds: list[tuple[int, int, int]]
) -> None:
    """In mode off no rung is taken at all; at rest every request is answered, and every incident over or paged."""
    faults = play(mode, deeds)
    check_rungs(faults)
    records = [record for entry in faults.entries for record in entry.records]
    if mode == "off":
        specs = {x.run: x.spec for x in records if isinstance(x, r.RunAdmitted)}
        # run.yaml's own mode goes before the cluster's.
        off = {run for run, spec in specs.items() if spec.mode in ("", "off")}
        of_runs = {x.incident for x in records if isinstance(x, r.IncidentOpened) and x.run in off}
        rungs = [x for x in records if isinstance(x, r.RungTaken) and x.incident in of_runs]
        assert all(x.do in PASSIVE_VERBS or x.by for x in rungs)
    come_to_rest(faults)
    assert faults.state.decision_failures == 0
    assert not any(run.is_alive for run in faults.state.runs.values())
    finals = Counter(
        record.id
        for entry in faults.entries
        for record in entry.records
        if isinstance(record, r.RequestRecorded) and record.state != "open"
    )
    asked = {
        record.id
        for entry in faults.entries
        for record in entry.records
        if isinstance(record, r.RequestRecorded)
    } - {"the-end"}
    assert {name: finals[name] for name in asked} == dict.fromkeys(asked, 1)
    paged = {
        record.action.incident
        for entry in faults.entries
        for record in entry.records
        if isinstance(record, r.ActionIssued) and record.action.action == "page"
    }
    for incident in faults.state.incidents.values():
        if incident.run is not None:
            assert not incident.is_live or incident.on_trial or incident.incident in paged
    assert all(known.state != "proposed" for known in faults.state.proposals.values())
