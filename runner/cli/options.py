"""Options that several commands share."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from runner.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

# Characters; click cuts longer ones. Far more than any has.
MAX_SENTENCE = 1000
# Columns of a page of help, where the terminal is as wide.
MAX_HELP_WIDTH = 110

cluster_option = click.option(
    "--cluster",
    "where",
    metavar="FILE|FOLDER|NAME",
    help="A cluster.yaml, a RUN.yaml, the folder of one, a state folder, or the name of a cluster in .stoker. "
    "Default: the cluster.yaml or .stoker of this folder, or of the nearest above it.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


why_option = click.option(
    "--why",
    "--reason",
    "reason",
    default="",
    metavar="TEXT",
    help="Why; kept in the journal, and shown to others.",
)
incident_option = click.option(
    "--incident",
    "seen",
    metavar="I3[@VERSION]",
    help="The incident that this answers, as `stoker incidents` shows it: refused if more was done about it since. "
    "Default: the run's newest open one, at its present version.",
)


def request_options(timeout_seconds: float) -> Callable[[F], F]:
    """Add `--timeout`, seconds to wait for the supervisor's answer, `--cluster` and `--json`."""
    timeout_option = click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(min=0.1),
        default=timeout_seconds,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for it to be done.",
    )
    return lambda command: timeout_option(cluster_option(json_option(command)))


def confirm(what: str, question: str, otherwise: str = "nothing was done") -> None:
    """Ask the person at the terminal. Raises UserError that begins with `what` without a terminal, or for any answer but yes."""
    if not sys.stdin.isatty():
        raise UserError(f"{what}, and there is no terminal to ask; confirm with --yes")
    if not click.confirm(question, err=True):
        raise UserError(f"{what.partition(':')[0]}: {otherwise}")


def command(*example_lines: str, more: str = "") -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command whose help page ends with examples and `more`."""
    return click.command(epilog=examples(*example_lines) + more)


class SentenceGroup(click.Group):
    """A group whose page of help has the whole first sentence of each command, wrapped to the width of the terminal."""

    def first_sentence(self, ctx: click.Context, name: str) -> str:
        """Return the first sentence of a command's help."""
        found = self.get_command(ctx, name)
        return found.get_short_help_str(MAX_SENTENCE) if found is not None else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; click itself cuts their sentences."""
        rows = [(name, self.first_sentence(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def examples(*lines: str) -> str:
    """Make the end of a help page: example command lines that click does not wrap."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines) + "\n"
