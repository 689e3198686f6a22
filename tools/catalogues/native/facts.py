"""Tables of facts: what only stored public sources have, one tab-separated line for each."""

import csv
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "facts"


def table(name: str) -> list[list[str]]:
    """Read a table; lines that begin with `#` are remarks."""
    with (FOLDER / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
