"""Emitters whose log calls take a printf format: one table row says how their sources are read."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from tools.catalogues.c_source.calls import formats
from tools.catalogues.native.archives import c_files, debian
from tools.catalogues.native.call_sites import CallSite, call_sites
from tools.catalogues.native.classes import Rule, classify, required, row
from tools.catalogues.native.texts import lines
from tools.catalogues.rows import Header, Level, Row, write

LevelOf = Callable[[CallSite], Level | None]
# A pattern over a file's name, and the fault of an error in it that no rule knows; the first that matches decides.
Folders = Sequence[tuple[re.Pattern[str], str]]
# Of the arguments of a call, how many are looked at for its format; chosen.
_MAX_ARGUMENTS = 5


@dataclass(frozen=True, slots=True)
class Emitter:
    """How the sources of an emitter are read: what is logged, at which level, and what it means.

    `package`, `folder`: of the Debian source package and of its top folder. `words`: one of them is in each of its lines.
    `always_required`: the words are demanded of every line, since texts alone are not its own.
    """

    header: Header
    package: str
    folder: str
    _: KW_ONLY
    below: tuple[str, ...]
    calls: re.Pattern[str]
    level: LevelOf
    rules: Sequence[Rule]
    folders: Folders
    words: tuple[str, ...]
    always_required: bool = False
    # Of files that are left out.
    without: str = r"(?!)"

    def make(self, name: str) -> Counter[str]:
        """Write the catalogue and return its rows by level. Raises SourceMissing."""
        with debian(self.package, self.folder) as root:
            rows = list(self.rows(root))
        source = f"{self.header.source}: {', '.join(self.below)}"
        return write(name, replace(self.header, source=source), rows)

    def rows(self, root: Path) -> Iterator[Row]:
        """Yield what the sources below a root can write."""
        for at, text in c_files(root, *self.below):
            if re.search(self.without, at):
                continue
            for call in call_sites(text, self.calls):
                level = self.level(call)
                if level is not None:
                    yield from (self.classified(at, line, level) for line in _texts(call))

    def classified(self, at: str, text: str, level: Level) -> Row:
        """Return the row of a text that a file logs, with its class."""
        by_file = next((fault for pattern, fault in self.folders if pattern.search(at)), "")
        fault, why = classify(text, self.rules, by_file) if level == "error" else ("", "")
        requires = required(text, "printf", self.words)
        requires = self.words if self.always_required else requires
        return row(at, text, level, fault, requires=requires, why=why)


def folders(*rows: tuple[str, str]) -> Folders:
    """Compile patterns of file names."""
    return tuple((re.compile(pattern), fault) for pattern, fault in rows)


def _texts(call: CallSite) -> Iterator[str]:
    for argument in call.arguments[:_MAX_ARGUMENTS]:
        if found := formats(argument):
            for text in found:
                yield from (line for line in lines(text) if re.search(r"[A-Za-z]{3}", line))
            return
