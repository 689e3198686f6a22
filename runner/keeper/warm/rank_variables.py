"""Variables of a rank that modules read while they are imported: refused, or set right in each forked rank."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from runner.keeper.warm.forkable import NotForkable

# Modules that note the rank while they are imported: name -> the object whose `rank` it is, and the variables it is read from. A
# forked rank notes its own instead.
_RANK_NOTES = {
    "lightning.fabric.utilities.rank_zero": ("rank_zero_only", ("RANK", "LOCAL_RANK")),
    "lightning_fabric.utilities.rank_zero": ("rank_zero_only", ("RANK", "LOCAL_RANK")),
    "torchmetrics.utilities.prints": ("rank_zero_only", ("LOCAL_RANK",)),
}


@contextlib.contextmanager
def forbid_reads(name: str, own: re.Pattern[str]) -> Iterator[None]:
    """Raise NotForkable when a module reads variables of a rank while it is imported."""
    read: list[str] = []
    cls = type(os.environ)
    original = cls.__getitem__

    def record(self: Any, key: Any) -> Any:
        if isinstance(key, str) and own.fullmatch(key) and _reader() not in _RANK_NOTES:
            read.append(key)
        return original(self, key)

    cls.__getitem__ = record  # type: ignore[method-assign]
    try:
        yield
    finally:
        cls.__getitem__ = original  # type: ignore[method-assign]
    if read:
        raise NotForkable(
            f"preload {name!r} reads {read[0]} while it is imported, which is each rank's own"
        )


def _reader() -> str:
    """Return the module whose code reads the environment now."""
    frame = sys._getframe(2)
    # `os.environ.get` is a method of collections.abc.
    between = ("os", "collections.abc")
    while frame.f_back is not None and frame.f_globals.get("__name__") in between:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def note_rank() -> None:
    """Have modules that note the rank when they are imported note this one."""
    for name, (attribute, variables) in _RANK_NOTES.items():
        owner = getattr(sys.modules.get(name), attribute, None)
        ranks = [os.environ[variable] for variable in variables if variable in os.environ]
        if owner is not None and ranks and ranks[0].isdecimal():
            owner.rank = int(ranks[0])
