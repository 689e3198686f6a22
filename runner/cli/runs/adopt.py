"""`stoker adopt`: let a run resume from a checkpoint that was not sealed with its secret."""

import pwd
from dataclasses import replace
from pathlib import Path

import click

from runner.checkpoints import seal_again, verify
from runner.checkpoints.script_saves.adoption import seal_copy
from runner.cli import output
from runner.cli.clusters import find_cluster
from runner.cli.options import cluster_option, command, confirm
from runner.errors import StokerError, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import counted
from runner.signer import signer_of


@command(
    "stoker adopt ckpt/0.0.0-00000800              show what it is, and ask",
    "stoker adopt ckpt/0.0.0-00000800 --run tiny   of a run of another name",
    "stoker adopt out/checkpoint-300 --into ckpt --run tiny   a trainer's own: seals a copy",
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--run", "name", help="The run that is to resume from it. Default: its manifest's.")
@click.option(
    "--into",
    "root",
    type=click.Path(path_type=Path),
    help="Seal a copy of a trainer's own checkpoint there: the run's folder for checkpoints.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_option
def adopt(
    folder: Path, *, name: str | None, root: Path | None, yes: bool, where: str | None
) -> None:
    """Take a checkpoint that another cluster, an earlier release or a script by hand has sealed.

    Runs resume only from checkpoints whose manifest carries a code of the run's secret. This reads
    every byte, shows whose the files are, and writes the manifest with that code. Move the folder
    into the run's folder for checkpoints first, and start the run again afterwards. With --into, it
    seals a copy of a checkpoint that a known trainer has written, and leaves the original alone.
    """
    cluster = find_cluster(where)
    if root is not None:
        _adopt_copy(folder, root, name=name, yes=yes, cluster=cluster)
        return
    try:
        manifest = verify(folder, ())
    except StokerError as error:
        raise UserError(
            f"{error}; give a folder whose files are as its manifest.json says: nothing was changed"
        ) from error
    run = name or manifest.run
    if not run:
        raise UserError(f"{folder}: its manifest names no run; name one with --run")
    keys = signer_of(cluster).seal_keys(cluster.name, run)
    if not keys:
        raise UserError(f"cluster {cluster.name!r} has no token: its checkpoints need no code")
    size = output.size(sum(file.size_bytes for file in manifest.files.values()))
    num_files = counted(len(manifest.files), "file")
    files = [folder, *(folder / each for each in manifest.files)]
    names = {entry.pw_uid: entry.pw_name for entry in pwd.getpwall()}
    owners = {names.get(uid, str(uid)) for uid in {path.lstat().st_uid for path in files}}
    output.print_text(
        f"{folder}: step {manifest.step} of run {manifest.run!r}, attempt {manifest.attempt}; {num_files}, "
        f"{size}, all as their manifest says; they belong to {', '.join(sorted(owners))}"
    )
    if not yes:
        confirm(f"adopt: run {run!r} would resume from it", f"Let run {run!r} resume from it?")
    try:
        seal_again(folder, replace(manifest, run=run), keys[0])
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error}; adopt it as its owner") from error
    output.print_text(f"adopted for run {run!r} of cluster {cluster.name!r}")


def _adopt_copy(
    path: Path, root: Path, *, name: str | None, yes: bool, cluster: ClusterSpec
) -> None:
    """Seal a copy of a trainer's checkpoint for a run."""
    if not name:
        raise UserError(f"{path} names no run; name the one that is to resume from it with --run")
    if not yes:
        confirm(
            f"adopt: run {name!r} would resume from it", f"Let run {name!r} resume from {path}?"
        )
    try:
        folder = seal_copy(path, root, name)
        keys = signer_of(cluster).seal_keys(cluster.name, name)
        if keys:
            seal_again(folder, verify(folder, ()), keys[0])
    except (StokerError, OSError) as error:
        raise UserError(f"{error}; nothing is adopted") from error
    output.print_text(f"sealed a copy of {path} as {folder}, for run {name!r}")
