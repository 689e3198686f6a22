"""Messages as bytes: one JSON object a line, with version and kind. The only codec in the house.

NaN and infinities travel as the strings "NaN", "Infinity", "-Infinity" (bare NaN is not JSON). An unknown field is ignored;
an unknown kind, or bytes that are no message, raise WireError, which the reader turns into a finding. Kinds and fields are
only ever added: the golden journals of all releases must decode for ever.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from runner.errors import WireError
from runner.facts.ids import AttemptId

VERSION = 1
# Larger things travel by path and hash (decision 6); chosen, not measured
MAX_MESSAGE_BYTES = 64 * 1024

T = TypeVar("T")
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
    return json.dumps(to_message(fact), separators=(",", ":"), allow_nan=False).encode()


def decode(data: bytes | str, *, limit_bytes: int = MAX_MESSAGE_BYTES) -> Any:
    """Decode one line into its dataclass; raise WireError for anything else."""
    if len(data) > limit_bytes:
        raise WireError(f"message of {len(data)} bytes; at most {limit_bytes} are read")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError(
            f"not a JSON message: {bytes(data[:80], 'utf-8') if isinstance(data, str) else data[:80]!r} ({error})"
        ) from error
    return from_message(plain)


def to_message(fact: object) -> dict[str, Any]:
    """Turn a registered message into a JSON-ready dict with `v` and `kind` first."""
    return {"v": VERSION, "kind": _NAMES[type(fact)], **to_plain(fact)}


def from_message(plain: Any) -> Any:
    """Turn a dict made by `to_message` back into its dataclass."""
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise WireError(f"a message is a JSON object with a kind, not {str(plain)[:80]!r}")
    cls = _KINDS.get(plain["kind"])
    if cls is None:
        raise WireError(f"unknown message kind {plain['kind'][:80]!r}")
    return from_plain(cls, plain)


def to_plain(value: Any) -> Any:
    """Turn dataclasses, enums, ids, tuples and floats into what json can print.

    Fields at an empty default (None, 0, "", ...) are left out; others are written even at their default, so that a later
    release may choose another default without rewriting history.
    """
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
        )
    if isinstance(value, AttemptId):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for name, default in _defaults(type(value)):
            item = getattr(value, name)
            if (
                default is dataclasses.MISSING
                or default
                or item != default
                or type(item) is not type(default)
            ):
                plain[name] = (
                    to_message(item)
                    if _is_any(type(value), name) and type(item) in _NAMES
                    else to_plain(item)
                )
        return plain
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_message(item) if type(item) in _NAMES else to_plain(item) for item in value]
    raise WireError(f"cannot put a {type(value).__name__} into a message: {value!r}")


def from_plain(target: Any, plain: Any) -> Any:
    """Build `target` (a dataclass or a type annotation) from plain JSON; raise WireError when it does not fit."""
    origin = get_origin(target)
    if target is Any or target is object:
        return (
            from_message(plain)
            if isinstance(plain, dict) and plain.get("kind") in _KINDS and "v" in plain
            else plain
        )
    if origin in (types.UnionType, typing.Union):
        return _from_union(target, plain)
    if origin is tuple:
        _expect(isinstance(plain, list), "a list", plain)
        return tuple(from_plain(get_args(target)[0], item) for item in plain)
    if origin is list:
        _expect(isinstance(plain, list), "a list", plain)
        return [from_plain(get_args(target)[0], item) for item in plain]
    if origin in (dict, Mapping):
        _expect(isinstance(plain, dict), "an object", plain)
        key_type, item_type = get_args(target)
        return {
            from_plain_key(key_type, key): from_plain(item_type, item)
            for key, item in plain.items()
        }
    if origin is typing.Literal:
        _expect(plain in get_args(target), f"one of {get_args(target)}", plain)
        return plain
    if target is float:
        if isinstance(plain, str) and plain in _FLOATS:
            return _FLOATS[plain]
        _expect(isinstance(plain, int | float) and not isinstance(plain, bool), "a number", plain)
        return float(plain)
    if target in (int, str, bool):
        _expect(type(plain) is target, f"a {target.__name__}", plain)
        return plain
    if target is type(None):
        _expect(plain is None, "null", plain)
        return None
    return _from_class(target, plain)


def from_plain_key(target: Any, key: str) -> Any:
    """Read a JSON object's key, which is always a string, as str, int or id."""
    if target is int:
        return int(key)
    return AttemptId.parse(key) if target is AttemptId else key


def _from_class(target: Any, plain: Any) -> Any:
    if target is AttemptId:
        _expect(isinstance(plain, str), "an attempt id", plain)
        try:
            return AttemptId.parse(plain)
        except ValueError as error:
            raise WireError(str(error)) from error
    if isinstance(target, type) and issubclass(target, enum.Enum):
        try:
            return target(plain)
        except ValueError as error:
            raise WireError(str(error)) from error
    if isinstance(target, type) and dataclasses.is_dataclass(target):
        _expect(isinstance(plain, dict), f"an object for {target.__name__}", plain)
        hints = _hints(target)
        known = {
            name: from_plain(hints[name], plain[name])
            for name, _ in _defaults(target)
            if name in plain
        }
        try:
            return target(**known)
        except TypeError as error:
            raise WireError(f"{target.__name__}: {error}") from error
    raise WireError(f"no way to read {target} from {str(plain)[:80]!r}")


def _from_union(target: Any, plain: Any) -> Any:
    for choice in get_args(target):
        try:
            return from_plain(choice, plain)
        except WireError:
            continue
    raise WireError(f"{str(plain)[:80]!r} fits none of {target}")


def _expect(holds: bool, what: str, plain: Any) -> None:
    if not holds:
        raise WireError(f"expected {what}, got {str(plain)[:80]!r}")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _is_any(cls: type, name: str) -> bool:
    return _hints(cls)[name] in (Any, object)


@cache
def _defaults(cls: type) -> tuple[tuple[str, Any], ...]:
    """Name and default of each field; MISSING for required ones and for mutable defaults (always written)."""
    return tuple((field.name, field.default) for field in dataclasses.fields(cls))
