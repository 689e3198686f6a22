"""Isolation under whatever results: it asks for something new each time, it ends, and neither order nor weak signs matter."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.decide.isolate.isolation import MAX_ROUNDS, next_step
from runner.decide.isolate.links import LEAD
from runner.facts.messages.isolation import AloneResult, Judged, Measure, PairResult, Question
from tests.decide.isolate.fleets import Fleet, Results, bad, leaves, named

# What one measurement may say, most of it sound.
ANSWERS = ("sound", "sound", "sound", "slow", "slower", "failed", "failed at one", "nothing")


def answer(step: Measure, dice: random.Random) -> Results:
    """Answer a round at random; a wrong result is rare."""
    results: Results = []
    for node in step.alone:
        outcome = dice.choice(ANSWERS)
        results.append(
            AloneResult(
                round=step.round,
                node=node,
                rate=_rate(100.0, outcome, dice),
                is_wrong=dice.random() < 0.01,
                is_failed=outcome.startswith("failed"),
            )
        )
    for pair in step.pairs:
        outcome = dice.choice(ANSWERS)
        failed = pair if outcome == "failed" else pair[:1] if outcome == "failed at one" else ()
        rate = _rate(40.0, outcome, dice)
        results.append(PairResult(round=step.round, nodes=pair, rate=rate, failed=failed))
    return results


def _rate(sound: float, outcome: str, dice: random.Random) -> float | None:
    shares = {"sound": 1.0, "slow": 0.5, "slower": 0.1}
    return sound * shares[outcome] * dice.lognormvariate(0, 0.05) if outcome in shares else None


def question(nodes: int, width: int, known: int = 0, num_classes: int = 1) -> Question:
    """Ask about some nodes on leaves of a width (0: no domains), beside some that history knows, of some hardware classes."""
    domains = leaves(nodes + known, width) if width else {}
    known_good = named(*range(nodes, nodes + known))
    classes = {f"n{at}": f"class{at % num_classes}" for at in range(nodes + known)}
    return Question(
        nodes=named(*range(nodes)),
        domains=domains,
        known_good=known_good,
        hardware_classes=classes,
    )


QUESTIONS = st.builds(
    question,
    st.integers(1, 24),
    st.sampled_from([0, 2, 4, 8]),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([1, 1, 2]),
)


@pytest.mark.costly
@settings(max_examples=60, deadline=None)
@given(QUESTIONS, st.integers(0, 1 << 32))
def test_each_call_asks_for_something_new_and_the_rounds_end(asked: Question, seed: int) -> None:
    """No node is in two measurements of a round, the same is not asked twice, and there are at most MAX_ROUNDS rounds."""
    dice = random.Random(seed)
    results: Results = []
    for number in range(MAX_ROUNDS + 1):
        step = next_step(asked, results)
        if isinstance(step, Judged):
            assert step.num_rounds == number
            assert {each.node for each in step.nodes} == {*asked.nodes, *asked.known_good}
            return
        assert step.round == number
        nodes = [*step.alone, *(node for pair in step.pairs for node in pair)]
        assert nodes
        assert len(nodes) == len({*nodes})
        results += answer(step, dice)
    raise AssertionError("more rounds than MAX_ROUNDS")


@pytest.mark.costly
@settings(max_examples=40, deadline=None)
@given(QUESTIONS, st.integers(0, 1 << 32))
def test_a_supervisor_that_takes_over_goes_on(asked: Question, seed: int) -> None:
    """In any order of results the answer is the same, and with half of a round it asks for the other half of that round."""
    dice = random.Random(seed)
    results: Results = []
    step = next_step(asked, results)
    while isinstance(step, Measure):
        new = answer(step, dice)
        half = dice.sample(new, len(new) // 2)
        rest = next_step(asked, dice.sample(results + half, len(results + half)))
        assert isinstance(rest, Measure)
        assert rest.round == step.round
        has = {each.node if isinstance(each, AloneResult) else each.nodes for each in half}
        assert {*rest.alone, *rest.pairs} == {*step.alone, *step.pairs} - has
        results += new
        whole = step
        step = next_step(asked, results)
        assert next_step(asked, dice.sample(results, len(results))) == step
        assert next_step(asked, results, asked=whole) == step


@settings(max_examples=60, deadline=None)
@given(QUESTIONS, st.integers(0, 1 << 32))
def test_a_blamed_node_has_three_signs_against_it(asked: Question, seed: int) -> None:
    """A node is blamed for a wrong result, three bad ones alone, or three bad pairs; never for pairs that it was not in."""
    dice = random.Random(seed)
    results: Results = []
    step = next_step(asked, results)
    while isinstance(step, Measure):
        results += answer(step, dice)
        step = next_step(asked, results)
    for node, part in bad(step).items():
        alone = [each for each in results if isinstance(each, AloneResult) and each.node == node]
        pairs = [each for each in results if isinstance(each, PairResult) and node in each.nodes]
        if part == "compute":
            num_bad = sum(each.is_failed or (each.rate or 100.0) < 90.0 for each in alone)
            assert any(each.is_wrong for each in alone) or num_bad >= LEAD
        else:
            assert sum(bool(each.failed) or (each.rate or 40.0) < 37.0 for each in pairs) >= LEAD


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 24), st.sampled_from([0, 4, 8]), st.integers(0, 1 << 32))
def test_two_halved_measurements_blame_no_node(nodes: int, width: int, seed: int) -> None:
    """Of a sound fleet any two measurements may be halved: no node and no path is blamed."""
    asked = question(nodes, width)
    dice = random.Random(seed)
    _, _, rounds = Fleet(question=asked).judged()
    subjects = [(each, step.round) for step in rounds for each in (*step.alone, *step.pairs)]
    halved = dice.sample(subjects, 2)
    judged, _, _ = Fleet(question=asked, halved=halved).judged()
    assert bad(judged) == {}
    assert not [path for path in judged.paths if path.verdict == "bad"]
