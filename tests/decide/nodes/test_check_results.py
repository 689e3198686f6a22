"""What a node's checks say about its hardware: how an answer is read, how long a pass counts, what a repair owes."""

from typing import Any

import pytest
from msgspec import structs

from runner.decide.nodes.checks.check_results import has_valid_pass, passes_due, read
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import Node, State
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages.records_checks import HardwareChecked, MeasuredValue
from runner.facts.specs.cluster import ClusterSpec

CLUSTER = ClusterSpec(name="c", check_level="standard", check_valid_hours=1.0)
BOARD = "board:1"
PASSED = HardwareChecked(hardware=BOARD, node="n1", outcome="PASS", level="standard")


def state_after(*records: object) -> State:
    """Apply records, ten seconds apart, to a state with one node."""
    state = State()
    state.nodes["n1"] = Node(node="n1", index=0, hardware=BOARD, state="checking")
    for record in records:
        state.now += 10.0
        apply_record(state, record)
    return state


def counts(state: State, after_seconds: float = 0.0) -> bool:
    """Whether a pass still counts after a while."""
    return has_valid_pass(state, state.nodes["n1"], CLUSTER, state.now + after_seconds)


def test_a_pass_counts_until_it_expires() -> None:
    """For `check_valid_hours`; one of a lower level does not count for a higher one."""
    assert counts(state_after(PASSED))
    assert not counts(state_after(PASSED), after_seconds=3601.0)
    assert not counts(state_after())
    lower = HardwareChecked(hardware=BOARD, node="n1", outcome="PASS", level="passive")
    assert not counts(state_after(lower))
    # A look at less does not take the place of the pass.
    assert counts(state_after(PASSED, lower))


def test_a_passive_look_leaves_what_it_did_not_measure() -> None:
    """The rates stay, for the node's peers, and as old as they are."""
    rate = MeasuredValue(name="rate", value=800.0, better="higher")
    old, new = (MeasuredValue(name="driver", value=each, better="same") for each in (1.0, 2.0))
    first = HardwareChecked(hardware=BOARD, node="n1", outcome="PASS", values=(old, rate))
    known = state_after(first, structs.replace(first, values=(new,))).hardware[BOARD]
    assert (known.values, known.measured_at) == ([new, rate], 10.0)
    known = state_after(first, structs.replace(first, values=(new, rate))).hardware[BOARD]
    assert (known.values, known.measured_at) == ([new, rate], 20.0)


def test_a_pass_counts_for_the_other_nodes_of_its_machine() -> None:
    """Until the other node fails, or this one is suspected or owes passes of its own; a node elsewhere has its own machine."""
    for address, is_counted in (("10.0.0.1", True), ("10.0.0.2", False), ("", False)):
        state = state_after(PASSED)
        other = Node(node="n2", index=1, hardware="board:2", state="checking", address=address)
        state.nodes["n1"].address, state.nodes["n2"] = "10.0.0.1", other
        assert has_valid_pass(state, other, CLUSTER, state.now) is is_counted
        assert not has_valid_pass(state, other, CLUSTER, state.now + 3601.0)
        suspected = r.NodeChanged(node="n2", state="checking", reason="", incident="i1")
        failed = r.HardwareFaultRecorded(hardware=BOARD, node="n1", fault="node_unfit")
        behind = HardwareChecked(hardware="board:2", node="n2", outcome="PASS", behind=("slow",))
        seen = r.HardwareSeen(hardware="board:2", node="n2")
        for records in ((failed,), (seen, suspected), (behind,)):
            after = state_after(PASSED)
            after.nodes["n1"].address = address
            after.nodes["n2"] = Node(node="n2", index=1, hardware="board:2", address=address)
            for record in records:
                after.now += 10.0
                apply_record(after, record)
            assert not has_valid_pass(after, after.nodes["n2"], CLUSTER, after.now)


@pytest.mark.parametrize(
    "fault",
    [
        r.HardwareFaultRecorded(hardware=BOARD, node="n1", fault="node_silent"),
        r.HardwareFaultRecorded(hardware=BOARD, node="n1", fault="node_unfit"),
        HardwareChecked(hardware=BOARD, node="n1", outcome="PASS", behind=("slow",)),
    ],
)
def test_a_pass_does_not_count_after_a_fault(fault: object) -> None:
    """Whatever its hardware has done since, it is checked again."""
    assert not counts(state_after(PASSED, fault))


def test_a_suspect_of_an_incident_and_a_node_that_a_person_had_owe_the_whole_check() -> None:
    """What their hardware passed before says nothing of that; a node that only joins again keeps its pass."""
    suspected = r.NodeChanged(node="n1", state="checking", incident="i1")
    had = (
        r.NodeChanged(node="n1", state="maintenance"),
        r.NodeChanged(node="n1", state="checking"),
    )
    back = (r.NodeChanged(node="n1", state="left"), r.NodeChanged(node="n1", state="checking"))
    assert not counts(state_after(PASSED, r.NodeChanged(node="n1", state="active"), suspected))
    assert not counts(state_after(PASSED, *had))
    assert counts(state_after(PASSED, *back))


def test_after_a_repair_two_passes_in_a_row_are_due() -> None:
    """Refused hardware that is readmitted, and hardware whose checks failed; a pass that was behind is none."""
    failed = r.HardwareFaultRecorded(hardware=BOARD, node="n1", fault="node_unfit")
    judged = r.HardwareJudged(hardware=BOARD, verdict="quarantined")
    back = r.HardwareJudged(hardware=BOARD, verdict="")
    behind = HardwareChecked(hardware=BOARD, node="n1", outcome="PASS", behind=("slow",))
    for records in ([failed], [judged, back], [failed, judged, back]):
        state = state_after(*records)
        assert passes_due(state, state.nodes["n1"]) == 2
        state = state_after(*records, PASSED, behind)
        assert passes_due(state, state.nodes["n1"]) == 1
        assert not counts(state)
        assert counts(state_after(*records, PASSED, PASSED))
    # A person who forgives faults of hardware that serves asks for no repair.
    state = state_after(PASSED, back)
    assert passes_due(state, state.nodes["n1"]) == 0


def answer(*evidence: dict[str, Any], outcome: str = "FAIL") -> ActionResult:
    """Return the answer of an agent whose only check found this."""
    verdict = {"check": "compute_rate", "outcome": outcome, "evidence": list(evidence)}
    detail = {"outcome": outcome, "checks": [verdict], "hardware_class": "8 x H100"}
    return ActionResult(id="a1", outcome="done", detail=detail)


def piece(value: object, limit: float | None, better: str = "higher") -> dict[str, Any]:
    """Make a piece of evidence."""
    is_below = isinstance(value, float) and limit is not None and value < limit
    outcome = None if limit is None else "FAIL" if is_below else "PASS"
    return {"name": "tflops", "value": value, "limit": limit, "better": better, "outcome": outcome}


def test_a_value_beyond_its_floor_alone_is_a_weak_sign() -> None:
    """A wrong result beside it is none."""
    slow = read(answer(piece(300.0, 500.0)))
    assert (slow.outcome, slow.is_weak, len(slow.below)) == ("FAIL", True, 1)
    wrong = read(answer(piece(300.0, 500.0), piece(1.0, 2.0, better="")))
    assert (wrong.outcome, wrong.is_weak) == ("FAIL", False)


def test_what_cannot_be_compared_is_left_out() -> None:
    """Nothing measured, NaN, values without a side, and answers of another form are no values."""
    unusable = (
        piece(None, 5.0),
        piece(float("nan"), None),
        piece(1.0, None, better=""),
        {"name": 3},
    )
    assert read(answer(*unusable, outcome="PASS")).values == ()
    for detail in ({}, {"checks": "x"}, {"outcome": "GOOD", "checks": [1, {"evidence": 7}]}):
        found = read(ActionResult(id="a1", outcome="done", detail=detail))
        assert (found.outcome, found.values) == ("UNKNOWN", ())
    lost = ActionResult(id="a1", outcome="failed", detail={"outcome": "PASS"})
    assert read(lost).outcome == "UNKNOWN"
