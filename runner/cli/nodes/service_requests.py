"""Commands that take nodes out of service and let them return: requests, answered by the supervisor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from runner.cli.clusters import find_cluster, require_leader, require_status, store_of
from runner.cli.nodes.inventory import known_node
from runner.cli.options import cluster_option, examples, json_option, timeout_option
from runner.cli.request_client import new_request_id, requester
from runner.cli.runs.operations import report
from runner.errors import UserError
from runner.facts.messages.requests import (
    DrainNode,
    QuarantineNode,
    ReadmitNode,
    Request,
    RetireNode,
    SwapNode,
)
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store

F = TypeVar("F", bound=Callable[..., Any])

# Characters of a reason, which is journalled and shown in tables. Chosen, not measured.
MAX_REASON = 500


def _node_options(command: F) -> F:
    """Add the argument and options that all these commands share."""
    options = (
        json_option,
        cluster_option,
        timeout_option(900.0),
        click.option("--reason", default="", metavar="TEXT", help="Why; kept in the journal."),
        click.argument("node"),
    )
    for option in options:
        command = option(command)
    return command


@click.command(
    epilog=examples(
        'stoker swap n7 --reason "fans are loud"',
        "stoker swap n7 --with n12",
        "stoker readmit n7       once it is repaired",
    )
)
@click.option(
    "--with", "spare", metavar="SPARE", help="The spare that replaces it; default: the nearest."
)
@_node_options
def swap(
    node: str,
    *,
    spare: str | None,
    reason: str,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    """Replace a node by a spare at the next checkpoint, which is requested now.

    The run continues from that checkpoint, so no step is lost. The node is in maintenance until `stoker
    readmit`. Without a fitting spare the swap is refused; `stoker drain` takes the node out in any
    case. Done when the node is out of service.
    """
    request = SwapNode(
        id=new_request_id(), by=requester(), node=node, spare=spare, reason=_reason(reason)
    )
    _ask(request, node, spare, where=where, timeout_seconds=timeout_seconds, as_json=as_json)


@click.command(
    epilog=examples(
        'stoker drain n7 --reason "rack r2 moves on Friday"',
        "stoker drain n7 --timeout 3600      a checkpoint of this run takes long",
    )
)
@_node_options
def drain(
    node: str, *, reason: str, timeout_seconds: float, where: str | None, as_json: bool
) -> None:
    """Take a node out of service at the next checkpoint, with or without a spare.

    With a spare the run continues there; without one it waits, and a person is paged. The node is
    in maintenance until `stoker readmit`. No hardware fault is recorded.
    """
    request = DrainNode(id=new_request_id(), by=requester(), node=node, reason=_reason(reason))
    _ask(request, node, where=where, timeout_seconds=timeout_seconds, as_json=as_json)


@click.command(
    epilog=examples(
        'stoker quarantine n7 --reason "corrupts checkpoints"',
        "stoker hardware                     what is refused, and why",
        "stoker readmit n7                   let it in again",
    )
)
@_node_options
def quarantine(
    node: str, *, reason: str, timeout_seconds: float, where: str | None, as_json: bool
) -> None:
    """Take a node out of service and refuse its hardware from now on, under any node name.

    A node in service leaves at the next checkpoint, as with `stoker drain`.
    """
    request = QuarantineNode(id=new_request_id(), by=requester(), node=node, reason=_reason(reason))
    _ask(request, node, where=where, timeout_seconds=timeout_seconds, as_json=as_json)


@click.command(
    epilog=examples('stoker readmit n7 --reason "new power supply"', "stoker readmit n7 --json")
)
@_node_options
def readmit(
    node: str, *, reason: str, timeout_seconds: float, where: str | None, as_json: bool
) -> None:
    """Let a node return to service: it is checked, then it becomes a spare.

    Earlier faults of its hardware no longer count. Retired hardware stays out.
    """
    request = ReadmitNode(id=new_request_id(), by=requester(), node=node, reason=_reason(reason))
    _ask(request, node, where=where, timeout_seconds=timeout_seconds, as_json=as_json)


@click.command(
    epilog=examples(
        'stoker retire n7 --reason "sent back"', "stoker retire n7 --yes              in a script"
    )
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_node_options
def retire(
    node: str, *, yes: bool, reason: str, timeout_seconds: float, where: str | None, as_json: bool
) -> None:
    """Take a node out of service for good; its hardware is never used again.

    This cannot be undone; `stoker quarantine` refuses hardware until it is readmitted.
    """
    request = RetireNode(id=new_request_id(), by=requester(), node=node, reason=_reason(reason))
    confirm = None if yes else _confirm_retirement
    _ask(
        request,
        node,
        where=where,
        timeout_seconds=timeout_seconds,
        as_json=as_json,
        confirm=confirm,
    )


def _ask(
    request: Request,
    *nodes: str | None,
    where: str | None,
    timeout_seconds: float,
    as_json: bool,
    confirm: Callable[[Store, ClusterSpec, str], None] | None = None,
) -> None:
    """Check the nodes that a request names and that a supervisor will read it; send it, wait and report."""
    cluster = find_cluster(where)
    with store_of(cluster) as store:
        status = require_status(store, cluster)
        known_nodes = [known_node(status, name).node for name in nodes if name is not None]
        require_leader(store, cluster)
        if confirm is not None:
            confirm(store, cluster, known_nodes[0])
        report(store, cluster, request, timeout_seconds=timeout_seconds, as_json=as_json)


def _confirm_retirement(store: Store, cluster: ClusterSpec, node: str) -> None:
    found = known_node(require_status(store, cluster), node)
    if found.state == "retired":
        return
    what = f" ({found.hardware})" if found.hardware else ""
    if not sys.stdin.isatty():
        raise UserError(
            f"retire: {node}{what} would be out of service for good, and there is no terminal to ask; confirm with --yes"
        )
    text = f"{node} is {found.state}; take it out of service for good and never use its hardware{what} again?"
    if not click.confirm(text, err=True):
        raise UserError(f"retire: {node} stays as it is")


def _reason(text: str) -> str:
    """Return the reason; raise UserError if it is no single short line."""
    if len(text) > MAX_REASON or not text.isprintable():
        raise UserError(
            f"--reason: {text[:60]!r} is too long or has line breaks; write one line of at most {MAX_REASON} characters"
        )
    return text
