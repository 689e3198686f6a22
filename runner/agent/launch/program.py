"""The Python program that a command starts: what a forked rank needs to know to equal a fresh one."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
# Options of an interpreter without a value.
_PLAIN_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+")
_FLAGS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# The kernel reads as much of a first line.
_SHEBANG_BYTES = 256

Form = Literal["path", "module"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`interpreter`, with its options, runs `target`: a script or a module. `arguments` is sys.argv, the target first."""

    interpreter: tuple[str, ...]
    form: Form
    target: str
    arguments: tuple[str, ...]


class NotForkableCommand(ValueError):
    """Ranks of this command cannot be forked; the text says why."""


def read_command(
    command: tuple[str, ...], *, environment: Mapping[str, str], folder: str
) -> Program:
    """Parse a command. Raises NotForkableCommand for anything but a script or module of a Python interpreter.

    `environment` and `folder` (the working directory) are those of the command: its program is looked up there. The warm
    process checks that a script exists and is source: its folder may hang, and this runs in the agent's loop.
    """
    if _PYTHON.fullmatch(Path(command[0]).name):
        return _read_options(command[0], command[1:])
    script = _find(command[0], environment=environment, folder=folder)
    interpreter, *option = _interpreter_of(os.path.join(folder, script))
    return _read_options(interpreter, (*option, script, *command[1:]))


def _read_options(python: str, words: tuple[str, ...]) -> Program:
    index = 0
    while index < len(words):
        word = words[index]
        if word == "-m" and index + 1 < len(words):
            rest = words[index + 1 :]
            return _program(python, words[:index], form="module", rest=rest)
        if not word.startswith("-"):
            return _program(python, words[:index], form="path", rest=words[index:])
        if word in _FLAGS_WITH_VALUE:
            index += 2
        elif _PLAIN_FLAGS.fullmatch(word) or word[:2] in _FLAGS_WITH_VALUE:
            index += 1
        else:
            raise NotForkableCommand(
                f"the command runs {python} {word}, which is no script or module"
            )
    raise NotForkableCommand(f"the command runs {python} without a script or module")


def _program(python: str, flags: tuple[str, ...], *, form: Form, rest: tuple[str, ...]) -> Program:
    if "{" in rest[0]:
        raise NotForkableCommand(f"{rest[0]!r} is another program for each rank")
    return Program(interpreter=(python, *flags), form=form, target=rest[0], arguments=rest)


def _find(name: str, *, environment: Mapping[str, str], folder: str) -> str:
    """Return the file of a command's name, as its process gets it in sys.argv."""
    if "/" not in name:
        program = shutil.which(name, path=environment.get("PATH"))
        if program is None:
            raise NotForkableCommand(f"there is no program {name!r}")
        return program
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        raise NotForkableCommand(f"there is no program {name!r}")
    if not os.access(path, os.X_OK):
        raise NotForkableCommand(f"{name!r} is not executable")
    return name


def _interpreter_of(script: str) -> list[str]:
    """Return the interpreter that a script's first line names, if it is a Python, and its option, as the kernel reads them."""
    try:
        with open(script, "rb") as file:
            line = file.read(_SHEBANG_BYTES).split(b"\n")[0]
    except OSError as error:
        raise NotForkableCommand(f"{script!r} cannot be read: {error}") from error
    # The kernel knows no quotes, and all that follows the first blanks is one word.
    text = os.fsdecode(line[2:]).strip(" \t") if line.startswith(b"#!") else ""
    words = re.split("[ \t]+", text, maxsplit=1)
    if len(words) == 2 and Path(words[0]).name == "env":
        words = words[1:]
    if not _PYTHON.fullmatch(Path(words[0]).name):
        raise NotForkableCommand(f"{script!r} is no Python script")
    return words
