"""The outline of a pickle: which tensors it refers to, under which names. Its opcodes are read, nothing is ever called or imported.

A small machine follows the stack as unpickling would, with inert nodes where objects would be built.
"""

import pickletools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

# One outline takes about a second a megabyte. Chosen: a hundred times what a state of a thousand tensors needs.
MAX_PICKLE_BYTES = 32 * 1024 * 1024
# Of a tensor, in messages.
MAX_NAME = 200


class NoOutline(ValueError):
    """The bytes are no pickle, or one that does what no state of tensors needs."""


@dataclass(frozen=True, slots=True)
class GlobalName:
    """A class or function that the pickle names."""

    name: str


@dataclass(slots=True, eq=False)
class Storage:
    """Data outside the pickle: `kind` as in "FloatStorage", `key` its record, `count` of its elements."""

    kind: str
    key: str
    count: int


@dataclass(slots=True, eq=False)
class TensorOutline:
    """A view of a storage; `offset` and `stride` in elements. `dtype` is "" where the storage says it. `name`: "": not known."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str = ""
    name: str = ""


@dataclass(slots=True, eq=False)
class OutlineNode:
    """Anything else that holds things: pairs of a key (or None) and a value; `made_by`: what it would have been built by."""

    made_by: str = ""
    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Outline:
    """What a pickle refers to."""

    root: Any
    tensors: list[TensorOutline]
    storages: list[Storage]
    globals: list[str]


_MARK = object()


def outline(data: bytes) -> Outline:
    """Follow a pickle. Raises NoOutline."""
    if len(data) > MAX_PICKLE_BYTES:
        raise NoOutline(f"a pickle of {len(data)} bytes; {MAX_PICKLE_BYTES} are read at most")
    machine = _Machine()
    try:
        for opcode, arg, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                found = machine.finish()
                name_tensors(found.root)
                return found
            machine.step(opcode.name, arg)
    except NoOutline:
        raise
    except Exception as error:
        raise NoOutline(
            f"no pickle that can be followed: {type(error).__name__}: {error}"
        ) from error
    raise NoOutline("a pickle without an end")


def name_tensors(root: Any) -> None:
    """Give each tensor the path by which it is first found, such as `model.layers.0.weight`."""
    pending: list[tuple[str, Any]] = [("", root)]
    seen: set[int] = set()
    while pending:
        path, value = pending.pop()
        if id(value) in seen:
            continue
        if isinstance(value, TensorOutline):
            value.name = value.name or path
        elif isinstance(value, OutlineNode | tuple):
            seen.add(id(value))
            pairs = (
                value.items if isinstance(value, OutlineNode) else [(None, one) for one in value]
            )
            for key, one in reversed(pairs):
                part = str(key) if isinstance(key, str | int) else ""
                pending.append((f"{path}.{part}".strip(".")[:MAX_NAME] if part else path, one))


def nodes(root: Any) -> Iterator[OutlineNode]:
    """Yield every node below a root, each once."""
    pending, seen = [root], set[int]()
    while pending:
        value = pending.pop()
        if not isinstance(value, OutlineNode | tuple) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, OutlineNode):
            yield value
            pending.extend(part for pair in value.items for part in pair)
        else:
            pending.extend(value)


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._tensors: list[TensorOutline] = []
        self._storages: dict[str, Storage] = {}
        self._globals: dict[str, None] = {}

    def finish(self) -> Outline:
        """Return what there is at the end."""
        storages = list(self._storages.values())
        return Outline(self._stack.pop(), self._tensors, storages, list(self._globals))

    def step(self, name: str, arg: Any) -> None:
        """Carry out one opcode."""
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name](arg))
        elif name in _STEPS:
            _STEPS[name](self, arg)
        elif name not in ("PROTO", "FRAME"):
            raise NoOutline(f"opcode {name} has no place in a state of tensors")

    def _pop_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise NoOutline("a mark is missing")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _tuple(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(items)

    def _node(self, items: Sequence[Any]) -> None:
        self._stack.append(OutlineNode(items=list(enumerate(items))))

    def _dict(self, _arg: Any) -> None:
        pairs = self._pop_mark()
        self._stack.append(OutlineNode())
        self._set_items(pairs)

    def _set_items(self, pairs: Sequence[Any]) -> None:
        node = self._stack[-1]
        if isinstance(node, OutlineNode):
            node.items += zip(pairs[::2], pairs[1::2], strict=True)

    def _append(self, items: Sequence[Any]) -> None:
        node = self._stack[-1]
        if isinstance(node, OutlineNode):
            node.items += enumerate(items, len(node.items))

    def _name(self, name: str) -> None:
        self._globals[name] = None
        self._stack.append(GlobalName(name))

    def _stack_global(self, _arg: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._name(f"{module} {name}")

    def _reduce(self, _arg: Any) -> None:
        args, made_by = self._stack.pop(), self._stack.pop()
        name = made_by.name if isinstance(made_by, GlobalName) else ""
        self._stack.append(self._call(name, args))

    def _call(self, name: str, args: Any) -> Any:
        """Return what a call would: a tensor where that is known, else a node with the arguments."""
        if not isinstance(args, tuple):
            return OutlineNode(name, [(None, args)])
        if name in _TENSORS and len(args) >= _NUM_OF_VIEW and isinstance(args[0], Storage):
            dtype = args[6] if name == _TENSOR_V3 and len(args) > _AT_DTYPE else None
            kind = dtype.name.rpartition(" ")[2] if isinstance(dtype, GlobalName) else ""
            view = TensorOutline(args[0], _int(args[1]), _ints(args[2]), _ints(args[3]), kind)
            self._tensors.append(view)
            return view
        if name in _PARAMETERS and args and isinstance(args[0], TensorOutline):
            return args[0]
        return OutlineNode(name, [(None, arg) for arg in args])

    def _object(self, _arg: Any) -> None:
        args, made_by = self._stack.pop(), self._stack.pop()
        name = made_by.name if isinstance(made_by, GlobalName) else ""
        self._stack.append(OutlineNode(name, [(None, args)]))

    def _object_with_names(self, _arg: Any) -> None:
        names, args, made_by = self._stack.pop(), self._stack.pop(), self._stack.pop()
        name = made_by.name if isinstance(made_by, GlobalName) else ""
        self._stack.append(OutlineNode(name, [(None, args), (None, names)]))

    def _build(self, _arg: Any) -> None:
        state, built = self._stack.pop(), self._stack[-1]
        if isinstance(built, OutlineNode):
            built.items.append((None, state))

    def _persistent(self, _arg: Any) -> None:
        name = self._stack.pop()
        if not (isinstance(name, tuple) and len(name) >= _NUM_OF_STORAGE and name[0] == "storage"):
            raise NoOutline("a persistent id that names no storage")
        kind = name[1].name.rpartition(" ")[2] if isinstance(name[1], GlobalName) else ""
        key = str(name[2])
        known = self._storages.setdefault(key, Storage(kind, key, _int(name[4])))
        self._stack.append(known)

    def _put(self, at: Any) -> None:
        self._memo[len(self._memo) if at is None else int(at)] = self._stack[-1]


def _int(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise NoOutline(f"{value!r:.40} is no count")
    return value


def _ints(value: Any) -> tuple[int, ...]:
    if isinstance(value, OutlineNode):
        # `torch.Size`, as some releases write it.
        value = value.items[0][1] if value.items else ()
    if not isinstance(value, tuple):
        raise NoOutline(f"{value!r:.40} is no size")
    return tuple(map(_int, value))


_NUM_OF_VIEW, _AT_DTYPE, _NUM_OF_STORAGE = 4, 6, 5
_TENSOR_V3 = "torch._utils _rebuild_tensor_v3"
_TENSORS = ("torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2", _TENSOR_V3)
_PARAMETERS = (
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
)
_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("NONE",), lambda _: None),
    **dict.fromkeys(("NEWTRUE",), lambda _: True),
    **dict.fromkeys(("NEWFALSE",), lambda _: False),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), lambda a: a),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), lambda a: a),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), lambda a: a),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), lambda a: a),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), lambda a: a),
    "MARK": lambda _: _MARK,
    "EMPTY_TUPLE": lambda _: (),
    **dict.fromkeys(("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET"), lambda _: OutlineNode()),
}
_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    "POP": lambda m, _: m._stack.pop(),
    "POP_MARK": lambda m, _: m._pop_mark(),
    "DUP": lambda m, _: m._stack.append(m._stack[-1]),
    "TUPLE": lambda m, _: m._stack.append(tuple(m._pop_mark())),
    "TUPLE1": lambda m, _: m._tuple(1),
    "TUPLE2": lambda m, _: m._tuple(2),
    "TUPLE3": lambda m, _: m._tuple(3),
    "LIST": lambda m, _: m._node(m._pop_mark()),
    "FROZENSET": lambda m, _: m._node(m._pop_mark()),
    "DICT": _Machine._dict,
    "APPEND": lambda m, _: m._append([m._stack.pop()]),
    "APPENDS": lambda m, _: m._append(m._pop_mark()),
    "ADDITEMS": lambda m, _: m._append(m._pop_mark()),
    "SETITEM": lambda m, _: m._set_items([m._stack.pop(), m._stack.pop()][::-1]),
    "SETITEMS": lambda m, _: m._set_items(m._pop_mark()),
    "GLOBAL": lambda m, arg: m._name(str(arg)),
    "STACK_GLOBAL": _Machine._stack_global,
    "REDUCE": _Machine._reduce,
    "NEWOBJ": _Machine._object,
    "NEWOBJ_EX": _Machine._object_with_names,
    "BUILD": _Machine._build,
    "BINPERSID": _Machine._persistent,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine._put),
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"), lambda m, arg: m._stack.append(m._memo[int(arg)])
    ),
}
