import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.cli.clusters import store_of
from runner.cli.foreground.supervisor_child import (
    Budget,
    SupervisorChild,
    SupervisorLost,
    SupervisorRefused,
)
from runner.cli.made_clusters import write_spec
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store
from tests.cli.conftest import Cluster


@pytest.fixture
def hopeless(cluster: Cluster) -> Iterator[tuple[ClusterSpec, Store]]:
    """A cluster whose supervisors exit at once: their port is in use."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        spec = replace(cluster.spec, metrics_port=taken.getsockname()[1])
        write_spec(spec)
        with store_of(spec) as store:
            yield spec, store


def tend_until(child: SupervisorChild, deadline: float) -> None:
    """Run the child's checks as the foreground's loop does."""
    while time.monotonic() < deadline:
        child.restart_if_needed()
        time.sleep(0.02)


@pytest.mark.costly
def test_the_failure_of_a_supervisor_that_refuses_its_cluster_shows_its_last_output(
    hopeless: tuple[ClusterSpec, Store],
) -> None:
    """The command waits for the first start, and its failure names the reason and the log."""
    spec, store = hopeless
    child = SupervisorChild(spec, store, log=print)
    with pytest.raises(SupervisorRefused, match=r"^metrics_port: \d+ is in use.*supervisor\.log"):
        child.start()


@pytest.mark.costly
def test_restarts_have_a_budget_and_are_logged(hopeless: tuple[ClusterSpec, Store]) -> None:
    """The command logs each restart; when the budget is spent it gives the supervisor up, and names the remedy."""
    spec, store = hopeless
    messages: list[str] = []
    budget = Budget(max_restarts=2, cooldown_seconds=0.05)
    child = SupervisorChild(spec, store, log=messages.append, budget=budget)
    with pytest.raises(SupervisorLost, match=r"died again after 2 restarts.*stoker supervise"):
        tend_until(child, time.monotonic() + 60)
    assert [line.partition(": ")[2] for line in messages] == [
        "starting one, 1 of at most 2 restarts",
        "starting one, 2 of at most 2 restarts",
    ]
    assert "(exit code 2)" in messages[1]


def test_no_supervisor_is_started_while_another_one_leads(cluster: Cluster) -> None:
    """A supervisor of another user continues to lead, at the start and later."""
    cluster.lead()
    messages: list[str] = []
    child = SupervisorChild(cluster.spec, cluster.store, log=messages.append)
    child.start()
    child.restart_if_needed()
    assert not child.is_ours
    assert messages == []
    assert not (Path(cluster.spec.state) / "supervisor.log").exists()
