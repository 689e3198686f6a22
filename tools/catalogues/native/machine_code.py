"""What a library of x86-64 logs, read from its machine code: the constants and strings that its calls of a log function pass."""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Bytes before a call in which its arguments are loaded; chosen.
_BEFORE = 200
_CALL = re.compile(rb"\xe8(....)", re.DOTALL)
# `lea REGISTER, [rip + OFFSET]`, and `mov edi, CONSTANT`.
_LEA = {"rdx": b"\x48\x8d\x15", "r8": b"\x4c\x8d\x05", "r9": b"\x4c\x8d\x0d"}
_EDI = re.compile(rb"\xbf(....)", re.DOTALL)
_ELF = b"\x7fELF\x02\x01"
_SECTIONS_AT, _SECTION_COUNTS_AT = 0x28, 0x3A
_SYMBOL = struct.Struct("<IBBHQQ")
# A function's name in C++ is followed by its arguments, the first of which is a type with a length before its name.
_MANGLED = r"_Z\d+{name}(?=\d)"


class Call(NamedTuple):
    """A call: the constant that it passes first, and the strings that are loaded before it, by register."""

    constant: int
    strings: dict[str, str]


class _Section(NamedTuple):
    address: int
    offset: int
    size: int


class Library:
    """A shared library with its symbols."""

    def __init__(self, content: bytes) -> None:
        if not content.startswith(_ELF):
            raise ValueError("no library of 64 bits, little endian")
        self._content = content
        self._sections = _sections(content)
        self._strings = self._section(".rodata")

    def calls(self, function: str, most: int) -> Iterator[Call]:
        """Yield the calls of a C++ function by name whose first argument is a constant from 1 to `most`."""
        targets = set(self._addresses(function))
        text, start = self._section(".text"), self._sections[".text"].address
        last = 0
        for one in _CALL.finditer(text):
            to = start + one.end() + _signed(one[1])
            # A call leaves none of these registers as they were.
            begin = max(last, one.start() - _BEFORE)
            if start <= to < start + len(text):
                last = one.end()
            if to not in targets:
                continue
            before = text[begin : one.start()]
            constants = [_unsigned(found[1]) for found in _EDI.finditer(before)]
            if constants := [number for number in constants if 0 < number <= most]:
                yield Call(constants[-1], self._loaded(before, start + begin))

    def _loaded(self, code: bytes, address: int) -> dict[str, str]:
        found = {}
        for register, prefix in _LEA.items():
            for one in re.finditer(re.escape(prefix) + rb"(....)", code, re.DOTALL):
                text = self._string(address + one.end() + _signed(one[1]))
                if text is not None:
                    found[register] = text
        return found

    def _string(self, address: int) -> str | None:
        at = address - self._sections[".rodata"].address
        if not 0 <= at < len(self._strings):
            return None
        return self._strings[at : self._strings.find(b"\0", at)].decode(errors="replace")

    def _addresses(self, function: str) -> Iterator[int]:
        name = re.compile(_MANGLED.format(name=re.escape(function)))
        names = self._section(".strtab")
        for fields in _SYMBOL.iter_unpack(self._section(".symtab")):
            symbol = names[fields[0] : names.find(b"\0", fields[0])].decode(errors="replace")
            if fields[4] and name.match(symbol):
                yield fields[4]

    def _section(self, name: str) -> bytes:
        if name not in self._sections:
            raise ValueError(f"the library has no {name}")
        one = self._sections[name]
        return self._content[one.offset : one.offset + one.size]


def _sections(content: bytes) -> dict[str, _Section]:
    (start,) = struct.unpack_from("<Q", content, _SECTIONS_AT)
    size, num, of_names = struct.unpack_from("<HHH", content, _SECTION_COUNTS_AT)
    headers: Sequence[tuple[int, ...]] = [
        struct.unpack_from("<IIQQQQ", content, start + i * size) for i in range(num)
    ]
    names = headers[of_names][4]
    found = {}
    for header in headers:
        at = names + header[0]
        found[content[at : content.find(b"\0", at)].decode()] = _Section(*header[3:6])
    return found


def _signed(four: bytes) -> int:
    return int.from_bytes(four, "little", signed=True)


def _unsigned(four: bytes) -> int:
    return int.from_bytes(four, "little")
