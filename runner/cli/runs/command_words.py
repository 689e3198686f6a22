"""Commands of `stoker` that take a command of the user behind `--`, and the options that such a command has."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from runner.cli.options import examples

F = TypeVar("F", bound=Callable[..., Any])

HOW = "a command of yours goes behind `--`: `stoker %s -- python train.py --lr 3e-4`"


class CommandWithWords(click.Command):
    """A command whose function gets the words behind the first `--` as `words`; () without one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before `--`; an error without one shows where the user's command goes."""
        has_words = "--" in args
        at = args.index("--") if has_words else len(args)
        own, words = args[:at], tuple(args[at + 1 :])
        try:
            rest = super().parse_args(ctx, own)
        except click.UsageError as error:
            if has_words:
                raise
            what = error.format_message().rstrip(".")
            raise click.UsageError(f"{what}; {HOW % self.name}", ctx) from error
        if has_words and not words:
            raise click.UsageError(f"no command behind `--`; {HOW % self.name}", ctx)
        ctx.params["words"] = words
        return rest


def command_with_words(
    *example_lines: str, more: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make such a command; its help page ends with examples and `more`."""
    return click.command(
        cls=CommandWithWords,
        epilog=examples(*example_lines) + more,
        options_metavar="[OPTIONS]",
    )


def command_options(function: F) -> F:
    """Add the options of a command behind `--`; underscores as torchrun takes them."""
    for option in (
        click.option(
            "--nproc-per-node",
            "--nproc_per_node",
            "ranks_per_node",
            metavar="N|gpu",
            help="Ranks on each node, or gpu: one for each GPU of this machine. Default: 1.",
        ),
        click.option(
            "--nnodes",
            "nodes",
            type=click.IntRange(min=1),
            help="Nodes that the run needs. Default: 1.",
        ),
        click.option(
            "--name",
            help="Name of the run: a-z, 0-9 and -. Default: that of the script, module or program.",
        ),
    ):
        function = option(function)
    return function
