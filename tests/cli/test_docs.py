"""`stoker docs`: the pages and files that come with Stoker, and that messages name those that exist."""

import json
import re
import shlex

import pytest
from click.testing import CliRunner

from runner.cli.main import COMMANDS, cli
from runner.cli.reports.docs import ROOT, known_files
from runner.load.runbooks import load_pages

# Of messages: code that prints, and pages that `stoker runbook` prints.
SOURCES = [
    *(
        path
        for name in ("runner", "healthchecks", "stoker")
        for path in ROOT.glob(f"{name}/**/*.py")
    ),
    *ROOT.glob("runbooks/*.md"),
]
NAMED = re.compile(r"`stoker (docs|runbook) ([\w.@-]+)`")


def test_every_page_and_file_is_listed_and_printed() -> None:
    """Each page and each deployment file of the tree has a name, by which it is printed as it is."""
    files = known_files()
    deployed = {path for path in ROOT.glob("deploy/**/*") if path.is_file()}
    pages = {*ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md"), *deployed}
    assert {*files.values()} == pages
    for name, path in files.items():
        shown = CliRunner().invoke(cli, ["docs", name])
        assert (shown.exit_code, shown.output) == (0, path.read_text())
    listed = json.loads(CliRunner().invoke(cli, ["docs", "--json"]).output)
    assert {row["name"]: row["file"] for row in listed} == {n: str(p) for n, p in files.items()}


def test_a_path_of_the_tree_names_the_same_file() -> None:
    """What a page calls docs/redis.md is that page wherever Stoker is installed; an unknown name is answered with known ones."""
    by_path = CliRunner().invoke(cli, ["docs", "docs/redis.md"])
    assert by_path.output == (ROOT / "docs/redis.md").read_text()
    unknown = CliRunner().invoke(cli, ["docs", "contrakt"])
    assert unknown.exit_code == 2
    assert "did you mean 'contract'?" in unknown.output


def test_what_messages_name_exists() -> None:
    """Each page that a message names is there, and no message names a file by its place in the tree."""
    files, books = known_files(), load_pages()
    named = {found for path in SOURCES for found in NAMED.findall(path.read_text())}
    assert ("docs", "contract") in named
    for command, name in named:
        assert name in (files if command == "docs" else {**books, "NAME": None}), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_no_file_of_the_tree(name: str) -> None:
    """What the help of a command names is there after `pip install`."""
    text = CliRunner().invoke(cli, [*shlex.split(name), "--help"]).output
    assert "Usage: " in text
    assert re.findall(r"(?<![\w.`])(?:docs|runbooks|deploy)/\w+", text) == []
