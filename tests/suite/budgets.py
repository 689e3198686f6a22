"""`python -m tests.suite.budgets FILE`: how long each folder's tests took, beside the minutes that CONTRIBUTING.md gives it.

Each run of pytest adds its seconds to the file that STOKER_TIMES names; `make test` has three. Printed, never failed: how long a
test takes depends on the machine.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.suite.share import ROOT

VARIABLE = "STOKER_TIMES"
HEADING = "| folder of tests | minutes |"
# The row for folders that have none of their own.
ELSEWHERE = "elsewhere"
# Of the folders that count for it, those that took longer are listed below it. Chosen.
MIN_LISTED_MINUTES = 0.5
# For `make test` in two lanes, the fast tests included.
MINUTES_IN_ALL = 35.0
NUM_LANES = 2


def add_seconds(file: Path, seconds_of: Mapping[str, float]) -> None:
    """Add the seconds of one run of pytest, by folder."""
    with file.open("a") as lines:
        lines.write(json.dumps(dict(seconds_of)) + "\n")


def read_seconds(file: Path) -> Counter[str]:
    """Return the seconds of all runs of pytest together, by folder."""
    seconds: Counter[str] = Counter()
    for line in file.read_text().splitlines():
        seconds.update(json.loads(line))
    return seconds


def read_budgets(page: str) -> dict[str, float]:
    """Return folder -> minutes from the table of CONTRIBUTING.md; raise ValueError where it is not well-formed."""
    _, found, rest = page.partition(HEADING + "\n|---|---|\n")
    if not found:
        raise ValueError(f"CONTRIBUTING.md has no table {HEADING}")
    budgets: dict[str, float] = {}
    for line in _rows(rest):
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) != 2 or cells[0] in budgets:
            raise ValueError(f"CONTRIBUTING.md: {line!r} is not one folder and its minutes")
        budgets[cells[0]] = float(cells[1])
    if ELSEWHERE not in budgets:
        raise ValueError(f"CONTRIBUTING.md: the table lacks the row {ELSEWHERE!r}")
    return budgets


def _rows(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("|"):
            return
        yield line


def row_of(folder: str, budgets: Mapping[str, float]) -> str:
    """Return the row that a folder counts for: the nearest of the folders above it that has one."""
    while folder not in budgets and "/" in folder:
        folder = folder.rpartition("/")[0]
    return folder if folder in budgets else ELSEWHERE


def report(seconds_of: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """Return a line for each row of the table, with what is over its budget marked, and one for the sum.

    Below the row of folders that have none of their own: those that took long.
    """
    minutes = dict.fromkeys(budgets, 0.0)
    others: defaultdict[str, float] = defaultdict(float)
    for folder, seconds in seconds_of.items():
        row = row_of(folder, budgets)
        minutes[row] += seconds / 60
        if row == ELSEWHERE:
            others[_listed_as(folder)] += seconds / 60
    lines = [f"{'minutes':>8} {'budget':>7}  folder of tests"]
    for row, spent in sorted(minutes.items(), key=lambda item: -item[1]):
        over = "  OVER ITS BUDGET" if spent > budgets[row] else ""
        lines.append(f"{spent:8.1f} {budgets[row]:7.1f}  {row}{over}")
        if row == ELSEWHERE:
            lines += _long(others)
    lines.append(f"{sum(minutes.values()):8.1f} {sum(budgets.values()):7.1f}  in all, in one lane")
    return lines


def _listed_as(folder: str) -> str:
    """Return the folder that would get a row: the one below `tests`, or below `tests/e2e`."""
    parts = folder.split("/")
    return "/".join(parts[: 3 if parts[:2] == ["tests", "e2e"] else 2])


def _long(minutes_of: Mapping[str, float]) -> Iterator[str]:
    for folder, minutes in sorted(minutes_of.items(), key=lambda item: -item[1]):
        if minutes >= MIN_LISTED_MINUTES:
            yield f"{'':16}    {minutes:4.1f}  {folder}"


def main() -> None:
    """Print the report of a file; say so if no run of pytest came to its end."""
    file = Path(sys.argv[1])
    if not file.exists():
        sys.exit(f"{file} is not there: no run of pytest came to its end with {VARIABLE}={file}")
    budgets = read_budgets((ROOT / "CONTRIBUTING.md").read_text())
    print("\n".join(report(read_seconds(file), budgets)))


if __name__ == "__main__":
    main()
