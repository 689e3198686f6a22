"""Engines: search a block of bytes for many patterns at once. Hyperscan where it is installed, else Python's `re`.

`python -m bench.scan` compares both with re2 and grep.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

hyperscan: Any = None
# There are machines without a wheel of it.
with contextlib.suppress(ImportError):
    import hyperscan

_NAMED_GROUP = re.compile(r"\(\?P<\w+>")


class Engine(Protocol):
    """Finds which patterns of a set match where. One thread at a time may use it."""

    name: str

    def search(self, block: bytes, on_match: Callable[[int, int], None]) -> None:
        """Call `on_match(index of the pattern, offset at which a match ends)` for matches in `block`, in any order.

        Several matches of a pattern in a line may come once only. `^` and `$` are the ends of lines.
        """


class HyperscanEngine:
    """Intel's Hyperscan: one pass over the bytes for any number of patterns."""

    name = "hyperscan"

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile a set; raises ValueError that names an unsupported pattern."""
        expressions = [_NAMED_GROUP.sub("(?:", pattern).encode() for pattern in patterns]
        cache = _cache_path(expressions)
        self._database: Any = _load(cache)
        if self._database is None:
            try:
                self._database = _compile(expressions)
            except hyperscan.error as error:
                raise ValueError(f"{_culprit(expressions)}: {error}") from error
            write_cache(cache, hyperscan.dumpb(self._database))
        self._scratch: Any = hyperscan.Scratch(self._database)

    def search(self, block: bytes, on_match: Callable[[int, int], None]) -> None:
        def handle(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            on_match(index, end)

        self._database.scan(block, match_event_handler=handle, scratch=self._scratch)


class ReEngine:
    """Python's `re`, one pattern after the other: some ten times slower, and available everywhere."""

    name = "re"

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile a set; raises ValueError that names an invalid pattern."""
        self._patterns = []
        for pattern in patterns:
            try:
                self._patterns.append(re.compile(pattern.encode(), re.MULTILINE))
            except re.error as error:
                raise ValueError(f"{pattern!r}: {error}") from error

    def search(self, block: bytes, on_match: Callable[[int, int], None]) -> None:
        for index, pattern in enumerate(self._patterns):
            for match in pattern.finditer(block):
                on_match(index, match.end())


class JoinedEngine:
    """Searches with two engines, one after the other: a large set that is compiled already, and a few patterns more."""

    def __init__(self, first: Engine, num_first: int, second: Engine) -> None:
        """`num_first`: patterns of the first that count; those of the second have the numbers after these."""
        self.name = first.name
        self._first, self._num_first, self._second = first, num_first, second

    def search(self, block: bytes, on_match: Callable[[int, int], None]) -> None:
        num = self._num_first

        def of_first(index: int, end: int) -> None:
            if index < num:
                on_match(index, end)

        self._first.search(block, of_first)
        self._second.search(block, lambda index, end: on_match(num + index, end))


def make_engine(patterns: Sequence[str]) -> Engine:
    """Return the fastest engine of this machine for a set of patterns."""
    return HyperscanEngine(patterns) if hyperscan is not None else ReEngine(patterns)


class LiteralEngine:
    """Finds tens of thousands of literals in one pass, in any case of ASCII letters. One thread at a time may use it."""

    def __init__(self, compiled: bytes) -> None:
        """`compiled`: what `compile_literals` returned here; raises ValueError if it is not."""
        try:
            self._database: Any = hyperscan.loadb(compiled, mode=hyperscan.HS_MODE_BLOCK)
            self._scratch: Any = hyperscan.Scratch(self._database)
        except hyperscan.error as error:
            raise ValueError(f"these are no compiled literals: {error}") from error

    def search(self, block: bytes, on_match: Callable[[int, int], None]) -> None:
        """Call `on_match(index of the literal, offset at which it ends)` for each one in `block`."""

        def handle(index: int, _start: int, end: int, _flags: int, _context: object) -> None:
            on_match(index, end)

        self._database.scan(block, match_event_handler=handle, scratch=self._scratch)


def compile_literals(literals: Sequence[bytes]) -> bytes:
    """Compile literals for `LiteralEngine`; b"" where there is no engine for them, or no literal."""
    if hyperscan is None or not literals:
        return b""
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=list(literals),
            ids=list(range(len(literals))),
            flags=[hyperscan.HS_FLAG_CASELESS] * len(literals),
            literal=True,
        )
    except hyperscan.error as error:
        raise ValueError(f"{len(literals)} literals: {error}") from error
    return bytes(hyperscan.dumpb(database))


def version() -> str:
    """Return what compiled sets depend on besides their patterns."""
    return "re" if hyperscan is None else f"hyperscan {hyperscan.__version__}"


def cache_folder() -> Path:
    """Return the folder of compiled sets."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "stoker")


def write_cache(path: Path, data: bytes) -> None:
    """Write a compiled set, whole or not at all. Without the cache, the next process compiles it again."""
    scratch = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()


def _compile(expressions: Sequence[bytes]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=list(expressions),
        ids=list(range(len(expressions))),
        flags=[hyperscan.HS_FLAG_MULTILINE] * len(expressions),
    )
    return database


def _cache_path(expressions: Sequence[bytes]) -> Path:
    """Return where a compiled set is cached: compiling takes a second, loading a millisecond."""
    content = b"\0".join([hyperscan.__version__.encode(), *expressions])
    return Path(cache_folder(), f"{hashlib.sha256(content).hexdigest()[:24]}.hyperscan")


def _load(path: Path) -> Any:
    """Return a cached set for this processor; None: there is none, or its checksum is wrong."""
    try:
        if path.stat().st_uid != os.geteuid():
            return None
        return hyperscan.loadb(path.read_bytes(), mode=hyperscan.HS_MODE_BLOCK)
    except (OSError, hyperscan.error):
        return None


def _culprit(expressions: Sequence[bytes]) -> str:
    for expression in expressions:
        try:
            _compile([expression])
        except hyperscan.error:
            return repr(expression.decode())
    return "the set"
