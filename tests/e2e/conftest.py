"""Stands for end-to-end tests, and the proof that nothing of them is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.reference import Reference, undisturbed_run
from tests.e2e.stand import RankStack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def make_stand(tmp_path: Path) -> Iterator[Callable[[], RankStack]]:
    """Give a maker of stands; afterwards what the observer saw is judged, and nothing may be left."""
    stands: list[RankStack] = []

    def make() -> RankStack:
        stands.append(RankStack(tmp_path / f"stand{len(stands)}"))
        stands[-1].observer.__enter__()
        return stands[-1]

    yield make
    left = []
    for stand in stands:
        left += stand.end()
        stand.observer.__exit__(None, None, None)
    assert not left, f"left behind: {left}"
    for stand in stands:
        stand.observer.check()


@pytest.fixture
def stand(make_stand: Callable[[], RankStack]) -> RankStack:
    """Give one stand."""
    return make_stand()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Train the built-in trainer once without any fault: what all disturbed runs are compared with."""
    return undisturbed_run(tmp_path_factory.mktemp("undisturbed"))
