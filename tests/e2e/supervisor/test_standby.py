"""A standby supervisor: it takes over when the leader dies, pauses or exits, and in no other case."""

import signal
import subprocess
import sys
import time

import pytest

from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import StandbyStatus
from runner.journal.journal import Journal
from runner.serve.status_reader import read_standbys
from tests.e2e.cluster_harness import ClusterHarness, Training, incidents_of, kill, run_of
from tests.e2e.scripts import STEPPING, steps_of

pytestmark = pytest.mark.timeout(900)

LEASE_SECONDS = 2.0


def two_supervisors(
    harness: ClusterHarness,
) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """Start a leader and a standby on a cluster of two nodes; return them."""
    limits = {"checks": [], "lease_seconds": LEASE_SECONDS}
    harness.write_cluster(nodes=2, slots=1, limits=limits)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    leader = harness.start("supervise")
    harness.until(harness.view, "a first View")
    standby = harness.start("supervise", "--standby")
    await_standby(harness, standby)
    return leader, standby


def await_standby(harness: ClusterHarness, process: subprocess.Popen[bytes]) -> StandbyStatus:
    """Wait until a process is a standby."""

    def look() -> StandbyStatus | None:
        found = read_standbys(harness.store, wall=time.time())
        return next((view for view in found if f":{process.pid}:" in view.holder), None)

    return harness.until(look, f"{process.pid} to be a standby")


def training(harness: ClusterHarness) -> Training:
    """Submit a run and wait until it trains."""
    handed = harness.stoker("run", "run.yaml", "--detach")
    assert handed.returncode == 0, handed
    return harness.training(past_step=1)


def await_leader(harness: ClusterHarness, process: subprocess.Popen[bytes]) -> None:
    """Wait for a status published by this process."""
    harness.wait(lambda view: f":{process.pid}:" in view.holder or None, f"{process.pid} leads")


def over(harness: ClusterHarness, supervisor: subprocess.Popen[bytes], before: Training) -> None:
    """Check for one attempt in the same processes, without an incident; shut the cluster down."""
    assert harness.training(past_step=run_of(harness.view()).step + 5).pids == before.pids
    assert harness.observer.starts() == {str(before.attempt): 2}
    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    assert harness.stoker("shutdown").returncode == 0
    assert supervisor.wait(30) == 0
    for rank, pid in before.pids.items():
        steps = steps_of(harness.folder, rank)
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))
        assert {step.pid for step in steps} == {pid}
    assert not incidents_of(harness.view())


def tokens(harness: ClusterHarness) -> list[tuple[int, int]]:
    """Return the pid and the token of every supervisor that led, in order; each token is higher than the one before."""
    led = [
        (int(entry.input.holder.split(":")[1]), entry.input.token)
        for entry in Journal(harness.store).replay()
        if isinstance(entry.input, r.SupervisorStarted)
    ]
    assert [token for _, token in led] == sorted({token for _, token in led})
    return led


def test_a_standby_takes_over_from_a_leader_that_is_killed_and_another_from_it(
    harness: ClusterHarness,
) -> None:
    """SIGKILL to three leaders in turn: each time the standby takes over, and no rank notices."""
    leader, standby = two_supervisors(harness)
    before = training(harness)
    pids = [leader.pid]
    for _ in range(3):
        leader.kill()
        leader.wait()
        await_leader(harness, standby)
        leader, standby = standby, harness.start("supervise", "--standby")
        pids.append(leader.pid)
        shown = await_standby(harness, standby)
        assert shown.takes_over_within_seconds == LEASE_SECONDS
    assert [pid for pid, _ in tokens(harness)] == pids
    over(harness, leader, before)
    # The last one has no leader to wait for.
    assert standby.wait(30) == 0
    assert "was shut down" in harness.output()


def test_a_leader_paused_longer_than_its_lease_writes_nothing_and_exits(
    harness: ClusterHarness,
) -> None:
    """SIGSTOP, the standby leads, SIGCONT: every entry since is the new leader's, and the old one exits with 1."""
    leader, standby = two_supervisors(harness)
    before = training(harness)
    kill(leader.pid, signal.SIGSTOP)
    await_leader(harness, standby)
    kill(leader.pid, signal.SIGCONT)
    assert leader.wait(60) == 1
    assert [pid for pid, _ in tokens(harness)] == [leader.pid, standby.pid]
    over(harness, standby, before)
    assert [pid for pid, _ in tokens(harness)] == [leader.pid, standby.pid]


def test_a_standby_takes_over_at_once_from_a_leader_that_is_terminated(
    harness: ClusterHarness,
) -> None:
    """SIGTERM to the leader, as for an upgrade: it releases its lease, agents and ranks go on, and the standby leads."""
    leader, standby = two_supervisors(harness)
    before = training(harness)
    leader.terminate()
    assert leader.wait(30) == 0
    await_leader(harness, standby)
    over(harness, standby, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminated_standby_leaves_nothing_behind(
    harness: ClusterHarness, number: signal.Signals
) -> None:
    """Ctrl-C or SIGTERM: it exits with 0 and disappears from the status, and the leader does not notice."""
    leader, standby = two_supervisors(harness)
    before = training(harness)
    standby.send_signal(number)
    assert standby.wait(30) == 0
    assert read_standbys(harness.store, wall=time.time()) == []
    assert len(tokens(harness)) == 1
    over(harness, leader, before)


def test_a_standby_alone_leads_and_one_after_a_shutdown_opens_the_cluster_again(
    harness: ClusterHarness,
) -> None:
    """Without a leader it leads at once, so that one unit file serves every machine; it reopens a closed cluster, too."""
    harness.write_cluster(nodes=1, slots=1, limits={"checks": []})
    for _ in range(2):
        alone = harness.start("supervise", "--standby")
        harness.wait(
            lambda view, pid=alone.pid: (
                (  # type: ignore[misc]
                    f":{pid}:" in view.holder and [n.state for n in view.nodes] == ["spare"]
                )
                or None
            ),
            "a spare",
        )
        assert harness.stoker("shutdown").returncode == 0
        assert alone.wait(30) == 0
    assert len(tokens(harness)) == 2


def test_a_leader_that_dies_in_the_middle_of_a_shutdown_is_finished_by_the_standby(
    harness: ClusterHarness,
) -> None:
    """The leader accepts the request and is killed before the nodes have left: the standby ends them, then exits."""
    leader, standby = two_supervisors(harness)
    training(harness)
    asked = harness.start("shutdown")
    harness.wait(lambda view: view.closing or None, "closing")
    leader.kill()
    leader.wait()
    assert standby.wait(120) == 0
    assert asked.wait(60) == 0
    view = harness.view()
    assert view is not None
    assert [node.state for node in view.nodes] == ["left", "left"]
