"""Test files that bear a marker as a whole: where `-m` leaves the marker out, they are not even imported.

`make test-fast` runs no test that needs torch; importing those tests would still import torch, transformers and lightning, in each
process of the run: longer than most folders of tests take.
"""

import re
from pathlib import Path

# An expression that only leaves out, such as "not trainer and not e2e": one more marker never brings a test back in.
_LEAVES_OUT = re.compile(r"not \w+(?: and not \w+)*")
# Up to the next line that is not indented.
_OF_FILE = re.compile(r"^pytestmark = .*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\bpytest\.mark\.(\w+)")


def left_out(expression: str) -> frozenset[str]:
    """Return the markers that an expression of `-m` leaves out; none where it does more than leave out."""
    if not _LEAVES_OUT.fullmatch(expression):
        return frozenset()
    return frozenset(expression.split()) - {"not", "and"}


def markers_of_file(text: str) -> frozenset[str]:
    """Return the markers that a file's `pytestmark` gives to each of its tests."""
    return frozenset(
        name for assigned in _OF_FILE.findall(text) for name in _NAME.findall(assigned)
    )


def is_left_out(file: Path, expression: str) -> bool:
    """Say whether an expression of `-m` leaves out each test of a file."""
    out = left_out(expression)
    return bool(out) and not out.isdisjoint(markers_of_file(file.read_text()))
