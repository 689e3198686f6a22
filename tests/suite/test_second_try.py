"""What failed beside other tests is tried again alone, a few at most, and never hidden."""

import json
from pathlib import Path

import pytest

from tests.suite import second_try


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which pytest keeps what failed."""
    file = tmp_path / "lastfailed"
    monkeypatch.setattr(second_try, "ROOT", tmp_path)
    monkeypatch.setattr(second_try, "FAILED", file)
    return file


def write_failed(cache: Path, *names: str) -> None:
    """Write what failed, as pytest does."""
    cache.write_text(json.dumps(dict.fromkeys(names, True)))


def test_a_test_that_passes_alone_is_named_flaky(
    cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is printed, and `make test` goes on."""
    (cache.parent / "test_sound.py").write_text("def test_sound():\n    pass\n")
    write_failed(cache, "test_sound.py::test_sound")
    assert second_try.main() == 0
    assert "FLAKY: test_sound.py::test_sound" in capfd.readouterr().out


def test_a_test_that_fails_again_fails(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is called flaky then."""
    (cache.parent / "test_broken.py").write_text("def test_broken():\n    assert False\n")
    write_failed(cache, "test_broken.py::test_broken")
    assert second_try.main() == 1
    assert "FLAKY" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "failed", [(), tuple(f"a.py::test_{n}" for n in range(second_try.MAX_FLAKY + 1))]
)
def test_no_second_try(
    cache: Path, failed: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """A pytest that failed without a failed test, and more failures than chance explains."""
    write_failed(cache, *failed)
    assert second_try.main() == 1
    assert "no second try" in capfd.readouterr().err
