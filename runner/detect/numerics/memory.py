"""The memory of numeric detectors as plain JSON, for the next supervisor: the attributes that a class annotates.

Attributes that are as in a new detector (None, empty, an infinite level) are left out. What does not fit is refused: another
version wrote it, or it was damaged.
"""

import math
from collections import deque
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import msgspec

from runner.detect.numerics.rolling_quantiles import RollingQuantiles
from runner.errors import WireError
from runner.facts import wire


class Remembered:
    """A part of a detector that is kept as the detector is. It can be made without arguments."""


def dump(owner: object) -> msgspec.Struct:
    """Return the annotated attributes of a detector; it shares lists with the detector, so it is encoded at once."""
    plain = {name: _plain(getattr(owner, attribute)) for name, attribute in _names(_kind(owner))}
    return _shape(_kind(owner))(
        **{name: value for name, value in plain.items() if not _is_new(value)}
    )


def load(owner: object, memory: object) -> None:
    """Set the annotated attributes of a new detector from plain JSON; raise WireError if it does not fit."""
    _restore(owner, wire.from_plain(_shape(_kind(owner)), memory))


def _restore(owner: object, memory: object) -> None:
    for name, attribute in _names(_kind(owner)):
        value = getattr(memory, name)
        if value is not None:
            setattr(owner, attribute, _restored(getattr(owner, attribute), value, attribute))


def _restored(fresh: object, value: Any, attribute: str) -> object:
    if isinstance(fresh, RollingQuantiles):
        if len(value) > fresh.size or not all(map(math.isfinite, value)):
            raise WireError(
                f"{attribute} holds {len(value)} samples; at most {fresh.size} finite ones fit"
            )
        for one in value:
            fresh.add(one)
        return fresh
    if isinstance(fresh, deque):
        return deque(value, maxlen=fresh.maxlen)
    if isinstance(fresh, Remembered):
        _restore(fresh, value)
        return fresh
    return value


def _plain(value: object) -> object:
    if isinstance(value, RollingQuantiles):
        return value.values()
    if isinstance(value, deque):
        return list(value)
    if isinstance(value, Remembered):
        return dump(value)
    if is_dataclass(value):
        # Without its empty fields: null stands for a number that JSON cannot hold.
        names = (each.name for each in fields(value))
        return {name: each for name in names if (each := getattr(value, name)) is not None}
    return value


def _is_new(value: object) -> bool:
    is_infinite = isinstance(value, float) and math.isinf(value)
    return value is None or is_infinite or value in ([], {})


def _kind(owner: object) -> Any:
    return type(owner)


@cache
def _names(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return the names in JSON and of the attributes, those of a class that several detectors share included."""
    annotations = [vars(cls).get("__annotations__", {}) for cls in reversed(kind.__mro__)]
    hints = {name: hint for own in annotations for name, hint in own.items()}
    kept = [name for name, hint in hints.items() if get_origin(hint) is not ClassVar]
    return tuple((attribute.removeprefix("_"), attribute) for attribute in kept)


@cache
def _shape(kind: Any) -> type[msgspec.Struct]:
    hints = get_type_hints(kind)
    named = [(name, _as_plain(hints[attribute]) | None, None) for name, attribute in _names(kind)]
    return msgspec.defstruct(
        f"{kind.__name__}Memory",
        named,
        omit_defaults=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _as_plain(hint: Any) -> Any:
    if hint is RollingQuantiles:
        return list[float]
    if get_origin(hint) is deque:
        return list[get_args(hint)[0]]  # type: ignore[misc]
    is_remembered = isinstance(hint, type) and issubclass(hint, Remembered)
    plain: Any = hint
    return _shape(plain) if is_remembered else plain
