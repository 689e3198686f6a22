"""`stoker runbook`, and the commands that the pages advise."""

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from runner.cli.main import COMMANDS, cli
from runner.load.runbooks import load_pages

# In code: between backticks, perhaps over the end of a line.
_ADVISED = re.compile(r"`(stoker(?:\s[^`]*)?)`")


def advised() -> list[tuple[str, str]]:
    """Return every command of every page."""
    return [
        (page.name, " ".join(text.split()))
        for page in load_pages().values()
        for text in _ADVISED.findall(page.text)
    ]


def _options(command: click.Command) -> list[str]:
    return [name for one in command.params for name in (*one.opts, *one.secondary_opts)]


def problem(text: str) -> str:
    """Return what is wrong with a command as a page writes it; "" if it can be given."""
    words = text.split()[1:]
    if not words:
        return ""
    if words[0] not in COMMANDS:
        return f"no command {words[0]!r}"
    command = cli.get_command(click.Context(cli), words.pop(0))
    assert command is not None
    if isinstance(command, click.Group):
        if not words:
            return ""
        inner = command.get_command(click.Context(command), words.pop(0))
        if inner is None:
            return f"no such part of {command.name!r}"
        command = inner
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    unknown = [option for option in options if option not in _options(command)]
    if unknown:
        return f"{command.name} has no {', '.join(unknown)}"
    takes_words = any(isinstance(one, click.Argument) for one in command.params)
    given = [word for word in words if not word.startswith("-")]
    return f"{command.name} takes no {given[0]!r}" if given and not (takes_words or options) else ""


def test_every_command_in_every_page_exists_with_its_options() -> None:
    """A page that advises what cannot be given is worse than none."""
    found = advised()
    assert len(found) > 40
    assert {f"{page}: {text}": why for page, text in found if (why := problem(text))} == {}


@pytest.mark.parametrize(
    "text", ["stoker doctor", "stoker swap --rank 3", "stoker store mend", "stoker shutdown n3"]
)
def test_a_command_that_does_not_exist_is_found(text: str) -> None:
    """The test above can fail."""
    assert problem(text)


def _run(*words: str, folder: Path) -> tuple[int, str]:
    with CliRunner().isolated_filesystem(folder):
        result = CliRunner().invoke(cli, ["runbook", *words])
    return result.exit_code, result.output


def test_the_pages_are_listed_and_one_is_printed_by_its_fault(tmp_path: Path) -> None:
    """The list has every page; a fault or a page's name prints its ladder and its prose."""
    code, listed = _run(folder=tmp_path)
    assert code == 0
    assert all(name in listed for name in load_pages())
    code, printed = _run("gpu_lost", folder=tmp_path)
    assert code == 0
    assert printed.startswith("hardware-sign (")
    assert "swap, 3 times, pages, when lasting_sign is true and spare_is_idle is true" in printed
    assert "## Mitigation" in printed
    assert "faults: [" not in printed
    assert _run("hardware-sign", folder=tmp_path) == (code, printed)


def test_programs_read_a_page_as_json(tmp_path: Path) -> None:
    """It has the ladder as data, the file it comes from, and its text."""
    code, printed = _run("gpu_lost", "--json", folder=tmp_path)
    assert code == 0
    page = json.loads(printed)
    assert page["runbook"]["ladder"][-1]["do"] == "stop"
    assert page["file"].endswith("hardware-sign.md")
    assert "## Impact" in page["text"]


def test_a_clusters_own_pages_are_those_in_effect(tmp_path: Path) -> None:
    """The page of the site is printed, with its file."""
    (tmp_path / "pages").mkdir()
    text = Path(load_pages()["straggler"].file).read_text(encoding="utf-8")
    changed = text.replace("# A rank computes", "# At this site, a rank computes")
    (tmp_path / "pages" / "straggler.md").write_text(changed, encoding="utf-8")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(f"name: c\nstate: {tmp_path}/state\nrunbooks_folder: pages\n")
    code, printed = _run("straggler", "--cluster", str(cluster), folder=tmp_path)
    assert code == 0, printed
    assert "# At this site, a rank computes" in printed
    assert str(tmp_path / "pages" / "straggler.md") in printed


def test_an_unknown_fault_is_answered_with_the_nearest(tmp_path: Path) -> None:
    """The way out is in the message."""
    code, printed = _run("gpu_los", folder=tmp_path)
    assert code != 0
    assert "did you mean 'gpu_lost'?" in printed
