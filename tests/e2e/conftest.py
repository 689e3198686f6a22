"""Harnesses for end-to-end tests, and the proof that they leave nothing behind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.reference import Reference, undisturbed_run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[[], ClusterHarness]]:
    """Give a maker of harnesses; afterwards check the observer, and that no process or memory is left."""
    harnesses: list[ClusterHarness] = []

    def make() -> ClusterHarness:
        harnesses.append(ClusterHarness(tmp_path / f"harness{len(harnesses)}"))
        harnesses[-1].observer.__enter__()
        return harnesses[-1]

    yield make
    left = []
    for harness in harnesses:
        left += harness.end()
        harness.observer.__exit__(None, None, None)
    assert not left, f"left behind: {left}"
    for harness in harnesses:
        harness.observer.check()


@pytest.fixture
def harness(make_cluster: Callable[[], ClusterHarness]) -> ClusterHarness:
    """Give one harness."""
    return make_cluster()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Train the built-in trainer once without any fault: the tests compare all disturbed runs with it."""
    return undisturbed_run(tmp_path_factory.mktemp("undisturbed"))
