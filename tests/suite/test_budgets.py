"""The table of minutes in CONTRIBUTING.md, and the report that compares a run with it."""

from pathlib import Path

import pytest

from tests.suite.budgets import (
    ELSEWHERE,
    HEADING,
    MINUTES_IN_ALL,
    NUM_LANES,
    add_seconds,
    read_budgets,
    read_seconds,
    report,
    row_of,
)
from tests.suite.share import ROOT

TABLE = f"text\n{HEADING}\n|---|---|\n| `tests/e2e` | 2 |\n| `tests/e2e/runs` | 0.5 |\n| elsewhere | 1 |\nmore\n"


def test_each_row_names_a_folder_and_all_fit_into_the_minutes_of_ci() -> None:
    """No row is left of a folder that is gone, and the sum in two lanes is within what CI has."""
    budgets = read_budgets((ROOT / "CONTRIBUTING.md").read_text())
    folders = [row for row in budgets if row != ELSEWHERE]
    assert [row for row in folders if not (ROOT / row).is_dir()] == []
    assert sum(budgets.values()) / NUM_LANES <= MINUTES_IN_ALL


def test_a_folder_counts_for_the_nearest_row_above_it() -> None:
    """A row takes the folders below it that have none of their own."""
    budgets = read_budgets(TABLE)
    assert budgets == {"tests/e2e": 2.0, "tests/e2e/runs": 0.5, ELSEWHERE: 1.0}
    named = ("tests/e2e", "tests/e2e/fleet", "tests/e2e/runs", "tests/store/redis", "tests", "")
    rows = ["tests/e2e", "tests/e2e", "tests/e2e/runs", ELSEWHERE, ELSEWHERE, ELSEWHERE]
    assert [row_of(folder, budgets) for folder in named] == rows


def test_a_row_over_its_budget_is_marked(tmp_path: Path) -> None:
    """The seconds of several runs of pytest are added; who took longest comes first."""
    file = tmp_path / "times"
    add_seconds(file, {"tests/e2e/runs": 20.0, "tests/e2e/fleet": 90.0})
    add_seconds(file, {"tests/e2e/runs": 11.0, "tests/store": 3.0})
    assert report(read_seconds(file), read_budgets(TABLE)) == [
        " minutes  budget  folder of tests",
        "     1.5     2.0  tests/e2e",
        "     0.5     0.5  tests/e2e/runs  OVER ITS BUDGET",
        "     0.1     1.0  elsewhere",
        "     2.1     3.5  in all, in one lane",
    ]


def test_the_folders_without_a_row_that_took_long_are_listed() -> None:
    """Each with what lies below it, the longest first; short ones are not."""
    seconds = {"tests/store": 40.0, "tests/store/redis": 50.0, "tests/facts": 20.0, "tests": 2.0}
    lines = report(seconds | {"tests/e2e/web": 30.0}, {"tests/e2e/runs": 0.5, ELSEWHERE: 3.0})
    assert lines[1:4] == [
        "     2.4     3.0  elsewhere",
        "                     1.5  tests/store",
        "                     0.5  tests/e2e/web",
    ]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("no table", "no table"),
        (TABLE.replace("elsewhere", "tests/e2e"), "not one folder"),
        (TABLE.replace("| 2 |", "| 2 | 3 |"), "not one folder"),
        (TABLE.replace("elsewhere", "tests/cli"), "lacks the row 'elsewhere'"),
        (TABLE.replace("| 2 |", "| two |"), "two"),
    ],
)
def test_a_table_that_is_malformed_is_refused(page: str, words: str) -> None:
    """The message says what is wrong with which line."""
    with pytest.raises(ValueError, match=words):
        read_budgets(page)
