"""What a library of x86-64 logs, read from its machine code: the constants and strings that its calls of a log function pass."""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Bytes before a call in which its arguments are loaded; chosen.
_BEFORE = 200
_CALL = re.compile(rb"\xe8(....)", re.DOTALL)
# `lea REGISTER, [rip + OFFSET]`, and `mov REGISTER, CONSTANT`.
_LEA = {
    "rdi": b"\x48\x8d\x3d",
    "rdx": b"\x48\x8d\x15",
    "r8": b"\x4c\x8d\x05",
    "r9": b"\x4c\x8d\x0d",
}
_MOVE = {
    "edi": re.compile(rb"\xbf(....)", re.DOTALL),
    "ecx": re.compile(rb"\xb9(....)", re.DOTALL),
}
# The jump of a function's stub to where the loader writes its address.
_STUB = re.compile(rb"\xff\x25(....)", re.DOTALL)
_STUB_SIZE = 16
_ELF = b"\x7fELF\x02\x01"
_SECTIONS_AT, _SECTION_COUNTS_AT = 0x28, 0x3A
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
# C's name alone; in C++ it is followed by the arguments, the first of which is a type with a length before its name.
_NAME = r"{name}$|_Z\d+{name}(?=\d)"


class Call(NamedTuple):
    """A call: the constant that it passes, and the strings that are loaded before it, by register."""

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

    def calls(self, function: str, most: int, register: str = "edi") -> Iterator[Call]:
        """Yield the calls of a function of C or C++ which pass a constant from 1 to `most` in a register."""
        targets = {*self._addresses(function), *self._stubs(function)}
        text, start = self._section(".text"), self._sections[".text"].address
        last = 0
        for one in _CALL.finditer(text):
            to = start + one.end() + _signed(one[1])
            # A call leaves none of these registers as they were.
            begin = max(last, one.start() - _BEFORE)
            if start <= to < start + len(text) or to in targets:
                last = one.end()
            if to not in targets:
                continue
            before = text[begin : one.start()]
            constants = [_unsigned(found[1]) for found in _MOVE[register].finditer(before)]
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
        yield from (at for at, _ in self._symbols(function, ".symtab", ".strtab") if at)

    def _stubs(self, function: str) -> Iterator[int]:
        """Yield where calls go that the loader leads to the function."""
        if ".plt" not in self._sections or ".rela.plt" not in self._sections:
            return
        numbers = {number for _, number in self._symbols(function, ".dynsym", ".dynstr")}
        relocations = _RELOCATION.iter_unpack(self._section(".rela.plt"))
        slots = {slot for slot, kind, _ in relocations if kind >> 32 in numbers}
        start = self._sections[".plt"].address
        for one in _STUB.finditer(self._section(".plt")):
            if start + one.end() + _signed(one[1]) in slots:
                yield start + one.start() // _STUB_SIZE * _STUB_SIZE

    def _symbols(self, function: str, table: str, strings: str) -> Iterator[tuple[int, int]]:
        """Yield (address, number) of the symbols of a function's name."""
        name = re.compile(_NAME.format(name=re.escape(function)))
        names = self._section(strings)
        for number, fields in enumerate(_SYMBOL.iter_unpack(self._section(table))):
            symbol = names[fields[0] : names.find(b"\0", fields[0])].decode(errors="replace")
            if name.match(symbol):
                yield fields[4], number

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
