"""The codec of `runner.facts.wire` written the plain way, field by field with no function kept: what it must agree with.

Slow and short. It raises whatever it comes to when bytes are no message; the real one raises WireError.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from runner.errors import WireError
from runner.facts.ids import AttemptId
from runner.facts.wire import VERSION, kind_of

FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(fact: object) -> bytes:
    """Encode a registered message."""
    return json.dumps(to_message(fact), separators=(",", ":"), allow_nan=False).encode()


def to_message(fact: object) -> dict[str, Any]:
    """Turn a registered message into plain JSON."""
    return {"v": VERSION, "kind": kind_of(fact), **to_plain(fact)}


def is_message(value: object) -> bool:
    """Whether a value's class is registered."""
    try:
        return bool(kind_of(value))
    except KeyError:
        return False


def to_plain(value: Any) -> Any:
    """Turn a value into plain JSON."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, AttemptId):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_message(item) if is_message(item) else to_plain(item) for item in value]
    raise WireError(f"cannot put a {type(value).__name__} into a message: {value!r}")


def _plain_fields(value: Any) -> dict[str, Any]:
    plain = {}
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        item, default = getattr(value, field.name), field.default
        is_empty = (
            default is not dataclasses.MISSING
            and not default
            and item == default
            and type(item) is type(default)
        )
        if not is_empty:
            named = hints[field.name] in (Any, object) and is_message(item)
            plain[field.name] = to_message(item) if named else to_plain(item)
    return plain


def from_message(plain: Any, kinds: Mapping[str, type]) -> Any:
    """Read a message, of one of `kinds`, out of plain JSON."""
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise WireError("no message")
    if plain["kind"] not in kinds:
        raise WireError("unknown kind")
    return _Reader(kinds).read(kinds[plain["kind"]], plain)


class _Reader:
    def __init__(self, kinds: Mapping[str, type]) -> None:
        self._kinds = kinds

    def read(self, target: Any, plain: Any) -> Any:
        origin = get_origin(target)
        if target is Any or target is object:
            is_named = (
                isinstance(plain, dict) and "v" in plain and isinstance(plain.get("kind"), str)
            )
            return (
                from_message(plain, self._kinds)
                if is_named and plain["kind"] in self._kinds
                else plain
            )
        if origin in (types.UnionType, typing.Union):
            return self._union(get_args(target), plain)
        if origin in (tuple, list):
            _expect(isinstance(plain, list))
            return origin(self.read(get_args(target)[0], item) for item in plain)
        if origin in (dict, Mapping):
            _expect(isinstance(plain, dict))
            key_type, item_type = get_args(target)
            return {_key(key_type, key): self.read(item_type, item) for key, item in plain.items()}
        if origin is typing.Literal:
            _expect(plain in get_args(target))
            return plain
        return self._single(target, plain)

    def _union(self, choices: tuple[Any, ...], plain: Any) -> Any:
        for choice in choices:
            try:
                return self.read(choice, plain)
            except WireError:
                continue
        raise WireError("fits none")

    def _single(self, target: Any, plain: Any) -> Any:
        if target is float:
            if isinstance(plain, str) and plain in FLOATS:
                return FLOATS[plain]
            _expect(isinstance(plain, int | float) and not isinstance(plain, bool))
            return float(plain)
        if target in (int, str, bool, type(None)):
            _expect(type(plain) is target)
            return plain
        if target is AttemptId:
            _expect(isinstance(plain, str))
            return _key(AttemptId, plain)
        if issubclass(target, enum.Enum):
            return target(plain)
        _expect(isinstance(plain, dict))
        hints = typing.get_type_hints(target)
        names = [field.name for field in dataclasses.fields(target) if field.name in plain]
        try:
            return target(**{name: self.read(hints[name], plain[name]) for name in names})
        except TypeError as error:
            raise WireError(str(error)) from error


def _key(target: Any, key: str) -> Any:
    try:
        if target is int:
            return int(key)
        return AttemptId.parse(key) if target is AttemptId else key
    except ValueError as error:
        raise WireError(str(error)) from error


def _expect(holds: bool) -> None:
    if not holds:
        raise WireError("does not fit")
