"""Modes and limits: what the daemon does by itself about a run, and what it leaves to a person, who is paged once."""

import pytest
from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.consent import mode_of
from runner.decide.runs.attempts import LATE_STEP_SECONDS
from runner.decide.state.cluster_state import Attempt, Run
from runner.facts.faults import Finding
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.remedies import REMEDIES
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.specs.runbook import Mode, PageLimits, Runbook, Rung
from tests.decide.controller_harness import (
    CLUSTER,
    ControllerHarness,
    exited,
    kinds,
    launch,
    training_harness,
)
from tests.decide.runs.test_holds import answer, end_gang, hello
from tests.decide.scenario import runbooks


def under(mode: Mode = "act", *, limits: PageLimits | None = None) -> ControllerHarness:
    """Return a run that is up in a cluster of this mode, whose pages have these limits."""
    harness = training_harness(max_attempts_without_progress=50)
    books = tuple(replace(book, limits=limits or book.limits) for book in runbooks())
    harness.controller.policy = Policy(cluster=replace(CLUSTER, mode=mode), runbooks=books)
    hello(harness)
    return harness


def crash(harness: ControllerHarness) -> list[object]:
    """Let a rank die and the gang end; return all that is decided."""
    found = harness.take(exited(harness, node="n1", rank=0))
    return [*found, *harness.settle(), *end_gang(harness, exit_code=1)]


def pages(records: list[object]) -> list[str]:
    """Return what people are paged about."""
    issued = [x.action for x in records if isinstance(x, r.ActionIssued)]
    return [action.reason for action in issued if action.action == "page"]


@pytest.mark.parametrize(
    ("cluster", "run", "page", "mode"),
    [
        ("act", "", "", "act"),
        ("off", "", "", "off"),
        # The run wins over the cluster.
        ("off", "act", "", "act"),
        ("act", "advise", "", "advise"),
        # A page is more cautious, or says nothing.
        ("act", "", "advise", "advise"),
        ("advise", "", "act", "advise"),
        ("act", "off", "advise", "off"),
    ],
)
def test_the_mode_is_that_of_the_run_else_the_cluster_and_of_a_more_cautious_page(
    cluster: Mode, run: str, page: str, mode: Mode
) -> None:
    """There is one place that says it."""
    spec = RunSpec(name="a", mode=run)  # type: ignore[arg-type]
    policy = Policy(cluster=ClusterSpec(name="c", state="s", mode=cluster))
    book = Runbook(name="b", title="t", faults=(), ladder=(), mode=page)  # type: ignore[arg-type]
    assert mode_of(policy, Run(run=1, spec=spec), book) == mode
    assert mode_of(policy, None, None) == cluster


def test_in_mode_off_a_dead_gang_is_ended_and_its_run_waits_for_a_person() -> None:
    """Its nodes are kept, a person is paged once, and the run goes on when one says so."""
    harness = under("off")
    records = crash(harness)
    run = harness.state.runs[1]
    assert "RungTaken" not in kinds(records)
    assert "AttemptPlanned" not in kinds(records)
    (page,) = pages(records)
    assert "i1 rank_crash waits for a person: mode off" in page
    assert (run.state, run.hold.hold if run.hold else "") == ("waiting", "person")
    harness.take(q.RestartRun(id="p1", by="ann", run="a"))
    launch(harness)
    assert answer(harness, "p1")[0] == "done"
    assert len(pages(crash(harness))) == 1


def test_in_mode_off_a_gang_that_hangs_is_left_as_it_is() -> None:
    """A person may look at it; one is paged."""
    harness = under("off")
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    finding = Finding(fault="no_progress", evidence="no step", attempt=attempt.attempt)
    records = [*harness.take(finding), *harness.settle(), *harness.take(finding)]
    assert attempt.state == "running"
    assert len(pages(records)) == 1
    assert harness.state.incidents["i1"].is_live


def hang(harness: ControllerHarness) -> Attempt:
    """Report that the gang makes no step after its third; return its attempt."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    harness.take(progress(attempt, 3))
    harness.take(Finding(fault="no_progress", evidence="no step", attempt=attempt.attempt))
    harness.settle()
    return attempt


def progress(attempt: Attempt, step: int) -> s.Progress:
    """Return a mark of a step that rank 0 printed."""
    name = attempt.attempt
    return s.Progress(node="n1", incarnation=1, attempt=name, step=step, printed_by=0)


def test_in_mode_off_a_gang_that_hung_and_goes_on_by_itself_has_no_incident() -> None:
    """It was left alone: a step is the proof, and a later hang is another incident."""
    harness = under("off")
    attempt = hang(harness)
    harness.take(progress(attempt, 4))
    # It may have been made before.
    assert harness.state.incidents["i1"].is_live
    harness.now += LATE_STEP_SECONDS
    harness.take(progress(attempt, 5))
    incident = harness.state.incidents["i1"]
    assert (incident.state, harness.state.runs[1].suspended) == ("resolved", {})
    assert incident.reason == "step 5 done: the gang goes on by itself"
    harness.take(Finding(fault="no_progress", evidence="again", attempt=attempt.attempt))
    assert harness.state.incidents["i2"].is_live


def test_in_mode_off_a_gang_that_hung_and_is_killed_by_a_person_is_ended() -> None:
    """Its hang is what ended it; the run waits for a person, who may start it again."""
    harness = under("off")
    attempt = hang(harness)
    harness.take(exited(harness, node="n1", rank=0, exit_code=-9))
    harness.settle()
    run = harness.state.runs[1]
    assert (attempt.state, attempt.outcome, attempt.incident) == ("stopping", "hung", "i1")
    end_gang(harness, exit_code=-9)
    assert list(harness.state.incidents) == ["i1"]
    assert (run.state, run.hold.hold if run.hold else "") == ("waiting", "person")
    harness.take(q.RestartRun(id="p1", by="ann", run="a"))
    launch(harness)
    assert harness.state.incidents["i1"].state == "proving"


def test_a_run_without_a_page_for_its_fault_is_not_failed_in_mode_off() -> None:
    """To give up is something that is done, too."""
    harness = under("off")
    harness.controller.policy = replace_books(harness.controller.policy, ())
    crash(harness)
    assert harness.state.runs[1].state == "waiting"


def replace_books(policy: Policy, books: tuple[Runbook, ...]) -> Policy:
    """Return a policy with other pages."""
    return Policy(cluster=policy.cluster, runbooks=books)


def test_a_page_acts_no_more_often_than_its_limit_by_the_day() -> None:
    """Then the run waits for a person, who is bound by no limit; on another day the page acts again."""
    harness = under(limits=PageLimits(per_day=1))
    assert "RungTaken" in kinds(crash(harness))
    launch(harness)
    records = crash(harness)
    assert "RungTaken" not in kinds(records)
    assert "has taken its 1 rungs of the day (limits.per_day)" in pages(records)[0]
    harness.take(q.ResumeRun(id="p1", by="ann", run="a"))
    launch(harness)
    assert "RungTaken" not in kinds(crash(harness))
    harness.take(q.ResumeRun(id="p2", by="ann", run="a"))
    launch(harness)
    harness.now += 86400.0
    assert "RungTaken" in kinds(crash(harness))


def test_a_page_waits_between_two_rungs() -> None:
    """What comes sooner is left to a person."""
    harness = under(limits=PageLimits(cooldown_seconds=600.0))
    assert "RungTaken" in kinds(crash(harness))
    launch(harness)
    records = crash(harness)
    assert "RungTaken" not in kinds(records)
    assert "limits.cooldown_seconds" in pages(records)[0]
    harness.take(q.ResumeRun(id="p1", by="ann", run="a"))
    launch(harness)
    harness.now += 600.0
    assert "RungTaken" in kinds(crash(harness))


def test_what_is_never_automatic() -> None:
    """Whatever the mode, no ladder changes precision or betas, or resets the optimizer."""
    never = {name for name, kind in REMEDIES.items() if not kind.is_automatic}
    assert {"precision", "betas", "optimizer_reset"} <= never


# ---- advise ---------------------------------------------------------------------------------------------------------

SPIKE = Runbook(
    name="metrics-spike",
    title="t",
    faults=("loss_spike",),
    ladder=(Rung(do="rewind", args={"before": 1}),),
)


def advised() -> ControllerHarness:
    """Return a run in mode advise with a page that goes back, and an incident of it."""
    harness = under("advise")
    harness.controller.policy = replace_books(
        harness.controller.policy,
        (SPIKE, *(book for book in runbooks() if "loss_spike" not in book.faults)),
    )
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    given = {"fault": "loss_spike", "attempt": attempt.attempt, "step": 5}
    harness.take(Finding(**given, evidence="loss 9 after 3"))  # type: ignore[arg-type]
    return harness


def test_in_mode_advise_a_rung_that_changes_numbers_waits_for_a_person() -> None:
    """It is proposed once, a person is paged once, and the run goes on unchanged, also under the next supervisor."""
    harness = advised()
    records = harness.settle()
    (proposed,) = (x for x in records if isinstance(x, p.ActionProposed))
    assert (proposed.do, proposed.runbook, proposed.incident) == ("rewind", "metrics-spike", "i1")
    (page,) = pages(records)
    assert f"stoker approve {proposed.action}" in page
    harness.take(r.SupervisorStarted(holder="o", token=2, version="0", nodes=("n1", "n2")))
    assert "ActionProposed" not in kinds(harness.settle())
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    assert attempt.state == "running"


def test_a_denied_rung_is_not_taken_and_its_incident_is_left_to_people() -> None:
    """An answer to what is denied is refused, and names who denied it, and why."""
    harness = advised()
    harness.settle()
    (name,) = harness.state.proposals
    harness.take(q.DenyAction(id="d1", by="ann", action=name, reason="it heals"))
    assert answer(harness, "d1")[0] == "done"
    assert "ActionProposed" not in kinds(harness.settle())
    for kind in (q.ApproveAction, q.DenyAction):
        harness.take(kind(id=f"e-{kind.__name__}", by="bob", action=name))
        state, message = answer(harness, f"e-{kind.__name__}")
        assert state == "refused"
        assert f"ann denied {name}" in message
        assert "it heals" in message
    harness.take(q.ApproveAction(id="e9", by="bob", action="a99"))
    assert "no action 'a99' is proposed; proposed: none" in answer(harness, "e9")[1]


def test_a_proposal_expires_with_its_incident() -> None:
    """What has healed needs no approval, and gets none."""
    harness = advised()
    harness.settle()
    (name,) = harness.state.proposals
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    healed = Finding(fault="loss_spike", evidence="loss 3", attempt=attempt.attempt, recovered=True)
    harness.take(healed)
    harness.settle()
    assert harness.state.proposals[name].state == "expired"
    harness.take(q.ApproveAction(id="a1", by="bob", action=name))
    state, message = answer(harness, "a1")
    assert state == "refused"
    assert "has expired" in message
    assert "i1 is resolved" in message


def test_an_approved_rung_is_taken_once_by_name_and_against_no_limit() -> None:
    """What the ladder finds then, that there is no checkpoint to go back to, is the answer."""
    harness = advised()
    harness.settle()
    (name,) = harness.state.proposals
    records = harness.take(q.ApproveAction(id="a1", by="ann", action=name, reason="do it"))
    (taken,) = (x for x in records if isinstance(x, r.RungTaken))
    assert (taken.do, taken.by) == ("rewind", "ann")
    assert harness.state.runs[1].page_times == {}
    assert harness.state.proposals[name].state == "issued"
    harness.take(q.ApproveAction(id="a2", by="bob", action=name))
    assert f"ann approved {name}" in answer(harness, "a2")[1]
