"""Noise that fits the state gets deep into it: nothing raises, what must hold holds, and the journal says it all.

`test_random_streams` draws inputs without looking; here they are picked from what there is, stale and doubled ones among them.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.history.ledger import Ledger
from runner.history.lineage import lineage
from runner.history.timeline import story
from tests.decide.noise import DEEDS, Noise

NUMBERS = st.integers(0, 999)
STREAMS = st.lists(
    st.tuples(st.integers(0, len(DEEDS) - 1), NUMBERS, NUMBERS), min_size=5, max_size=120
)


# streams; each takes about 50 ms
NUM_LONG = 60 * int(os.environ.get("STOKER_SOAK", "1"))


def play(deeds: list[tuple[int, int, int]]) -> Noise:
    """Start with a cluster whose nodes have joined, then let the noise begin."""
    noise = Noise()
    for pick in range(4):
        noise.join(pick, 10)
    noise.ask(1, 8)
    for which, pick, how in deeds:
        DEEDS[which](noise, pick, how)
    return noise


@given(STREAMS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_noise_breaks_nothing(deeds: list[tuple[int, int, int]]) -> None:
    """Random inputs, valid and not, never make a decision fail, and break no invariant (they are checked per entry)."""
    noise = play(deeds)
    state = noise.state
    assert state.decision_failures == 0
    replayed = State()
    for entry in noise.entries:
        apply_entry(replayed, wire.decode(wire.encode(entry)))
    assert wire.encode(replayed) == wire.encode(state)
    noise.turns.snapshot()
    again = noise.recovered()
    assert wire.encode(again.controller.state) == wire.encode(state)
    assert again.ledger.dump() == noise.turns.ledger.dump()


def test_long_noise_breaks_nothing() -> None:
    """Hundreds of inputs in a row reach states that short streams do not: launches, swaps, ladders that end."""
    for seed in range(NUM_LONG):
        dice = random.Random(seed)
        deeds = [
            (dice.randrange(len(DEEDS)), dice.randrange(1000), dice.randrange(1000))
            for _ in range(250)
        ]
        noise = play(deeds)
        assert noise.state.decision_failures == 0
        assert wire.encode(noise.recovered().controller.state) == wire.encode(noise.state)


@given(STREAMS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_history_of_noise_can_be_told(deeds: list[tuple[int, int, int]]) -> None:
    """Story, lineage and ledger fold any journal, and the ledger's seconds add up."""
    noise = play(deeds)
    story(noise.entries)
    ledger = Ledger()
    for entry in noise.entries:
        ledger.apply(entry)
    for run in ledger.runs:
        lineage(noise.entries, run)
        summary = ledger.summary(run, noise.now)
        total = summary.productive_seconds + sum(summary.lost_seconds.values())
        assert abs(total - summary.wall_seconds) < 1e-6
