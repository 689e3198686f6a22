"""collectives: real ranks by gloo; wrong values are found even when all ranks have the same, late ranks and lost ones are named."""

import os
import sys

import pytest

from healthchecks.check import NodeFacts, Outcome, Verdict
from healthchecks.checks.active.collectives import CHECK, OPERATIONS, ask, judge_ranks
from healthchecks.limits import judge_of
from healthchecks.probe import run_probes
from healthchecks.rates.bus_bandwidth import bus_factor
from healthchecks.rates.busyness import MEASURE
from tests.healthchecks.check_harness import named, seen
from tests.healthchecks.probes.probe_harness import plant, real_verdict

pytestmark = pytest.mark.trainer


@pytest.mark.proves("collectives.foreign_cpu")
def test_sound_ranks_pass_unless_others_take_the_processors() -> None:
    """Every operation has a bandwidth to compare with peers; of a busy node it is unknown, though all values were right."""
    node = NodeFacts(python=sys.executable, level="quick", seconds=1.0)
    store = os.memfd_create("store")
    answers = run_probes("collectives", node, ask(node, f"/proc/{os.getpid()}/fd/{store}"))
    os.close(store)
    # Neighbours of this test may delay a rank.
    judge = judge_of(CHECK.limits, {"collectives.lag_seconds": 60.0})
    quiet, busy = (
        seen(
            Verdict(
                check="collectives", evidence=tuple(judge_ranks(answers, percent, MEASURE, judge))
            )
        )
        for percent in (20.0, 20.5)
    )
    assert quiet.outcome is Outcome.PASS, quiet.reason
    assert busy.outcome is Outcome.UNKNOWN
    assert busy.is_busy
    assert "busy with something else: other programs took processors, 20.5 percent" in busy.reason
    for name in OPERATIONS:
        rate = named(quiet, "bus_gb_per_second", name)
        assert rate.value is not None
        assert rate.value > 0.001
        assert rate.better == "higher"
        assert named(busy, "bus_gb_per_second", name).value is None
        assert named(busy, "wrong_words", name).outcome is Outcome.PASS


@pytest.mark.proves("collectives.wrong_words", "collectives.lag_seconds")
def test_wrong_values_and_a_late_rank_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that one rank got wrong, an input that is wrong alike on all ranks, and a rank that sleeps."""
    plant(
        monkeypatch,
        {"probe": "collectives", "kind": "flip", "rank": 1, "op": "all_gather"},
        {"probe": "collectives", "kind": "input", "op": "all_reduce"},
        {"probe": "collectives", "kind": "input", "op": "all_to_all"},
        {"probe": "collectives", "kind": "sleep", "rank": 1, "seconds": 0.4},
    )
    lifted = {"collectives.foreign_cpu": 100.0}
    verdict = real_verdict("collectives", seconds=1.0, limits=lifted)
    assert verdict.outcome is Outcome.FAIL
    wrong = {name: named(verdict, "wrong_words", name) for name in OPERATIONS}
    assert wrong["reduce_scatter"].value == 0
    assert (wrong["all_gather"].value, wrong["all_gather"].note) == (1, "rank 1: 1")
    ranks = int(named(verdict, "bus_gb_per_second", "all_reduce").note.split()[0])
    assert wrong["all_reduce"].value == ranks
    assert wrong["all_to_all"].value == ranks
    assert named(verdict, "lag_seconds", "rank 1").outcome is Outcome.FAIL
    assert named(verdict, "lag_seconds", "rank 0").outcome is Outcome.PASS


def test_a_rank_that_is_lost_makes_the_node_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an answer passes nothing: the rank is named, and how far the others came."""
    plant(
        monkeypatch,
        {"probe": "collectives", "kind": "exit", "rank": 1, "op": "all_gather"},
    )
    verdict = real_verdict("collectives", seconds=1.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "rank 1: the probe ended with code 3" in verdict.reason
    assert "rank 0 came to all_gather: " in verdict.reason


def test_bus_bandwidth_has_the_formulas_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md: all-reduce 2(n-1)/n, the others (n-1)/n."""
    assert bus_factor("all_reduce", 8) == 1.75
    for name in OPERATIONS[1:]:
        assert bus_factor(name, 8) == 0.875
