"""What others see of a process in /proc: its command line and its environment, by which ranks are found."""

from __future__ import annotations

import ctypes
import os

from runner.keeper.protocol import KEEPER_VARIABLE, WARM_ROOM_VARIABLE
from runner.keeper.warm.forkable import NotForkable

# Those that the keeper adds for this process alone.
WARM_VARIABLES = (WARM_ROOM_VARIABLE, KEEPER_VARIABLE)


class ProcTitle:
    """The memory behind /proc/self/cmdline and environ, by which other processes find ranks."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        # Fields 48 to 51 of proc(5), counted from 1; the split starts at field 3.
        self._arguments = (int(fields[45]), int(fields[46]))
        self._environment = (int(fields[47]), int(fields[48]))
        if not all((*self._arguments, *self._environment)):
            raise NotForkable("the kernel does not show where this process keeps its environment")

    def check(self, environment: dict[str, str]) -> None:
        """Raise NotForkable when an environment does not fit."""
        start, end = self._environment
        size = len(_as_block(environment))
        if size > end - start:
            raise NotForkable(
                f"an environment of {size} bytes is larger than the {end - start} kept free"
            )

    def write(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Show these instead; what does not fit is cut."""
        for name, value in os.environ.items():
            # Copies what the C library may still read from that memory.
            os.putenv(name, value)
        _overwrite(self._environment, _as_block(environment))
        _overwrite(self._arguments, b"".join(os.fsencode(word) + b"\0" for word in arguments))


def initial_environment() -> dict[str, str]:
    """Return the environment before the interpreter changed it (it sets LC_CTYPE in a C locale)."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (item.partition(b"=") for item in file.read().split(b"\0") if item)
    environment = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return {name: value for name, value in environment.items() if name not in WARM_VARIABLES}


def _as_block(environment: dict[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())


def _overwrite(bounds: tuple[int, int], data: bytes) -> None:
    start, end = bounds
    size = end - start
    # To the kernel, a last byte that is not zero means that the memory continues.
    ctypes.memmove(start, data[: size - 1].ljust(size, b"\0"), size)
