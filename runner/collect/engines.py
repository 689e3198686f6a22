"""Set engines: many patterns searched for at once in a block of bytes. Hyperscan where it is installed, else Python's `re`.

Measured beside each other, and beside re2 and grep, by `python -m bench.scan`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

hyperscan: Any = None
# no wheel for this machine
with contextlib.suppress(ImportError):
    import hyperscan

_NAMED_GROUP = re.compile(r"\(\?P<\w+>")


class Engine(Protocol):
    """Finds which patterns of a set match where. Not to be shared between threads."""

    name: str

    def search(self, block: bytes, found: Callable[[int, int], None]) -> None:
        """Call `found(index of the pattern, offset at which a match ends)` for matches in `block`, in no certain order.

        A pattern that matches several times in a line may be told once or more often. `^` and `$` are the ends of lines.
        """


class HyperscanEngine:
    """Intel's Hyperscan: one pass over the bytes, however many patterns there are."""

    name = "hyperscan"

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile a set; raises ValueError naming the pattern that cannot be part of one."""
        expressions = [_NAMED_GROUP.sub("(?:", pattern).encode() for pattern in patterns]
        kept = _kept(expressions)
        self._database: Any = _loaded(kept)
        if self._database is None:
            self._database = _compiled(expressions)
            _keep(kept, self._database)
        self._scratch: Any = hyperscan.Scratch(self._database)

    def search(self, block: bytes, found: Callable[[int, int], None]) -> None:
        """See `Engine.search`."""

        def on_match(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            found(index, end)

        self._database.scan(block, match_event_handler=on_match, scratch=self._scratch)


class ReEngine:
    """Python's own `re`, a pattern after the other: some ten times slower, and there on every machine."""

    name = "re"

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile a set; raises ValueError naming the pattern that is none."""
        self._patterns = []
        for pattern in patterns:
            try:
                self._patterns.append(re.compile(pattern.encode(), re.MULTILINE))
            except re.error as error:
                raise ValueError(f"{pattern!r}: {error}") from error

    def search(self, block: bytes, found: Callable[[int, int], None]) -> None:
        """See `Engine.search`."""
        for index, pattern in enumerate(self._patterns):
            for match in pattern.finditer(block):
                found(index, match.end())


def engine(patterns: Sequence[str]) -> Engine:
    """Return the fastest engine that this machine has for a set of patterns."""
    return HyperscanEngine(patterns) if hyperscan is not None else ReEngine(patterns)


def _compiled(expressions: Sequence[bytes]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=list(expressions),
            ids=list(range(len(expressions))),
            flags=[hyperscan.HS_FLAG_MULTILINE] * len(expressions),
        )
    except hyperscan.error as error:
        raise ValueError(f"{_culprit(expressions)}: {error}") from error
    return database


def _kept(expressions: Sequence[bytes]) -> Path:
    """Return where a set is kept once it is compiled, which takes a second; loading it takes a millisecond."""
    said = b"\0".join([hyperscan.__version__.encode(), *expressions])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "stoker", f"{hashlib.sha256(said).hexdigest()[:24]}.hyperscan")


def _loaded(kept: Path) -> Any:
    """Return a set that was kept for this processor; None if there is none, or it is damaged (it carries a checksum)."""
    try:
        if kept.stat().st_uid != os.geteuid():
            # somebody else's
            return None
        return hyperscan.loadb(kept.read_bytes(), mode=hyperscan.HS_MODE_BLOCK)
    except (OSError, hyperscan.error):
        return None


def _keep(kept: Path, database: Any) -> None:
    # a cache: without it the set is compiled again
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = kept.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(hyperscan.dumpb(database))
        scratch.replace(kept)


def _culprit(expressions: Sequence[bytes]) -> str:
    for expression in expressions:
        try:
            hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK).compile(
                expressions=[expression], ids=[0], flags=[hyperscan.HS_FLAG_MULTILINE]
            )
        except hyperscan.error:
            return repr(expression.decode())
    return "the set"
