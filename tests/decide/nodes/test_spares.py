"""How many spares a cluster should have, and when the supervisor warns that they run low."""

import pytest

from runner.decide.nodes.spares import recommended_spares
from runner.facts.specs.cluster import ClusterSpec


@pytest.mark.parametrize(("nodes", "spares"), [(128, 2), (256, 2), (512, 3), (1024, 4)])
def test_recommended_spares_are_those_of_a_published_cluster(nodes: int, spares: int) -> None:
    """The defaults give as many as ByteRobust's table gives for its own backup machines (P99 of the binomial)."""
    assert recommended_spares(ClusterSpec(name="c"), nodes) == spares


def test_recommended_spares_grow_with_failures_repair_time_and_nodes() -> None:
    """More failures, longer repairs and more nodes never make fewer spares enough; no node needs none."""
    assert recommended_spares(ClusterSpec(name="c"), 0) == 0
    sizes = (2, 100, 10_000)
    rows = [
        [
            recommended_spares(
                ClusterSpec(name="c", failures_per_1000_node_days=rate, repair_hours=hours), nodes
            )
            for nodes in sizes
        ]
        for rate, hours in ((1.0, 1.0), (6.5, 4.4), (6.5, 48.0), (100.0, 48.0))
    ]
    assert all(row == sorted(row) for row in rows)
    columns = [[row[index] for row in rows] for index in range(len(sizes))]
    assert all(column == sorted(column) for column in columns)


def test_recommended_spares_of_a_cluster_that_is_never_up_are_all() -> None:
    """If repairs take longer than the time between failures, every node needs a spare."""
    cluster = ClusterSpec(name="c", failures_per_1000_node_days=1000.0, repair_hours=24.0)
    assert recommended_spares(cluster, 7) == 7
