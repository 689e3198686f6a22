"""`stoker init`: write a run.yaml into the working directory, without a question."""

import os
from pathlib import Path

import click

from runner.atomic_files import write_atomically
from runner.cli import output
from runner.cli.options import json_option
from runner.cli.runs.command_words import command_options, command_with_words
from runner.cli.runs.typed_commands import TypedCommand
from runner.errors import UserError

RUN_FILE, SCRIPT = "run.yaml", "train.py"
# What people change next.
MORE = """
# What people change next (all fields: `stoker docs run_yaml`):
# preload: [torch, torch._dynamo]     # each node imports these once and forks its ranks: a restart saves the import
# checkpoints: checkpoints            # for scripts with the five lines of `stoker docs client`: sealed, verified, resumed from
# saves: out                          # where a known trainer saves: sealed into `checkpoints` (`stoker docs checkpoints`)
# progress_seconds: 600               # no new step for so long: the gang counts as stuck
# stop_grace_seconds: 30              # after SIGTERM, when the run is stopped
"""


@command_with_words(
    "stoker init                              for train.py, or the only script of this folder",
    "stoker init --nproc-per-node 2 -- train.py --lr 3e-4",
)
@command_options
@click.option("--force", is_flag=True, help="Replace a run.yaml that is there.")
@json_option
def init(
    *,
    words: tuple[str, ...],
    name: str | None,
    ranks_per_node: str | None,
    nodes: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a run.yaml for a command into this folder.

    Without a command it is for train.py, or for the only script of the folder. A run.yaml that is there stays, unless --force is
    given.
    """
    given = words or (_script(),)
    typed = TypedCommand.of(None, given, name=name, nodes=nodes, ranks_per_node=ranks_per_node)
    assert typed is not None
    # A name or a number that run.yaml cannot have is refused before anything is written.
    spec = typed.load()
    path = Path(RUN_FILE)
    _write(path, typed.text + MORE, force=force)
    output.print_answer(
        {"file": str(path.absolute()), "name": spec.name, "command": list(spec.command)},
        f"wrote {path}:\n\n{typed.text}\nnext: stoker run {path}",
        as_json=as_json,
    )


def _script() -> str:
    """Return the script that is meant without a command. Raises UserError with the choices."""
    if Path(SCRIPT).is_file():
        return SCRIPT
    scripts = sorted(path.name for path in Path().glob("*.py"))
    if len(scripts) == 1:
        return scripts[0]
    there = f"but {', '.join(scripts[:5])}" if scripts else "and no other script"
    raise UserError(
        f"which command? this folder has no {SCRIPT}, {there}; name it: `stoker init -- python SCRIPT.py`"
    )


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        if force:
            write_atomically(path, text)
            return
        scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
        scratch.write_text(text, encoding="utf-8")
        try:
            # Unlike a rename, a link replaces nothing.
            os.link(scratch, path)
        finally:
            scratch.unlink()
    except FileExistsError as error:
        raise UserError(
            f"{path} is there already, and stays as it is; `stoker init --force` replaces it"
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
