"""Catalogues of packages: read from where they are installed, else from the package index; never imported."""

import ast
import builtins
import os
import re
from collections import Counter
from collections.abc import Iterator
from errno import errorcode
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tools.catalogues.python.classes import HARMLESS, Area, area_of, class_of
from tools.catalogues.python.libraries import LIBRARIES, Library
from tools.catalogues.python.statements import Statement, statements
from tools.catalogues.python.texts import FIELD
from tools.catalogues.rows import Header, Row, first_line, write
from tools.catalogues.sources import wheel

MADE = "2026-11-26"
PROGRAM = "tools/catalogues/python/packages.py"
_LIBRARIES = {library.name: library for library in LIBRARIES}
NAMES = tuple(_LIBRARIES)
# Letters of the longest constant part, and of all of them, below which a row also requires its exception's name; chosen.
MIN_LETTERS, MIN_ALL_LETTERS = 14, 36
# Letters without which a row names nothing, of an exception of the library and of one of Python's; chosen.
LEAST_LETTERS, LEAST_LETTERS_OF_PYTHON = 5, 16
_SKIPPED = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|benchmarks?|docs?|conftest|_testing)(?:/|_|\.)"
)
_RAISED_IN_CYTHON = re.compile(r"^\s*raise ([\w.]+)\(", re.M)


def make(name: str) -> Counter[str]:
    """Write the catalogue of a library; return its rows by level. Raises SourceMissing."""
    library = _LIBRARIES[name]
    if (folder := installed(library.requirement)) is not None:
        return _write(library, folder)
    with wheel(library.requirement) as unpacked:
        return _write(library, unpacked)


def rows(library: Library, folder: Path) -> Iterator[Row]:
    """Yield a row for each statement of the library's files below `folder`."""
    paths = {path for part in library.parts for path in folder.glob(part)}
    for path in sorted(paths):
        at = path.relative_to(folder).as_posix()
        if _SKIPPED.search(at) or any(word in at for word in library.without):
            continue
        area = library.area if library.is_one_area else area_of(at, library.area)
        short = at.partition("/")[2] or at
        for statement in _statements(path):
            if (row := row_of(statement, short, area, library.name)) is not None:
                yield row


def row_of(statement: Statement, at: str, area: Area, library: str = "") -> Row | None:
    """Return the row of a statement; None for one whose words are too few to be found by."""
    text = first_line(_line_to_find(statement.format))
    parts = [_num_letters(part) for part in text.split(FIELD)]
    is_short = max(parts) < MIN_LETTERS
    is_of_python = hasattr(builtins, statement.exception)
    least = LEAST_LETTERS_OF_PYTHON if is_of_python else LEAST_LETTERS
    if sum(parts) < least or max(parts) < LEAST_LETTERS or (is_short and not statement.exception):
        return None
    if _is_of_errno(text):
        return None
    is_vague = is_short or sum(parts) < MIN_ALL_LETTERS
    if is_vague and statement.exception == "AssertionError":
        # "expected a tensor": the traceback above shows whose it is, the text does not.
        return None
    found = class_of(statement, area, library)
    is_harmless = any(name == library and words in text for name, words in HARMLESS)
    return Row(
        f"{at} {statement.exception}".strip(),
        text,
        "warning" if is_harmless else statement.level,
        found.fault,
        layer=found.layer,
        scope=None if found.scope == "user" else found.scope,
        requires=(statement.exception,) if statement.exception and is_vague else (),
        why=found.why,
    )


def _write(library: Library, folder: Path) -> Counter[str]:
    version = version_of(library.requirement, folder)
    header = Header(
        library.name,
        version,
        made=MADE,
        program=PROGRAM,
        source=f"the package {library.requirement} {version}: {', '.join(library.parts)}"[:200],
        style="braces",
        layer="program",
        scope="user",
    )
    return write(library.name, header, rows(library, folder))


def installed(package: str) -> Path | None:
    """Return the folder that holds an installed package; None where it is not installed."""
    try:
        return Path(str(distribution(package).locate_file("")))
    except PackageNotFoundError:
        return None


def version_of(package: str, folder: Path) -> str:
    """Return the version of a package by the name of its metadata's folder."""
    normal = re.sub(r"[-_.]+", "_", package).lower()
    for path in sorted(folder.glob("*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        if re.sub(r"[-_.]+", "_", name).lower() == normal:
            return version.partition("+")[0]
    return "unknown"


def _statements(path: Path) -> list[Statement]:
    source = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".pyx":
        return list(_of_cython(source))
    try:
        return statements(source)
    except SyntaxError:
        return []


def _of_cython(source: str) -> Iterator[Statement]:
    """Yield what a module of Cython raises: `raise` and its call alone are read, as Python."""
    for found in _RAISED_IN_CYTHON.finditer(source):
        call = source[found.start() : found.start() + 2000]
        for end in (place.end() for place in re.finditer(r"\)", call)):
            text = call[:end].lstrip()
            try:
                ast.parse(text)
            except SyntaxError:
                continue
            yield from statements(text)
            break


def _line_to_find(text: str) -> str:
    """Return the first line of a message, which has its exception's name before it, unless it has no words."""
    lines = [line for line in text.split("\n") if line.strip()]
    return next((line for line in lines if _num_letters(line.replace(FIELD, "")) > 2), "")


@cache
def _errno_texts() -> str:
    return "\n".join(os.strerror(number) for number in sorted(errorcode)).lower()


def _is_of_errno(text: str) -> bool:
    """Whether a text is one of the operating system's: any program prints it."""
    return text.replace(FIELD, "").strip(" \t.:;,'\"[]()").lower() in _errno_texts()


def _num_letters(text: str) -> int:
    return sum(map(str.isalpha, text))
