"""Messages as bytes: one JSON object a line, with version and kind. The only codec in the house.

NaN and infinities travel as the strings "NaN", "Infinity", "-Infinity" (bare NaN is not JSON). An unknown field is ignored;
an unknown kind, or bytes that are no message, raise WireError, which the reader turns into a finding. Kinds and fields are
only ever added: the golden journals of all releases must decode for ever.

A supervisor of 2,000 nodes reads as many messages a second: so how a type is written and read is worked out once per type,
and kept as a function (`_writer`, `_reader`), and the JSON itself is msgspec's. Messages of plain types, as ours begin, msgspec
makes itself (`_whole`). What it does not take is read the long way: numbers that are none, text that is not Unicode (a rank's
stderr, escaped), and every error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, TypeVar, cast, get_args, get_origin

from runner.errors import WireError
from runner.facts.ids import AttemptId

VERSION = 1
# Larger things travel by path and hash (decision 6); chosen, not measured
MAX_MESSAGE_BYTES = 64 * 1024

# more than there are: what is no kind is hostile; chosen
MAX_KINDS_REMEMBERED = 1024
# ids of attempts as text, read once; chosen, not measured
MAX_ATTEMPTS_REMEMBERED = 4096

T = TypeVar("T")
_Function = Callable[[Any], Any]
_Put = Callable[[Any, Any], None]
# written as they are
_ATOMS = {str: True, int: True, bool: True, type(None): True}
# no value has it as its type
_NO_TYPE = object()
# no message holds it
_ABSENT = object()
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
# of a message as `encode` writes it
_BEGIN = b'{"v":1,"kind":"'
_encode_fast: Callable[[Any], bytes] | None = None
_decode_fast: Callable[[bytes | str], Any] | None = None
_decoder_of: Callable[..., Any] | None = None
# ranks seal with nothing but the standard library
with contextlib.suppress(ImportError):
    import msgspec

    _encode_fast, _decode_fast = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    _decoder_of = msgspec.json.Decoder
_KINDS: dict[str, type] = {}
_NAMES: dict[type, str] = {}
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def message(kind: str) -> Callable[[type[T]], type[T]]:
    """Register a dataclass as the message `kind`."""

    def register(cls: type[T]) -> type[T]:
        if kind in _KINDS:
            raise ValueError(f"message kind {kind!r} is taken by {_KINDS[kind].__name__}")
        _KINDS[kind] = cls
        _NAMES[cls] = kind
        return cls

    return register


def kind_of(fact: object) -> str:
    """Return the registered kind of a message."""
    return _NAMES[type(fact)]


def encode(fact: object) -> bytes:
    """Encode a registered message as one JSON line without the newline."""
    return encode_message(to_message(fact))


def encode_message(plain: Mapping[str, Any]) -> bytes:
    """Encode what `to_message` returned."""
    if _encode_fast is not None:
        # a lone surrogate, for one
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            return _encode_fast(plain)
    return _JSON(plain).encode()


def decode(data: bytes | str, *, limit_bytes: int = MAX_MESSAGE_BYTES) -> Any:
    """Decode one line into its dataclass; raise WireError for anything else."""
    if len(data) > limit_bytes:
        raise WireError(f"message of {len(data)} bytes; at most {limit_bytes} are read")
    if isinstance(data, bytes) and data.startswith(_BEGIN):
        read = _whole(data[len(_BEGIN) : data.find(b'"', len(_BEGIN))])
        if read is not None:
            with contextlib.suppress(
                ValueError,
                RecursionError,
                # msgspec's errors are ValueErrors
            ):
                return read(data)
    try:
        plain = _parsed(data)
    except (ValueError, RecursionError) as error:
        raise WireError(
            f"not a JSON message: {bytes(data[:80], 'utf-8') if isinstance(data, str) else data[:80]!r} ({error})"
        ) from error
    try:
        return from_message(plain)
    except (ValueError, OverflowError, RecursionError) as error:
        # JSON that no field can hold: a key that is no number, a number no float holds, messages in messages in messages.
        raise WireError(f"{str(plain)[:80]!r} is no message ({error})") from error


def _parsed(data: bytes | str) -> Any:
    if _decode_fast is not None:
        try:
            return _decode_fast(data)
        except (ValueError, RecursionError):
            # msgspec's errors are ValueErrors
            pass
    return json.loads(data)


def to_message(fact: object) -> dict[str, Any]:
    """Turn a registered message into a JSON-ready dict with `v` and `kind` first."""
    return {"v": VERSION, "kind": _NAMES[type(fact)], **to_plain(fact)}


def from_message(plain: Any) -> Any:
    """Turn a dict made by `to_message` back into its dataclass."""
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise WireError(f"a message is a JSON object with a kind, not {str(plain)[:80]!r}")
    cls: Any = _KINDS.get(plain["kind"])
    if cls is None:
        raise WireError(f"unknown message kind {plain['kind'][:80]!r}")
    return _reader(cls)(plain)


def to_plain(value: Any) -> Any:
    """Turn dataclasses, enums, ids, tuples and floats into what json can print.

    Fields at an empty default (None, 0, "", ...) are left out; others are written even at their default, so that a later
    release may choose another default without rewriting history.
    """
    kind: Any = type(value)
    return _writer(kind)(value)


def from_plain(target: Any, plain: Any) -> Any:
    """Build `target` (a dataclass or a type annotation) from plain JSON; raise WireError when it does not fit."""
    return _reader(target)(plain)


# ---- writing: one function per type, made when the type is first met ------------------------------------------------


@cache
def _writer(kind: Any) -> _Function:
    if kind is type(None) or (
        issubclass(kind, bool | int | str) and not issubclass(kind, enum.Enum)
    ):
        return _as_it_is
    if issubclass(kind, float):
        return _plain_float
    if issubclass(kind, AttemptId):
        return str
    if issubclass(kind, enum.Enum):
        return lambda value: value.value
    if dataclasses.is_dataclass(kind):
        return _fields_writer(cast(type, kind))
    if issubclass(kind, Mapping):
        return lambda value: {
            str(key): item if type(item) in _ATOMS else to_plain(item)
            for key, item in value.items()
        }
    if issubclass(kind, list | tuple):
        return _plain_list
    return _refuse


def _as_it_is(value: Any) -> Any:
    return value


def _refuse(value: Any) -> Any:
    raise WireError(f"cannot put a {type(value).__name__} into a message: {value!r}")


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain_list(value: Iterable[Any]) -> list[Any]:
    return [
        item
        if type(item) in _ATOMS
        else to_message(item)
        if type(item) in _NAMES
        else to_plain(item)
        for item in value
    ]


def _fields_writer(cls: type) -> _Function:
    # Name, default, whether it is written at its default too, whether a message in it says its kind.
    fields = tuple(
        (name, default, default is dataclasses.MISSING or bool(default), _is_any(cls, name))
        for name, default in _defaults(cls)
    )
    # One name alone would not come as a tuple.
    items_of = operator.attrgetter(*(name for name, *_ in fields)) if len(fields) > 1 else None

    def write(value: Any) -> dict[str, Any]:
        plain = {}
        items = items_of(value) if items_of is not None else [getattr(value, f[0]) for f in fields]
        for (name, default, is_always_written, is_any), item in zip(fields, items, strict=True):
            if item is default and not is_always_written:
                # by far the most frequent: an empty field
                continue
            kind: Any = type(item)
            if is_always_written or item != default or kind is not type(default):
                if kind is str or kind is int:
                    plain[name] = item
                else:
                    named = is_any and kind in _NAMES
                    plain[name] = to_message(item) if named else _writer(kind)(item)
        return plain

    return write


# ---- reading: one function per annotation, made when it is first met ------------------------------------------------


@lru_cache(MAX_KINDS_REMEMBERED)
def _whole(kind: bytes) -> _Function | None:
    """Return what makes a message of a kind out of its bytes in one go; None where it would not be made as `_reader` makes it."""
    cls = _KINDS.get(kind.decode(errors="replace"))
    if cls is None or _decoder_of is None or not _is_plain(cls):
        return None
    read: _Function = _decoder_of(cls, dec_hook=_made_of_plain).decode
    return read


def _made_of_plain(target: Any, plain: Any) -> Any:
    return _reader(target)(plain)


@cache
def _is_plain(target: Any) -> bool:
    """Whether msgspec reads a type as we do: not what may be one of several things, and no keys but text."""
    origin, choices = get_origin(target), get_args(target)
    if target in (int, str, bool, float, type(None), AttemptId):
        return True
    if origin in (types.UnionType, typing.Union):
        return len(choices) == 2 and type(None) in choices and all(map(_is_plain, choices))
    if origin in (tuple, list):
        return _is_plain(choices[0])
    if origin in (dict, Mapping):
        return choices[0] is str and _is_plain(choices[1])
    if origin is typing.Literal:
        return all(isinstance(choice, str) for choice in choices)
    if not (isinstance(target, type) and dataclasses.is_dataclass(target)):
        return False
    return all(_is_plain(hint) for hint in _hints(target).values() if hint is not target)


@cache
def _reader(target: Any) -> _Function:
    origin = get_origin(target)
    if target is Any or target is object:
        return _read_any
    if origin in (types.UnionType, typing.Union):
        return _union_reader(target)
    if origin in (tuple, list):
        return _list_reader(origin, get_args(target)[0])
    if origin in (dict, Mapping):
        return _mapping_reader(*get_args(target))
    if origin is typing.Literal:
        return _literal_reader(get_args(target))
    if target is float:
        return _read_float
    if target in (int, str, bool):
        return _exact_reader(target, f"a {target.__name__}")
    if target is type(None):
        return _exact_reader(target, "null")
    if target is AttemptId:
        return _read_attempt
    if isinstance(target, type) and issubclass(target, enum.Enum):
        return _enum_reader(target)
    if isinstance(target, type) and dataclasses.is_dataclass(target):
        return _fields_reader(target)
    return _unreadable(target)


def _read_any(plain: Any) -> Any:
    if isinstance(plain, dict) and "v" in plain:
        kind = plain.get("kind")
        if isinstance(kind, str) and kind in _KINDS:
            return from_message(plain)
    return plain


def _unreadable(target: Any) -> _Function:
    def read(plain: Any) -> Any:
        raise WireError(f"no way to read {target} from {str(plain)[:80]!r}")

    return read


def _union_reader(target: Any) -> _Function:
    choices = tuple(_reader(choice) for choice in get_args(target))
    may_be_none = type(None) in get_args(target)

    def read(plain: Any) -> Any:
        if plain is None and may_be_none:
            return None
        for choice in choices:
            try:
                return choice(plain)
            except WireError:
                continue
        raise WireError(f"{str(plain)[:80]!r} fits none of {target}")

    return read


def _list_reader(made: type, item_type: Any) -> _Function:
    read_item, exact = _reader(item_type), _exact(item_type)
    only = {exact}

    def read(plain: Any) -> Any:
        _expect(isinstance(plain, list), "a list", plain)
        if only == {*map(type, plain)}:
            return made(plain)
        return made([item if type(item) is exact else read_item(item) for item in plain])

    return read


def _mapping_reader(key_type: Any, item_type: Any) -> _Function:
    read_item, exact = _reader(item_type), _exact(item_type)
    only = {exact} if key_type is str else {_NO_TYPE}

    def read(plain: Any) -> Any:
        _expect(isinstance(plain, dict), "an object", plain)
        if only == {*map(type, plain.values())}:
            return dict(plain)
        return {
            (key if key_type is str else from_plain_key(key_type, key)): (
                item if type(item) is exact else read_item(item)
            )
            for key, item in plain.items()
        }

    return read


def _literal_reader(choices: tuple[Any, ...]) -> _Function:
    what = f"one of {choices}"

    def read(plain: Any) -> Any:
        _expect(plain in choices, what, plain)
        return plain

    return read


def _read_float(plain: Any) -> float:
    if type(plain) is float:
        return plain
    if isinstance(plain, str) and plain in _FLOATS:
        return _FLOATS[plain]
    _expect(isinstance(plain, int | float) and not isinstance(plain, bool), "a number", plain)
    return float(plain)


def _exact_reader(kind: type, what: str) -> _Function:
    def read(plain: Any) -> Any:
        _expect(type(plain) is kind, what, plain)
        return plain

    return read


def _enum_reader(target: type[enum.Enum]) -> _Function:
    def read(plain: Any) -> Any:
        try:
            return target(plain)
        except ValueError as error:
            raise WireError(str(error)) from error

    return read


def _read_attempt(plain: Any) -> AttemptId:
    _expect(isinstance(plain, str), "an attempt id", plain)
    try:
        return _parse_attempt(plain)
    except ValueError as error:
        raise WireError(str(error)) from error


def _fields_reader(target: Any) -> _Function:
    """Fields are put where they belong one by one: a frozen dataclass's own constructor takes three times as long."""
    what, new = f"an object for {target.__name__}", target.__new__
    finish = getattr(target, "__post_init__", None)

    def read(plain: Any) -> Any:
        if type(plain) is not dict:
            _expect(False, what, plain)
        made, get = new(target), plain.get
        for name, exact, reader, put, default, factory in _field_readers(target):
            item = get(name, _ABSENT)
            if item is not _ABSENT:
                put(made, item if type(item) is exact else reader(item))
            elif factory is not None:
                put(made, factory())
            elif default is dataclasses.MISSING:
                raise WireError(f"{target.__name__}: {name!r} is missing")
            else:
                put(made, default)
        if finish is not None:
            finish(made)
        return made

    return read


# apart from `_fields_reader`, since a class may hold fields of its own kind
@cache
def _field_readers(target: Any) -> tuple[tuple[str, Any, _Function, _Put, Any, Any], ...]:
    """Return of each field the one type that needs no further look, the reader of all others, how it is set, and its default.

    The default is a value, or what a factory makes for each new object.
    """
    hints = _hints(target)
    return tuple(
        (
            field.name,
            _exact(hints[field.name]),
            _reader(hints[field.name]),
            _put(target, field.name),
            field.default,
            None if field.default_factory is dataclasses.MISSING else field.default_factory,
        )
        for field in dataclasses.fields(target)
    )


def _put(target: Any, name: str) -> _Put:
    """Return what sets a field of a new object, frozen or not."""
    slot = getattr(target, name, None) if "__slots__" in target.__dict__ else None
    if isinstance(slot, types.MemberDescriptorType):
        return slot.__set__
    return lambda made, item: object.__setattr__(made, name, item)


def _exact(hint: Any) -> Any:
    """Return the type whose values are what `hint` wants as they are, whatever else it takes."""
    wanted = [choice for choice in get_args(hint) if choice is not type(None)]
    if get_origin(hint) in (types.UnionType, typing.Union) and len(wanted) == 1:
        hint = wanted[0]
    return hint if hint in (int, str, bool, float) else _NO_TYPE


def from_plain_key(target: Any, key: str) -> Any:
    """Read a JSON object's key, which is always a string, as str, int or id; raise WireError for what is none."""
    try:
        if target is int:
            return int(key)
        return _parse_attempt(key) if target is AttemptId else key
    except ValueError as error:
        raise WireError(str(error)) from error


def _expect(holds: bool, what: str, plain: Any) -> None:
    if not holds:
        raise WireError(f"expected {what}, got {str(plain)[:80]!r}")


@lru_cache(MAX_ATTEMPTS_REMEMBERED)
def _parse_attempt(text: str) -> AttemptId:
    return AttemptId.parse(text)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _is_any(cls: type, name: str) -> bool:
    return _hints(cls)[name] in (Any, object)


@cache
def _defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    """Name and default of each field; MISSING for required ones and for mutable defaults (always written)."""
    return tuple((field.name, field.default) for field in dataclasses.fields(cls))
