import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from runner.cli.main import COMMANDS, cli, first_sentence
from runner.cli.options import SentenceGroup
from tests.cli.conftest import stoker


def test_help_lists_commands_and_exit_codes(folder: Path) -> None:
    """The first page names every command and what the exit codes mean."""
    page = stoker("--help").stdout
    assert all(f"\n  {name} " in page for name in COMMANDS)
    assert "130" in page


@pytest.mark.parametrize("words", [(), ("store",)])
def test_no_sentence_of_a_page_of_help_is_cut(folder: Path, words: tuple[str, ...]) -> None:
    """In 80 columns each command's whole first sentence is there, on as many lines as it takes."""
    done = CliRunner().invoke(cli, [*words, "--help"], prog_name="stoker", terminal_width=80)
    listed = done.output.partition("Commands:")[2].partition("Examples:")[0]
    assert max(map(len, listed.splitlines())) <= 80
    group = cli.get_command(click.Context(cli), words[0]) if words else cli
    assert isinstance(group, SentenceGroup)
    context = click.Context(group)
    page = " ".join(listed.split())
    for name in group.list_commands(context):
        sentence = group.first_sentence(context, name)
        assert f"{name} {sentence}" in page, name
        assert not sentence.endswith("...")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_page_has_each_commands_own_first_sentence(command: str) -> None:
    """The page is written without importing commands, so its sentences come from their sources."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    assert found.get_short_help_str(limit=1000) == first_sentence(command)


def test_the_first_page_imports_no_command() -> None:
    """Neither a command nor what it needs: stores, messages, tables."""
    code = (
        "import sys; from runner.cli.main import cli; cli(['--help'], standalone_mode=False); "
        "ours = sorted(name for name in sys.modules if name.startswith('runner.')); "
        "print(*ours)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == [
        "runner.cli",
        "runner.cli.exit_codes",
        "runner.cli.main",
        "runner.cli.options",
        "runner.errors",
        "runner.facts",
        "runner.facts.wording",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples(folder: Path, command: str) -> None:
    """Each help page describes the command and shows examples."""
    page = stoker(command, "--help").stdout
    assert "Examples:" in page
    assert f"stoker {command}" in page


def test_a_misspelt_command_is_answered_with_the_nearest(folder: Path) -> None:
    """`stoker statsu` names `status`."""
    result = stoker("statsu")
    assert result.exit_code == 2
    assert "did you mean 'status'?" in result.stderr


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """With the exit code of an interrupted command; the first library that it imports is where the signal comes."""
    (tmp_path / "click.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    root = str(Path(__file__).parents[2])
    search_path = os.pathsep.join((str(tmp_path), root))
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "status"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": search_path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
