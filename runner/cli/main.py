"""`stoker`: one command, its subcommands imported only when they are used, errors turned into messages and exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from runner.cli import exit_codes
from runner.cli.options import examples
from runner.errors import StokerError, TemporaryError, UserError
from runner.facts.wording import known_words

# Name of each subcommand, and where it is. In the order of the help page.
COMMANDS = {
    "run": "runner.cli.runs.run:run",
    "demo": "runner.cli.runs.demo:demo",
    "status": "runner.cli.reports.status:status",
    "runs": "runner.cli.reports.status:runs",
    "nodes": "runner.cli.nodes.inventory:nodes",
    "hardware": "runner.cli.nodes.inventory:hardware",
    "incidents": "runner.cli.reports.status:incidents",
    "explain": "runner.cli.reports.status:explain",
    "story": "runner.cli.reports.status:story",
    "lineage": "runner.cli.reports.status:lineage",
    "diagnose": "runner.cli.diagnose.logs:diagnose",
    "check": "runner.cli.check:check",
    "stop": "runner.cli.runs.operations:stop",
    "lr": "runner.cli.runs.operations:lr",
    "swap": "runner.cli.nodes.service_requests:swap",
    "drain": "runner.cli.nodes.service_requests:drain",
    "quarantine": "runner.cli.nodes.service_requests:quarantine",
    "readmit": "runner.cli.nodes.service_requests:readmit",
    "retire": "runner.cli.nodes.service_requests:retire",
    "drill": "runner.cli.runs.operations:drill",
    "shutdown": "runner.cli.runs.operations:shutdown",
    "supervise": "runner.cli.daemons:supervise",
    "agent": "runner.cli.daemons:agent",
    "token": "runner.cli.store.token:token",
    "store": "runner.cli.store.doctor:store",
    "metrics": "runner.cli.daemons:metrics",
}


class Stoker(click.Group):
    """The group of all commands. Knows their names without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer a misspelt command with the nearest ones."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(
                f"no command {args[0]!r}; {known_words(args[0], list(COMMANDS))}", ctx
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error of ours is one message and an exit code, never a traceback."""
        try:
            return super().invoke(ctx)
        except StokerError as error:
            click.echo(f"stoker: {error}", err=True)
            ctx.exit(_code_of(error))
        except KeyboardInterrupt:
            ctx.exit(exit_codes.INTERRUPTED)


def _code_of(error: StokerError) -> int:
    if isinstance(error, UserError):
        return exit_codes.BAD_INPUT
    return exit_codes.NO_ANSWER if isinstance(error, TemporaryError) else exit_codes.FAILED


@click.group(
    cls=Stoker,
    epilog=examples(
        "stoker demo          watch a run lose a rank and a node, and recover",
        "stoker run RUN.yaml  start a run and follow it",
        "stoker status        what is going on, in this folder's cluster",
        "stoker story i1      what happened in incident i1, and why",
    )
    + exit_codes.HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="stoker", message="stoker %(version)s")
def cli() -> None:
    """Keep a large training run burning: launch it, watch it, and put right what goes wrong."""


def main() -> None:
    """Entry point of the `stoker` command."""
    sys.exit(cli(prog_name="stoker"))


if __name__ == "__main__":
    main()
