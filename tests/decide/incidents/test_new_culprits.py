"""What was tried against one culprit says nothing about another one: the page begins again."""

from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.conditions import has_new_culprit
from runner.decide.incidents.ladder import next_rung
from runner.decide.state.cluster_state import Incident, State
from runner.facts.causes import Cause, Failure
from runner.facts.ids import AttemptId
from runner.facts.specs.runbook import Runbook, Rung
from tests.decide.controller_harness import CLUSTER

FIRST, SECOND = AttemptId(1, 1, 0), AttemptId(1, 1, 1)
PAGE = Runbook(
    name="gpu",
    title="t",
    faults=("gpu_lost",),
    ladder=(Rung(do="swap", tries=1), Rung(do="stop")),
)


def _incident(node: str) -> Incident:
    """Return an incident whose swap on n1 was taken, and whose second failure is named on a node."""
    cause = Cause(
        fault="gpu_lost", scope="gpu", culprit=None, node=node, confidence=0.95, action_class="swap"
    )
    return Incident(
        incident="i1",
        fault="rank_crash",
        run=1,
        attempt=SECOND,
        node=node,
        cause=cause,
        runbook="gpu",
        rung=0,
        tries=1,
        answered=FIRST,
        failures=[Failure(attempt=FIRST, node="n1"), Failure(attempt=SECOND, node=node)],
    )


def test_another_culprit_gets_the_ladder_from_its_top() -> None:
    """The swap of n1 is no try of a swap of n2; n1 again has had its try."""
    assert Policy(cluster=CLUSTER, runbooks=(PAGE,)).page_for(_incident("n2")) is PAGE
    assert next_rung(PAGE, State(), _incident("n2")) == (0, 1)
    assert next_rung(PAGE, State(), _incident("n1")) == (1, 1)


def test_where_the_first_rank_died_names_no_culprit() -> None:
    """Without a cause that names hardware the next failure goes on down the ladder, on whatever node it was."""
    unexplained = replace(_incident("n2"), cause=None)
    assert not has_new_culprit(unexplained)
    assert next_rung(PAGE, State(), unexplained) == (1, 1)


def test_one_failure_begins_the_page_once() -> None:
    """Asked again about the failure that it has answered, the ladder goes on."""
    assert next_rung(PAGE, State(), replace(_incident("n2"), answered=SECOND)) == (1, 1)
