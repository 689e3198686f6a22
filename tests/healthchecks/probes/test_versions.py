"""The check `versions`, on folders that pass for an installed torch: what is read, what is unknown, and what was half replaced."""

import sys
from pathlib import Path

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.versions import number_of
from tests.healthchecks.check_harness import verdict_of

# As builds of torch 2.8 write it.
VERSION_PY = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '{torch}'
debug = False
cuda: Optional[str] = '12.9'
git_version = 'ba56102387ef21a3b04b357e5b183d48f0afefc7'
hip: Optional[str] = None
xpu: Optional[str] = None
"""


def install(folder: Path, *, torch: str = "2.8.0+cu129", package: str = "2.8.0+cu129") -> None:
    """Lay out what pip would have installed."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "torch" / "version.py").write_text(VERSION_PY.format(torch=torch))
    for name, version in (("torch", package), ("nvidia-nccl-cu12", "2.27.3")):
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)


def verdict_with(folder: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> Verdict:
    """Run the check with an interpreter that finds only what lies in the folder."""
    monkeypatch.setenv("PYTHONPATH", str(folder))
    sysfs = folder / "sys"
    (sysfs / "module/nvidia").mkdir(parents=True)
    (sysfs / "module/nvidia/version").write_text("570.86.15\n")
    return verdict_of("versions", python=python, sysfs=str(sysfs))


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Make an interpreter without packages of its own."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_versions_are_read_and_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """Each as one number that is to be the same on all nodes of the class."""
    install(tmp_path)
    verdict = verdict_with(tmp_path, monkeypatch, python)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    found = {each.name: (each.value, each.note) for each in verdict.evidence if each.better}
    assert found == {
        "versions.driver": (570086015, "570.86.15"),
        "versions.torch": (2008000, "2.8.0+cu129"),
        "versions.cuda": (12009000, "12.9"),
        "versions.nccl": (2027003, "2.27.3"),
    }
    assert {each.better for each in verdict.evidence if each.better} == {"same"}


@pytest.mark.proves("versions.half_replaced")
def test_a_torch_that_was_half_replaced_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """An upgrade that was cut off leaves new files beside the old package."""
    install(tmp_path, torch="2.9.1+cu129")
    verdict = verdict_with(tmp_path, monkeypatch, python)
    assert verdict.outcome is Outcome.FAIL
    assert "its package is 2.8.0+cu129, its files are 2.9.1+cu129" in verdict.reason


def test_without_torch_the_driver_is_still_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """The check itself is unknown, and says why."""
    verdict = verdict_with(tmp_path, monkeypatch, python)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "No module named 'torch'" in verdict.reason
    assert [each.name for each in verdict.evidence if each.better] == ["versions.driver"]


def test_nonsense_is_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    """Files without a version, or with a text that is none, are half an answer."""
    install(tmp_path, torch="unknown")
    verdict = verdict_with(tmp_path, monkeypatch, python)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "half an answer" in verdict.reason


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("570.124.06", 570124006),
        ("2.9.0.dev20250901+cu129", 2009000),
        ("13.0", 13000000),
        ("", None),
        ("N/A", None),
        ("20250901.1", None),
        ("v2", None),
    ],
)
def test_a_version_is_one_number(text: str, number: int | None) -> None:
    """Its first three numbers, each below a thousand."""
    assert number_of(text) == number
