"""Every test of catalogues has a cache of its own, empty at first, and searches with and without hyperscan where it asks to."""

from pathlib import Path

import pytest

from runner.collect import engines
from runner.collect.catalogues.catalogues import Catalogues
from tests.collect.catalogues.samples import catalogues_in, write_catalogue


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "stoker"


@pytest.fixture(params=["hyperscan", "re"])
def fabric(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Catalogues:
    """Return the catalogue of an emitter that does not exist, for each engine."""
    if request.param == "re":
        monkeypatch.setattr(engines, "hyperscan", None)
    elif engines.hyperscan is None:
        pytest.skip("hyperscan is not installed")
    write_catalogue(tmp_path)
    return catalogues_in(tmp_path)
