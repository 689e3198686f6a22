"""What tests of health checks share: proofs that a limit fires, and substitutes for devices that this machine does not have."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.healthchecks.check_harness import FIRED
from tests.healthchecks.probes.preloaded_python import interpreter
from tests.healthchecks.substitutes.tools import Substitutes


@pytest.fixture(autouse=True)
def proofs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that is marked to prove limits, and in which some of them did not fire."""
    FIRED.clear()
    yield
    claimed = {name for marker in request.node.iter_markers("proves") for name in marker.args}
    assert claimed <= FIRED, f"did not fire: {sorted(claimed - FIRED)}"


@pytest.fixture
def substitutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Substitutes:
    """Return what puts substitutes into this test's environment, and into no other's."""
    return Substitutes(folder=tmp_path, patch=monkeypatch)


@pytest.fixture(scope="session")
def preloaded_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return an interpreter for probes that has torch imported, so that a short one takes no longer than its work."""
    with interpreter(tmp_path_factory.mktemp("python")) as program:
        yield program
