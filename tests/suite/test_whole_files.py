"""A file is left out unread only where `-m` leaves out each of its tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.share import ROOT
from tests.suite.whole_files import is_left_out, left_out, markers_of_file

OF_ALL = """
pytestmark = [
    pytest.mark.trainer,
    pytest.mark.timeout(300),
]

@pytest.mark.slow
def test_it() -> None:
    ...
"""
OF_ONE = """
@pytest.mark.trainer
def test_it() -> None:
    def inner() -> None:
        pytestmark = pytest.mark.slow
"""


@pytest.mark.parametrize(
    ("expression", "markers"),
    [
        ("not trainer and not e2e", {"trainer", "e2e"}),
        ("not slow", {"slow"}),
        ("not (trainer and not e2e)", set()),
        ("not trainer or not e2e", set()),
        ("e2e and not slow", set()),
        ("", set()),
    ],
)
def test_only_an_expression_that_leaves_out_and_no_more_counts(
    expression: str, markers: set[str]
) -> None:
    """In any other a marker may bring a test in, and its file is read."""
    assert left_out(expression) == markers


def test_the_markers_of_a_file_are_those_of_all_its_tests() -> None:
    """Those of one test say nothing of the others."""
    assert markers_of_file(OF_ALL) == {"trainer", "timeout"}
    assert markers_of_file("pytestmark = pytest.mark.e2e\nslow = pytest.mark.slow") == {"e2e"}
    assert markers_of_file(OF_ONE) == set()


@pytest.mark.parametrize(
    ("text", "expression", "is_out"),
    [
        (OF_ALL, "not trainer and not slow", True),
        (OF_ALL, "not slow", False),
        (OF_ALL, "", False),
        (OF_ONE, "not trainer", False),
    ],
)
def test_a_file_is_left_out_by_a_marker_of_all_its_tests(
    text: str, expression: str, is_out: bool, tmp_path: Path
) -> None:
    """One test with the marker leaves the others in."""
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert is_left_out(file, expression) is is_out


def test_a_run_imports_no_file_that_it_leaves_out(tmp_path: Path) -> None:
    """A file that cannot be imported is an error of the run that wants it, and none of the run that leaves it out."""
    (tmp_path / "test_broken.py").write_text("pytestmark = pytest.mark.slow\n")
    (tmp_path / "test_sound.py").write_text("def test_sound():\n    pass\n")
    words = [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "-p", "tests.conftest"]
    words += ["-c", str(ROOT / "pyproject.toml"), str(tmp_path), "-m"]
    without, wanted = (
        subprocess.run([*words, expression], cwd=ROOT, capture_output=True, text=True, check=False)
        for expression in ("not slow", "slow")
    )
    assert (without.returncode, "test_sound.py" in without.stdout) == (0, True), without.stdout
    assert "NameError" in wanted.stdout
