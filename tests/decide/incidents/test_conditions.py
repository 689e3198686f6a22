"""Conditions of rungs: each is judged by the incident and the cluster alone."""

from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.conditions import CONDITIONS, applies
from runner.decide.incidents.ladder import next_rung
from runner.decide.state.cluster_state import Incident, PagePlace, State
from runner.facts.causes import Cause, Culprit, Failure
from runner.facts.ids import AttemptId
from runner.facts.matches import Match
from runner.facts.specs.runbook import VERBS, Runbook, Rung
from tests.decide.controller_harness import CLUSTER, training_harness

FIRST, SECOND = AttemptId(1, 1, 0), AttemptId(1, 1, 1)
SIGN = Match(signature="x", fault="gpu_lost", layer="device", scope="gpu", is_lasting=True)


def _incident() -> Incident:
    """Return an incident of two attempts, whose cause is known."""
    culprit = Culprit(kind="gpu", id="0000:07:00.0")
    cause = Cause(
        fault="gpu_lost",
        scope="gpu",
        culprit=culprit,
        node="n1",
        confidence=0.95,
        action_class="swap",
    )
    failures = [
        Failure(attempt=FIRST, node="n1", step=7, checkpoint="/c/5"),
        Failure(attempt=SECOND, node="n2", step=7, checkpoint="/c/5"),
    ]
    return Incident(
        incident="i1",
        fault="rank_crash",
        run=1,
        attempt=SECOND,
        node="n2",
        rank=2,
        cause=cause,
        matches=[replace(SIGN, rank=0), replace(SIGN, rank=1)],
        failures=failures,
    )


@pytest.mark.parametrize(
    ("name", "holds", "fails"),
    [
        ("cause", "gpu_lost", ["gpu_ecc", "rank_crash"]),
        ("scope", ["gpu", "node"], "user"),
        ("culprit", "gpu", "none"),
        ("lasting_sign", True, False),
        ("same_fingerprint", 1, 2),
        ("same_step", 1, 2),
        ("same_checkpoint", 1, 2),
        ("on_nodes", 2, 3),
        ("made_no_step", True, False),
        ("never_stepped", True, False),
        ("ranks_share_traceback", 2, 3),
        ("gang_died", True, False),
        ("spare_is_idle", False, True),
    ],
)
def test_a_condition_holds_for_one_parameter_and_not_for_another(
    name: str, holds: object, fails: object
) -> None:
    """A rung applies while what its condition asks is so."""
    state, incident = training_harness().state, _incident()
    assert CONDITIONS[name].parameter.fits(holds)
    assert CONDITIONS[name].parameter.fits(fails)
    assert applies(Rung(do="restart", when={name: holds}), state, incident)
    assert not applies(Rung(do="restart", when={name: fails}), state, incident)
    assert not applies(Rung(do="restart", when={name: holds, "same_node": 1}), state, incident)


def test_the_same_node_and_what_a_probe_found_are_known() -> None:
    """A second failure on one node counts against that node; a probe's finding is the incident's condition."""
    incident = _incident()
    again = Failure(attempt=SECOND, node="n2", step=9, checkpoint="/c/9", steps_made=True)
    incident.failures.append(again)
    incident.condition = "node_dead"
    state = State()
    assert applies(Rung(do="swap", when={"same_node": 1, "probe": "node_dead"}), state, incident)
    assert not applies(Rung(do="swap", when={"same_node": 2}), state, incident)
    assert not applies(Rung(do="swap", when={"same_checkpoint": 1}), state, incident)
    assert not applies(Rung(do="swap", when={"same_step": 1}), state, incident)


def test_an_incident_of_an_earlier_release_is_one_failure() -> None:
    """Journals did not say before which attempts failed: nothing is held against it."""
    old = Incident(incident="i1", fault="rank_crash", attempt=FIRST, node="n1")
    assert not applies(Rung(do="swap", when={"same_fingerprint": 1}), State(), old)
    assert not applies(Rung(do="swap", when={"on_nodes": 2}), State(), old)


CRASH = Runbook(
    name="crash", title="t", faults=("rank_crash",), ladder=(Rung(do="restart", tries=2),)
)
GPU = Runbook(name="gpu", title="t", faults=("gpu_lost",), ladder=(Rung(do="swap"),))


def test_the_page_is_that_of_the_cause_once_it_is_sure() -> None:
    """A cause outranks the fault that opened the incident; a guess does not."""
    incident = _incident()
    policy = Policy(cluster=CLUSTER, runbooks=(CRASH, GPU))
    assert policy.page_for(incident) is GPU
    assert incident.cause is not None
    incident.cause = replace(incident.cause, confidence=0.5)
    assert policy.page_for(incident) is CRASH
    incident.cause = None
    assert policy.page_for(incident) is CRASH


def test_a_page_that_only_watches_does_not_answer_a_gang_that_is_down() -> None:
    """Nothing would start the gang again; while it runs, the page of the cause is the right one."""
    watching = replace(GPU, ladder=(Rung(do="watch"),))
    policy = with_fields(Policy(cluster=CLUSTER, runbooks=(CRASH,)), runbooks=(CRASH, watching))
    incident = _incident()
    assert policy.page_for(incident) is CRASH
    incident.non_fatal = True
    assert policy.page_for(incident) is watching


def test_another_page_begins_at_its_top_and_one_that_comes_back_goes_on() -> None:
    """So two causes that take turns cannot keep a ladder from its end."""
    incident, state = _incident(), State()
    assert next_rung(CRASH, state, incident) == (0, 1)
    incident.runbook, incident.rung, incident.tries = "crash", 0, 1
    assert next_rung(GPU, state, incident) == (0, 1)
    incident.earlier_pages["crash"] = PagePlace(rung=0, tries=1)
    incident.runbook, incident.rung, incident.tries = "gpu", 0, 1
    assert next_rung(CRASH, state, incident) == (0, 2)
    assert next_rung(GPU, state, incident) is None


def test_every_verb_says_what_it_does() -> None:
    """docs/runbooks.md is printed from the table."""
    assert all(verb.meaning.endswith(".") for verb in VERBS.values())
