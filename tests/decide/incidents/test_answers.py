"""Answers: a death without words is answered at once, one with words once its node has said why; later causes amend."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.decide.incidents.ladder import next_rung
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import Incident, Run, State
from runner.facts import wire
from runner.facts.causes import Cause, Failure
from runner.facts.faults import FAULTS, Finding
from runner.facts.ids import AttemptId
from runner.facts.matches import Match
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.requests import StopRun
from tests.decide.controller_harness import (
    ControllerHarness,
    exited,
    kinds,
    launch,
    training_harness,
)
from tests.decide.scenario import runbooks

WORDS = "Traceback (most recent call last):\nKeyError: 'wte'"
CONFIG = Match(
    signature="no-module",
    fault="config_error",
    layer="program",
    scope="user",
    is_lasting=True,
    file="rank0.err",
    line=3,
    text="ModuleNotFoundError: No module named 'flash_attn'",
    rank=0,
)
FULL = replace(CONFIG, fault="filesystem", layer="machine", scope="storage", text="disk is full")


def lines(harness: ControllerHarness, node: str, *matches: Match, **more: Any) -> s.LinesMatched:
    """Make what a node's reader found in the output of the run's first attempt."""
    name = AttemptId(1, 1, 0)
    given = {"generation": 1, "attempt": name, "is_last": True, **more}
    return s.LinesMatched(node=node, incarnation=1, matches=matches, **given)


def run_of(harness: ControllerHarness) -> Run:
    """Return the only run."""
    return harness.state.runs[1]


def clear(harness: ControllerHarness) -> None:
    """Let both nodes confirm that the ranks of the attempt are gone."""
    attempt = run_of(harness).attempt
    assert attempt is not None
    for node in attempt.nodes:
        name, generation = attempt.attempt, attempt.generation
        gone = s.RanksTerminated(node=node, incarnation=1, generation=generation, attempt=name)
        harness.take(gone)


def died(**more: Any) -> ControllerHarness:
    """Return a run whose rank 0 on n1 has ended with words."""
    harness = training_harness(**more)
    harness.take(exited(harness, node="n1", rank=0, stderr_tail=WORDS))
    # The clock of the harness goes by seconds.
    harness.now -= 0.95
    return harness


@pytest.mark.parametrize(
    "how", [{"exit_code": -9, "stderr_tail": WORDS}, {"exit_code": -15}, {"exit_code": 1}]
)
def test_a_death_without_words_is_answered_at_once(how: dict[str, Any]) -> None:
    """A rank that was killed, or said nothing, is started again without a wait."""
    harness = training_harness()
    records = harness.take(exited(harness, node="n1", rank=0, **how))
    assert "RungTaken" in kinds(records)
    assert "AnswerAwaited" not in kinds(records)
    assert run_of(harness).retry_at is None


def test_a_death_with_words_ends_the_gang_and_waits_for_its_nodes_lines() -> None:
    """The gang is ended in the same decision; only the rung waits, and other nodes' lines do not answer."""
    harness = training_harness()
    records = harness.take(exited(harness, node="n1", rank=0, stderr_tail=WORDS))
    assert "RungTaken" not in kinds(records)
    assert [x.state for x in records if isinstance(x, r.AttemptChanged)] == ["stopping"]
    assert kinds(records).count("Assigned") == 2
    harness.now -= 0.95
    clear(harness)
    harness.now -= 2 * 0.99
    assert "RungTaken" not in kinds(harness.take(lines(harness, "n2")))
    harness.now -= 0.99
    assert "AttemptPlanned" not in kinds(harness.take(r.Settle()))
    harness.now -= 0.99
    assert "RungTaken" in kinds(harness.take(lines(harness, "n1", FULL)))
    (incident,) = harness.state.incidents.values()
    assert (incident.runbook, incident.awaited) == ("storage", None)


def test_a_node_that_says_nothing_is_not_waited_for_longer_than_that() -> None:
    """The limit is `diagnose_seconds`, and the controller asks to be woken then."""
    harness = died()
    woken = harness.controller.wake_at()
    (incident,) = harness.state.incidents.values()
    assert incident.awaited is not None
    assert woken is not None
    assert woken <= incident.awaited.until
    assert "RungTaken" not in kinds(harness.settle())
    harness.now = incident.awaited.until
    assert "RungTaken" in kinds(harness.settle())


def test_a_wait_survives_the_supervisor_and_ends_with_a_stop() -> None:
    """What is waited for is durable; a person who stops the run waits for nothing."""
    harness = died()
    harness.take(lines(harness, "n1", FULL))
    clear(harness)
    run = run_of(harness)
    assert run.retry_at is not None
    kept = wire.decode(wire.encode(harness.state), limit_bytes=10**7)
    assert kept.runs[1].retry_at == run.retry_at
    assert kept.incidents["i1"].failures == harness.state.incidents["i1"].failures
    harness.now = run.retry_at - 1.5
    assert "AttemptPlanned" not in kinds(harness.take(r.Settle()))
    harness.take(StopRun(id="q9", by="ann", run="a"))
    harness.settle()
    assert run_of(harness).state == "stopped"


def _launched_again(harness: ControllerHarness) -> None:
    harness.take(exited(harness, node="n1", rank=0))
    clear(harness)
    launch(harness)
    assert run_of(harness).attempt is not None


def test_a_later_cause_ends_a_launched_attempt_only_to_stop_or_swap() -> None:
    """A restart that is under way is not undone for another restart; a run that cannot work is stopped."""
    harness = training_harness()
    _launched_again(harness)
    records = harness.take(lines(harness, "n1", FULL))
    assert kinds(records) == ["IncidentDiagnosed"]
    harness = training_harness()
    _launched_again(harness)
    records = harness.take(lines(harness, "n1", CONFIG, replace(CONFIG, rank=1, line=4)))
    assert [x.do for x in records if isinstance(x, r.RungTaken)] == ["stop"]
    assert run_of(harness).state == "failed"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_user_error_stops_at_once_only_where_two_ranks_share_it(ranks: int) -> None:
    """One rank's environment may differ: it is tried again, then elsewhere."""
    harness = died()
    found = [replace(CONFIG, rank=rank, line=rank) for rank in range(ranks)]
    harness.take(lines(harness, "n1", *found))
    (incident,) = harness.state.incidents.values()
    assert incident.runbook == "user-error"
    assert incident.rungs_taken == (["stop"] if ranks == 2 else ["restart"])


def test_a_configuration_that_made_a_step_is_not_stopped_at_once() -> None:
    """What worked before is no error of the user's."""
    harness = training_harness()
    harness.take(s.Progress(node="n1", incarnation=1, attempt=AttemptId(1, 1, 0), step=3))
    harness.take(exited(harness, node="n1", rank=0, stderr_tail=WORDS))
    harness.now -= 0.95
    harness.take(lines(harness, "n1", CONFIG, replace(CONFIG, rank=1, line=4)))
    (incident,) = harness.state.incidents.values()
    assert incident.rungs_taken == ["restart"]


def test_what_the_rank_itself_says_by_its_exit_code_outranks_its_lines() -> None:
    """Refused settings are no symptom: the page of the fault answers, without a wait."""
    harness = training_harness()
    records = harness.take(exited(harness, node="n1", rank=0, exit_code=78, stderr_tail=WORDS))
    assert [x.do for x in records if isinstance(x, r.RungTaken)] == ["stop"]


def _found(fault: str, **more: Any) -> Finding:
    name = AttemptId(1, 1, 0)
    return Finding(fault=fault, evidence="it is so", attempt=name, node="n2", **more)


def test_memory_that_grows_is_answered_by_a_restart_at_a_checkpoint() -> None:
    """Ranks are asked to write a checkpoint and to end; the next attempt is on the same nodes."""
    harness = training_harness()
    name = AttemptId(1, 1, 0)
    harness.take(s.RanksReady(node="n1", incarnation=1, attempt=name, requests=("stop",)))
    records = harness.take(_found("host_memory_growth", rank=2))
    assert "RestartWanted" in kinds(records)
    asked = harness.settle()
    assert [x.outcome for x in asked if isinstance(x, r.AttemptChanged)] == ["restarted"]
    for rank in range(4):
        node = f"n{1 + rank // 2}"
        harness.take(exited(harness, node=node, rank=rank, exit_code=75))
    harness.settle()
    clear(harness)
    planned = [x for x in harness.settle() if isinstance(x, r.AttemptPlanned)]
    assert [x.nodes for x in planned] == [("n1", "n2")]
    assert run_of(harness).restart_reason == ""


def test_ranks_that_cannot_be_asked_are_not_restarted_for_growth() -> None:
    """They would lose steps for something that has not happened yet."""
    harness = training_harness()
    records = harness.take(_found("descriptor_growth", rank=2))
    assert "RestartWanted" not in kinds(records)
    assert "AttemptChanged" not in kinds(harness.settle())


@pytest.mark.parametrize("has_spare", [False, True])
def test_a_straggler_leaves_only_if_a_spare_is_idle(has_spare: bool) -> None:
    """It leaves at the next checkpoint; without a spare the run is slow, which is better than to wait."""
    harness = training_harness()
    if has_spare:
        harness.join("n3", instance_id="agent-n3")
        harness.settle()
    records = harness.take(_found("straggler", rank=2))
    leaving = [x.node for x in records if isinstance(x, r.NodeDraining)]
    assert leaving == (["n2"] if has_spare else [])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_ladder_ends_whatever_the_causes_are(seed: int) -> None:
    """However causes, nodes and steps change between failures, all pages together have an end."""
    dice, faults = Random(seed), sorted(FAULTS)
    incident, state = Incident(incident="i1", fault="rank_crash", run=1, node="n1"), State()
    books = {fault: book for book in runbooks() for fault in book.faults}
    taken = 0
    for number in range(400):
        fault, node = dice.choice(faults), dice.choice(["n1", "n2"])
        incident.cause = Cause(
            fault=fault,
            scope=FAULTS[fault].scope,
            culprit=None,
            node=node,
            confidence=0.9,
            action_class="restart",
        )
        attempt = AttemptId(1, 1, number)
        incident.failures.append(Failure(attempt=attempt, node=node, step=dice.randrange(3)))
        incident.condition = dice.choice(["always", "agent_only", "node_dead"])
        book = books[fault]
        chosen = next_rung(book, state, incident)
        if chosen is None:
            continue
        taken += 1
        index, tries = chosen
        rung = r.RungTaken(
            incident="i1", runbook=book.name, rung=index, do=book.ladder[index].do, try_number=tries
        )
        state.incidents["i1"] = incident
        apply_record(state, rung)
    assert taken <= sum(sum(rung.tries for rung in book.ladder) for book in runbooks()) < 400
