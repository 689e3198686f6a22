"""What is found of a gang that goes on: told and followed, ended by nobody; lines of hardware that ranks die of are their cause."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.non_fatal import MAX_EVIDENCE, MAX_NON_FATAL
from runner.decide.incidents.pending_evidence import WAIT_SECONDS
from runner.decide.state.cluster_state import MAX_MATCHES_KEPT, Incident
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.faults import Finding
from runner.facts.matches import Match
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from tests.decide.controller_harness import (
    ControllerHarness,
    exited,
    kinds,
    launch,
    training_harness,
)


def found(harness: ControllerHarness, fault: Any, **fields: Any) -> Finding:
    """Make a finding of the gang that is up."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    return Finding(fault=fault, attempt=attempt.attempt, **{"evidence": "it says", **fields})


def line(signature: str, fault: str, layer: Any, **fields: Any) -> Match:
    """Make a line that a signature knew."""
    given = {"scope": "gpu", "file": "kernel", "line": 7, "text": f"{fault} it says"}
    return Match(signature=signature, fault=fault, layer=layer, **{**given, **fields})


def lines(harness: ControllerHarness, node: str, *matches: Match, **fields: Any) -> s.LinesMatched:
    """Make the word of an agent whose ranks live."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    given = {"generation": attempt.generation, "attempt": attempt.attempt, "ranks_alive": True}
    return s.LinesMatched(node=node, incarnation=1, matches=matches, **{**given, **fields})


def stepped(harness: ControllerHarness, step: int) -> None:
    """Let the gang tell of a step."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    harness.take(s.Progress(node="n1", incarnation=1, attempt=attempt.attempt, step=step))
    harness.settle()


def watched(harness: ControllerHarness) -> Incident:
    """Return the only incident."""
    (incident,) = harness.state.incidents.values()
    return incident


LOST = line("xid-79", "gpu_lost", "device", is_lasting=True, named={"gpu": "0000:a1:00"})


def test_numbers_that_do_not_come_back_are_told_and_end_nothing() -> None:
    """One incident, one page; the run goes on, and nothing else waits for it."""
    harness = training_harness()
    stepped(harness, 9)
    records = harness.take(found(harness, "divergence", step=8))
    assert kinds(records) == ["IncidentOpened", "RungTaken", "ActionIssued", "IncidentChanged"]
    assert harness.settle() == []
    run, incident = harness.state.runs[1], watched(harness)
    assert run.incident is None
    assert run.attempt is not None
    assert run.attempt.state == "running"
    assert (incident.state, incident.rungs_taken, incident.step) == ("proving", ["watch"], 9)
    assert "run goes on" in incident.reason


def test_the_same_again_is_one_incident() -> None:
    """Its evidence grows, up to a point; a culprit that is named later is taken over; another rank is another matter."""
    harness = training_harness()
    harness.take(found(harness, "nan_loss"))
    assert kinds(harness.take(found(harness, "nan_loss", node="n2", rank=3))) == ["IncidentAmended"]
    assert (watched(harness).node, watched(harness).rank) == ("n2", 3)
    for _ in range(20):
        harness.take(found(harness, "nan_loss", node="n2", rank=3))
    assert len(watched(harness).evidence) == MAX_EVIDENCE
    harness.take(found(harness, "nan_loss", node="n1", rank=0))
    assert len(harness.state.incidents) == 2


def test_it_is_over_when_the_detector_says_so_or_a_later_attempt_has_passed_the_step() -> None:
    """A run that ends closes what is left."""
    harness = training_harness()
    stepped(harness, 9)
    harness.take(found(harness, "loss_spike"))
    harness.take(found(harness, "loss_spike", recovered=True, evidence="back at 2.1"))
    assert (watched(harness).state, watched(harness).reason) == ("resolved", "back at 2.1")
    assert harness.take(found(harness, "loss_spike", recovered=True)) == []
    harness.take(found(harness, "divergence"))
    stepped(harness, 30)
    assert harness.state.incidents["i2"].state == "proving"
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    launch(harness)
    stepped(harness, 31)
    states = {name: incident.state for name, incident in harness.state.incidents.items()}
    assert states == {"i1": "resolved", "i2": "resolved", "i3": "resolved"}


def test_a_fault_that_comes_back_in_the_next_attempt_is_still_the_same_incident() -> None:
    """What happens again after a restart has not been passed."""
    harness = training_harness()
    stepped(harness, 9)
    harness.take(found(harness, "divergence"))
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    attempt = launch(harness)
    harness.take(found(harness, "divergence"))
    stepped(harness, 31)
    assert harness.state.incidents["i1"].attempt == attempt.attempt
    assert harness.state.incidents["i1"].state == "proving"


def test_findings_without_end_open_no_incidents_without_end() -> None:
    """Twenty ranks are enough to be told of at one time; once these are over, others are."""
    harness = training_harness()
    for rank in range(MAX_NON_FATAL + 30):
        harness.take(found(harness, "nan_loss", node="n1", rank=rank))
    assert len(harness.state.incidents) == MAX_NON_FATAL
    harness.take(found(harness, "nan_loss", node="n1", rank=0, recovered=True))
    harness.take(found(harness, "divergence"))
    assert [one.fault for one in harness.state.incidents.values()][-1] == "divergence"


def test_a_page_that_says_restart_is_obeyed() -> None:
    """What is done about a fault is written in its page, not here."""
    harness = training_harness()
    pages = tuple(
        replace(book, ladder=(replace(book.ladder[0], do="restart"),))
        if "divergence" in book.faults
        else book
        for book in harness.controller.policy.runbooks
    )
    harness.controller.policy = Policy(cluster=harness.controller.policy.cluster, runbooks=pages)
    harness.take(found(harness, "divergence"))
    run = harness.state.runs[1]
    assert run.attempt is not None
    assert (run.incident, run.attempt.state) == ("i1", "stopping")


def test_a_finding_of_a_gang_that_has_ended_is_history() -> None:
    """Nor is one that no page answers an incident."""
    harness = training_harness()
    harness.take(exited(harness, node="n2", rank=3))
    assert harness.take(found(harness, "divergence")) == []
    other = training_harness()
    assert other.take(found(other, "malformed_message")) == []


def test_hardware_that_complains_is_an_incident_unless_ranks_die_of_it() -> None:
    """Lines are in the journal at once; they are judged a moment later."""
    harness = training_harness()
    assert kinds(harness.take(lines(harness, "n2", LOST))) == ["EvidenceRecorded"]
    assert harness.settle() == []
    assert harness.controller.wake_at() is not None
    harness.now += WAIT_SECONDS
    assert "IncidentDiagnosed" in kinds(harness.settle())
    incident = watched(harness)
    assert (incident.fault, incident.node, incident.non_fatal) == ("gpu_lost", "n2", True)
    assert incident.cause is not None
    assert incident.cause.action_class == "swap"
    # Told twice.
    assert harness.take(lines(harness, "n2", LOST)) == []
    harness.take(lines(harness, "n2", replace(LOST, line=9)))
    harness.now += WAIT_SECONDS
    harness.settle()
    assert len(harness.state.incidents) == 1


def test_hardware_that_ranks_die_of_is_the_cause_of_their_death() -> None:
    """There is one incident, its cause is known at once, and nothing is judged later."""
    harness = training_harness()
    harness.take(lines(harness, "n2", LOST, last_step=8))
    harness.take(exited(harness, node="n2", rank=3, last_step=400))
    harness.now += WAIT_SECONDS
    harness.settle()
    incident = watched(harness)
    assert incident.fault == "rank_crash"
    assert incident.cause is not None
    assert (incident.cause.fault, incident.cause.node) == ("gpu_lost", "n2")


def test_a_watched_incident_is_over_when_ranks_die_of_it() -> None:
    """Ten minutes later they do."""
    harness = training_harness()
    harness.take(lines(harness, "n2", LOST))
    harness.now += WAIT_SECONDS
    harness.settle()
    harness.take(exited(harness, node="n2", rank=3))
    states = [(incident.fault, incident.state) for incident in harness.state.incidents.values()]
    assert states == [("gpu_lost", "resolved"), ("rank_crash", "acting")]
    assert harness.state.incidents["i2"].cause == harness.state.incidents["i1"].cause


def test_a_line_of_the_program_explains_a_death_that_follows_at_once_only() -> None:
    """What ranks lived through for steps is none of its causes, and no incident."""
    oom = line("cuda-oom", "cuda_oom", "program", file="rank3.err", rank=3)
    for reached, cause in ((9, "cuda_oom"), (50, None)):
        harness = training_harness()
        harness.take(lines(harness, "n2", oom, last_step=8))
        harness.now += WAIT_SECONDS
        assert harness.settle() == []
        harness.take(exited(harness, node="n2", rank=3, last_step=reached))
        found_cause = watched(harness).cause
        assert (found_cause.fault if found_cause else None) == cause


def test_lines_that_come_when_the_gang_is_down_amend_its_incident() -> None:
    """They were on their way when the rank died."""
    harness = training_harness()
    said = lines(harness, "n2", LOST)
    harness.take(exited(harness, node="n2", rank=3))
    assert kinds(harness.take(said)) == ["IncidentDiagnosed"]


@pytest.mark.parametrize(
    ("ranks", "node", "rank"),
    [
        ((3,), "n2", 3),
        ((2, 3), "n2", None),
        ((0, 3), None, None),
        ((), None, None),
        ((99,), None, None),
    ],
)
def test_copies_that_differ_name_the_odd_rank_and_its_node(
    ranks: tuple[int, ...], node: str | None, rank: int | None
) -> None:
    """Several ranks of one node blame the node; a number that no rank has blames no node."""
    harness = training_harness()
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    said = s.ReplicasDisagree(
        node="n1", incarnation=1, attempt=attempt.attempt, step=40, what="weight", ranks=ranks
    )
    harness.take(said)
    incident = watched(harness)
    assert (incident.fault, incident.node, incident.rank) == ("replicas_disagree", node, rank)
    assert "step 40, weight" in incident.evidence[0]


def test_what_is_watched_survives_a_snapshot() -> None:
    """Lines that wait to be judged, too."""
    harness = training_harness()
    harness.take(found(harness, "divergence"))
    harness.take(lines(harness, "n2", LOST))
    state = wire.decode(wire.encode(harness.state), limit_bytes=10**7)
    assert state == harness.state


def _cleared(harness: ControllerHarness) -> None:
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    for node in attempt.nodes:
        gone = s.RanksTerminated(
            node=node, incarnation=1, generation=attempt.generation, attempt=attempt.attempt
        )
        harness.take(gone)
    assert any(isinstance(record, r.AttemptPlanned) for record in harness.settle())


def test_lines_that_are_lived_through_make_room_for_those_that_count() -> None:
    """Exceptions that a program deals with, day after day, keep no GPU from being told."""
    harness = training_harness()
    oom = line("cuda-oom", "cuda_oom", "program", file="rank3.err", rank=3)
    for number in range(300):
        harness.take(lines(harness, "n2", replace(oom, line=number), last_step=5))
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    assert len(attempt.pending_evidence) == MAX_MATCHES_KEPT
    harness.take(lines(harness, "n2", LOST, last_step=5))
    assert len(attempt.pending_evidence) == MAX_MATCHES_KEPT
    harness.now += WAIT_SECONDS
    harness.settle()
    assert watched(harness).fault == "gpu_lost"
    harness.take(lines(harness, "n2", replace(oom, line=999), last_step=50))
    assert [kept.match.line for kept in attempt.pending_evidence] == [7, 999]


def test_a_line_that_breaks_the_judge_keeps_nobody_from_acting() -> None:
    """A watchdog's line without a number of its collective, which torch writes as a matter of course."""
    harness = training_harness()
    waited = line(
        "watchdog-timeout",
        "nccl_timeout",
        "collective",
        file="rank0.err",
        rank=0,
        role="waited-in-vain",
    )
    other = replace(waited, rank=3, line=8, named={"sequence": "9" * 30})
    harness.take(lines(harness, "n2", waited, other))
    assert "Assigned" in kinds(harness.take(exited(harness, node="n2", rank=3)))


def test_a_line_of_another_node_and_another_day_is_no_cause() -> None:
    """A disk that did not answer on n1 is not why rank 3 on n2 dies of a bug, days later."""
    disk = line("nfs", "filesystem", "machine", scope="storage", of_kernel=True)
    bad = line("row-remap", "gpu_ecc", "device", is_lasting=True, of_kernel=True, line=9)
    harness = training_harness()
    harness.take(lines(harness, "n1", disk, bad, last_step=5))
    harness.now += WAIT_SECONDS
    harness.settle()
    harness.now += 86400.0
    harness.take(exited(harness, node="n2", rank=3, last_step=90_000))
    died = next(one for one in harness.state.incidents.values() if one.fault == "rank_crash")
    assert died.cause is None
    assert all(one.is_live for one in harness.state.incidents.values() if one.non_fatal)


def test_what_all_nodes_say_at_once_is_the_fault_of_none_of_them() -> None:
    """A file server that does not answer: one incident, one page, no node."""
    harness = training_harness()
    disk = line("nfs", "filesystem", "machine", scope="storage", of_kernel=True)
    for node in ("n1", "n2"):
        harness.take(lines(harness, node, disk))
    harness.now += WAIT_SECONDS
    harness.settle()
    assert (watched(harness).fault, watched(harness).node) == ("filesystem", None)


def test_a_run_that_goes_on_from_sick_weights_has_not_passed_what_made_them_sick() -> None:
    """It diverged at 1,000, and the next attempt begins at 1,900; one that begins before the onset passes it."""
    for resumed, state in ((1900, "proving"), (900, "resolved")):
        harness = training_harness(checkpoints="/c")
        stepped(harness, 1950)
        harness.take(found(harness, "divergence", step=1000))
        harness.take(exited(harness, node="n2", rank=3))
        _cleared(harness)
        attempt = launch(harness)
        attempt.resume_step = resumed
        stepped(harness, 2001)
        assert harness.state.incidents["i1"].state == state


def test_a_straggler_that_is_in_the_gang_again_is_over_when_its_detector_says_so() -> None:
    """A restart on the same nodes proves nothing about it."""
    harness = training_harness()
    stepped(harness, 9)
    harness.take(found(harness, "straggler", node="n2", rank=3))
    harness.take(exited(harness, node="n1", rank=0))
    _cleared(harness)
    launch(harness)
    stepped(harness, 31)
    assert harness.state.incidents["i1"].state == "proving"
    harness.take(found(harness, "straggler", node="n2", recovered=True))
    assert harness.state.incidents["i1"].state == "resolved"


def test_another_supervisor_finds_anew_what_is_still_so() -> None:
    """Its detectors know nothing yet, and would never say that it is over; what hardware said stays."""
    harness = training_harness()
    harness.take(found(harness, "divergence"))
    harness.take(lines(harness, "n2", LOST))
    harness.now += WAIT_SECONDS
    harness.settle()
    harness.take(r.SupervisorStarted(holder="h2", token=2, version="0", nodes=("n1", "n2")))
    states = {one.fault: one.state for one in harness.state.incidents.values()}
    assert states == {"divergence": "resolved", "gpu_lost": "proving"}


def test_a_run_that_reports_no_steps_is_not_sick_for_ever() -> None:
    """Its next attempt could never pass a step."""
    harness = training_harness()
    harness.take(found(harness, "divergence"))
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    launch(harness)
    assert harness.state.incidents["i1"].state == "resolved"


def test_a_node_that_was_watched_and_dies_as_a_spare_ends_nobody_elses_gang() -> None:
    """What its silence is about is not what its GPU said when it was in a gang."""
    harness = training_harness()
    harness.join("n3", instance_id="life-n3")
    harness.settle()
    incident = found(harness, "gpu_ecc", node="n3")
    harness.take(incident)
    harness.take(Finding(fault="node_silent", node="n3", evidence="silent", silent_seconds=6.0))
    harness.settle()
    faults = {one.fault: one.non_fatal for one in harness.state.incidents.values()}
    assert faults["gpu_ecc"]
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    for action in list(harness.state.actions.values()):
        detail = {"agent": "dead", "keeper": "dead", "reachable": True}
        harness.take(ActionResult(id=action.action.id, outcome="done", detail=detail))
        harness.settle()
    assert attempt.state == "running"
    assert harness.state.incidents["i1"].fault == "gpu_ecc"


def test_a_nan_of_a_node_that_serves_on_is_over_when_the_run_has_passed_it() -> None:
    """It began before the onset again, with the same nodes: the numbers were well this time."""
    harness = training_harness(checkpoints="/c")
    stepped(harness, 50)
    harness.take(found(harness, "nan_loss", step=50, node="n2", rank=3))
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    launch(harness)
    stepped(harness, 51)
    assert harness.state.incidents["i1"].state == "resolved"


def test_an_unknown_line_that_was_kept_is_recognised_the_second_time() -> None:
    """It came while the ranks lived, so that the cause is known with the incident."""
    harness = training_harness()
    said = line("error", "unknown", "other", scope="rank", file="rank3.err", rank=3)
    causes = []
    for number in (1, 2):
        words = f"FrobnicationError: frob {number} went astray"
        harness.take(lines(harness, "n2", replace(said, text=words)))
        harness.take(exited(harness, node="n2", rank=3, stderr_tail=f"{words}{'!' * number}"))
        _cleared(harness)
        launch(harness)
        stepped(harness, 10 * number)
        causes.append(harness.state.incidents[f"i{number}"].cause)
    assert [cause.seen_in if cause else None for cause in causes] == ["", "i1"]
