import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runner.cli.metrics import metrics_child
from runner.errors import UserError
from runner.facts import wire
from runner.facts.messages.cluster_status import (
    CheckStatus,
    DrainStatus,
    NodeChecks,
    NodeStatus,
    SparesStatus,
    StandbyStatus,
)
from runner.facts.messages.records_checks import MeasuredValue, OutcomeGroup
from runner.facts.messages.requests import Answer
from runner.facts.store_names import CHECK_STATUS
from runner.serve.metrics import MetricsServer, RenderedChecks, metrics_of, metrics_text
from runner.serve.status_reader import read_check_payload
from runner.store.redis.store import RedisStore
from tests.cli.conftest import Cluster, example_view, stoker
from tests.store.redis_server import NoRedis, RedisServer


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read Prometheus text with Prometheus' own parser."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """Serve metrics on a free port; yield the address."""
    server = MetricsServer(cluster.store, port=0, address="127.0.0.1")
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


def test_the_status_becomes_metrics_with_units(cluster: Cluster) -> None:
    """Steps, losses, ratios, seconds by cause, node states and incidents, each under its name."""
    found = samples(metrics_text(example_view()).decode())
    run = (("name", "tiny"), ("run", "2"))
    assert found["stoker_run_step", run] == 51
    assert found["stoker_run_loss", run] == 2.5
    assert found["stoker_run_ettr_ratio", run] == 0.75
    assert found["stoker_run_lost_seconds", (("cause", "rework"), *run)] == 15
    assert found["stoker_run_lost_seconds", (("cause", "waiting"), *run)] == 0
    assert found["stoker_node_state", (("node", "n3"), ("state", "lost"))] == 1
    assert ("stoker_node_state", (("node", "n3"), ("state", "spare"))) not in found
    assert found["stoker_nodes", (("state", "active"),)] == 2
    assert found["stoker_nodes", (("state", "quarantined"),)] == 0
    assert found["stoker_spare_nodes", ()] == 0
    assert found["stoker_incidents_total", (("fault", "rank_crash"),)] == 1
    assert found["stoker_recent_incidents", (("fault", "rank_crash"), ("state", "resolved"))] == 1
    assert found["stoker_supervisor_resident_bytes", ()] == 47_000_000
    assert found["stoker_warm_resident_bytes", (("node", "n1"),)] == 480_000_000
    assert ("stoker_warm_resident_bytes", (("node", "n2"),)) not in found
    assert found["stoker_warm_nodes", ()] == 1
    assert found["stoker_status_age_seconds", ()] < 60
    assert ("stoker_run_loss", (("name", "old"), ("run", "1"))) not in found


def test_a_missing_status_is_a_metric_too() -> None:
    """Before the first status the metrics have `stoker_up 0`, and show that the store answers."""
    found = samples(metrics_text(None).decode())
    assert found == {("stoker_up", ()): 0, ("stoker_store_up", ()): 1}


def test_the_fleet_and_its_hardware_become_metrics() -> None:
    """The metrics have spares, hardware faults, refused hardware, domains that are down, and refused messages by reason."""
    leaving = DrainStatus(to="maintenance", since=1.0)
    view = example_view(
        nodes=(NodeStatus(node="n1", state="spare", pending_drain=leaving),),
        pool=SparesStatus(spares=1, low_mark=2, recommended=3, low=True),
        domains_down={"rack r2": ("n3", "n4")},
        hardware_refused={"quarantined": 2},
        hardware_faults=5,
        unsigned=True,
        refused_messages={"replayed": 7},
    )
    found = samples(metrics_text(view).decode())
    assert found["stoker_spare_nodes", ()] == 1
    assert found["stoker_recommended_spares", ()] == 3
    assert found["stoker_spares_low", ()] == 1
    assert found["stoker_draining_nodes", ()] == 1
    assert found["stoker_hardware_faults", ()] == 5
    assert found["stoker_hardware_refused", (("verdict", "quarantined"),)] == 2
    assert found["stoker_hardware_refused", (("verdict", "retired"),)] == 0
    assert found["stoker_domain_down_nodes", (("domain", "rack r2"),)] == 2
    assert found["stoker_domains_down", ()] == 1
    assert found["stoker_messages_unsigned", ()] == 1
    assert found["stoker_messages_refused_total", (("reason", "replayed"),)] == 7


def test_results_of_checks_become_metrics_by_check_and_node(cluster: Cluster) -> None:
    """The last outcome of each with its level and time, how many nodes have which, and what is compared with peers."""
    passed = OutcomeGroup(outcome="PASS", at=7.0, level="standard", checks=("memory", "clock"))
    failed = OutcomeGroup(outcome="FAIL", at=8.0, level="passive", checks=("memory",))
    rate = MeasuredValue(name="rate", value=2.5, better="higher", unit="TFLOP/s", subject="gpu 0")
    nodes = (
        NodeChecks(node="n1", outcomes=(passed,), measured_at=7.0, num_behind=1, values=(rate,)),
        NodeChecks(node="n2", outcomes=(failed,)),
    )
    cluster.publish(example_view())
    status = CheckStatus(cluster="tiny", nodes=nodes, num_left_out=3)
    cluster.store.put(CHECK_STATUS, wire.encode(status))
    found = samples(metrics_of(cluster.store).decode())
    first, second = (("check", "memory"), ("node", "n1")), (("check", "memory"), ("node", "n2"))
    passes = (("check", "memory"), ("level", "standard"), ("node", "n1"), ("outcome", "PASS"))
    assert found["stoker_node_check", passes] == 1
    assert [found["stoker_node_check_timestamp_seconds", each] for each in (first, second)] == [
        7,
        8,
    ]
    fails = (("check", "memory"), ("level", "passive"), ("node", "n2"), ("outcome", "FAIL"))
    assert found["stoker_node_check", fails] == 1
    assert sum(name == "stoker_node_check" for name, _ in found) == 3
    assert found["stoker_check_nodes", (("check", "memory"), ("outcome", "FAIL"))] == 1
    assert found["stoker_check_nodes", (("check", "clock"), ("outcome", "FAIL"))] == 0
    labels = (("name", "rate"), ("node", "n1"), ("subject", "gpu 0"), ("unit", "TFLOP/s"))
    assert found["stoker_node_measured_value", labels] == 2.5
    assert found["stoker_node_measured_timestamp_seconds", (("node", "n1"),)] == 7
    assert found["stoker_node_values_behind", (("node", "n1"),)] == 1
    assert found["stoker_measured_values_left_out", ()] == 3


def test_results_of_checks_are_written_again_once_they_change(cluster: Cluster) -> None:
    """A scrape of the same results takes the text of the one before; others are read again."""

    def publish(*nodes: str) -> None:
        passed = OutcomeGroup(outcome="PASS", at=7.0, level="quick", checks=("memory",))
        checks = tuple(NodeChecks(node=node, outcomes=(passed,)) for node in nodes)
        cluster.store.put(CHECK_STATUS, wire.encode(CheckStatus(cluster="tiny", nodes=checks)))

    def scraped() -> list[str]:
        found = samples(metrics_of(cluster.store, rendered_checks=rendered).decode())
        return [dict(labels)["node"] for name, labels in found if name == "stoker_node_check"]

    rendered = RenderedChecks()
    assert scraped() == []
    publish("n1")
    assert scraped() == ["n1"]
    payload = read_check_payload(cluster.store)
    assert rendered.of(payload) is rendered.of(payload)
    publish("n1", "n2")
    assert scraped() == ["n1", "n2"]


def test_leader_standby_and_journal_length_come_from_the_store(
    cluster: Cluster,
) -> None:
    """These are current at the moment of the scrape, however old the status is."""
    assert samples(metrics_of(cluster.store).decode())["stoker_lease_remaining_seconds", ()] == 0
    cluster.lead()
    standby = StandbyStatus(holder="b:2:1", wall=time.time())
    cluster.store.put("status.standby.b:2:1", wire.encode(standby))
    num_entries = cluster.store.last("journal")
    found = samples(metrics_of(cluster.store).decode())
    assert found["stoker_lease_remaining_seconds", ()] > 0
    assert found["stoker_lease_token", ()] == 1
    assert found["stoker_standby_supervisors", ()] == 1
    assert found["stoker_journal_stored_entries", (("where", "store"),)] == num_entries
    assert found["stoker_journal_stored_entries", (("where", "files"),)] == 0


def test_an_unreachable_store_is_a_metric_of_its_own(tmp_path: Path) -> None:
    """Prometheus can distinguish an unreachable store from a dead supervisor."""
    try:
        server = RedisServer(tmp_path / "redis")
    except NoRedis as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    with server, closing(RedisStore(server.spec(), "tiny")) as store:
        assert samples(metrics_of(store).decode())["stoker_store_up", ()] == 1
        server.kill()
        away = {("stoker_up", ()): 0, ("stoker_store_up", ()): 0}
        assert samples(metrics_of(store).decode()) == away


def test_metrics_are_served_from_the_store(cluster: Cluster) -> None:
    """A scrape shows the store's current content, without any supervisor."""
    with serving(cluster) as address:
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            found = samples(answer.read().decode())
            assert any(name == "stoker_run_step" for name, _ in found)
            assert found["process_resident_memory_bytes", ()] > 1e6
            assert answer.headers["Content-Type"].startswith("text/plain")
        cluster.publish(example_view(runs=()))
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert "stoker_run_step{" not in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/")


def test_a_store_that_cannot_be_read_is_a_503_with_its_reason(cluster: Cluster) -> None:
    """Prometheus sees a failed scrape, and a person reads the reason."""
    cluster.store.put("status", wire.encode(Answer(id="q", state="done")))
    with serving(cluster) as address:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/metrics")
        assert caught.value.code == 503
        assert b"holds a Answer" in caught.value.read()


def test_a_port_in_use_is_refused_with_port_holder_and_remedy(cluster: Cluster) -> None:
    """The message names the port, the process that uses it, and the remedy."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"metrics_port: {port} is in use by .*\(pid \d+\); give another port"
        ):
            MetricsServer(cluster.store, port=port)
        result = stoker("metrics", "--port", str(port))
        assert result.exit_code == 2
        assert str(port) in result.stderr


@pytest.mark.costly
def test_closing_frees_the_port(cluster: Cluster) -> None:
    """Another server can use the port at once; port 0 in the settings means none."""
    first = MetricsServer(cluster.store, port=0)
    port = first.port
    first.close()
    second = MetricsServer(cluster.store, port=port)
    second.close()
    with metrics_child(cluster.spec, None) as none:
        assert none is None


def test_stoker_metrics_prints_the_metrics_once(cluster: Cluster) -> None:
    """Its output equals a scrape."""
    result = stoker("metrics")
    assert result.exit_code == 0
    assert ("stoker_run_step", (("name", "tiny"), ("run", "2"))) in samples(result.stdout)


def test_they_are_served_on_loopback_unless_told_otherwise(cluster: Cluster) -> None:
    """And an address that this machine does not have is named, with the way out."""
    with closing(MetricsServer(cluster.store, port=0)) as server:
        assert server._server.server_address[0] == "127.0.0.1"
    with pytest.raises(UserError, match=r"metrics_address: 203\.0\.113\.9 is no address of this"):
        MetricsServer(cluster.store, port=0, address="203.0.113.9")
