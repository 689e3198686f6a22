"""Dataclasses from plain values: every wrong value is reported, with the way out.

A field with `metadata=about(...)` carries its meaning, unit and limits. This module knows no particular setting.
"""

import dataclasses
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from runner.facts.wording import closest

T = TypeVar("T")

_LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "at_least": (operator.ge, "at least"),
    "at_most": (operator.le, "at most"),
    "more_than": (operator.gt, "more than"),
    "less_than": (operator.lt, "less than"),
}


def about(meaning: str, unit: str = "", **limits: float) -> dict[str, Any]:
    """Describe a field; `limits` are any of at_least, at_most, more_than, less_than."""
    return {"meaning": meaning, "unit": unit, "limits": limits}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes`, group by group; neither is modified."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both and old is not None else value
    return result


def read_override(override: str, problems: dict[str, str]) -> dict[str, Any]:
    """Turn `optimizer.lr=1e-4` into {"optimizer": {"lr": 1e-4}}. The value is JSON, or else plain text."""
    key, equals, text = override.partition("=")
    if not key.strip() or not equals:
        problems[override] = (
            f"override {override!r} is not of the form key=value, for example optimizer.lr=1e-4"
        )
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text.strip()
    for name in reversed(key.strip().split(".")):
        value = {name: value}
    return dict(value)


def build(
    cls: type[T], values: Mapping[str, Any], problems: dict[str, str], *, prefix: str = ""
) -> T:
    """Make `cls` from plain values. A wrong one is put into `problems` (path -> message) and stays at its default."""
    hints = get_type_hints(cls)
    fields = {item.name: item for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
    good: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if key not in fields:
            problems[path] = f"{path} is unknown{nearest(str(key), list(fields), prefix=prefix)}"
        elif dataclasses.is_dataclass(hints[key]):
            if isinstance(value, Mapping):
                good[key] = build(hints[key], value, problems, prefix=f"{path}.")
            else:
                first = dataclasses.fields(hints[key])[0].name
                problems[f"{path}.{first}"] = (
                    f"{path} = {_quoted(value)}: expected a group, for example {path}.{first}"
                )
        elif expected := _expected(hints[key], value, fields[key].metadata["limits"]):
            problems[path] = f"{path} = {_quoted(value)}: expected {expected}"
        else:
            good[key] = _converted(hints[key], value)
    return cls(**good)


def nearest(name: str, known: Sequence[str], *, prefix: str = "") -> str:
    """Suggest the name that was probably meant, or list all; starts with punctuation."""
    near = closest(name, known)
    return f": did you mean {prefix}{near}?" if near else f"; known: {', '.join(known)}"


def _expected(hint: Any, value: Any, limits: Mapping[str, float]) -> str:
    """Return what was expected of a value; empty when it fits."""
    if get_origin(hint) is Literal:
        names = get_args(hint)
        fits = isinstance(value, str) and value in names
        return "" if fits else f"one of {', '.join(names)}{nearest(str(value), names)}"
    if get_origin(hint) is tuple:
        return _expected_list(get_args(hint), value, limits)
    if hint in (bool, str):
        words = "true or false" if hint is bool else "text"
        return "" if type(value) is hint else words
    words = "a whole number" if hint is int else "a number"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Nor is an integer too large for a float a valid setting; math.isfinite would raise on it.
    if not is_number or abs(value) > 1e300 or not math.isfinite(value):
        return words
    if hint is int and value != int(value):
        return words
    beyond = (f"{_LIMITS[name][1]} {limit:g}" for name, limit in limits.items())
    holds = (_LIMITS[name][0](value, limit) for name, limit in limits.items())
    return next((text for text, held in zip(beyond, holds, strict=True) if not held), "")


def _expected_list(parts: Sequence[Any], value: Any, limits: Mapping[str, float]) -> str:
    expected = f"a list of {len(parts)} numbers"
    if not isinstance(value, list | tuple) or len(value) != len(parts):
        return expected
    for part, item in zip(parts, value, strict=True):
        if wrong := _expected(part, item, limits):
            return f"{expected}, each {wrong}"
    return ""


def _converted(hint: Any, value: Any) -> Any:
    if get_origin(hint) is tuple:
        parts = zip(get_args(hint), value, strict=True)
        return tuple(_converted(part, item) for part, item in parts)
    return hint(value) if hint in (int, float) else value


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
