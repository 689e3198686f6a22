"""UCX of another version: what the libraries in its wheel log beyond the sources at hand, read from their machine code.

The wheel has no modules of verbs; what they log is in UCX's own catalogue.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tools.catalogues.collectives.ucx import UCX
from tools.catalogues.native.archives import packed_wheel
from tools.catalogues.native.machine_code import Library
from tools.catalogues.native.texts import lines
from tools.catalogues.rows import FOLDER, Level, Row, write

NAMES = ("ucx-wheels",)
_VERSION = "1.22.0"
_FUNCTION = "ucs_log_dispatch"
# `ucs_log_level_t`; a fatal error, 0, goes another way.
_LEVELS: dict[int, Level] = {1: "error", 2: "warning", 3: "info", 4: "info", 5: "debug"}
_LIBRARY = re.compile(r"/lib(uc[ptsm])(?:_(?!signal|perf)(\w+))?\.so$")
_CONVERSION = re.compile(r"%[-+ #0-9.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
_WORD = re.compile(r"[A-Za-z]{3}")


def make(name: str, *, folder: Path = FOLDER) -> Counter[str]:
    """Write the catalogue, without what UCX's own has, and return its rows by level. Raises SourceMissing."""
    known = (folder / "ucx.jsonl").read_text().splitlines()[1:]
    seen = {_key(json.loads(line)["format"]) for line in known}
    header = replace(
        UCX.header,
        version=_VERSION,
        program=__name__,
        source=f"wheel libucx-cu12 {_VERSION}: its libraries",
    )
    return write(name, header, list(_rows(seen)), folder=folder)


def _rows(seen: set[str]) -> Iterator[Row]:
    with packed_wheel(f"libucx-cu12=={_VERSION}") as wheel:
        for name in sorted(wheel.namelist()):
            if one := _LIBRARY.search(name):
                below = "/".join(["src", *filter(None, one.groups())])
                yield from _rows_of(Library(wheel.read(name)), below, seen)


def _rows_of(library: Library, below: str, seen: set[str]) -> Iterator[Row]:
    for call in library.calls(_FUNCTION, max(_LEVELS), "ecx"):
        path = re.sub(r".*/src/uc\w/", "", call.strings.get("rdi", ""))
        for text in lines(call.strings.get("r9", "")):
            if _key(text) not in seen and _WORD.search(_CONVERSION.sub("", text)):
                seen.add(_key(text))
                yield UCX.classified(f"{below}/{path}", text, _LEVELS[call.constant])


def _key(text: str) -> str:
    return _CONVERSION.sub("%", text).strip().casefold()
