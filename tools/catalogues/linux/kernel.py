"""The kernel's catalogues, made of its sources as Debian ships them."""

from collections import Counter
from collections.abc import Iterator

from tools.catalogues import rows
from tools.catalogues.c_source.calls import LogCall, log_calls
from tools.catalogues.debian import SourceTree, source_tree
from tools.catalogues.linux.areas import AREAS, LEFT_OUT, Area
from tools.catalogues.linux.classes import class_of
from tools.catalogues.linux.functions import MACROS, level_of
from tools.catalogues.linux.prefixes import Prefixes
from tools.catalogues.texts import is_findable
from tools.catalogues.rows import Header, Row

NAMES = tuple(AREAS)
VERSION = "6.12.107"
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
    with source_tree("linux", VERSION, [area.path for area in areas]) as tree:
        header = Header(
            _TITLES[name],
            VERSION,
            made="2026-11-26",
            program=__name__,
            source=f"Debian source package linux {VERSION}: calls that log below "
            + ", ".join(sorted({"/".join(area.path.split("/")[:2]) for area in areas})),
            style="printf",
            layer="machine",
            scope=areas[0].scope,
        )
        return rows.write(name, header, _rows(tree, areas))


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
                if row := _row(call, at, area, prefixes):
                    yield row


def _row(call: LogCall, at: str, area: Area, prefixes: Prefixes) -> Row | None:
    required = prefixes.required(call.function, area.words)
    text = call.format[: rows.MAX_FORMAT].strip()
    if not is_findable(text, required):
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
