"""Fields: a document's plain values -> a value of facts. Knows values and their Settings, no particular file."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from msgspec import NODEFAULT, StructMeta, structs

from runner.facts.specs.setting import Setting
from runner.facts.wire import from_plain
from runner.facts.wording import known_words
from runner.load.documents import Where
from runner.load.problems import Problems, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a spec as the loader and the documentation see it."""

    name: str
    type: Any
    setting: Setting
    # msgspec.NODEFAULT when the field must be given
    default: Any

    @property
    def required(self) -> bool:
        """Whether a file must give it."""
        return self.default is NODEFAULT

    @property
    def nested(self) -> type | None:
        """The value's class whose fields this field holds, or None."""
        return self.type if isinstance(self.type, StructMeta) else None


@cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """List the fields of a value in order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_field(each, hints[each.name]) for each in structs.fields(cls))


def _field(each: structs.FieldInfo, hint: Any) -> Field:
    setting = Setting("")
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        setting = next((extra for extra in extras if isinstance(extra, Setting)), setting)
    default = each.default
    if each.default_factory is not NODEFAULT:
        default = each.default_factory()
    return Field(name=each.name, type=hint, setting=setting, default=default)


def check_fields(cls: type, plain: Any, problems: Problems, where: Where = ()) -> dict[str, Any]:
    """Note keys that `cls` does not know, here and in nested values; return `plain`, or {} for a non-mapping, which is noted."""
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
    return plain


def check_limits(cls: type, plain: dict[str, Any], problems: Problems, where: Where = ()) -> None:
    """Note every number outside the limits of its Setting."""
    for field in fields_of(cls):
        value = plain.get(field.name)
        if field.nested and isinstance(value, dict):
            check_limits(field.nested, value, problems, (*where, field.name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            limit = _broken_limit(value, field.setting)
            if limit:
                unit = f" {field.setting.unit}" if field.setting.unit else ""
                problems.add(
                    (*where, field.name), f"{shown(value)}{unit} is not valid; give {limit}"
                )


def _broken_limit(value: float, setting: Setting) -> str:
    if setting.least is not None and value < setting.least:
        return f"{_number(setting.least)} or more"
    if setting.above is not None and value <= setting.above:
        return f"more than {_number(setting.above)}"
    if setting.most is not None and value > setting.most:
        return f"{_number(setting.most)} or less"
    return ""


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def build(cls: type[T], plain: dict[str, Any], problems: Problems) -> T:
    """Build the value; raise SpecError with everything noted so far and every value of a wrong type."""
    # Importing it takes 30 ms, which commands that load nothing should not pay.
    from pydantic import TypeAdapter, ValidationError

    try:
        # JSON in strict mode takes a list for a tuple and an integer for a float, and nothing else for anything else.
        TypeAdapter(_mirror(cls)).validate_json(json.dumps(plain), strict=True)
    except ValidationError as error:
        for place, value, expected in _type_problems(error):
            if not problems.has(place):
                problems.add(place, expected if value is None else f"{shown(value)}: {expected}")
        problems.raise_if_any()
        raise
    problems.raise_if_any()
    built: T = from_plain(cls, plain)
    return built


def _mirror(hint: Any) -> Any:
    """Return a type with dataclasses in place of values, for pydantic, which says all that is wrong at once."""
    if isinstance(hint, StructMeta):
        fields = [
            (each.name, _mirror(each.type), dataclasses.MISSING if each.required else None)
            for each in fields_of(hint)
        ]
        return dataclasses.make_dataclass(hint.__name__, fields, kw_only=True)
    inner = get_args(hint)
    if get_origin(hint) in (None, Literal) or not inner:
        return hint
    return get_origin(hint)[tuple(map(_mirror, inner))]


_EXPECTED = {
    "missing": "must be given",
    "missing_argument": "must be given",
    "missing_keyword_only_argument": "must be given",
    "int_type": "expected a whole number, such as 2",
    "int_from_float": "expected a whole number, such as 2",
    "float_type": "expected a number, such as 1.5",
    "bool_type": "expected true or false",
    "string_type": "expected text; put it in quotes",
    "tuple_type": "expected a list, such as [a, b]",
    "dict_type": "expected fields and their values",
    "mapping_type": "expected fields and their values",
    "dataclass_type": "expected fields and their values",
}


def _type_problems(error: Any) -> Iterator[tuple[Where, Any, str]]:
    """Yield place, value (None for a field that is missing) and what was expected."""
    for each in error.errors(include_url=False):
        kind, value = each["type"], each["input"]
        if kind == "literal_error":
            expected = f"expected one of {each['ctx']['expected']}"
        else:
            expected = _EXPECTED.get(kind, each["msg"])
        if value is None:
            expected += "; the value is empty: fill it in or leave the field out"
        yield each["loc"], None if kind.startswith("missing") else value, expected
