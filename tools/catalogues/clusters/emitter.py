"""An emitter whose sources Debian ships: what is read of it, and what its messages mean."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from runner.facts.matches import Layer, Scope
from tools.catalogues import rows
from tools.catalogues.c_source.calls import LevelOf, log_calls
from tools.catalogues.debian import SourceTree
from tools.catalogues.rows import Level, Row
from tools.catalogues.rules import Rule, first_rule, judged
from tools.catalogues.texts import is_findable

# From a source file to rows that are no calls: tables of texts.
Tables = Callable[[SourceTree], Iterable[Row]]


def _none(_: SourceTree) -> Iterable[Row]:
    return ()


@dataclass(frozen=True, slots=True)
class Emitter:
    """`requires`: words by level, of which one is in each line. `left_out`: parts of paths that are not read.

    `daemons`: where processes that serve many runs are. An error of one that has no class says nothing of a run: it is a warning.
    """

    name: str
    title: str
    package: str
    version: str
    paths: tuple[str, ...]
    _: KW_ONLY
    level_of: LevelOf
    layer: Layer
    scope: Scope
    rules: tuple[Rule, ...]
    suffixes: tuple[str, ...] = (".c", ".h")
    left_out: tuple[str, ...] = ("test",)
    daemons: tuple[str, ...] = ()
    macros: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[Level, tuple[str, ...]] = field(default_factory=dict)
    tables: Tables = _none


def rows_of(emitter: Emitter, tree: SourceTree) -> Iterator[Row]:
    """Yield the rows of all files that are read."""
    for path in emitter.paths:
        for file in tree.files(path, *emitter.suffixes):
            if not any(part in tree.at(file) for part in emitter.left_out):
                yield from _of_file(emitter, file, tree.at(file))
    yield from emitter.tables(tree)


def _of_file(emitter: Emitter, file: Path, at: str) -> Iterator[Row]:
    text = file.read_text(errors="replace")
    for call in log_calls(text, emitter.level_of, emitter.macros):
        row = Row(
            at,
            call.format[: rows.MAX_FORMAT].strip(),
            call.level,
            requires=emitter.requires.get(call.level, ()),
        )
        rule = first_rule(emitter.rules, at, row.format, row.level)
        # A word such as "error:" is in the lines of many programs: a text that says little must at least have a class.
        is_known = bool(rule and rule.fault and row.requires)
        if is_findable(row.format) or (is_known and is_findable(row.format, row.requires)):
            yield _of_daemon(judged(row, rule), emitter.daemons)


def _of_daemon(row: Row, daemons: tuple[str, ...]) -> Row:
    is_mild = row.level == "error" and not row.fault and row.at.startswith(daemons)
    return replace(row, level="warning") if is_mild else row
