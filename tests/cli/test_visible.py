"""What ranks, logs and the store fill is shown without characters that a terminal obeys or that turn the line around."""

import ast
import logging
import types
import typing
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.wording import visible
from runner.log_lines import _VisibleFormatter
from tests.cli.conftest import Cluster, stoker

ROOT = Path(__file__).parents[2]
# Clear the screen, set the title, ring, turn the line around, a line's end of its own, hide what follows.
HOSTILE = "\x1b[2J\x1b]0;x\x07\u202eabc\u2066\u200f\r\x9b31m\x00"


def filled(kind: Any, depth: int = 0) -> Any:
    """Make a value of a type, hostile text in each field that can hold it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return filled(inner[0], depth)
    if origin in (typing.Union, types.UnionType):
        return filled(next(each for each in inner if each is not types.NoneType), depth)
    if origin is typing.Literal:
        return inner[0]
    if origin is tuple:
        return (filled(inner[0], depth + 1),)
    if origin is not None and len(inner) == 1:
        return [filled(inner[0], depth + 1)]
    if origin is not None and len(inner) == 2:
        key = filled(inner[0], depth + 1)
        return {key: filled(inner[1], depth + 1)}
    if kind is str:
        return HOSTILE
    if kind in (int, float, bool):
        return kind(1)
    if kind is AttemptId:
        return AttemptId(1, 1, 1)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = {each.name: hints[each.name] for each in msgspec.structs.fields(kind)}
        return kind(**{name: filled(hint, depth + 1) for name, hint in fields.items()})
    return HOSTILE


def hostile_characters(text: str) -> set[str]:
    """Return the characters that must not be shown."""
    return {ch for ch in text if not ch.isprintable() and ch != "\n"}


@pytest.fixture
def hostile(cluster: Cluster) -> Cluster:
    """Give a cluster whose published status is hostile in each field."""
    cluster.publish(filled(ClusterStatus))
    return cluster


COMMANDS = (
    ["status"], ["runs"], ["nodes"], ["incidents"], ["story"], ["hardware"], ["nodes", "no such"],
    ["explain", "i9"], ["explain", HOSTILE], ["nodes", HOSTILE], ["story", HOSTILE],
    ["lineage", HOSTILE], ["status", "--json"], ["runs", "--json"], ["nodes", "--json"],
    ["incidents", "--json"], ["checkpoints", HOSTILE], ["checkpoints"],
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=range(len(COMMANDS)))
def test_commands_show_visible_characters_only(hostile: Cluster, words: list[str]) -> None:
    """Each field of the status that can hold text holds hostile text, and so do arguments."""
    shown = stoker(*words)
    assert shown.output
    assert not hostile_characters(shown.output), shown.output


def test_logs_hold_visible_characters_only() -> None:
    """In messages, their arguments, and the text of exceptions."""
    record = logging.LogRecord("stoker", logging.ERROR, "", 1, "bad %s", (HOSTILE,), None)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    assert not hostile_characters(_VisibleFormatter("%(message)s").format(record))


def test_ordinary_text_stays_as_it_is() -> None:
    """Lines, other alphabets, bars and signs."""
    text = "loss ▁▂█ 12 µs\nстрока · 中文 ü – ok"
    assert visible(text) == text


def test_one_module_prints() -> None:
    """So that no command passes it by; metrics are in Prometheus' own form, which escapes."""
    printing = []
    for path in (ROOT / "runner" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("print", "click.echo", "click.secho", "sys.stdout.write"):
                printing.append(path.name)
    assert set(printing) <= {"output.py", "metrics.py"}, printing
