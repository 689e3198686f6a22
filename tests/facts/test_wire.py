"""The codec: every kind there is, made up at random, spoiled at random, and in the bytes of releases gone by."""

import enum
import json
import math
import random
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import field

import runner.decide.state.cluster_state
import runner.facts.faults
import runner.facts.messages.cluster_status
import runner.facts.messages.requests
import runner.journal.journal  # noqa: F401 - registers its kinds
from runner.errors import WireError
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.ids import AttemptId
from runner.facts.messages.records import (
    ActionEnded,
    Assigned,
    IncidentAmended,
    JournalEntry,
    NodeExpected,
    RankEnded,
    RunAdmitted,
    Settle,
    StepsAdvanced,
)
from runner.facts.messages.signals import Heartbeat, RankExited
from runner.facts.specs.run import RunSpec
from runner.facts.wire import MutableValue, Value

KINDS = dict(wire._CLASSES)
MALFORMED: tuple[Any, ...] = (
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
SIGNALS = sorted(kind for kind in KINDS if kind not in ("state", "status", "recovery"))


def some(target: Any, dice: random.Random, depth: int = 0) -> Any:
    """Make up a value that fits an annotation."""
    origin = get_origin(target)
    if target is object and depth < 2 and dice.random() < 0.3:
        return some(KINDS[dice.choice(SIGNALS)], dice, depth + 2)
    if target is Any or target is object:
        return dice.choice((None, 3, "word", [1, "two"], {"a": 1.5, "kind": "rank_exited"}))
    if origin in (types.UnionType, typing.Union):
        return some(dice.choice(get_args(target)), dice, depth)
    if origin is tuple and get_args(target)[-1] is not ...:
        return tuple(some(item, dice, depth + 1) for item in get_args(target))
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
            str: ("", "n1", "grüße", "NaN", "1.2.3"),
            float: (0.0, 1.5, math.inf, -math.inf, math.nan),
            type(None): (None,),
        }
        return dice.choice(choices[target])
    if issubclass(target, enum.Enum):
        return dice.choice(list(target))
    hints = typing.get_type_hints(target)
    fields = {}
    for each in msgspec.structs.fields(target):
        if each.required or dice.random() < 0.6:
            fields[each.name] = some(hints[each.name], dice, depth + 1)
    return target(**fields)


def spoiled(plain: Any, dice: random.Random) -> Any:
    """Put a malformed value somewhere into plain JSON, or leave something out."""
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
    return dice.choice(MALFORMED)


def fits(target: Any, value: Any) -> bool:
    """Whether a value fits an annotation, in all its parts."""
    origin, choices = get_origin(target), get_args(target)
    if target is Any or target is object:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(fits(choice, value) for choice in choices)
    if origin is tuple and choices[-1] is not ...:
        is_long_enough = type(value) is origin and len(value) == len(choices)
        return is_long_enough and all(map(fits, choices, value))
    if origin in (tuple, list):
        return type(value) is origin and all(fits(choices[0], item) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            fits(choices[0], key) and fits(choices[1], item) for key, item in value.items()
        )
    if origin is Literal:
        return value in choices
    if type(value) is not target or not issubclass(target, msgspec.Struct):
        return type(value) is target
    hints = typing.get_type_hints(target)
    return all(fits(hints[name], getattr(value, name)) for name in target.__struct_fields__)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_comes_back_as_it_was(kind: str) -> None:
    """With any fields, a message survives the wire, and is written the same way again."""
    dice = random.Random(kind)
    for _ in range(30):
        fact = one(KINDS[kind], dice, 0)
        data = wire.encode(fact)
        assert data.startswith(b'{"v":1,"kind":"%b"' % kind.encode())
        read = wire.decode(data, limit_bytes=len(data))
        # repr, not ==: a NaN equals nothing, and 0 equals 0.0 and False
        assert repr(read) == repr(fact)
        assert wire.encode(read) == data
        # The same message through plain JSON, as other writers space it.
        plain = wire.to_message(fact)
        assert json.loads(data) == json.loads(json.dumps(plain, allow_nan=False))
        assert repr(wire.from_message(plain)) == repr(fact)
        assert repr(wire.decode(json.dumps(plain), limit_bytes=2**20)) == repr(fact)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_read_fits_its_annotations_and_all_else_is_a_wire_error(kind: str) -> None:
    """Of spoiled messages nothing gets through that a field does not allow, and no other error comes of them."""
    dice = random.Random(f"spoiled {kind}")
    refused = 0
    for _ in range(60):
        plain = spoiled(json.loads(wire.encode(one(KINDS[kind], dice, 0))), dice)
        # as messages are written, or not
        tight = (",", ":") if dice.random() < 0.8 else None
        data = json.dumps(plain, separators=tight).encode()
        try:
            read = wire.decode(data, limit_bytes=len(data))
        except WireError:
            refused += 1
            continue
        assert isinstance(plain, dict)
        assert fits(KINDS[plain["kind"]], read)
    assert refused


ATTEMPT = AttemptId(12, 45, 2)


@pytest.mark.parametrize(
    ("fact", "data"),
    [
        (Settle(), b'{"v":1,"kind":"settle"}'),
        # Empty defaults are left out: 0.0, None, "", ().
        (
            Assigned(node="n1", generation=0),
            b'{"v":1,"kind":"assigned","node":"n1","generation":0}',
        ),
        (
            Assigned(
                node="n1", generation=7, attempt=ATTEMPT, grace_seconds=float("0"), stacks_seconds=2
            ),
            b'{"v":1,"kind":"assigned","node":"n1","generation":7,"attempt":"12.45.2","stacks_seconds":2}',
        ),
        # What has no default is written, empty or not; so is what a factory makes.
        (
            RankEnded(attempt=ATTEMPT, node="", rank=0, exit_code=None),
            b'{"v":1,"kind":"rank_ended","attempt":"12.45.2","node":"","rank":0,"exit_code":null}',
        ),
        (
            ActionEnded(id="a1", outcome="done"),
            b'{"v":1,"kind":"action_ended","id":"a1","outcome":"done","detail":{}}',
        ),
        # An empty value where the default is None is no default.
        (
            IncidentAmended(incident="i1", evidence="e", node="", step=0),
            b'{"v":1,"kind":"incident_amended","incident":"i1","evidence":"e","node":"","step":0}',
        ),
        # Floats that JSON has no number for.
        (
            StepsAdvanced(attempt=ATTEMPT, step=1, loss=math.nan, timings={"a": -math.inf}),
            b'{"v":1,"kind":"steps_advanced","attempt":"12.45.2","step":1,"loss":"NaN","timings":{"a":"-Infinity"}}',
        ),
        (
            JournalEntry(sequence=1, now=0.0, input=Settle(), records=(NodeExpected(node="n1"),)),
            b'{"v":1,"kind":"entry","sequence":1,"now":0.0,"input":{"v":1,"kind":"settle"},'
            b'"records":[{"v":1,"kind":"node_expected","node":"n1"}]}',
        ),
    ],
)
def test_these_are_the_bytes(fact: object, data: bytes) -> None:
    """The journal holds them for ever: version and kind first, fields in order, defaults left out."""
    assert wire.encode(fact) == data
    assert wire.decode(data) == fact or b"NaN" in data


def test_defaults_that_are_not_empty_are_always_written_and_empty_floats_of_state_too() -> None:
    """A later release may choose another default; a state's 0.0 is written whether set or not."""

    class Some(Value):
        tries: int = 1
        name: str = "x"
        parts: tuple[str, ...] = ("a",)
        marks: list[int] = field(default_factory=list)
        zero: float = 0.0
        none: int | None = None

    class Kept(MutableValue):
        zero: float = 0.0
        name: str = ""

    assert wire.to_plain(Some()) == {"tries": 1, "name": "x", "parts": ["a"], "marks": []}
    assert wire.to_plain(Some(zero=-0.0, tries=0))["tries"] == 0
    assert "zero" not in wire.to_plain(Some(zero=-0.0))
    assert wire.to_plain(Kept()) == {"zero": 0.0}
    assert Kept().zero == Some().zero == 0.0


def test_text_that_is_no_unicode_is_escaped_and_never_an_error() -> None:
    """A rank may write anything, and so may a release that escaped it."""
    exited: dict[str, Any] = {"node": "n1", "incarnation": 1, "generation": 1, "attempt": ATTEMPT}
    exited |= {"rank": 0, "exit_code": 1}
    data = wire.encode(RankExited(**exited, stderr_tail="so \udcff"))
    assert b"so \\\\udcff" in data
    old = json.dumps(wire.to_message(RankExited(**exited, stderr_tail="X")))
    read = wire.decode(old.replace("X", "\\udcff"))
    assert b'"\\\\udcff"' in wire.encode(read)


def test_what_is_no_value_is_refused_by_name() -> None:
    """A set, for one, has no order to write it in... and an object no way at all."""
    with pytest.raises(WireError, match="cannot put a object into a message"):
        wire.encode(ActionResult(id="a", outcome="done", detail={"x": object()}))


def test_a_kind_is_taken_once() -> None:
    """Two classes of one kind would read each other's bytes."""
    with pytest.raises(ValueError, match="'heartbeat' is taken by Heartbeat"):

        class Other(Value, kind="heartbeat"):
            node: str


def test_a_part_with_a_kind_says_it_and_is_read_without() -> None:
    """Earlier releases left the kind of a part out; a wrong one is refused."""
    spec = RunSpec(name="r", command=("true",), nodes=1)
    admitted = RunAdmitted(run=1, spec=spec)
    data = wire.encode(admitted)
    assert b'"spec":{"kind":"run_spec","name":"r"' in data
    assert wire.decode(data.replace(b'"kind":"run_spec",', b"")) == admitted
    with pytest.raises(WireError):
        wire.decode(data.replace(b"run_spec", b"run_expected"))


def test_a_message_of_a_later_release_in_an_entry_stays_plain() -> None:
    """Of an entry with an unknown record the other ones are read, and it is written again as it was."""
    data = (
        b'{"v":1,"kind":"entry","sequence":1,"now":0.0,"input":{"v":1,"kind":"settle"},'
        b'"records":[{"v":1,"kind":"of_tomorrow","x":[1]},{"v":1,"kind":"node_expected","node":"n1"}]}'
    )
    entry = wire.decode(data)
    assert entry.records == (
        {"v": 1, "kind": "of_tomorrow", "x": [1]},
        NodeExpected(node="n1"),
    )
    assert wire.encode(entry) == data


def test_kinds_made_after_the_first_entry_was_read_are_known() -> None:
    """A module that is imported late brings kinds that entries may hold."""
    wire.decode(wire.encode(JournalEntry(sequence=1, now=0.0, input=Settle())))
    try:

        class Late(Value, kind="late"):
            at: int

        class Unnamed(Late):
            more: int = 0

        entry = JournalEntry(sequence=2, now=0.0, input=Late(at=1), records=(Late(at=2),))
        assert wire.decode(wire.encode(entry)) == entry
        assert wire.to_plain(Unnamed(at=3)) == {"at": 3}
    finally:
        wire._CLASSES.pop("late", None)
        wire._READERS.clear()


@pytest.mark.parametrize(
    "data",
    [
        b'{"v":1,"kind":"state","runs":{"x":{}}}',
        b'{"v":1,"kind":"entry","sequence":1,"now":1,"input":{"v":1,"kind":[]},"records":[{"v":1,"kind":"node_left"}]}',
        b'{"v":1,"kind":"heartbeat","node":"n1","incarnation":1,"writing_seconds":1'
        + b"0" * 400
        + b"}",
        b'{"v":1,"kind":"entry","sequence":1,"now":1,"input":' * 1000 + b"1" + b"}" * 1000,
        b'{"v":1,"kind":"entry","sequence":1,"now":1,"input":' * 300 + b"}" * 300,
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
    heartbeat = wire.encode(Heartbeat(node="n1", incarnation=1, phases={"0": "step"}))
    wire.decode(heartbeat)
    before = [wire._hints.cache_info(), wire._decoder.cache_info().misses]
    for _ in range(1000):
        wire.encode(wire.decode(heartbeat))
    assert [wire._hints.cache_info(), wire._decoder.cache_info().misses] == before
