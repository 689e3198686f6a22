"""`stoker status` and `stoker runs`: the published status, which outlives the supervisor."""

from __future__ import annotations

import time

import click

from runner.cli import output
from runner.cli.clusters import (
    Leader,
    find_cluster,
    leader_of,
    require_status,
    status_age_seconds,
    store_of,
)
from runner.cli.nodes.tables import FEW, fleet_summary, nodes_table, shown_nodes
from runner.cli.options import cluster_option, examples, json_option
from runner.cli.reports.tables import incidents_table, rank_start_notes, runs_table
from runner.facts.messages.cluster_status import ClusterStatus, StandbyStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import printable, printable_words
from runner.serve.status_reader import read_standbys, read_status

# A status this old is shown with its age. Chosen, not measured.
STALE_SECONDS = 5.0


@click.command(
    epilog=examples(
        "stoker status", "stoker status --cluster big.yaml --json | jq .status.runs[0].step"
    )
)
@cluster_option
@json_option
def status(where: str | None, *, as_json: bool) -> None:
    """Show the cluster on one screen: its supervisor, runs, nodes and open incidents."""
    cluster = find_cluster(where)
    with store_of(cluster) as store:
        leader, status = leader_of(store), read_status(store)
        standbys = read_standbys(store, wall=time.time())
    if as_json:
        output.print_json(
            {
                "cluster": cluster.name,
                "leader": leader,
                "standbys": standbys,
                "status_age_seconds": None if status is None else status_age_seconds(status),
                "status": status,
            }
        )
        return
    output.print_text(_head(cluster, leader, status))
    for standby in standbys:
        output.print_text(_standby(standby))
    if status is None:
        return
    output.print_text()
    output.print_text(runs_table(status))
    started = rank_start_notes(status)
    if started:
        output.print_text(started)
    output.print_text()
    output.print_text(fleet_summary(status))
    shown = shown_nodes(status, states=(), everything=False)
    if shown:
        output.print_text(nodes_table(shown[:FEW], status.now))
    if len(shown) > FEW:
        output.print_text(f"and {len(shown) - FEW} more: `stoker nodes`")
    open_ones = [i for i in status.incidents if i.state not in ("resolved", "gave_up")]
    output.print_text()
    output.print_text(incidents_table(open_ones) if open_ones else _closed_summary(status))


@click.command(
    epilog=examples("stoker runs", "stoker runs --json | jq -r '.[] | [.name, .ettr_ratio] | @tsv'")
)
@cluster_option
@json_option
def runs(where: str | None, *, as_json: bool) -> None:
    """List the runs of the cluster, oldest first."""
    status = read_cluster_status(where)
    if as_json:
        output.print_json(status.runs)
    else:
        output.print_text(runs_table(status))


def _head(cluster: ClusterSpec, leader: Leader, status: ClusterStatus | None) -> str:
    if leader.alive:
        lines = [f"cluster {cluster.name}: supervisor {leader.holder}; state in {cluster.state}"]
    elif (
        status is not None and status.closing and all(node.state == "left" for node in status.nodes)
    ):
        lines = [f"cluster {cluster.name}: shut down in order; state in {cluster.state}"]
    else:
        holder = leader.holder or (status.holder if status is not None else "")
        last = f" (the last supervisor was {holder})" if holder else ""
        lines = [
            f"cluster {cluster.name}: NO SUPERVISOR holds the lease; state in {cluster.state}",
            f"ranks train on, nothing is repaired{last}; run `stoker supervise`",
        ]
    if status is None:
        lines.append("no status was published yet")
        return "\n".join(lines)
    age = status_age_seconds(status)
    if age > STALE_SECONDS or not leader.alive:
        lines.append(
            f"this status is {output.seconds(age)} old (published {output.moment(status.wall)})"
        )
    if status.store_note:
        lines.append(f"store: {printable(status.store_note)}")
    for domain, fallen in status.domains_down.items():
        lines.append(
            f"{printable(domain, 80)} IS DOWN, its nodes are not suspected: {printable_words(fallen)}"
        )
    if status.unsigned:
        lines.append(
            "messages are not signed: any process that reaches the store is obeyed; see `stoker token`"
        )
    if status.decision_failures:
        lines.append(
            f"{status.decision_failures} of Stoker's own decisions failed; see `stoker story`"
        )
    if status.closing and leader.alive:
        lines.append("the cluster is shutting down")
    return "\n".join(lines)


def _standby(standby: StandbyStatus) -> str:
    within = f" within {standby.takes_over_within_seconds:g} s of the supervisor's death"
    return (
        f"standby {printable(standby.holder, 100)} takes over"
        f"{within if standby.takes_over_within_seconds else ''}; it has applied entry {standby.followed_through}"
    )


def _closed_summary(status: ClusterStatus) -> str:
    if not status.incidents:
        return "no incident"
    return f"no open incident; {len(status.incidents)} closed, see `stoker incidents`"


def read_cluster_status(where: str | None) -> ClusterStatus:
    """Return the published status of the cluster that `--cluster` means."""
    cluster = find_cluster(where)
    with store_of(cluster) as store:
        return require_status(store, cluster)
