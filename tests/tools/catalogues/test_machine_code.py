"""Log calls read from a small library that is put together here."""

import struct

import pytest

from tools.catalogues.native.machine_code import Library

_STRINGS = b"socket.cc\0Connection to %s closed\0"
_TEXT_AT, _STRINGS_AT = 0x1000, 0x2000
_STUBS_AT, _SLOT = 0x3000, 0x4008
_NAMES = b"\0.text\0.rodata\0.symtab\0.strtab\0.shstrtab\0.plt\0.rela.plt\0.dynsym\0.dynstr\0"
_FUNCTION = b"\0_Z12ncclDebugLog17ncclDebugLogLevelmPKciS1_z\0"
# `ret`, at which the function is.
_RETURN = b"\xc3"


def _lea(prefix: bytes, at: int, to: int) -> bytes:
    return prefix + struct.pack("<i", to - (_TEXT_AT + at + 7))


def _call(at: int) -> bytes:
    return b"\xe8" + struct.pack("<i", -(at + 5))


def _code() -> bytes:
    code = _RETURN
    # With a level, a file and a format; then with a level alone, as what was loaded before a call is gone.
    code += b"\xbf\x02\0\0\0"
    code += _lea(b"\x48\x8d\x15", len(code), _STRINGS_AT)
    code += _lea(b"\x4c\x8d\x05", len(code), _STRINGS_AT + _STRINGS.index(b"Conn"))
    code += _call(len(code))
    code += b"\xbf\x03\0\0\0"
    code += _call(len(code))
    # Without a level.
    return code + _call(len(code))


def _library() -> bytes:
    symbols = struct.pack("<IBBHQQ", 1, 2, 0, 1, _TEXT_AT, 1)
    parts = [
        (".text", _TEXT_AT, _code()),
        (".rodata", _STRINGS_AT, _STRINGS),
        (".symtab", 0, symbols),
        (".strtab", 0, _FUNCTION),
    ]
    return _elf(parts)


def _elf(parts: list[tuple[str, int, bytes]]) -> bytes:
    parts = [*parts, (".shstrtab", 0, _NAMES)]
    content, headers = b"", b""
    for name, address, part in parts:
        at = _NAMES.index(b"\0" + name.encode() + b"\0") + 1
        headers += struct.pack("<IIQQQQ24x", at, 1, 0, address, 64 + len(content), len(part))
        content += part
    elf = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(content))
    elf = elf.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(parts), len(parts) - 1)
    return elf + content + headers


def test_calls_have_their_constant_and_strings() -> None:
    """The level and what is loaded for the call, of no call before it; calls without a level are left out."""
    first, second = Library(_library()).calls("ncclDebugLog", 6)
    assert first.constant == 2
    assert first.strings == {"rdx": "socket.cc", "r8": "Connection to %s closed"}
    assert second.constant == 3
    assert second.strings == {}


def test_calls_by_a_stub_are_found() -> None:
    """A library that has the function of another one calls it where the loader leads on."""
    code = b"\xb9\x01\0\0\0" + _lea(b"\x4c\x8d\x0d", 5, _STRINGS_AT) + b"\xe8"
    code += struct.pack("<i", _STUBS_AT + 16 - (_TEXT_AT + len(code) + 4))
    # The second stub: a jump to where the slot says.
    stubs = bytes(16) + b"\xff\x25" + struct.pack("<i", _SLOT - (_STUBS_AT + 16 + 6))
    parts = [
        (".text", _TEXT_AT, code),
        (".rodata", _STRINGS_AT, _STRINGS),
        (".plt", _STUBS_AT, stubs),
        (".rela.plt", 0, struct.pack("<QQq", _SLOT, 1 << 32 | 7, 0)),
        (".symtab", 0, b""),
        (".strtab", 0, b"\0"),
        (".dynsym", 0, bytes(24) + struct.pack("<IBBHQQ", 1, 2, 0, 0, 0, 0)),
        (".dynstr", 0, b"\0ucs_log_dispatch\0"),
    ]
    (call,) = Library(_elf(parts)).calls("ucs_log_dispatch", 5, "ecx")
    assert (call.constant, call.strings) == (1, {"r9": "socket.cc"})


def test_another_function_has_no_calls() -> None:
    """Names are whole: what only begins alike is another function."""
    assert list(Library(_library()).calls("ncclDebug", 6)) == []


def test_what_is_no_library_is_refused() -> None:
    """An error says so."""
    with pytest.raises(ValueError, match="no library"):
        Library(b"#!/bin/sh")
