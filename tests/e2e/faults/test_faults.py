"""Real faults in real runs of the built-in trainer: the end is the same as without them, to the last bit."""

import signal

import pytest

from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, node_of
from tests.e2e.reference import Reference, assert_equal, prepare

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_run_that_loses_each_rank_a_stopped_rank_and_a_node_ends_like_an_undisturbed_one(
    harness: ClusterHarness, undisturbed: Reference
) -> None:
    """SIGKILL to each rank in turn, SIGSTOP to one, a whole node killed: the same last step, loss and weights."""
    prepare(harness, spares=1)
    run = harness.start("run", "run.yaml")
    now = harness.training(past_step=5)
    for rank in range(4):
        print(f"step {now.step}: SIGKILL to rank {rank} (pid {now.pids[rank]}) of {now.attempt}")
        kill(now.pids[rank])
        now = harness.training(past_step=now.step + 1, after=now.attempt)
    print(f"step {now.step}: SIGSTOP to rank 2 of {now.attempt}")
    kill(now.pids[2], signal.SIGSTOP)
    now = harness.training(past_step=now.step + 1, after=now.attempt)
    print(f"step {now.step}: kill-node n2 of {now.attempt}")
    drilled = harness.stoker("drill", "kill-node", "--node", "n2")
    assert drilled.returncode == 0, drilled
    code, output = harness.finish(run, seconds=300)
    assert code == 0, output

    assert_equal(harness, undisturbed)
    assert list(harness.observer.starts().values()) == [4] * 7
    assert [str(attempt) for attempt in harness.observer.attempts()] == [
        f"1.1.{restart}" for restart in range(7)
    ]
    found = [(i.fault, i.state, i.rungs) for i in incidents_of(harness.view())]
    assert found[:4] == [("rank_crash", "resolved", ("restart",))] * 4
    assert found[4] == ("rank_stopped", "resolved", ("restart",))
    assert [(fault, state) for fault, state, _ in found[5:]] == [("node_silent", "resolved")]
    assert [i.rank for i in incidents_of(harness.view())][:5] == [0, 1, 2, 3, 2]
    assert node_of(harness.view(), "n2").attempt is None
    print(f"longest pause between two looks: {harness.observer.longest_pause_seconds * 1e3:.0f} ms")
