"""The kernel's catalogues, made of its sources as Debian ships them."""

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tools.catalogues import rows
from tools.catalogues.c_source.calls import LogCall, log_calls
from tools.catalogues.debian import SourceTree, source_tree
from tools.catalogues.linux.areas import AREAS, LEFT_OUT, Area
from tools.catalogues.linux.classes import class_of
from tools.catalogues.linux.extra import EXTRA
from tools.catalogues.linux.functions import MACROS, level_of
from tools.catalogues.linux.prefixes import Prefixes
from tools.catalogues.rows import Header, Row
from tools.catalogues.texts import is_findable

NAMES = tuple(AREAS)
# What clusters run is older than what is developed: two long-term releases, of which the newer names a row's file.
VERSIONS = ("6.12.107", "6.1.176")
# Beginnings that the kernel alone writes.
_OWN = re.compile(r"^(?:kernel BUG|Kernel BUG|BUG:|INFO:|PANIC:|Oops\b)|\[Hardware Error\]")
_ERRNO_TEXTS = tuple(os.strerror(number).casefold() for number in sorted(errno.errorcode))
_TITLES = {
    "linux_memory": "Linux, memory",
    "linux_core": "Linux, core",
    "linux_hardware": "Linux, hardware of the host",
    "linux_network": "Linux, network and RDMA",
    "linux_storage": "Linux, disks and block devices",
    "linux_file_systems": "Linux, file systems",
}


def make(name: str) -> Counter[str]:
    """Write one of the kernel's catalogues. Raises SourceMissing."""
    areas = AREAS[name]
    header = Header(
        _TITLES[name],
        ", ".join(VERSIONS),
        made="2026-11-26",
        program=__name__,
        source="Debian source packages of linux: calls that log below "
        + ", ".join(sorted({"/".join(area.path.split("/")[:2]) for area in areas})),
        style="printf",
        layer="machine",
        scope=areas[0].scope,
    )
    found = [row for path, row in EXTRA if any(path == area.path for area in areas)]
    for version in VERSIONS:
        with source_tree("linux", version, [area.path for area in areas]) as tree:
            found += _rows(tree, areas)
    return rows.write(name, header, _first_of_each(found))


def _first_of_each(found: list[Row]) -> list[Row]:
    """Return one row for each text of a file, that of the newest version; words of all versions are in its `requires`."""
    first: dict[tuple[str, str, bool], Row] = {}
    for row in found:
        key = (row.at, row.format, bool(row.requires))
        if key in first:
            words = dict.fromkeys((*first[key].requires, *row.requires))
            first[key] = replace(first[key], requires=tuple(words))
        else:
            first[key] = row
    return list(first.values())


def is_errno_text(text: str) -> bool:
    """Whether a text begins with what C libraries call the cause of a failed call, and says little else."""
    return any(
        text.casefold().startswith(one) and len(text) < len(one) + 40 for one in _ERRNO_TEXTS
    )


def _rows(tree: SourceTree, areas: tuple[Area, ...]) -> Iterator[Row]:
    done: set[str] = set()
    # The innermost part that names a file decides on it.
    for area in sorted(areas, key=lambda area: -len(area.path)):
        for path in tree.files(area.path, ".c", ".h"):
            at = tree.at(path)
            if at in done or any(part in at for part in LEFT_OUT):
                continue
            done.add(at)
            text = path.read_text(errors="replace")
            prefixes = Prefixes(path, text, tree.folder)
            for call in log_calls(text, level_of, MACROS):
                # What is printed at level debug is compiled in, and turned on where the kernel is debugged.
                if call.level != "debug" and (row := _row(call, at, area, prefixes)):
                    yield row


def _row(call: LogCall, at: str, area: Area, prefixes: Prefixes) -> Row | None:
    text = call.format[: rows.MAX_FORMAT].strip()
    required = prefixes.required(call.function, area.words)
    beside = text
    if not required and (own := _OWN.search(text)):
        required, beside = (own[0],), text.replace(own[0], "")
    if not required and is_errno_text(text):
        # Every program writes these words.
        required = (at.rpartition("/")[2].partition(".")[0],)
    if not is_findable(beside, required):
        return None
    judged = class_of(call, at, area)
    return Row(
        at,
        text,
        judged.level,
        judged.fault,
        scope=judged.scope,
        requires=required,
        lasting=judged.lasting,
        why=judged.why,
    )
