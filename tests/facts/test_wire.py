import dataclasses
import enum
import json
import math
import random
import types
import typing
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import pytest

import runner.decide.state.cluster_state
import runner.facts.faults
import runner.facts.messages.cluster_status
import runner.facts.messages.requests
import runner.journal.journal  # noqa: F401 - registers its kinds
from runner.errors import WireError
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from tests.facts import plain_wire

KINDS = dict(wire._KINDS)
JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    7,
    1.5,
    10**400,
    "",
    "NaN",
    "n1",
    "1.2.3",
    [],
    [1],
    {},
    {"x": 1},
    [None],
)
SIGNALS = sorted(kind for kind in KINDS if kind not in ("state", "view", "recovery"))


def some(target: Any, dice: random.Random, depth: int = 0) -> Any:
    """Make up a value that fits an annotation."""
    origin = get_origin(target)
    if target is Any or target is object:
        if depth < 2 and dice.random() < 0.3:
            return some(KINDS[dice.choice(SIGNALS)], dice, depth + 2)
        return dice.choice((None, 3, "word", [1, "two"], {"a": 1.5, "kind": "rank_exited"}))
    if origin in (types.UnionType, typing.Union):
        return some(dice.choice(get_args(target)), dice, depth)
    if origin in (tuple, list):
        item = get_args(target)[0]
        return origin(some(item, dice, depth + 1) for _ in range(dice.randrange(3)))
    if origin in (dict, Mapping):
        key, item = get_args(target)
        return {some(key, dice): some(item, dice, depth + 1) for _ in range(dice.randrange(3))}
    if origin is typing.Literal:
        return dice.choice(get_args(target))
    return one(target, dice, depth)


def one(target: Any, dice: random.Random, depth: int) -> Any:
    """Make up a value of a class."""
    if target is AttemptId:
        return AttemptId(dice.randrange(3), dice.randrange(3), dice.randrange(3))
    if target in (int, bool, str, float, type(None)):
        choices: dict[Any, tuple[Any, ...]] = {
            int: (0, 1, -5, 2**60),
            bool: (False, True),
            str: ("", "n1", "grüße \ud800", "NaN", "1.2.3"),
            float: (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan),
            type(None): (None,),
        }
        return dice.choice(choices[target])
    if issubclass(target, enum.Enum):
        return dice.choice(list(target))
    hints = typing.get_type_hints(target)
    fields = {}
    for field in dataclasses.fields(target):
        is_required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if is_required or dice.random() < 0.6:
            fields[field.name] = some(hints[field.name], dice, depth + 1)
    return target(**fields)


def spoiled(plain: Any, dice: random.Random) -> Any:
    """Put junk somewhere into plain JSON, or leave something out."""
    if isinstance(plain, dict) and plain and dice.random() < 0.9:
        key = dice.choice(list(plain))
        rest = {name: item for name, item in plain.items() if name != key}
        if dice.random() < 0.2:
            return rest
        name = key if dice.random() < 0.8 else dice.choice(("x", "3", "1.2.3", "kind", "v"))
        return {**rest, name: spoiled(plain[key], dice)}
    if isinstance(plain, list) and plain and dice.random() < 0.7:
        index = dice.randrange(len(plain))
        return [*plain[:index], spoiled(plain[index], dice), *plain[index + 1 :]]
    return dice.choice(JUNK)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_written_and_read_as_the_plain_way_does(kind: str) -> None:
    """What is kept per type changes nothing: same bytes, and the same value out of them."""
    dice = random.Random(kind)
    for _ in range(30):
        fact = one(KINDS[kind], dice, 0)
        data = wire.encode(fact)
        assert data == plain_wire.encode(fact)
        read = wire.decode(data, limit_bytes=len(data))
        # repr, not ==: a NaN equals nothing, and 0 equals 0.0 and False
        assert repr(read) == repr(plain_wire.from_message(json.loads(data), KINDS))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_the_plain_way_refuses_is_refused_with_a_wire_error_and_nothing_else_is(
    kind: str,
) -> None:
    """Spoiled messages are either read alike or refused by both, whatever is wrong with them."""
    dice = random.Random(f"spoiled {kind}")
    refused = 0
    for _ in range(60):
        plain = spoiled(json.loads(wire.encode(one(KINDS[kind], dice, 0))), dice)
        # as messages are written, or not
        tight = (",", ":") if dice.random() < 0.8 else None
        data = json.dumps(plain, separators=tight).encode()
        try:
            wanted = repr(plain_wire.from_message(json.loads(data), KINDS))
        except (WireError, ValueError, OverflowError, TypeError):
            refused += 1
            with pytest.raises(WireError):
                wire.decode(data, limit_bytes=len(data))
            continue
        assert repr(wire.decode(data, limit_bytes=len(data))) == wanted
    assert refused


@pytest.mark.parametrize(
    "data",
    [
        b'{"v":1,"kind":"state","runs":{"x":{}}}',
        b'{"v":1,"kind":"action_result","id":"a1","outcome":"done","detail":{"a":{"v":1,"kind":[]},"b":{"v":1,"kind":"node_left"}}}',
        b'{"v":1,"kind":"heartbeat","node":"n1","incarnation":1,"writing_seconds":1'
        + b"0" * 400
        + b"}",
        b'{"v":1,"kind":"action_result","id":"a","outcome":"done","detail":{"d":' * 200
        + b"1"
        + b"}}" * 200,
        b"[" * 50_000,
        b"\xff\xfe",
        b"1" * 5000,
    ],
)
def test_hostile_bytes_end_in_a_wire_error_whatever_python_makes_of_them(data: bytes) -> None:
    """No key, number or nesting gets past the one error that readers expect."""
    with pytest.raises(WireError):
        wire.decode(data)


def test_a_type_is_worked_out_once_however_many_messages_of_it_are_read() -> None:
    """The thousandth heartbeat looks up no annotation."""
    beat = wire.encode(Heartbeat(node="n1", incarnation=1, phases={"0": "step"}))
    wire.decode(beat)
    before = [wire._hints.cache_info().misses, wire._reader.cache_info().misses]
    lookups = wire._hints.cache_info().hits
    for _ in range(1000):
        wire.encode(wire.decode(beat))
    assert [wire._hints.cache_info().misses, wire._reader.cache_info().misses] == before
    assert wire._hints.cache_info().hits == lookups
