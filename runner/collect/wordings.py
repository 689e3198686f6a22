"""The table of the wordings model, as it is installed beside the catalogues."""

from functools import cache
from pathlib import Path

import msgspec

import runner.rootcause
from runner.rootcause.wordings import Wordings

PATH = Path(runner.rootcause.__file__).with_name("wordings.json")
# Of a table that was cut off or replaced: families alone judge then.
EMPTY = Wordings(classes=("unknown",), prior=(0.0,), unseen=(0.0,), words={})


@cache
def installed_wordings() -> Wordings:
    """Return the table, read once. A missing or broken one gives EMPTY, so that families alone judge."""
    try:
        return read_wordings(PATH)
    except (OSError, ValueError):
        return EMPTY


def read_wordings(path: Path) -> Wordings:
    """Return a table of a file. Raises OSError, or ValueError for what is no such table."""
    table = msgspec.json.decode(path.read_bytes(), type=Wordings)
    num = len(table.classes)
    entries = table.words.values()
    if not num or not len(table.prior) == len(table.unseen) == num:
        raise ValueError(f"{path}: {num} classes, {len(table.prior)} priors")
    if any(len(entry) % 2 or not all(0 <= one < num for one in entry[::2]) for entry in entries):
        raise ValueError(f"{path}: a word names a class that is not there")
    return table
