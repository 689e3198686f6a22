"""Many rounds of kills against one run: it goes on bit for bit, and nothing of Stoker grows."""

import os

import pytest

from tests.e2e.chaos import FIRST, IS_SOAK, LENGTHS, NUM_FAULTS, Chaos
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, run_of
from tests.e2e.soak import Rounds, check_chain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

SEED = int(os.environ.get("STOKER_SOAK_SEED", "20240613"))
NUM_ROUNDS = 1000 if IS_SOAK else 38
# First rounds of a process, in which it imports, opens and caches its needs; chosen.
WARM_UP_ROUNDS = 10
# What a process may grow by, past its warm-up: descriptors come and go with threads that act; memory with the allocator's own mood,
# a little with each attempt, since the ledger keeps them all, and by half a megabyte with the learned statistics of a run.
# Measured in 60 rounds, without the latter: no descriptor, at most 1.2 MB. In 38 rounds one supervisor, and n1's processes, are
# seen for 28 past their warm-up: in 27 a leak shows of one descriptor in four rounds, or of 130 KB a round.
MAX_DESCRIPTORS = 6
MAX_BYTES = 5 << 19
MAX_BYTES_PER_ROUND = 32 << 10


@pytest.mark.alone
@pytest.mark.shared(2)
def test_a_run_survives_rounds_of_kills_bit_for_bit(harness: ClusterHarness) -> None:
    """Every step of every attempt has the expected state, each round ends with each process there once, and none leaks.

    Each round kills one: a rank (killed or stopped), a warm process, a keeper, an agent.
    """
    print(f"seed {SEED}, {NUM_ROUNDS} rounds")
    rounds = Rounds(harness, SEED)
    rounds.begin()
    for number in range(NUM_ROUNDS):
        # Then one supervisor stays, so that its own growth shows.
        rounds.round(may_restart_supervisor=IS_SOAK and number < NUM_ROUNDS // 4)
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


def test_a_run_goes_on_after_any_sequence_of_faults(harness: ClusterHarness) -> None:
    """Everything is killed or paused and clocks jump, in any order: never two gangs, no step missing, and no run that stalls."""
    print(f"seed {SEED}, {NUM_FAULTS} faults")
    chaos = Chaos(harness, SEED, LENGTHS)
    chaos.begin()
    chaos.run(NUM_FAULTS, first=FIRST)
    print(chaos.end())
