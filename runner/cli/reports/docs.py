"""`stoker docs`: the pages and the files for servers and init systems that come with Stoker, wherever it is installed."""

from pathlib import Path

import click

import runner
from runner.cli import output
from runner.cli.options import command, json_option
from runner.errors import UserError
from runner.facts.wording import known_words

# Beside the packages, in a checkout as in a wheel.
ROOT = Path(runner.__file__).parents[1]
FOLDERS = ("docs", "docs/design", "deploy", "deploy/compose", "deploy/grafana")


@command(
    "stoker docs                              the pages and files, and where they lie",
    "stoker docs contract                     print the page of the contract of a rank",
    "stoker docs redis.conf > redis.conf      a file to be changed and used",
)
@click.argument("name", required=False)
@json_option
def docs(name: str | None, *, as_json: bool) -> None:
    """List the pages and deployment files that come with Stoker, or print one."""
    files = known_files()
    if name is None:
        rows = [{"name": each, "file": str(path)} for each, path in files.items()]
        columns = {"name": lambda row: row["name"], "file": lambda row: row["file"]}
        output.print_answer(rows, output.table(columns, rows), as_json=as_json)
        return
    path = files.get(name) or _by_path(name, files)
    if path is None:
        raise UserError(f"no page or file {name!r}; {known_words(name, list(files))}")
    text = path.read_text(encoding="utf-8")
    plain = {"name": name, "file": str(path), "text": text}
    output.print_answer(plain, text.removesuffix("\n"), as_json=as_json)


def known_files() -> dict[str, Path]:
    """Return name -> file: a page by its stem, a file of deploy/ by its whole name."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*")):
            if path.is_file() and (folder.startswith("deploy") or path.suffix == ".md"):
                found[path.stem if path.suffix == ".md" else path.name] = path
    return found


def _by_path(name: str, files: dict[str, Path]) -> Path | None:
    """Return the file that a message or a page names as it lies in the tree, such as docs/redis.md."""
    return next((path for path in files.values() if name == str(path.relative_to(ROOT))), None)
