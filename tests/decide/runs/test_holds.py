"""People pause runs and restart them; their ladders wait, and the second of two people is told what the first did."""

import pytest

from runner.decide.state.cluster_state import Incident
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from tests.decide.controller_harness import (
    ControllerHarness,
    exited,
    kinds,
    launch,
    training_harness,
)

CAN_STOP = ("stop",)


def running(**spec: object) -> ControllerHarness:
    """Return a run whose gang is up and can be asked to stop."""
    harness = training_harness(**spec)
    hello(harness)
    return harness


def hello(harness: ControllerHarness) -> None:
    """Let the gang say what it understands."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    ready = s.RanksReady(node="n1", incarnation=1, attempt=attempt.attempt, requests=CAN_STOP)
    harness.take(ready)
    harness.settle()


def end_gang(harness: ControllerHarness, exit_code: int = 75) -> list[object]:
    """Let all ranks end, and all nodes confirm it."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    found: list[object] = []
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        for rank in ranks:
            found += harness.take(exited(harness, node=node, rank=rank, exit_code=exit_code))
    found += harness.settle()
    for node in ("n1", "n2"):
        where = {"node": node, "incarnation": 1, "generation": attempt.generation}
        found += harness.take(s.RanksTerminated(**where, attempt=attempt.attempt))  # type: ignore[arg-type]
        found += harness.settle()
    return found


def answer(harness: ControllerHarness, name: str) -> tuple[str, str]:
    """Return state and message of a request."""
    asked = harness.state.requests[name]
    return asked.state, asked.message


def paused(harness: ControllerHarness, **fields: object) -> None:
    """Pause the run, and let its gang end."""
    harness.take(q.PauseRun(id="p1", by="ann", run="a", reason="disks", **fields))  # type: ignore[arg-type]
    harness.settle()
    end_gang(harness)


def test_a_paused_run_starts_nothing_until_a_person_says_so() -> None:
    """Not after hours, not under the next supervisor; the status of the run says who paused it, and why."""
    harness = running()
    paused(harness)
    run = harness.state.runs[1]
    assert (run.state, run.reason) == ("paused", "paused by ann: disks")
    assert answer(harness, "p1")[0] == "done"
    harness.now += 36000.0
    harness.take(r.SupervisorStarted(holder="other", token=2, version="0", nodes=("n1", "n2")))
    assert "AttemptPlanned" not in kinds(harness.settle())
    harness.take(q.ResumeRun(id="p2", by="bob", run="a"))
    launch(harness)
    assert answer(harness, "p2") == ("done", "1.1.1 runs, as its script resumes")
    assert run.hold is None
    assert run.pending_requests == []


def test_a_run_that_is_being_prepared_is_paused_before_it_launches() -> None:
    """No rank is started for an attempt that a person no longer wants."""
    harness = running()
    paused(harness)
    harness.take(q.ResumeRun(id="p2", by="ann", run="a"))
    harness.settle()
    harness.take(q.PauseRun(id="p3", by="ann", run="a"))
    (prepare,) = harness.state.open_actions("prepare_attempt")
    detail = {"port": 1, "address": "h"}
    harness.take(ActionResult(id=prepare.id, outcome="done", detail=detail))
    assert "Assigned" not in kinds(harness.settle())
    assert answer(harness, "p2")[0] == "failed"
    assert "overtaken: ann paused the run" in answer(harness, "p2")[1]
    assert answer(harness, "p3")[0] == "done"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (q.PauseRun(id="x", by="bob", run="a"), "is paused by ann: disks"),
        (q.ResumeRun(id="x", by="bob", run="other"), "no live run 'other'"),
        (q.RestartRun(id="x", by="bob", run="a", incident="i9"), "no incident 'i9'"),
        (q.AddNote(id="x", by="bob", text=" "), "no text"),
        (q.AddNote(id="x", by="bob", text="x" * 2001), "2001 characters"),
        (q.AddNote(id="x", by="bob", text="x", run="other"), "no run 'other'"),
        (q.AcknowledgeIncident(id="x", by="bob", incident="i9"), "no incident 'i9'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(request_: q.Request, words: str) -> None:
    """Nothing is done by halves: the refusal is the only record."""
    harness = running()
    paused(harness)
    assert kinds(harness.take(request_)) == ["RequestRecorded"]
    state, message = answer(harness, "x")
    assert state == "refused"
    assert words in message


def test_of_two_people_the_second_is_told_what_the_first_asked_for() -> None:
    """While the request of the one is open, the other changes nothing about the run but to pause it."""
    harness = running()
    harness.take(q.RestartRun(id="p1", by="ann", run="a", reason="new driver"))
    harness.settle()
    harness.take(q.RestartRun(id="p2", by="bob", run="a"))
    harness.take(q.ResumeRun(id="p3", by="bob", run="a"))
    for name in ("p2", "p3"):
        state, message = answer(harness, name)
        assert state == "refused"
        assert "ann asked for restart run (p1)" in message
        assert "new driver" in message
    harness.take(q.PauseRun(id="p4", by="bob", run="a"))
    assert answer(harness, "p1") == ("failed", "overtaken: bob paused the run")
    end_gang(harness)
    assert answer(harness, "p4")[0] == "done"


def crashed(harness: ControllerHarness) -> Incident:
    """Let a rank die; return the incident."""
    harness.take(exited(harness, node="n1", rank=0))
    harness.settle()
    return next(reversed(harness.state.incidents.values()))


def test_a_request_names_what_its_sender_saw() -> None:
    """Evidence and words since then are no reason to refuse; what the ladder or another person did is."""
    harness = running()
    incident = crashed(harness)
    seen = incident.version
    harness.take(q.AddNote(id="n1", by="bob", incident="i1", text="the fans are loud"))
    assert incident.version == seen + 1
    harness.take(q.PauseRun(id="p1", by="bob", run="a", incident="i1", seen=seen, reason="look"))
    assert answer(harness, "p1")[0] == "open"
    harness.take(q.RestartRun(id="p2", by="ann", run="a", incident="i1", seen=seen))
    state, message = answer(harness, "p2")
    assert state == "refused"
    assert "bob: pause run open (look)" in message
    assert "note of bob: the fans are loud" in message
    harness.take(q.RestartRun(id="p3", by="ann", run="a", incident="i1", seen=99))
    assert "not 99" in answer(harness, "p3")[1]


def test_a_version_from_before_what_is_kept_is_an_older_one() -> None:
    """Of many events the newest are kept; a request that saw none of them is refused whatever they are."""
    harness = running()
    crashed(harness)
    for number in range(30):
        harness.take(q.AddNote(id=f"n{number}", incident="i1", text=f"note {number}"))
    harness.take(q.PauseRun(id="p1", by="ann", run="a", incident="i1", seen=1))
    assert answer(harness, "p1")[0] == "refused"
    assert "more before" in answer(harness, "p1")[1]


def test_pages_about_an_incident_that_a_person_looks_at_do_not_repeat() -> None:
    """The end of its ladder is new, and pages all the same."""
    harness = running(max_attempts_without_progress=2)
    incident = crashed(harness)
    harness.take(q.AcknowledgeIncident(id="k1", by="ann", incident="i1", reason="I call"))
    assert (incident.acknowledged_by, answer(harness, "k1")[0]) == ("ann", "done")
    harness.take(q.AcknowledgeIncident(id="k2", by="bob", incident="i1"))
    assert answer(harness, "k2") == ("refused", "ann looks at i1 already")
    end_gang(harness, exit_code=1)
    launch(harness)
    records = [*harness.take(exited(harness, node="n1", rank=0)), *harness.settle()]
    assert incident.state == "gave_up"
    pages = [x for x in records if isinstance(x, r.ActionIssued) and x.action.action == "page"]
    assert len(pages) == 1


def test_a_gang_that_dies_before_a_request_is_done_ends_and_takes_no_rung() -> None:
    """The next attempt is the one that was asked for; a gang that dies after that is answered by its page again."""
    harness = running()
    ready = s.RanksReady(
        node="n1",
        incarnation=1,
        attempt=harness.state.runs[1].attempt.attempt,  # type: ignore[union-attr]
        remedies=("lr_factor",),
    )
    harness.take(ready)
    harness.take(q.AddRemedy(id="l1", by="ann", run="a", remedy="lr_factor", value=0.9))
    records = harness.take(exited(harness, node="n1", rank=0))
    assert "RungTaken" not in kinds(records)
    (suspended,) = (x for x in records if isinstance(x, p.LadderSuspended))
    assert "ann asked for add remedy" in suspended.reason
    assert harness.state.runs[1].suspended == {"i1": False}
    end_gang(harness, exit_code=1)
    attempt = launch(harness)
    assert attempt.remedies == {"lr_factor": 0.9}
    assert harness.state.runs[1].suspended == {}
    assert harness.state.incidents["i1"].state == "proving"
    assert "RungTaken" in kinds(harness.take(exited(harness, node="n1", rank=0)))


def test_a_ladder_does_not_give_up_a_run_that_a_person_holds() -> None:
    """What failed before the person took over counts no longer once the run goes on."""
    harness = running(max_attempts_without_progress=1)
    harness.take(q.PauseRun(id="p1", by="ann", run="a"))
    harness.take(s.LaunchFailed(**failed_launch(harness)))  # type: ignore[arg-type]
    harness.settle()
    run = harness.state.runs[1]
    assert run.is_wanted
    end_gang(harness, exit_code=1)
    assert run.state == "paused"
    harness.take(q.ResumeRun(id="p2", by="ann", run="a"))
    assert run.attempts_without_progress == 0
    assert launch(harness).state == "running"


def failed_launch(harness: ControllerHarness) -> dict[str, object]:
    """Return the fields of a signal that a node could not start its ranks."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    where = {"node": "n1", "incarnation": 1, "generation": attempt.generation}
    return {**where, "attempt": attempt.attempt, "reason": "no program"}


def test_a_stop_comes_before_a_pause_and_answers_it() -> None:
    """Each request gets one final answer."""
    harness = running()
    harness.take(q.PauseRun(id="p1", by="ann", run="a"))
    harness.take(q.StopRun(id="s1", by="bob", run="a"))
    end_gang(harness)
    assert harness.state.runs[1].state == "stopped"
    assert [answer(harness, name)[0] for name in ("p1", "s1")] == ["failed", "done"]


def test_requests_say_who_and_why_in_the_journal() -> None:
    """They travel with it, a note's text too, and an older command's request has neither."""
    sent = q.PauseRun(id="p1", by="ann", run="a", reason="disks", seen=3, incident="i1")
    assert wire.decode(wire.encode(sent)) == sent
    older = b'{"v":1,"kind":"stop_run","id":"q1","run":"a"}'
    assert wire.decode(older) == q.StopRun(id="q1", run="a")
    harness = running()
    harness.take(q.RestartRun(id="p1", by="ann", run="a", reason="driver"))
    assert harness.state.requests["p1"].reason == "driver"
