"""`stoker nodes` and `stoker hardware`: the fleet, one node or machine in detail."""

from typing import get_args

import click

from runner.cli import output
from runner.cli.clusters import open_cluster, pick, require_status, status_in
from runner.cli.nodes.details import (
    domains_of,
    hardware_details,
    hardware_table,
    is_notable,
    node_details,
)
from runner.cli.nodes.tables import MAX_ROWS_SHOWN, fleet_summary, nodes_table, shown_nodes
from runner.cli.options import cluster_option, command, json_option
from runner.decide.state.cluster_state import Hardware, State
from runner.errors import UserError
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus
from runner.facts.messages.records import NodeStateName
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store

NODE_STATES: tuple[str, ...] = get_args(NodeStateName)


@command(
    "stoker nodes",
    "stoker nodes n7                 one node in detail, with its hardware's history",
    "stoker nodes --state spare      the spares",
    "stoker nodes --json | jq -r '.[] | select(.state == \"lost\") | .node'",
)
@click.argument("node", required=False)
@click.option(
    "--state",
    "states",
    type=click.Choice(NODE_STATES),
    multiple=True,
    help="Only nodes in this state; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="List every node of a large fleet, too.")
@cluster_option
@json_option
def nodes(
    node: str | None, *, states: tuple[str, ...], everything: bool, where: str | None, as_json: bool
) -> None:
    """List the nodes: state, attempt, last heartbeat, and how many spares there are.

    Of a large fleet only nodes that need attention are listed. With NODE: everything about that node.
    """
    if node is not None and (states or everything):
        raise UserError(f"nodes: --state and --all do not go with a node ({node!r}); omit them")
    with open_cluster(where, only_reads=True) as (cluster, store):
        status = require_status(store, cluster)
        if node is not None:
            _one_node(store, cluster, status, node, as_json=as_json)
            return
    wanted = [node for node in status.nodes if not states or node.state in states]
    if as_json:
        output.print_json(wanted)
        return
    shown = wanted if everything or states else shown_nodes(wanted)
    output.print_text(fleet_summary(status))
    omitted = len(wanted) - len(shown)
    if omitted:
        output.print_text(
            f"{omitted} active and spare nodes are not shown: `--all` lists them, `--state spare` the spares"
        )
    if shown or not omitted:
        output.print_text(f"\n{nodes_table(shown, status.now)}")


@command(
    "stoker hardware",
    "stoker hardware board:PF3X9     one machine in detail",
    "stoker hardware --json | jq -r '.[] | select(.verdict != \"\") | .hardware'",
)
@click.argument("name", required=False, metavar="[HARDWARE]")
@click.option("--all", "everything", is_flag=True, help="List all hardware of a large fleet, too.")
@cluster_option
@json_option
def hardware(name: str | None, *, everything: bool, where: str | None, as_json: bool) -> None:
    """List all hardware ever seen: its node names, faults, and whether it may serve.

    A machine is identified by its parts (board serial, GPUs, network cards), not by its node name: a bad one that returns under
    another name is refused. `stoker readmit NODE` lets it return. Faults count for `lemon_days`.
    """
    with open_cluster(where, only_reads=True) as (cluster, store):
        status, state = status_in(store, cluster), state_in(store, cluster)
    now = state.now if status is None else max(state.now, status.now)
    every = list(state.hardware.values())
    if name is not None:
        known = {each.hardware: each for each in every}
        every = [pick(known, name, f"hardware {name!r} was seen")]
    if as_json:
        output.print_json(every)
    elif name is not None:
        output.print_text("\n".join(hardware_details(every[0], state, cluster=cluster, now=now)))
    elif not every:
        output.print_text("no hardware yet")
    else:
        _list_hardware(every, cluster=cluster, now=now, everything=everything)


def known_node(status: ClusterStatus, name: str) -> NodeStatus:
    """Return the node of that name; raise UserError with the known ones."""
    nodes = {node.node: node for node in status.nodes}
    return pick(nodes, name, f"node {name!r} in cluster {status.cluster!r}")


def state_in(store: Store, cluster: ClusterSpec) -> State:
    """Return the controller's state from the journal: the newest snapshot, and the entries after it, applied.

    It holds more than the published status, and costs more to read.
    """
    from runner.decide.state.apply import apply_entry
    from runner.journal.journal import Journal
    from runner.signer import signer_of
    from runner.supervisor.decisions import Recovery

    journal = Journal(store, signer=signer_of(cluster))
    snapshot = journal.latest_snapshot()
    state = State()
    if isinstance(snapshot.state, Recovery) and isinstance(snapshot.state.state, State):
        state = snapshot.state.state
    for entry in journal.replay(snapshot.through + 1):
        apply_entry(state, entry)
    return state


def _one_node(
    store: Store, cluster: ClusterSpec, status: ClusterStatus, name: str, *, as_json: bool
) -> None:
    found, state = known_node(status, name), state_in(store, cluster)
    durable = state.nodes.get(name)
    what = state.hardware.get(found.hardware)
    if not as_json:
        output.print_text(node_details(found, state, cluster=cluster, now=status.now))
        return
    plain = output.plain(found)
    plain["domains"] = domains_of(cluster, name)
    plain["checked"] = output.plain(durable.checked) if durable is not None else None
    plain["hardware_history"] = output.plain(what)
    output.print_json(plain)


def _list_hardware(
    every: list[Hardware], *, cluster: ClusterSpec, now: float, everything: bool
) -> None:
    shown = every
    if len(every) > MAX_ROWS_SHOWN and not everything:
        shown = [each for each in every if is_notable(each)]
    refused = sum(bool(each.verdict) for each in every)
    output.print_text(f"{len(every)} pieces of hardware, {refused} of them refused")
    if len(shown) < len(every):
        rest = len(every) - len(shown)
        output.print_text(f"{rest} have one name, no fault and no verdict: `--all` lists them")
    if shown:
        output.print_text(f"\n{hardware_table(shown, cluster=cluster, now=now)}")
