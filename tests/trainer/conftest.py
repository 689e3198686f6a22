"""One fork server for all trainer tests of a session."""

from collections.abc import Iterator

import pytest

from tests.trainer.gangs import Gangs, start_server, stop_server


@pytest.fixture(scope="session")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gangs]:
    """Run gangs of ranks, each forked from a process that has imported torch and DeepSpeed."""
    gangs = start_server(tmp_path_factory.mktemp("gangs"))
    yield gangs
    stop_server(gangs)
