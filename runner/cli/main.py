"""`stoker`: its subcommands, each imported only when it runs; errors become messages and exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from runner.cli import exit_codes
from runner.cli.options import examples
from runner.errors import StokerError
from runner.facts.wording import known_words

# Name -> module in `runner.cli`, first sentence of its help: a page of help imports no command. In
# the order of that page.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("runs.run", "Start the run that RUN.yaml describes and follow it to its end."),
    "demo": (
        "runs.demo",
        "Train a small model, kill a rank and a node, and watch the run recover from both.",
    ),
    "status": (
        "reports.status",
        "Show the cluster on one screen: its supervisor, runs, nodes and open incidents.",
    ),
    "runs": ("reports.status", "List the runs of the cluster, oldest first."),
    "nodes": (
        "nodes.inventory",
        "List the nodes: state, attempt, last heartbeat, and how many spares there are.",
    ),
    "hardware": (
        "nodes.inventory",
        "List all hardware ever seen: its node names, faults, and whether it may serve.",
    ),
    "incidents": (
        "reports.incidents",
        "List incidents, newest first: fault, place, seconds to detect and to recover, steps lost.",
    ),
    "explain": (
        "reports.incidents",
        "Explain an incident: its cause, the culprit, the confidence, and the log lines behind it.",
    ),
    "story": (
        "reports.timeline",
        "Print what happened and why, from the first signal to the last effect.",
    ),
    "lineage": (
        "reports.timeline",
        "List a run's attempts: their parent, the steps they contribute, and how they ended.",
    ),
    "diagnose": (
        "diagnose.logs",
        "Find the root cause in logs of a run, and show the lines behind it.",
    ),
    "check": (
        "check",
        "Check this machine: disk, memory, clock, loopback, limits of processes, kernel log.",
    ),
    "stop": (
        "runs.operations",
        "Stop a run for good at the next step boundary, with a checkpoint if its ranks can save one.",
    ),
    "lr": (
        "runs.operations",
        "Change a run's learning rate, and print the value that the trainer reports back.",
    ),
    "swap": (
        "nodes.service_requests",
        "Replace a node by a spare at the next checkpoint, which is requested now.",
    ),
    "drain": (
        "nodes.service_requests",
        "Take a node out of service at the next checkpoint, with or without a spare.",
    ),
    "quarantine": (
        "nodes.service_requests",
        "Take a node out of service and refuse its hardware from now on, under any node name.",
    ),
    "readmit": (
        "nodes.service_requests",
        "Let a node return to service: it is checked, then it becomes a spare.",
    ),
    "retire": (
        "nodes.service_requests",
        "Take a node out of service for good; its hardware is never used again.",
    ),
    "drill": ("runs.operations", "Inject a real fault, and see whether the run recovers."),
    "shutdown": (
        "runs.operations",
        "Stop all runs, then all agents, then the supervisor; nothing of the cluster keeps running.",
    ),
    "supervise": (
        "daemons",
        "Supervise a cluster until `stoker shutdown`: start its agents, watch its runs, repair faults.",
    ),
    "agent": ("daemons", "Run one node's agent until SIGTERM, or until the cluster shuts down."),
    "token": (
        "store.token",
        "Make the cluster's token, unless it exists; print its path, never its content.",
    ),
    "store": (
        "store.doctor",
        "Inspect and repair the store: journal, lease and signals, in files or on a Redis server.",
    ),
    "metrics": (
        "daemons",
        "Print the cluster's metrics in Prometheus' text format, or serve them.",
    ),
}


class Stoker(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"runner.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        limit = formatter.width - 6 - max(map(len, COMMANDS))
        rows = [
            (name, click.Command(name, help=sentence).get_short_help_str(limit))
            for name, (_, sentence) in COMMANDS.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer an unknown command with the known ones."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(
                f"no command {args[0]!r}; {known_words(args[0], list(COMMANDS))}", ctx
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a StokerError becomes one message and an exit code, not a traceback."""
        try:
            return super().invoke(ctx)
        except StokerError as error:
            click.echo(f"stoker: {error}", err=True)
            ctx.exit(exit_codes.of_error(error))
        except KeyboardInterrupt:
            ctx.exit(exit_codes.INTERRUPTED)


@click.group(
    cls=Stoker,
    epilog=examples(
        "stoker demo          watch a run lose a rank and a node, and recover",
        "stoker run RUN.yaml  start a run and follow it",
        "stoker status        the state of this folder's cluster",
        "stoker story i1      what happened in incident i1, and why",
    )
    + exit_codes.HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="stoker", message="stoker %(version)s")
def cli() -> None:
    """Keep a large training run burning: launch it, watch it, and repair what fails."""


def main() -> None:
    """Run the `stoker` command."""
    sys.exit(cli(prog_name="stoker"))


if __name__ == "__main__":
    main()
