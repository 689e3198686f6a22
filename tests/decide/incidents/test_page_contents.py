"""What a page says: what happened, what Stoker does next, and the command that helps; hostile lines are harmless there."""

from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.page_contents import (
    MAX_LINE_CHARACTERS,
    MAX_LINES,
    MAX_TEXT_CHARACTERS,
    asks_for_a_person,
    page_content,
)
from runner.facts.actions import Action, OperatorPage, PageOperator
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.specs.pages import PagesSpec
from tests.decide.controller_harness import (
    CLUSTER,
    ControllerHarness,
    exited,
    launch,
    training_harness,
)
from tests.decide.runs.test_holds import answer, end_gang
from tests.decide.scenario import runbooks


def contents(harness: ControllerHarness, records: list[object]) -> list[OperatorPage]:
    """Return what is paged by some records."""
    issued = [x.action for x in records if isinstance(x, r.ActionIssued)]
    controller = harness.controller
    return [
        page_content(controller.state, controller.policy, action)
        for action in issued
        if action.action == "page"
    ]


def page(harness: ControllerHarness, message: str, incident: str | None = "i1") -> OperatorPage:
    """Return the content of a page with this message."""
    work = PageOperator(message=message)
    action = Action(
        id="a9",
        action=work.kind,
        reason="",
        args=work.plain(),
        run=1 if incident else None,
        incident=incident,
        deadline_seconds=1.0,
    )
    return page_content(harness.state, harness.controller.policy, action)


def crash(harness: ControllerHarness) -> list[object]:
    """Let a rank die, and its gang end."""
    found = harness.take(exited(harness, node="n1", rank=0))
    return [*found, *harness.settle(), *end_gang(harness, exit_code=1)]


def test_a_run_that_is_given_up_pages_at_once_and_names_what_helps() -> None:
    """The page is urgent, and can be acknowledged although the incident is over for Stoker."""
    harness = training_harness(max_attempts_without_progress=2)
    crash(harness)
    launch(harness)
    records = [*harness.take(exited(harness, node="n1", rank=0)), *harness.settle()]
    (found,) = contents(harness, records)
    assert harness.state.incidents["i1"].state == "gave_up"
    assert (found.urgent, found.run, found.incident, found.fault) == (True, "a", "i1", "rank_crash")
    assert found.place == "n1 rank 0"
    assert "gave up" in found.text
    assert "nothing: it gave up" in found.next
    assert found.command == "stoker explain i1"
    assert found.evidence
    assert asks_for_a_person(harness.state, "i1")
    harness.take(q.AcknowledgeIncident(id="k1", by="ann", incident="i1"))
    assert answer(harness, "k1")[0] == "done"
    assert not asks_for_a_person(harness.state, "i1")
    assert not asks_for_a_person(harness.state, "i99")


def test_with_every_rung_a_restart_is_paged_and_can_wait() -> None:
    """The page says what is done now and what comes after; by default a restart pages no person."""
    silent = training_harness()
    assert not contents(silent, crash(silent))
    harness = training_harness()
    spec = replace(CLUSTER, pages=PagesSpec(every_rung=True))
    harness.controller.policy = Policy(cluster=spec, runbooks=tuple(runbooks()))
    (found,) = contents(harness, crash(harness))
    assert (found.urgent, found.command) == (False, "stoker explain i1")
    assert found.next.startswith("restart (the same nodes start again")
    assert "; if that does not help: " in found.next


def test_two_incidents_of_one_cause_have_it_in_common() -> None:
    """The fault and the node; urgent pages are about themselves."""
    harness = training_harness()
    crash(harness)
    first = page(harness, "i1 rank_crash: swap")
    assert first.cause == "rank_crash n1"
    assert page(harness, "something else").cause == first.cause
    assert page(harness, "spares: 0 left", incident=None).cause == "spares: 0 left"


def test_a_message_that_names_a_command_names_the_one_that_helps() -> None:
    """As for a node that is out, about which there is no incident."""
    harness = training_harness()
    found = page(harness, "n1 is quarantined; `stoker readmit n1` takes it back", incident=None)
    assert found.command == "stoker readmit n1"
    assert page(harness, "spares: 0 left", incident=None).command == "stoker status"


def test_lines_of_a_rank_are_harmless_and_short() -> None:
    """ANSI and a megabyte of text: a page keeps its size, and shows what can be printed."""
    harness = training_harness()
    crash(harness)
    incident = harness.state.incidents["i1"]
    incident.evidence[:] = ["\x1b[31mred\x07\r\n" + "x" * 1_000_000] * 3 + [
        f"{n}" for n in range(9)
    ]
    found = page(harness, "\x1b]0;title\x07" + "y" * 1_000_000)
    assert len(found.text) <= MAX_TEXT_CHARACTERS
    assert len(found.evidence) <= MAX_LINES
    for line in (found.text, *found.evidence):
        assert line.isprintable()
        assert len(line) <= MAX_TEXT_CHARACTERS
    assert all(len(line) <= MAX_LINE_CHARACTERS for line in found.evidence)
