"""The stores that the contract is tested on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.store.memory import MemoryStore
from runner.store.sqlite import SqliteStore
from runner.store.store import Store
from tests.store.rig import Rig, SteppedClock


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Give a store of each kind, and close its handles afterwards."""
    clock = SteppedClock()
    handles: list[Store] = []
    memory = MemoryStore(clock=clock)
    makers: dict[str, Callable[[], Store]] = {
        "memory": memory.another,
        "sqlite": lambda: SqliteStore(tmp_path / "store", clock=clock),
    }

    def opened() -> Store:
        handles.append(makers[request.param]())
        return handles[-1]

    yield Rig(open=opened, clock=clock)
    for handle in handles:
        handle.close()


@pytest.fixture
def store(rig: Rig) -> Store:
    """Give one handle on a fresh store of each kind."""
    return rig.open()
