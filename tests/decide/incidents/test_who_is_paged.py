"""A runbook names the team that is paged about its incidents."""

from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.facts.actions import PageOperator
from runner.facts.messages import records as r
from tests.decide.controller_harness import CLUSTER, exited, training_harness
from tests.decide.scenario import runbooks


def paged(records: list[object]) -> list[str | None]:
    """Return the teams that some records page."""
    issued = [x.action for x in records if isinstance(x, r.ActionIssued)]
    return [one.read(PageOperator).to for one in issued if one.action == "page"]


def test_a_rung_that_pages_and_the_end_of_a_ladder_go_to_the_team_of_the_page() -> None:
    """A page that names no team pages all, as before."""
    harness = training_harness()
    books = [
        replace(book, pages="hardware") if book.name == "settings-refused" else book
        for book in runbooks()
    ]
    harness.controller.policy = Policy(cluster=CLUSTER, runbooks=tuple(books))
    records = harness.take(exited(harness, node="n1", rank=0, exit_code=78))
    assert paged(records) == ["hardware"]
    unnamed = training_harness()
    assert paged(unnamed.take(exited(unnamed, node="n1", rank=0, exit_code=78))) == [None]
