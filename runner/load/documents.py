"""Documents: a YAML file as plain values that remember their lines. The only importer of yaml.

The parser builds values from YAML's node tree itself, which keeps line numbers and closes the doors that a friendly loader
leaves open: keys given twice, aliases (and with them exponential documents), tags, and YAML 1.1's surprising scalars.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from runner.errors import SpecError

# Chosen, not measured.
MAX_FILE_BYTES = 1024 * 1024
MAX_NESTING = 50

# The way to a value: field names and list positions
Where = tuple[str | int, ...]

_CORE_TAGS = {
    f"tag:yaml.org,2002:{name}": name
    for name in ("null", "bool", "int", "float", "str", "seq", "map")
}


@dataclass(slots=True, kw_only=True)
class Document:
    """A file's plain value, the line of each part, the source text of each scalar, and what no plain value can hold."""

    file: str
    first_line: int = 1
    plain: Any = None
    lines: dict[Where, int] = field(default_factory=dict)
    texts: dict[Where, str] = field(default_factory=dict)
    problems: list[tuple[Where, str]] = field(default_factory=list)

    def _build(self, node: yaml.Node, where: Where) -> Any:
        """Return the plain value of a node: dict, list, str, int, float, bool or None."""
        self.lines.setdefault(where, self._line_of(node))
        kind = _CORE_TAGS.get(node.tag)
        if kind is None:
            return self._refuse(
                where, f"the tag {node.tag!r} is not supported; write a plain value"
            )
        if len(where) > MAX_NESTING:
            return self._refuse(where, f"nested more than {MAX_NESTING} deep; flatten it")
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, where)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(item, (*where, index)) for index, item in enumerate(node.value)]
        return self._build_scalar(node, kind, where)

    def _build_mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                line = self._line_of(key_node)
                self._refuse(
                    where, f"the key in line {line} is a list or a mapping; write plain text"
                )
                continue
            key = str(key_node.value)
            inside = (*where, key)
            if key in plain:
                second = self._line_of(key_node)
                self._refuse(inside, f"given again in line {second}; keep one of them")
                continue
            self.lines[inside] = self._line_of(key_node)
            plain[key] = self._build(item, inside)
            if wrong := _unprintable(key):
                self._refuse(inside, f"the key {wrong}; remove it")
        return plain

    def _build_scalar(self, node: yaml.Node, kind: str, where: Where) -> Any:
        text = self.texts[where] = str(node.value)
        if wrong := _unprintable(text):
            return self._refuse(where, f"{text[:60]!a} {wrong}; remove it")
        try:
            value = _SCALARS[kind](text)
        except (ValueError, KeyError):
            return self._refuse(where, f"{text[:60]!r} is not a valid {kind}; write a plain value")
        if isinstance(value, float) and not math.isfinite(value):
            return self._refuse(where, f"{text!r} is not a finite number; give one")
        return value

    def _line_of(self, node: yaml.Node) -> int:
        return int(node.start_mark.line) + self.first_line

    def _refuse(self, where: Where, problem: str) -> None:
        """Note a problem; the value is None then."""
        self.problems.append((where, problem))


def read_text(path: Path) -> str:
    """Read a file as UTF-8; raise SpecError when that cannot be done."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(
            f"{path}: cannot be read ({reason}); give the path of a YAML file"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise SpecError(f"{path}: larger than {MAX_FILE_BYTES} bytes; this is not a settings file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{path}: byte {error.start} is {data[error.start]:#04x}, not UTF-8; save it as UTF-8"
        ) from error


def parse(text: str, file: str, *, first_line: int = 1) -> Document:
    """Parse one YAML document; `first_line` is where `text` begins in `file`. Raise SpecError with line and column."""
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + first_line}:{mark.column + 1}" if mark else file
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(f"{where}: not YAML: {what}") from error
    except yaml.reader.ReaderError as error:
        raise SpecError(
            f"{file}: not YAML: character {error.character!r} at position {error.position} is not allowed; remove it"
        ) from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise SpecError(f"{file}: not YAML: {error}") from error
    document = Document(file=file, first_line=first_line)
    if root is not None:
        document.plain = document._build(root, ())
    return document


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core values, and no aliases."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None,
                None,
                f"the alias *{event.anchor} is not supported; write the value out",
                event.start_mark,
            )
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )


def _float(text: str) -> float:
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": lambda text: int(text, 0 if text[:2] in ("0x", "0o") else 10),
    "float": _float,
    "str": str,
}


def _unprintable(text: str) -> str:
    """Describe what no file name, argument or message can carry, or "" when there is nothing of the kind."""
    if "\0" in text:
        return "holds a NUL character"
    return "holds half of a surrogate pair" if any("\ud800" <= x <= "\udfff" for x in text) else ""
