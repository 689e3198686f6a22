"""`stoker report`: the command."""

from pathlib import Path

import click

from runner.atomic_files import write_atomically
from runner.cli import clusters, output
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.past import journal_option
from runner.errors import UserError

FORMATS = ("html", "md")


@command(
    "stoker report tiny                               tiny.html in this folder",
    "stoker report tiny --format md --output -        Markdown to standard output",
    "stoker report tiny --with-paths                  paths as they are; they are left out otherwise",
    "stoker report tiny --json | jq .summary.ettr_ratio",
    "stoker report --journal copies/tiny              of a copy of a state folder, without the cluster",
)
@click.argument("run", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="HTML with curves in it, or Markdown. Default: by the end of --output, else html.",
)
@click.option(
    "--output",
    "target",
    metavar="FILE",
    help="Where to write it; - is standard output. Default: <run>.html or <run>.md here.",
)
@click.option(
    "--with-paths", is_flag=True, help="Leave paths in it, and say where the run was started."
)
@journal_option
@cluster_option
@json_option
def report(  # noqa: PLR0913 - one for each option
    run: str | None,
    *,
    form: str | None,
    target: str | None,
    with_paths: bool,
    copy: Path | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Write the report of a run: timeline, curves, interventions, lost time, hardware to return, cost.

    One file that needs nothing else, for the post-mortem, of a run that goes on as of one that has ended. Without RUN: the only
    live run, or else the newest. It has no values of environment variables, no tokens and, unless asked for, no paths; read it
    before you send it all the same. No supervisor is needed. With --json the figures go to standard output, without the curves.
    """
    from runner.cli.report.content import gather, gather_copy
    from runner.cli.report.document import document
    from runner.cli.report.html import html
    from runner.cli.report.markdown import markdown
    from runner.cli.report.values import values

    if as_json and (form or target):
        raise UserError("--json writes to standard output; leave out --format and --output")
    if copy is not None:
        gathered = gather_copy(copy, run)
    else:
        with clusters.open_cluster(where, only_reads=True) as (cluster, store):
            gathered = gather(store, cluster, run)
    if as_json:
        output.print_json(values(gathered, with_paths=with_paths))
        return
    written = document(gathered, with_paths=with_paths)
    chosen = form or (target or "").rpartition(".")[2].lower()
    chosen = "md" if chosen in ("md", "markdown") else "html"
    text = html(written) if chosen == "html" else markdown(written)
    if target == "-":
        output.print_text(text.removesuffix("\n"))
        return
    path = Path(target or f"{gathered.spec.name}.{chosen}")
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(
            f"--output: {path}: {error.strerror}; name a file that can be written"
        ) from error
    output.print_text(f"{path}: {len(text.encode()) / 1000:.0f} kB")
