"""README's first ten minutes, word for word, in a clean folder with a blank in its name."""

import os
import re
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness
from tests.wheel.wheel_harness import build_wheel, install, make_environment
from tools.quickstart import Played, commands, play, script, section

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What differs from run to run: numbers, and lines of progress, of a start that takes long, of where time went.
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
VARIES = (
    "train #",
    "before the first start",
    "run is waiting",
    "run is active",
    "attempt #.# launching",
    "lost time",
    "i#      ",
    "incident  ",
)
CUT = "..."


pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def played(harness: ClusterHarness, tmp_path: Path) -> Played:
    """Type README's commands where a wheel of this tree is installed; afterwards the harness looks for what is left."""
    python = make_environment(tmp_path / "environment", with_dependencies=True)
    install(python, str(build_wheel(tmp_path / "wheel")))
    outer = harness.folder / "a folder"
    outer.mkdir()
    return play(README, outer, {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": ""})


def lines_of(text: str) -> list[str]:
    """Return the lines that are the same in every run, without numbers and folders."""
    lines = [NUMBER.sub("#", line.strip()) for line in text.splitlines()]
    lines = [re.sub(r"^#:#:# +", "", line) for line in lines]
    lines = [re.sub(r"files( in)? +\S.*/first-run", r"files\1 FOLDER", line) for line in lines]
    return [line for line in lines if line and not line.startswith(VARIES)]


def recorded(marker: str) -> list[str]:
    """Return the lines of a recorded block."""
    block = README.partition(f"<!-- {marker} -->\n```\n")[2].partition("```\n")[0]
    found = lines_of(block)
    assert found, f"nothing is recorded as {marker}"
    return found


def missing(wanted: list[str], printed: list[str]) -> list[str]:
    """Return the recorded lines that were not printed; a line that was cut for the page is a begin."""
    return [
        line
        for line in wanted
        if not any(
            real.startswith(line.removesuffix(CUT)) if line.endswith(CUT) else real == line
            for real in printed
        )
    ]


def test_readme_has_the_script_that_is_shipped() -> None:
    """Byte for byte; it is fifteen lines of code."""
    shipped = (ROOT / "examples" / "quickstart" / "train.py").read_text()
    assert script(README) == shipped
    assert len([line for line in shipped.splitlines()[1:] if line.strip()]) == 15


def test_the_first_ten_minutes_are_as_readme_shows_them(played: Played) -> None:
    """Each command works as it is written; each recorded line is printed; the run heals and finishes."""
    run, logs = commands(README)[2], commands(README)[-1]
    printed = lines_of(played.printed[run])
    assert missing(recorded("quickstart"), printed) == [], played.printed[run]
    for found in (
        "i# rank_crash on n# rank #",
        "i#: restart",
        "i# resolved",
        "run # train finished",
    ):
        assert any(line.startswith(found) for line in printed), played.printed[run]
        assert any(line.startswith(found) for line in recorded("quickstart"))
    assert missing(recorded("quickstart-logs")[1:], lines_of(played.printed[logs])) == []
    for rank in (0, 1):
        assert '"step": 100' in (played.folder / f"state{rank}.json").read_text()


def test_what_the_section_names_is_there() -> None:
    """Its links lead to files, and its commands have a page of help."""
    for link in re.findall(r"\]\(([^)]+)\)", section(README)):
        assert (ROOT / link).is_file(), link
