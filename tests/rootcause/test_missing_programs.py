"""What is missing before a program begins: each form that interpreters and the keeper write, and lines that only resemble them."""

import pytest

from runner.rootcause.missing_programs import way_out


@pytest.mark.parametrize(
    "line",
    [
        "n1 could not start its ranks: rank 0: cannot start 'nope': [Errno 2] No such file or directory: 'nope'",
        "rank 0: cannot start './train.sh': [Errno 13] Permission denied: './train.sh'",
        "/usr/bin/python3: can't open file '/a/nope.py': [Errno 2] No such file or directory",
    ],
)
def test_a_missing_program_or_script_is_one_of_the_command(line: str) -> None:
    """The way out names the fields of run.yaml."""
    assert way_out(line) == "correct `command` or `working_directory` in run.yaml"


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'torch'",
        "[rank3]: ModuleNotFoundError: No module named 'torch'",
        "/usr/bin/python3: No module named torch",
    ],
)
def test_a_missing_module_is_named(line: str) -> None:
    """The way out names the module and the interpreter."""
    assert way_out(line).startswith("install torch for the interpreter of the ranks, or name")


def test_a_package_that_lacks_a_module_is_of_another_version() -> None:
    """Python names the whole path of a module only where the package is there."""
    line = "ModuleNotFoundError: No module named 'torch.newer.part'"
    assert way_out(line).startswith(
        "install a version of torch that has it, or name another interpreter"
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
        "ImportError: cannot import name 'x' from 'y'",
        "rank 0: cannot start 'a': [Errno 11] Resource temporarily unavailable",
        "RuntimeError: the model has no module named head",
    ],
)
def test_other_lines_say_nothing_of_the_kind(line: str) -> None:
    """What may be there the next time, and what is missing later on, is not taken for it."""
    assert way_out(line) == ""
