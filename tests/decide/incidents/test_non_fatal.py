"""Non-fatal incidents of a running gang: opened, followed and resolved; hardware lines become the cause when ranks die of them."""

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
    """Make a line that a signature matched."""
    given = {"scope": "gpu", "file": "kernel", "line": 7, "text": f"{fault} it says"}
    return Match(signature=signature, fault=fault, layer=layer, **{**given, **fields})


def lines(harness: ControllerHarness, node: str, *matches: Match, **fields: Any) -> s.LinesMatched:
    """Make an agent's message of lines while its ranks run."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    given = {"generation": attempt.generation, "attempt": attempt.attempt, "ranks_alive": True}
    return s.LinesMatched(node=node, incarnation=1, matches=matches, **{**given, **fields})


def stepped(harness: ControllerHarness, step: int) -> None:
    """Let the gang report a step."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    harness.take(s.Progress(node="n1", incarnation=1, attempt=attempt.attempt, step=step))
    harness.settle()


def only_incident(harness: ControllerHarness) -> Incident:
    """Return the only incident."""
    (incident,) = harness.state.incidents.values()
    return incident


LOST = line("xid-79", "gpu_lost", "device", is_lasting=True, named={"gpu": "0000:a1:00"})


def test_a_lasting_numeric_fault_opens_an_incident_and_ends_no_gang() -> None:
    """The supervisor opens one incident and pages once; the run goes on."""
    harness = training_harness()
    stepped(harness, 9)
    records = harness.take(found(harness, "plateau", step=8))
    assert kinds(records) == ["IncidentOpened", "RungTaken", "ActionIssued", "IncidentChanged"]
    assert harness.settle() == []
    run, incident = harness.state.runs[1], only_incident(harness)
    assert run.incident is None
    assert run.attempt is not None
    assert run.attempt.state == "running"
    assert (incident.state, incident.rungs_taken, incident.step) == ("proving", ["watch"], 9)
    assert "run goes on" in incident.reason


def test_a_repeated_finding_amends_its_incident() -> None:
    """Its evidence grows to a limit, and it takes a culprit named later; another rank gets its own incident."""
    harness = training_harness()
    harness.take(found(harness, "throughput_drop"))
    assert kinds(harness.take(found(harness, "throughput_drop", node="n2", rank=3))) == [
        "IncidentAmended"
    ]
    assert (only_incident(harness).node, only_incident(harness).rank) == ("n2", 3)
    for _ in range(20):
        harness.take(found(harness, "throughput_drop", node="n2", rank=3))
    assert len(only_incident(harness).evidence) == MAX_EVIDENCE
    harness.take(found(harness, "throughput_drop", node="n1", rank=0))
    assert len(harness.state.incidents) == 2


def test_an_incident_is_resolved_by_its_detector_or_by_a_later_attempt_past_the_step() -> None:
    """The end of the run resolves the rest."""
    harness = training_harness()
    stepped(harness, 9)
    harness.take(found(harness, "throughput_drop"))
    harness.take(found(harness, "throughput_drop", recovered=True, evidence="back at 2.1"))
    assert (only_incident(harness).state, only_incident(harness).reason) == (
        "resolved",
        "back at 2.1",
    )
    assert harness.take(found(harness, "throughput_drop", recovered=True)) == []
    harness.take(found(harness, "plateau"))
    stepped(harness, 30)
    assert harness.state.incidents["i2"].state == "proving"
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    launch(harness)
    stepped(harness, 31)
    states = {name: incident.state for name, incident in harness.state.incidents.items()}
    assert states == {"i1": "resolved", "i2": "resolved", "i3": "resolved"}


def test_a_fault_that_comes_back_in_the_next_attempt_is_still_the_same_incident() -> None:
    """A fault that returns after a restart is not resolved."""
    harness = training_harness()
    stepped(harness, 9)
    harness.take(found(harness, "plateau"))
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    attempt = launch(harness)
    harness.take(found(harness, "plateau"))
    stepped(harness, 31)
    assert harness.state.incidents["i1"].attempt == attempt.attempt
    assert harness.state.incidents["i1"].state == "proving"


def test_endless_findings_open_a_bounded_number_of_incidents() -> None:
    """At most twenty ranks have open incidents; once these are resolved, others get theirs."""
    harness = training_harness()
    for rank in range(MAX_NON_FATAL + 30):
        harness.take(found(harness, "throughput_drop", node="n1", rank=rank))
    assert len(harness.state.incidents) == MAX_NON_FATAL
    harness.take(found(harness, "throughput_drop", node="n1", rank=0, recovered=True))
    harness.take(found(harness, "plateau"))
    assert [one.fault for one in harness.state.incidents.values()][-1] == "plateau"


def test_a_runbook_that_orders_a_restart_is_followed() -> None:
    """The runbook decides the response to a fault, not the code."""
    harness = training_harness()
    pages = tuple(
        replace(book, ladder=(replace(book.ladder[0], do="restart"),))
        if "plateau" in book.faults
        else book
        for book in harness.controller.policy.runbooks
    )
    harness.controller.policy = Policy(cluster=harness.controller.policy.cluster, runbooks=pages)
    harness.take(found(harness, "plateau"))
    run = harness.state.runs[1]
    assert run.attempt is not None
    assert (run.incident, run.attempt.state) == ("i1", "stopping")


def test_ranks_that_grow_start_again_at_a_checkpoint_if_they_understand_the_request() -> None:
    """Ranks that do not are left as they are, and a person is paged all the same."""
    for requests in (("stop",), ()):
        harness = training_harness()
        attempt = harness.state.runs[1].attempt
        assert attempt is not None
        harness.take(
            s.RanksReady(node="n1", incarnation=1, attempt=attempt.attempt, requests=requests)
        )
        records = harness.take(found(harness, "host_memory_growth", node="n2", rank=3))
        wanted = [one for one in records if isinstance(one, r.RestartWanted)]
        assert [one.incident for one in wanted] == (["i1"] if requests else [])
        assert only_incident(harness).rungs_taken == ["restart_at_checkpoint"]
        harness.settle()
        assert attempt.state == ("stop_requested" if requests else "running")


def test_a_finding_of_an_ended_gang_opens_no_incident() -> None:
    """A finding without a runbook opens none either."""
    harness = training_harness()
    harness.take(exited(harness, node="n2", rank=3))
    assert harness.take(found(harness, "plateau")) == []
    other = training_harness()
    assert other.take(found(other, "malformed_message")) == []


def test_hardware_lines_open_an_incident_unless_ranks_die_of_them() -> None:
    """Lines enter the journal at once; the supervisor judges them a moment later."""
    harness = training_harness()
    assert kinds(harness.take(lines(harness, "n2", LOST))) == ["EvidenceRecorded"]
    assert harness.settle() == []
    assert harness.controller.wake_at() is not None
    harness.now += WAIT_SECONDS
    assert "IncidentDiagnosed" in kinds(harness.settle())
    incident = only_incident(harness)
    assert (incident.fault, incident.node, incident.non_fatal) == ("gpu_lost", "n2", True)
    assert incident.cause is not None
    assert incident.cause.action_class == "swap"
    # Reported twice.
    assert harness.take(lines(harness, "n2", LOST)) == []
    harness.take(lines(harness, "n2", replace(LOST, line=9)))
    harness.now += WAIT_SECONDS
    harness.settle()
    assert len(harness.state.incidents) == 1


def test_hardware_lines_are_the_cause_of_the_rank_deaths_that_follow() -> None:
    """One incident opens with its cause, and no later judgment follows."""
    harness = training_harness()
    harness.take(lines(harness, "n2", LOST, last_step=8))
    harness.take(exited(harness, node="n2", rank=3, last_step=400))
    harness.now += WAIT_SECONDS
    harness.settle()
    incident = only_incident(harness)
    assert incident.fault == "rank_crash"
    assert incident.cause is not None
    assert (incident.cause.fault, incident.cause.node) == ("gpu_lost", "n2")


def test_a_non_fatal_incident_is_resolved_when_ranks_die_of_it() -> None:
    """They die ten minutes later."""
    harness = training_harness()
    harness.take(lines(harness, "n2", LOST))
    harness.now += WAIT_SECONDS
    harness.settle()
    harness.take(exited(harness, node="n2", rank=3))
    states = [(incident.fault, incident.state) for incident in harness.state.incidents.values()]
    assert states == [("gpu_lost", "resolved"), ("rank_crash", "acting")]
    assert harness.state.incidents["i2"].cause == harness.state.incidents["i1"].cause


def test_a_program_line_explains_only_a_death_that_follows_at_once() -> None:
    """A line that ranks survive for steps is no cause, and no incident."""
    oom = line("cuda-oom", "cuda_oom", "program", file="rank3.err", rank=3)
    for reached, cause in ((9, "cuda_oom"), (50, None)):
        harness = training_harness()
        harness.take(lines(harness, "n2", oom, last_step=8))
        harness.now += WAIT_SECONDS
        assert harness.settle() == []
        harness.take(exited(harness, node="n2", rank=3, last_step=reached))
        found_cause = only_incident(harness).cause
        assert (found_cause.fault if found_cause else None) == cause


def test_lines_that_arrive_after_the_gang_is_down_amend_its_incident() -> None:
    """The lines were in transit when the rank died."""
    harness = training_harness()
    report = lines(harness, "n2", LOST)
    harness.take(exited(harness, node="n2", rank=3))
    assert kinds(harness.take(report)) == ["IncidentDiagnosed"]


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
def test_replicas_that_differ_name_the_deviating_rank_and_its_node(
    ranks: tuple[int, ...], node: str | None, rank: int | None
) -> None:
    """Several ranks of one node name the node; an unknown rank number names no node."""
    harness = training_harness()
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    report = s.ReplicasDisagree(
        node="n1", incarnation=1, attempt=attempt.attempt, step=40, what="weight", ranks=ranks
    )
    harness.take(report)
    incident = only_incident(harness)
    assert (incident.fault, incident.node, incident.rank) == ("replicas_disagree", node, rank)
    assert "step 40, weight" in incident.evidence[0]


def test_non_fatal_incidents_survive_a_snapshot() -> None:
    """Lines that wait for their judgment survive too."""
    harness = training_harness()
    harness.take(found(harness, "plateau"))
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


def test_survived_lines_make_room_for_hardware_lines() -> None:
    """Exceptions that a program handles, day after day, do not crowd out a GPU's lines."""
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
    assert only_incident(harness).fault == "gpu_lost"
    harness.take(lines(harness, "n2", replace(oom, line=999), last_step=50))
    assert [kept.match.line for kept in attempt.pending_evidence] == [7, 999]


def test_a_line_that_breaks_the_judgment_does_not_stop_the_supervisor() -> None:
    """Torch's watchdog may write a line without the number of its collective."""
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


def test_a_line_of_another_node_days_earlier_is_no_cause() -> None:
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


def test_a_line_that_all_nodes_report_at_once_is_the_fault_of_none() -> None:
    """A file server that does not answer gives one incident, one page and no node."""
    harness = training_harness()
    disk = line("nfs", "filesystem", "machine", scope="storage", of_kernel=True)
    for node in ("n1", "n2"):
        harness.take(lines(harness, node, disk))
    harness.now += WAIT_SECONDS
    harness.settle()
    assert (only_incident(harness).fault, only_incident(harness).node) == ("filesystem", None)


def test_a_run_that_resumes_from_damaged_weights_has_not_passed_the_fault() -> None:
    """Its loss stopped falling at 1,000, and the next attempt begins at 1,900; one that begins before the onset passes it."""
    for resumed, state in ((1900, "proving"), (900, "resolved")):
        harness = training_harness(checkpoints="/c")
        stepped(harness, 1950)
        harness.take(found(harness, "plateau", step=1000))
        harness.take(exited(harness, node="n2", rank=3))
        _cleared(harness)
        attempt = launch(harness)
        attempt.resume_step = resumed
        stepped(harness, 2001)
        assert harness.state.incidents["i1"].state == state


def test_a_straggler_in_the_next_gang_is_resolved_by_its_detector() -> None:
    """A restart on the same nodes proves nothing about the straggler."""
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


@pytest.mark.parametrize(
    ("learned_runs", "plateau"), [((), "resolved"), ((2,), "resolved"), ((1, 2), "proving")]
)
def test_the_next_supervisor_continues_a_run_or_detects_what_is_still_wrong_again(
    learned_runs: tuple[int, ...], plateau: str
) -> None:
    """Detectors that know nothing of the run could never resolve its incident; hardware incidents stay open in any case."""
    harness = training_harness()
    harness.take(found(harness, "plateau"))
    harness.take(lines(harness, "n2", LOST))
    harness.now += WAIT_SECONDS
    harness.settle()
    started = r.SupervisorStarted(
        holder="h2", token=2, version="0", nodes=("n1", "n2"), learned_runs=learned_runs
    )
    harness.take(started)
    states = {one.fault: one.state for one in harness.state.incidents.values()}
    assert states == {"plateau": plateau, "gpu_lost": "proving"}


def test_the_incident_of_a_run_without_steps_does_not_stay_open_for_ever() -> None:
    """The next attempt could never pass the step of the onset."""
    harness = training_harness()
    harness.take(found(harness, "plateau"))
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    launch(harness)
    assert harness.state.incidents["i1"].state == "resolved"


def test_a_spare_with_an_old_non_fatal_incident_that_dies_ends_no_gang() -> None:
    """Its silence has nothing to do with its GPU's lines from its time in a gang."""
    harness = training_harness()
    harness.join("n3", instance_id="agent-n3")
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


def test_a_numeric_fault_on_a_node_in_service_is_resolved_when_the_run_passes_it() -> None:
    """The run resumed before the onset on the same nodes, and its numbers were sound this time."""
    harness = training_harness(checkpoints="/c")
    stepped(harness, 50)
    harness.take(found(harness, "throughput_drop", step=50, node="n2", rank=3))
    harness.take(exited(harness, node="n2", rank=3))
    _cleared(harness)
    launch(harness)
    stepped(harness, 51)
    assert harness.state.incidents["i1"].state == "resolved"


def test_a_recorded_unknown_line_is_recognised_the_second_time() -> None:
    """The line came while the ranks ran, so the incident has its cause from the start."""
    harness = training_harness()
    report = line("error", "unknown", "other", scope="rank", file="rank3.err", rank=3)
    causes = []
    for number in (1, 2):
        words = f"FrobnicationError: frob {number} went astray"
        harness.take(lines(harness, "n2", replace(report, text=words)))
        harness.take(exited(harness, node="n2", rank=3, stderr_tail=f"{words}{'!' * number}"))
        _cleared(harness)
        launch(harness)
        stepped(harness, 10 * number)
        causes.append(harness.state.incidents[f"i{number}"].cause)
    assert [cause.seen_in if cause else None for cause in causes] == ["", "i1"]
