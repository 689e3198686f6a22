"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def cluster_option(command: F) -> F:
    """Add `--cluster`."""
    return click.option(
        "--cluster",
        "where",
        metavar="FILE|STATE|NAME",
        help="A cluster.yaml, a state folder, or the name of a cluster in .stoker. "
        "Default: ./cluster.yaml, else the one cluster in ./.stoker.",
    )(command)


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def timeout_option(default_seconds: float) -> Callable[[F], F]:
    """Add `--timeout`, seconds to wait for the supervisor's answer."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(min=0.1),
        default=default_seconds,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for it to be done.",
    )


def examples(*lines: str) -> str:
    """Make the end of a help page: example command lines that click does not wrap."""
    return "\b\nExamples:\n" + "".join(f"  {line}\n" for line in lines) + "\n"
