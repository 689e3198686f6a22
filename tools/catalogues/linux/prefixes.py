"""What the kernel writes before a text: `pr_fmt` and `dev_fmt` of the file, and the name of the module that it is part of."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.catalogues.c_source.calls import defined_texts, formats
from tools.catalogues.linux.functions import MACROS, is_of_device, word_of

_FORMAT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(pr_fmt|dev_fmt)\b(?:\(\w+\))?[ \t]*([^\n]*)$", re.MULTILINE
)
_OBJECTS = re.compile(
    r"^([\w-]+)-(?:y|objs)\s*[:+]?=\s*(.*)$|^([\w-]+)-\$\([^)]*\)\s*[:+]?=\s*(.*)$"
)
_CONVERSION = re.compile(r"%[-+ #0-9.*hlLqjzt]*[a-zA-Z]")
# Levels of folders above a file whose Makefile may list it.
_MAX_UP = 6


class Prefixes:
    """The words of the lines of one source file."""

    def __init__(self, path: Path, text: str, root: Path) -> None:
        module = module_name(path, root)
        macros = {**MACROS, "KBUILD_MODNAME": module, "KBUILD_BASENAME": module}
        macros |= defined_texts(text, macros)
        self._of_pr = _texts(text, "pr_fmt", macros)
        uses_pr = re.search(r"define\s+dev_fmt(?:\(\w+\))?\s+pr_fmt", text)
        self._of_device = self._of_pr if uses_pr else _texts(text, "dev_fmt", macros)

    def required(self, function: str, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return words of which one is in each line that a function writes. `words`: those of the file's devices."""
        if word := word_of(function):
            return (word,)
        if function.startswith("pr_"):
            return self._of_pr
        return (self._of_device or words) if is_of_device(function) else ()


def _texts(text: str, name: str, macros: dict[str, str]) -> tuple[str, ...]:
    """Return a file's prefixes; a file may change its prefix on the way. () where one of them says nothing."""
    found = [_text(value, macros) for one, value in _FORMAT.findall(text) if one == name]
    return tuple(dict.fromkeys(found)) if all(found) else ()


def _text(value: str, macros: dict[str, str]) -> str:
    """Return the longest literal run of a prefix, the colon and spaces around it left out."""
    value = value.split(", __func__")[0]
    runs = [run.strip(" :") for one in formats(value, macros) for run in _CONVERSION.split(one)]
    longest = max(runs, key=len, default="")
    return longest if len(longest) > 1 and any(map(str.isalpha, longest)) else ""


def module_name(path: Path, root: Path) -> str:
    """Return the module that a source file becomes part of, by the Makefiles above it; else the file's own name."""
    folder = path.parent
    for _ in range(_MAX_UP):
        inner = path.relative_to(folder).with_suffix(".o").as_posix()
        for name, objects in _composites(folder / "Makefile"):
            if inner in objects:
                return name.replace("-", "_") if name != "nvme-core" else "nvme"
        if folder == root:
            break
        folder = folder.parent
    return path.stem.replace("-", "_")


@cache
def _composites(makefile: Path) -> tuple[tuple[str, frozenset[str]], ...]:
    if not makefile.is_file():
        return ()
    text = makefile.read_text(errors="replace").replace("\\\n", " ")
    return tuple(_lists(text))


def _lists(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    for line in text.splitlines():
        one = _OBJECTS.match(line)
        if one and (name := one[1] or one[3]) not in ("obj", "ccflags", "subdir", "CFLAGS"):
            yield name, frozenset((one[2] or one[4]).split())
