"""Catalogues as tests read them: the header and the rows of one file."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import runner.rootcause.catalogues

FOLDER = Path(runner.rootcause.catalogues.__file__).parent


@cache
def read(name: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """Return the header and the rows of a catalogue."""
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    header, *rows = map(json.loads, lines)
    return header, tuple(rows)


def levels(name: str) -> Counter[str]:
    """Return how many rows a catalogue has of each level."""
    return Counter(row["level"] for row in read(name)[1])


def row(name: str, text: str) -> dict[str, Any]:
    """Return the row of a format, or the first whose format has this text, all of one level and class."""
    rows = read(name)[1]
    found = [one for one in rows if one["format"] == text] or [
        one for one in rows if text in one["format"]
    ]
    assert found, f"{name} has no format with {text!r}"
    assert len({(one["level"], one["fault"]) for one in found}) == 1, found
    return found[0]
