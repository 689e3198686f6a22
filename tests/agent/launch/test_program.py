"""Which commands start a Python program that ranks can be forked for, and why others do not."""

import os
import sys
from pathlib import Path

import pytest

from runner.agent.launch.program import NotForkableCommand, Program, read_command


def read(folder: Path, *command: str) -> Program:
    """Take a command apart as it would be started in a folder, which is also where commands are found."""
    path = f"{folder}:{os.environ['PATH']}"
    return read_command(command, environment={"PATH": path}, folder=str(folder))


def write(folder: Path, name: str, first_line: str, rest: str = "pass\n") -> None:
    """Write an executable script."""
    (folder / name).write_text(f"{first_line}\n{rest}")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("line", "interpreter"),
    [
        ("#!/opt/bin/python3", ("/opt/bin/python3",)),
        ("#! \t/opt/bin/python3.12 \t-u  ", ("/opt/bin/python3.12", "-u")),
        ("#!/usr/bin/env python3", ("python3",)),
        ("#!/opt/bin/python3 -W ignore", ("/opt/bin/python3", "-W ignore")),
    ],
)
@pytest.mark.parametrize("name", ["train-it", "./train-it", "../scripts/train-it"])
def test_the_first_line_of_a_script_is_read_as_the_kernel_reads_it(
    tmp_path: Path, name: str, line: str, interpreter: tuple[str, ...]
) -> None:
    """Interpreter and at most one option, which is all that follows; the script's own name is what the kernel passes on."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    write(folder, "train-it", line)
    program = read(folder, name, "--lr", "1")
    assert (program.interpreter, program.form) == (interpreter, "path")
    assert program.target == (name if "/" in name else str(folder / name))
    assert program.arguments == (program.target, "--lr", "1")


@pytest.mark.parametrize(
    "line",
    [
        "#!/bin/sh -e # don't",
        '#!"/opt/my python/python3"',
        "#!/usr/bin/env -S python3 -u",
        "#!/opt/bin/python3\r",
        "#!",
        "",
        "pass",
    ],
)
def test_a_script_of_another_program_names_that_program(tmp_path: Path, line: str) -> None:
    """For any first line, an unpaired quote too, the error is that this is no Python script."""
    write(tmp_path, "train-it", line)
    with pytest.raises(NotForkableCommand, match=r"/train-it' is no Python script"):
        read(tmp_path, "train-it")


def test_a_script_that_may_not_be_executed_is_no_program(tmp_path: Path) -> None:
    """It would not start as a fresh process, so it must not as a forked one."""
    (tmp_path / "train-it").write_text(f"#!{sys.executable}\n")
    with pytest.raises(NotForkableCommand, match=r"'./train-it' is not executable"):
        read(tmp_path, "./train-it")


def test_source_and_modules_are_programs(tmp_path: Path) -> None:
    """Neither is checked here: a script may appear after its ranks are planned, a module is found when it is run."""
    assert read(tmp_path, "python3", "train.py", "x").arguments == ("train.py", "x")
    assert read(tmp_path, "python3", "-u", "-m", "package", "x").form == "module"
