"""Many rounds of kills against one run: it goes on bit for bit, and nothing of Stoker grows."""

from __future__ import annotations

import os

import pytest

from tests.e2e.cluster_harness import ClusterHarness, incidents_of, run_of
from tests.e2e.soak import Rounds, check_chain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

SEED = int(os.environ.get("STOKER_SOAK_SEED", "20240613"))
NUM_ROUNDS = 1000 if "STOKER_SOAK" in os.environ else 50
# First rounds of a process, in which it imports, opens and caches its needs; chosen.
WARM_UP_ROUNDS = 10
# What a process may grow by, past its warm-up: descriptors come and go with threads that act; memory with the allocator's own mood,
# a little with each attempt, since the ledger keeps them all, and by half a megabyte with the learned statistics of a run.
# Measured in 60 rounds, without the latter: no descriptor, at most 1.2 MB. In 50 rounds one supervisor is seen for at least 27 past
# its warm-up, n1's processes for 40: in 27 a leak shows of one descriptor in four rounds, or of 130 KB a round.
MAX_DESCRIPTORS = 6
MAX_BYTES = 5 << 19
MAX_BYTES_PER_ROUND = 32 << 10


def test_a_run_survives_rounds_of_kills_bit_for_bit(harness: ClusterHarness) -> None:
    """Every step of every attempt has the expected state, each round ends with each process there once, and none leaks.

    Each round kills one: a rank (killed or stopped), a warm process, a keeper, an agent, or the supervisor.
    """
    print(f"seed {SEED}, {NUM_ROUNDS} rounds")
    rounds = Rounds(harness, SEED)
    rounds.begin()
    for number in range(NUM_ROUNDS):
        # Then one supervisor stays, so that its own growth shows.
        rounds.round(may_restart_supervisor=number < NUM_ROUNDS // 4)
    num_kills = {name: rounds.done.count(name) for name in dict.fromkeys(rounds.done)}
    growth = rounds.books.growth(warm_up=WARM_UP_ROUNDS)
    print(f"kills {num_kills}; growth (rounds, descriptors, bytes) {growth}")
    assert "up, slowest rank in each phase: start " in harness.stoker("story").stdout
    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    assert harness.stoker("shutdown").returncode == 0
    assert rounds.supervisor.wait(30) == 0
    assert check_chain(harness.folder) > NUM_ROUNDS
    assert {incident.state for incident in incidents_of(harness.view())} <= {"resolved"}
    assert {"supervisor", "agent", "reader", "keeper", "warm"} <= set(growth)
    for kind, (num_rounds, descriptors, size) in growth.items():
        assert descriptors <= MAX_DESCRIPTORS, f"{kind}: {growth[kind]}"
        assert size <= MAX_BYTES + num_rounds * MAX_BYTES_PER_ROUND, f"{kind}: {growth[kind]}"
