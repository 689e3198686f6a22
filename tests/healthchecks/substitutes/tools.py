"""Substitutes for programs and libraries that this machine does not have: they print what was recorded, or go wrong."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

FOLDER = Path(__file__).parent
RECORDINGS = FOLDER / "recordings"
NVIDIA = ("t4_driver_515.xml", "a100_driver_535.xml", "blackwell_driver_590.xml")
Source = Literal["NVML", "nvidia-smi"]


def recorded(name: str) -> bytes:
    """Return the bytes of a recording."""
    return (RECORDINGS / name).read_bytes()


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return recorded bytes with the first occurrence of some replaced, which must be there."""
    assert old in data, old
    return data.replace(old, new, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitutes:
    """Where the substitutes of one test lie, and how they get into its environment."""

    folder: Path
    patch: pytest.MonkeyPatch

    def tool(self, name: str, answers: Mapping[str, bytes], *, code: int = 0) -> None:
        """Put a program on PATH that prints an answer by its arguments, and ends with `code`."""
        cases = []
        for number, (arguments, output) in enumerate(answers.items()):
            file = self.folder / f"{name}.{number}"
            file.write_bytes(output)
            cases.append(f"{shlex.quote(arguments)}) cat {shlex.quote(str(file))};;")
        other = f'*) echo "{name}: no recording of $*" >&2; exit 64;;'
        self.program(name, f'case "$*" in\n{os.linesep.join(cases)}\n{other}\nesac\nexit {code}')

    def program(self, name: str, script: str) -> None:
        """Put a shell script on PATH."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        if str(folder) not in os.environ["PATH"].split(os.pathsep):
            self.patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def nvidia(
        self, recording: bytes, source: Source = "NVML", *, links: bytes = b"", errors: bytes = b""
    ) -> None:
        """Have GPUs as recorded: by the library, or by the tool alone."""
        if source == "nvidia-smi":
            answers = {"-q -x": recording, "nvlink -s": links, "nvlink -e": errors}
            self.tool("nvidia-smi", answers)
            return
        for name, data in (("NVML_RECORDING", recording), ("NVML_LINKS", links)):
            file = self.folder / name
            file.write_bytes(data)
            self.patch.setenv(name, str(file))
        self.patch.setenv("PYTHONPATH", str(FOLDER / "nvml"))
