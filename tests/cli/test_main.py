from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.main import COMMANDS
from tests.cli.conftest import stoker


def test_help_lists_commands_and_exit_codes(folder: Path) -> None:
    """The first page names every command and what the exit codes mean."""
    page = stoker("--help").stdout
    assert all(f"\n  {name} " in page for name in COMMANDS)
    assert "130" in page


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_with_examples(folder: Path, command: str) -> None:
    """Each help page says what the command does and shows how it is typed."""
    page = stoker(command, "--help").stdout
    assert "Examples:" in page
    assert f"stoker {command}" in page


def test_a_misspelt_command_is_answered_with_the_nearest(folder: Path) -> None:
    """`stoker statsu` names `status`."""
    result = stoker("statsu")
    assert result.exit_code == 2
    assert "did you mean 'status'?" in result.stderr
