"""RandomFaults fit the state and so get deep into it: nothing raises, the invariants hold, and the journal has it all.

`test_random_streams` draws inputs blindly; these are picked from the state, stale and repeated ones among them.
"""

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.history.ledger import Ledger
from runner.history.lineage import lineage
from runner.history.timeline import story
from tests.decide.random_faults import DEEDS, RandomFaults, policy

NUMBERS = st.integers(0, 999)
STREAMS = st.lists(
    st.tuples(st.integers(0, len(DEEDS) - 1), NUMBERS, NUMBERS), min_size=5, max_size=120
)


# Streams; each takes about 50 ms.
NUM_LONG = 60 * int(os.environ.get("STOKER_SOAK", "1"))


# Passes that expire soon, so that spares are checked again and again.
LEVELLED: dict[str, Any] = {"check_level": "quick", "check_valid_hours": 0.01}


def play(deeds: list[tuple[int, int, int]], **fields: Any) -> RandomFaults:
    """Start with a cluster whose nodes have joined, then let the faults begin; `fields`: of cluster.yaml, besides."""
    faults = RandomFaults(policy(**fields))
    for pick in range(4):
        faults.join(pick, 10)
    faults.ask(1, 8)
    for which, pick, how in deeds:
        DEEDS[which](faults, pick, how)
    return faults


@given(STREAMS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_faults_break_no_invariant(deeds: list[tuple[int, int, int]]) -> None:
    """Random inputs, valid and not, never make a decision fail, and break no invariant (they are checked per entry)."""
    faults = play(deeds)
    state = faults.state
    assert state.decision_failures == 0
    replayed = State()
    for entry in faults.entries:
        apply_entry(replayed, wire.decode(wire.encode(entry)))
    assert wire.encode(replayed) == wire.encode(state)
    faults.turns.snapshot()
    again = faults.recovered()
    assert wire.encode(again.controller.state) == wire.encode(state)
    assert again.ledger.dump() == faults.turns.ledger.dump()


@pytest.mark.costly
def test_long_random_faults_break_no_invariant() -> None:
    """Hundreds of inputs in a row reach states that short streams do not: launches, swaps, ladders that end."""
    for seed in range(NUM_LONG):
        dice = random.Random(seed)
        deeds = [
            (dice.randrange(len(DEEDS)), dice.randrange(1000), dice.randrange(1000))
            for _ in range(250)
        ]
        faults = play(deeds, **(LEVELLED if seed % 2 else {}))
        assert faults.state.decision_failures == 0
        assert wire.encode(faults.recovered().controller.state) == wire.encode(faults.state)


@given(STREAMS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_timeline_lineage_and_ledger_fold_the_journal_of_random_faults(
    deeds: list[tuple[int, int, int]],
) -> None:
    """Timeline, lineage and ledger fold any journal, and the ledger's seconds add up."""
    faults = play(deeds)
    story(faults.entries)
    ledger = Ledger()
    for entry in faults.entries:
        ledger.apply(entry)
    for run in ledger.runs:
        lineage(faults.entries, run)
        summary = ledger.summary(run, faults.now)
        total = summary.productive_seconds + sum(summary.lost_seconds.values())
        assert abs(total - summary.wall_seconds) < 1e-6
