"""Fields: a document's plain values -> a value of facts. Knows values and their limits, no particular file."""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from msgspec import NODEFAULT, StructMeta, structs

from runner.facts.specs.setting import Default, Limits
from runner.facts.wire import from_plain
from runner.facts.wording import known_words
from runner.load.documents import Where
from runner.load.problems import Problems, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a spec as the loader and the documentation see it."""

    name: str
    value_type: Any
    meaning: str
    limits: Limits
    default: Any
    # What the page gives as the default, where it is no constant.
    default_words: str

    @property
    def required(self) -> bool:
        """Whether a file must give it."""
        return self.default is NODEFAULT

    @property
    def nested(self) -> type | None:
        """The value's class whose fields this field holds, or None."""
        return self.value_type if isinstance(self.value_type, StructMeta) else None


@cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """List the fields of a value in order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_field(each, hints[each.name]) for each in structs.fields(cls))


def _field(each: structs.FieldInfo, hint: Any) -> Field:
    extras: dict[type, Any] = {}
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        extras = {type(extra): extra for extra in metadata}
    has_factory = each.default_factory is not NODEFAULT
    return Field(
        name=each.name,
        value_type=hint,
        meaning=extras.get(str, ""),
        limits=extras.get(Limits, Limits()),
        default=each.default_factory() if has_factory else each.default,
        default_words=extras.get(Default, ""),
    )


def check_fields(cls: type, plain: Any, problems: Problems, where: Where = ()) -> dict[str, Any]:
    """Note unknown keys and numbers out of limits, here and in nested values; return `plain`, {} for a non-mapping."""
    if not isinstance(plain, dict):
        needed = [field.name for field in fields_of(cls) if field.required]
        what = "empty" if plain is None else f"expected fields and their values, got {shown(plain)}"
        problems.add(
            where, f"{what}; give {' and '.join(needed) if needed else 'at least one field'}"
        )
        if not where:
            # Such a file has no other problem to report.
            problems.raise_if_any()
        return {}
    known = {field.name: field for field in fields_of(cls)}
    for key, value in plain.items():
        if key not in known:
            way_out = known_words(key, known, most=len(known))
            problems.add((*where, key), f"unknown field {shown(key)}; {way_out}")
        elif nested := known[key].nested:
            plain[key] = check_fields(nested, value, problems, (*where, key))
    for name, field in known.items():
        limit = _broken_limit(plain.get(name), field.limits)
        if limit:
            unit = f" {field.limits.unit}" if field.limits.unit else ""
            problem = f"{shown(plain[name])}{unit} is not valid; give {limit}"
            problems.add((*where, name), problem)
    return plain


def _broken_limit(value: Any, limits: Limits) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if limits.least is not None and value < limits.least:
        return f"{_number(limits.least)} or more"
    if limits.above is not None and value <= limits.above:
        return f"more than {_number(limits.above)}"
    if limits.most is not None and value > limits.most:
        return f"{_number(limits.most)} or less"
    return ""


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def build(cls: type[T], plain: dict[str, Any], problems: Problems) -> T:
    """Build the value; raise SpecError with everything noted so far and every value of a wrong type."""
    for where, problem in _type_problems(cls, plain, ()):
        if not problems.has(where):
            problems.add(where, problem)
    problems.raise_if_any()
    built: T = from_plain(cls, plain)
    return built


def _type_problems(hint: Any, plain: Any, where: Where) -> Iterator[tuple[Where, str]]:
    """Yield each place inside `plain` that `hint` does not allow, and what was expected there."""
    kind = get_origin(hint) or hint
    if isinstance(hint, StructMeta) and isinstance(plain, dict):
        for field in fields_of(hint):
            inside = (*where, field.name)
            if field.name in plain:
                yield from _type_problems(field.value_type, plain[field.name], inside)
            elif field.required:
                yield inside, "must be given"
    elif kind is tuple and isinstance(plain, list):
        for index, item in enumerate(plain):
            yield from _type_problems(get_args(hint)[0], item, (*where, index))
    elif kind is Mapping and isinstance(plain, dict):
        for key, item in plain.items():
            yield from _type_problems(get_args(hint)[1], item, (*where, key))
    elif not _fits(hint, plain):
        expected = _expected(hint)
        empty = "; the value is empty: fill it in or leave the field out"
        yield where, f"{expected}{empty}" if plain is None else f"{shown(plain)}: {expected}"


def _fits(hint: Any, plain: Any) -> bool:
    """Whether a value without parts is of a type: a whole number is a number, too; true and false are none."""
    if get_origin(hint) is Literal:
        return plain in get_args(hint)
    if hint is float:
        return isinstance(plain, int | float) and not isinstance(plain, bool)
    return hint is Any or type(plain) is hint


def _expected(hint: Any) -> str:
    if get_origin(hint) is Literal:
        *others, last = map(repr, get_args(hint))
        return f"expected one of {', '.join(others)} or {last}"
    return _EXPECTED.get(get_origin(hint) or hint, "expected fields and their values")


_EXPECTED = {
    int: "expected a whole number, such as 2",
    float: "expected a number, such as 1.5",
    bool: "expected true or false",
    str: "expected text; put it in quotes",
    tuple: "expected a list, such as [a, b]",
}
