"""Rounds of kills against Redis, leader, standby, agents and ranks: the run goes on bit for bit, never twice at once."""

import os
from pathlib import Path

import pytest

from tests.e2e.chaos import FIRST, IS_SOAK, LENGTHS, NUM_FAULTS, Chaos
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, run_of
from tests.e2e.fleet_harness import FleetRounds, redis_server
from tests.e2e.soak import check_chain, expected_state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

SEED = int(os.environ.get("STOKER_SOAK_SEED", "20261122"))
NUM_ROUNDS = 300 if IS_SOAK else 8


@pytest.mark.alone
@pytest.mark.shared(3)
def test_a_run_in_a_fleet_survives_rounds_of_kills_bit_for_bit(
    harness: ClusterHarness, tmp_path: Path
) -> None:
    """Each round, the killed part returns and the gang goes on; its last loss is, bit for bit, that of an undisturbed run.

    Killed are Redis, the leader (killed, or stopped for longer than its lease), the standby, an agent, a rank.
    """
    print(f"seed {SEED}, {NUM_ROUNDS} rounds")
    with redis_server(tmp_path / "redis") as redis:
        rounds = FleetRounds(harness, redis, SEED)
        rounds.begin()
        for _ in range(NUM_ROUNDS):
            rounds.round()
        print({name: rounds.done.count(name) for name in dict.fromkeys(rounds.done)})
        (harness.folder / "enough").touch()
        view = harness.wait(
            lambda view: view if run_of(view).state == "finished" else None, "the end of the run"
        )
        last = check_chain(harness.folder)
        last_step = run_of(view).last
        assert last_step is not None
        # The last published step may be a heartbeat older than the end; the ranks logged that themselves: `check_chain`.
        assert 0 < last_step.step <= last
        state = "begin"
        for step in range(1, last_step.step + 1):
            state = expected_state(state, step)
        assert last_step.loss == int(state[:8], 16) / 2**32
        assert {incident.state for incident in incidents_of(view)} <= {"resolved"}
        rounds.end()


def test_a_run_in_a_fleet_goes_on_after_any_sequence_of_faults(
    harness: ClusterHarness, tmp_path: Path
) -> None:
    """As on SQLite, with Redis killed and paused as well: never two gangs, no step missing, and no run that stalls."""
    print(f"seed {SEED}, {NUM_FAULTS} faults")
    with redis_server(tmp_path / "redis") as redis:
        chaos = Chaos(harness, SEED, LENGTHS, redis=redis)
        chaos.begin()
        chaos.run(NUM_FAULTS, first=FIRST)
        print(chaos.end())
