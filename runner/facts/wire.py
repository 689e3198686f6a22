"""Messages as bytes: one JSON object a line, with version and kind. The only codec of Stoker.

A value that is sent or stored is a `Value`, a `msgspec.Struct`; a message is a value with a `kind`. Rules beyond msgspec's:

- A field at an empty default (None, 0, "", (), ...) is left out. Every other default is written, so that a later release may
  choose another one without rewriting history. A default that a factory makes is always written.
- NaN and infinities travel as the strings "NaN", "Infinity", "-Infinity" (bare NaN is not JSON).
- A field of type `object` holds messages, each with its own version and kind. `Any` is plain JSON.
- A value with a kind writes it also where it is a part, without a version. Earlier releases left it out there: readers do without.
- An unknown field is ignored. An unknown kind, or bytes that are no message, raise WireError.

Kinds and fields are only ever added: the golden journals of all releases must decode for ever.
"""

import json
import math
import typing
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial, reduce
from itertools import repeat
from operator import or_
from types import NoneType
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Raw, StructMeta
from msgspec.structs import asdict, force_setattr, replace

from runner.errors import WireError
from runner.facts.ids import AttemptId

VERSION = 1
# Larger things travel by path and hash (decision 6). Chosen, not measured.
MAX_MESSAGE_BYTES = 64 * 1024
# Parsed ids of attempts that are cached. Chosen, not measured.
MAX_ATTEMPTS_REMEMBERED = 4096

T = TypeVar("T")
_VERSION_FIRST = b'{"v":1,'
_PREFIX = _VERSION_FIRST + b'"kind":"'
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CLASSES: dict[str, type] = {}
_KIND_OF: dict[type, str] = {}
# Kind -> what reads its messages, of kinds that were read since the last class was made.
_READERS: dict[bytes, Callable[[bytes], Any]] = {}


class _ValueType(StructMeta):
    """Makes a class of values, and registers its kind, if any.

    msgspec leaves a field out when it *is* its default, so a default that must be written becomes a factory's.
    """

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        kind: str = "",
        **config: Any,
    ) -> type:
        """Make the class; raise ValueError if another class has the kind."""
        is_frozen = config.get(
            "frozen",
            all(base.__struct_config__.frozen for base in bases if isinstance(base, StructMeta)),
        )
        zeros = []
        for field in namespace.get("__annotations__", ()):
            default = namespace.get(field, NODEFAULT)
            if isinstance(default, type(msgspec.field())):
                if default.default_factory is not NODEFAULT:
                    # msgspec takes `dict` and `list` for empty defaults, a `partial` for neither.
                    factory = partial(default.default_factory)
                    namespace[field] = msgspec.field(default_factory=factory)
            elif isinstance(default, float) and not default and is_frozen:
                zeros.append((field, default))
            elif default is not NODEFAULT and (default or isinstance(default, float)):
                namespace[field] = msgspec.field(default_factory=repeat(default).__next__)
        if zeros:
            assert not any(hasattr(base, "__post_init__") for base in bases), f"{name}: 0.0 twice"
            namespace["__post_init__"] = _normalize(tuple(zeros))
        # msgspec writes a kind first, and finds the class of a message among all others by it.
        config |= {"tag_field": "kind", "tag": kind} if kind else {"tag": False}
        cls = super().__new__(
            mcs, name, bases, namespace, kw_only=True, omit_defaults=True, **config
        )
        if kind:
            if kind in _CLASSES:
                raise ValueError(f"message kind {kind!r} is taken by {_CLASSES[kind].__name__}")
            _CLASSES[kind] = cls
            _KIND_OF[cls] = kind
            _READERS.clear()
        return cls


def _normalize(zeros: tuple[tuple[str, float], ...]) -> Callable[[Any], None]:
    """Return a function that replaces every 0.0 of these fields by the default itself, which msgspec leaves out."""

    def normalize(value: Any) -> None:
        for name, zero in zeros:
            item = getattr(value, name)
            if item is not zero and item == zero and type(item) is float:
                force_setattr(value, name, zero)

    return normalize


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, metaclass=_ValueType, frozen=True):
    """A frozen value, sent or stored alone or in another. `class X(Value, kind="x")` is a message."""


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class MutableValue(msgspec.Struct, metaclass=_ValueType, frozen=False):
    """A value that its one owner changes: state, which snapshots hold."""


def kind_of(fact: object) -> str:
    """Return the registered kind of a message."""
    return _KIND_OF[type(fact)]


# ---- writing --------------------------------------------------------------------------------------------------------


def encode(fact: object) -> bytes:
    """Encode a registered message as one JSON line without the newline."""
    cls: type = type(fact)
    if cls not in _KIND_OF:
        raise WireError(f"a {cls.__name__} has no kind, so it is no message")
    shell: Any = fact
    for name in _message_fields(cls):
        shell = replace(
            shell, **{name: _map_messages(getattr(fact, name), lambda each: Raw(encode(each)))}
        )
    body = _encode_fast(shell)
    return encode_message(to_message(fact)) if body is None else _VERSION_FIRST + body[1:]


def encode_message(plain: Mapping[str, Any]) -> bytes:
    """Encode what `to_message` returned."""
    return _ENCODER.encode(plain)


def to_message(fact: object) -> dict[str, Any]:
    """Turn a registered message into a JSON-ready dict with `v` and `kind` first."""
    cls: type = type(fact)
    plain = {"v": VERSION, **to_plain(fact)}
    for name in _message_fields(cls):
        if name in plain:
            plain[name] = _map_messages(getattr(fact, name), to_message)
    return plain


def encode_value(value: Any) -> bytes:
    """Encode a value that is a part of a message."""
    body = _encode_fast(value)
    return body if body is not None else _ENCODER.encode(to_plain(value))


def to_plain(value: Any) -> Any:
    """Turn a value into plain JSON; raise WireError for a type that has no JSON."""
    body = _encode_fast(value)
    if body is not None:
        return msgspec.json.decode(body)
    return _json_safe(msgspec.to_builtins(value, enc_hook=_encode_id, str_keys=True))


def _encode_fast(value: Any) -> bytes | None:
    """Encode a value; None if it may hold surrogates, or a float that is not finite, which msgspec writes as null."""
    try:
        body = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return None
    return None if b"null" in body else body


def _json_safe(plain: Any) -> Any:
    """Replace by text what JSON cannot hold: NaN, infinities, and the surrogates that a rank may write."""
    if isinstance(plain, float) and not math.isfinite(plain):
        return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
    if isinstance(plain, str):
        return plain.encode(errors="backslashreplace").decode()
    if isinstance(plain, dict):
        return {_json_safe(key): _json_safe(item) for key, item in plain.items()}
    return [_json_safe(item) for item in plain] if isinstance(plain, list | tuple) else plain


def _encode_id(value: Any) -> str:
    if isinstance(value, AttemptId):
        return str(value)
    raise WireError(f"cannot put a {type(value).__name__} into a message: {value!r}")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_id)


# ---- reading --------------------------------------------------------------------------------------------------------


def decode(data: bytes | str, *, limit_bytes: int = MAX_MESSAGE_BYTES) -> Any:
    """Decode one line into its message; raise WireError for anything else."""
    if len(data) > limit_bytes:
        raise WireError(f"message of {len(data)} bytes; at most {limit_bytes} are read")
    if isinstance(data, bytes) and data.startswith(_PREFIX):
        kind = data[len(_PREFIX) : data.find(b'"', len(_PREFIX))]
        read = _READERS.get(kind) or _reader(kind.decode(errors="replace"))
        if read is not None:
            try:
                return read(data)
            except (ValueError, RecursionError):
                # Decoded again below, with floats that are not finite and with a better error.
                pass
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        start = bytes(data[:80], "utf-8") if isinstance(data, str) else data[:80]
        raise WireError(f"not a JSON message: {start!r} ({error})") from error
    return from_message(plain)


def decode_partly(cls: type, kind: str, data: bytes, *, limit_bytes: int) -> Any:
    """Decode a message of a kind as a class that leaves some of its fields as bytes (`Raw`); None where only `decode` can tell."""
    if len(data) > limit_bytes or not data.startswith(_PREFIX + kind.encode() + b'"'):
        return None
    try:
        return _decoder(cls).decode(data)
    except (ValueError, RecursionError):
        return None


def decode_part(target: Any, data: bytes) -> Any:
    """Decode a part of a message that `decode_partly` left as bytes; raise WireError when it does not fit."""
    try:
        return _decoder(target).decode(data)
    except (ValueError, RecursionError):
        return from_plain(target, json.loads(data))


def from_message(plain: Any) -> Any:
    """Turn a dict made by `to_message` back into its message."""
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise WireError(f"a message is a JSON object with a kind, not {str(plain)[:80]!r}")
    cls = _CLASSES.get(plain["kind"])
    if cls is None:
        raise WireError(f"unknown message kind {plain['kind'][:80]!r}")
    return from_plain(cls, plain)


def from_plain(target: Any, plain: Any) -> Any:
    """Build `target` (a value's class or a type annotation) from plain JSON; raise WireError when it does not fit."""
    try:
        return _convert(target, plain)
    except (ValueError, OverflowError, RecursionError):
        pass
    try:
        return _convert(target, _with_floats(target, plain))
    except (ValueError, OverflowError, RecursionError) as error:
        raise WireError(
            f"{str(plain)[:80]!r} is no {getattr(target, '__name__', target)} ({error})"
        ) from error


def _convert(target: Any, plain: Any) -> Any:
    return msgspec.convert(plain, target, dec_hook=_decode_hook, str_keys=True)


@cache
def _decoder(cls: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls, dec_hook=_decode_hook)


def _reader(kind: str) -> Callable[[bytes], Any] | None:
    """Return what reads messages of a kind that has the usual beginning; None for an unknown one."""
    cls = _CLASSES.get(kind)
    if cls is None:
        return None
    if _message_fields(cls):
        reader = _shell_reader(cls)
    else:
        reader = msgspec.json.Decoder(cls, dec_hook=_id_hook).decode
    _READERS[kind.encode()] = reader
    return reader


def _shell_reader(cls: type) -> Callable[[bytes], Any]:
    """Return what reads a message of messages, each of them at once into its own class.

    `cls` may hold any object, which msgspec decodes to a dict. So it decodes to a shell, with the same fields, that may hold
    a message of any kind; what fits no kind of this release is read the slow way.
    """
    message: Any = reduce(or_, _CLASSES.values())
    types = {object: message, tuple[object, ...]: tuple[message, ...]}
    fields: list[tuple[str, Any, Any]] = []
    for each in msgspec.structs.fields(cls):
        default = each.default
        if default is NODEFAULT and not each.required:
            default = msgspec.field(default_factory=each.default_factory)
        hint = _hints(cls)[each.name]
        fields.append((each.name, types.get(hint, hint), default))
    shell = msgspec.defstruct(f"{cls.__name__}Shell", fields, kw_only=True)
    decode_shell = msgspec.json.Decoder(shell, dec_hook=_id_hook).decode

    def read(data: bytes) -> Any:
        try:
            return cls(**asdict(decode_shell(data)))
        except ValueError:
            return _decoder(cls).decode(data)

    return read


def _decode_hook(target: type, plain: Any) -> Any:
    """Decode what msgspec does not know by itself: ids, and messages in messages."""
    if target is AttemptId:
        return _id_hook(target, plain)
    kind = plain.get("kind") if isinstance(plain, dict) and "v" in plain else None
    return from_message(plain) if isinstance(kind, str) and kind in _CLASSES else plain


@lru_cache(MAX_ATTEMPTS_REMEMBERED)
def _id_hook(target: type, plain: Any) -> Any:
    """Decode an id, nearly always one that was met before; all else that needs a hook is decoded the slow way."""
    if target is not AttemptId:
        raise ValueError(f"a {target.__name__} needs the slow way")
    if not isinstance(plain, str):
        raise ValueError(f"expected an attempt id, got {str(plain)[:80]!r}")
    return AttemptId.parse(plain)


def _with_floats(target: Any, plain: Any) -> Any:
    """Replace "NaN" and infinities by floats wherever `target` wants a float."""
    choices = get_args(target)
    if NoneType in choices:
        (target,) = (choice for choice in choices if choice is not NoneType)
        choices = get_args(target)
    if isinstance(plain, str):
        return _FLOATS.get(plain, plain) if target is float else plain
    if isinstance(plain, list):
        item = choices[0] if get_origin(target) in (tuple, list) else Any
        return [_with_floats(item, each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    if isinstance(target, StructMeta):
        hints = _hints(target)
        return {key: _with_floats(hints.get(key, Any), item) for key, item in plain.items()}
    item = choices[1] if len(choices) == 2 else Any
    return {key: _with_floats(item, each) for key, each in plain.items()}


# ---- fields of a class, for both ------------------------------------------------------------------------------------


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@cache
def _message_fields(cls: type) -> tuple[str, ...]:
    """Return the names of the fields that hold messages, or tuples of messages."""
    return tuple(name for name, hint in _hints(cls).items() if hint in (object, tuple[object, ...]))


def _map_messages(value: Any, write: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple([_map_messages(each, write) for each in value])
    return write(value) if type(value) in _KIND_OF else value
