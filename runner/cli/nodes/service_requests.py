"""Commands that take nodes out of service and let them return: requests, answered by the supervisor."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from runner.cli.clusters import open_cluster, require_leader, require_status
from runner.cli.nodes.inventory import known_node
from runner.cli.options import command, confirm, request_options, why_option
from runner.cli.request_client import checked_reason, new_request_id, requester
from runner.cli.runs.operations import report
from runner.facts.messages import requests as q
from runner.facts.messages.cluster_status import NodeStatus


def _node_request(request: Callable[..., q.Request]) -> Callable[..., None]:
    """Make a command about one node; see `_request_about`."""
    return click.argument("node")(_request_about(request))


def _request_about(request: Callable[..., q.Request]) -> Callable[..., None]:
    """Make a command about nodes from a function that takes its request's fields and returns the request.

    The command checks the nodes that the request names and that a supervisor will read it; then it
    sends the request, waits and reports.
    """

    @why_option
    @request_options(900.0)
    @wraps(request)
    def send(
        *,
        reason: str,
        where: str | None,
        timeout_seconds: float,
        as_json: bool,
        yes: bool = True,
        **fields: Any,
    ) -> None:
        fields["reason"] = checked_reason(reason)
        wanted = request(id=new_request_id(), by=requester(), **fields)
        named = [fields[name] for name in ("node", "spare") if fields.get(name) is not None]
        nodes = [*named, *fields.get("nodes", ())]
        with open_cluster(where) as (cluster, store):
            status = require_status(store, cluster)
            found = [known_node(status, name) for name in nodes]
            require_leader(store, cluster)
            if not yes:
                _confirm_retirement(found[0])
            report(store, cluster, wanted, timeout_seconds=timeout_seconds, as_json=as_json)

    return send


@command(
    'stoker swap n7 --reason "fans are loud"',
    "stoker swap n7 --with n12",
    "stoker readmit n7       once it is repaired",
)
@click.option(
    "--with", "spare", metavar="SPARE", help="The spare that replaces it; default: the nearest."
)
@_node_request
def swap(**fields: Any) -> q.Request:
    """Replace a node by a spare at the next checkpoint, which is requested now.

    The run continues from that checkpoint, so no step is lost. The node is in maintenance until `stoker readmit`. Without a
    fitting spare the swap is refused; `stoker drain` takes the node out in any case. Done when the node is out of service.
    """
    return q.SwapNode(**fields)


@command(
    'stoker drain n7 --reason "rack r2 moves on Friday"',
    "stoker drain n7 --timeout 3600      a checkpoint of this run takes long",
)
@_node_request
def drain(**fields: Any) -> q.Request:
    """Take a node out of service at the next checkpoint, with or without a spare.

    With a spare the run continues there; without one it waits, and a person is paged. The node is
    in maintenance until `stoker readmit`. No hardware fault is recorded.
    """
    return q.DrainNode(**fields)


@command(
    'stoker quarantine n7 --reason "corrupts checkpoints"',
    "stoker hardware                     what is refused, and why",
    "stoker readmit n7                   let it in again",
)
@_node_request
def quarantine(**fields: Any) -> q.Request:
    """Take a node out of service and refuse its hardware from now on, under any node name.

    A node in service leaves at the next checkpoint, as with `stoker drain`.
    """
    return q.QuarantineNode(**fields)


@command('stoker readmit n7 --reason "new power supply"', "stoker readmit n7 --json")
@_node_request
def readmit(**fields: Any) -> q.Request:
    """Let a node return to service: it is checked, then it becomes a spare.

    Earlier faults of its hardware no longer count. Retired hardware stays out.
    """
    return q.ReadmitNode(**fields)


@command('stoker retire n7 --reason "sent back"', "stoker retire n7 --yes              in a script")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_node_request
def retire(**fields: Any) -> q.Request:
    """Take a node out of service for good; its hardware is never used again.

    This cannot be undone; `stoker quarantine` refuses hardware until it is readmitted.
    """
    return q.RetireNode(**fields)


@command(
    "stoker isolate                      all idle nodes",
    "stoker isolate n3 n4 n5 n6 n7 n8    these, and no other",
    "stoker story                        the rounds, and what was found",
)
@click.argument("nodes", nargs=-1)
@click.option(
    "--python",
    default="",
    metavar="FILE",
    help="The interpreter on the nodes that has torch. Default: that of a run of this cluster, else the agents' own.",
)
@_request_about
def isolate(**fields: Any) -> q.Request:
    """Measure idle nodes, each alone and then in pairs, to find which node or which path between two is bad.

    One node of each machine takes part, of at least six machines, and none of them runs anything meanwhile: a minute or two. Nodes
    found bad are quarantined, as many as Stoker may take out by itself; a bad path is named. Done when all are judged.
    """
    return q.IsolateNodes(**fields)


def _confirm_retirement(node: NodeStatus) -> None:
    if node.state == "retired":
        return
    what = f" ({node.hardware})" if node.hardware else ""
    text = f"{node.node} is {node.state}; take it out of service for good and never use its hardware{what} again?"
    risk = f"retire: {node.node}{what} would be out of service for good"
    confirm(risk, text, f"{node.node} stays as it is")
