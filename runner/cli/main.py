"""`stoker`: its subcommands, each imported only when it runs; errors become messages and exit codes."""

import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from runner.cli import exit_codes
from runner.cli.options import MAX_HELP_WIDTH, MAX_SENTENCE, SentenceGroup, examples
from runner.errors import StokerError
from runner.facts.wording import known_words

# What a shell sets when it asks for completions.
COMPLETE_VARIABLE = "_STOKER_COMPLETE"
MAX_HELP_CHARACTERS = 60
# Name -> module in `runner.cli`, in the order of the help page.
COMMANDS = {
    "run": "runs.run",
    "init": "runs.init",
    "demo": "runs.demo",
    "attach": "foreground.attach",
    "watch": "terminal.watch",
    "watch-only": "watch.watch_only",
    "status": "reports.status",
    "runs": "reports.status",
    "nodes": "nodes.inventory",
    "hardware": "nodes.inventory",
    "incidents": "reports.incidents",
    "explain": "reports.incidents",
    "runbook": "reports.runbooks",
    "docs": "reports.docs",
    "completion": "completion",
    "story": "reports.timeline",
    "logs": "logs.logs",
    "lineage": "reports.lineage",
    "logbook": "reports.logbook",
    "report": "report.report",
    "checkpoints": "runs.checkpoints",
    "steps": "reports.steps",
    "diagnose": "diagnose.logs",
    "check": "check",
    "stop": "runs.operations",
    "pause": "runs.run_requests",
    "resume": "runs.run_requests",
    "restart": "runs.run_requests",
    "rewind": "runs.numeric_requests",
    "skip": "runs.numeric_requests",
    "revert": "runs.numeric_requests",
    "approve": "runs.numeric_requests",
    "deny": "runs.numeric_requests",
    "lr": "runs.operations",
    "remedy": "runs.remedy",
    "swap": "nodes.service_requests",
    "drain": "nodes.service_requests",
    "quarantine": "nodes.service_requests",
    "readmit": "nodes.service_requests",
    "retire": "nodes.service_requests",
    "isolate": "nodes.service_requests",
    "pin": "runs.checkpoints",
    "note": "runs.run_requests",
    "ack": "runs.run_requests",
    "page": "page",
    "drill": "runs.operations",
    "adopt": "runs.adopt",
    "shutdown": "runs.operations",
    "supervise": "daemons",
    "agent": "daemons",
    "token": "store.token",
    "store": "store.doctor",
    "metrics": "metrics",
    "web": "web",
}


def function_of(name: str) -> str:
    """Return the name of a command's function."""
    return name.replace("-", "_")


def first_sentence(name: str, limit: int = MAX_SENTENCE) -> str:
    """Return the first sentence of a command's docstring from its source: a page of help imports no command."""
    folder, module = Path(__file__).parent, COMMANDS[name].replace(".", "/")
    source = (folder / f"{module}.py").read_text(encoding="utf-8")
    found = re.search(
        rf'^def {function_of(name)}\(.*?"""(.*?)"""', source, re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return click.Command(name, help=found[1]).get_short_help_str(limit)


class Stoker(SentenceGroup):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"runner.cli.{COMMANDS[cmd_name]}"), function_of(cmd_name)
        )
        if COMPLETE_VARIABLE in os.environ:
            from runner.cli.completion import add_names

            add_names(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, and what click knows."""
        commands = [
            CompletionItem(name, help=first_sentence(name, MAX_HELP_CHARACTERS))
            for name in COMMANDS
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def first_sentence(self, ctx: click.Context, name: str) -> str:
        """Return it without importing the command."""
        return first_sentence(name)

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
            from runner.cli import output

            output.print_note(f"stoker: {error}")
            ctx.exit(exit_codes.of_error(error))
        except KeyboardInterrupt:
            ctx.exit(exit_codes.INTERRUPTED)


@click.group(
    cls=Stoker,
    epilog=examples(
        "stoker demo                    watch a run lose a rank and a node, and recover",
        "stoker run -- python train.py  start a script and follow it",
        "stoker run RUN.yaml            the same, from a file that says more",
        "stoker status                  the state of this folder's cluster",
        "stoker story i1                what happened in incident i1, and why",
    )
    + exit_codes.HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": MAX_HELP_WIDTH,
    },
)
@click.version_option(package_name="stoker", message="stoker %(version)s")
def cli() -> None:
    """Keep a large training run burning: launch it, watch it, and repair what fails."""


def main() -> None:
    """Run the `stoker` command."""
    sys.exit(cli(prog_name="stoker"))


if __name__ == "__main__":
    main()
