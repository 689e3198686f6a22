"""`stoker status` and `stoker runs`: the published status, which outlives the supervisor."""

import time

from runner.cli import clusters, output
from runner.cli.nodes.tables import MAX_ROWS_SHOWN, fleet_summary, nodes_table, shown_nodes
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.forecasts import forecast_notes
from runner.cli.reports.tables import (
    incidents_table,
    is_open,
    open_requests,
    page_notes,
    rank_start_notes,
    remedy_notes,
    runs_table,
)
from runner.facts.messages.cluster_status import ClusterStatus, StandbyStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import printable, printable_words
from runner.serve.status_reader import read_standbys

STALE_SECONDS = 5.0


@command("stoker status", "stoker status --cluster big.yaml --json | jq .status.runs[0].step")
@cluster_option
@json_option
def status(where: str | None, *, as_json: bool) -> None:
    """Show the cluster on one screen: its supervisor, runs, nodes and open incidents."""
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        leader, status = clusters.leader_of(store), clusters.status_in(store, cluster)
        standbys = read_standbys(store, wall=time.time())
    if as_json:
        output.print_json(
            {
                "cluster": cluster.name,
                "leader": leader,
                "standbys": standbys,
                "status_age_seconds": None
                if status is None
                else clusters.status_age_seconds(status),
                "status": status,
            }
        )
        return
    output.print_text(_head(cluster, leader, status))
    for standby in standbys:
        output.print_text(_standby(standby))
    if status is None:
        return
    output.print_text(f"\n{runs_table(status)}")
    for notes in _notes(status):
        if notes:
            output.print_text(notes)
    output.print_text(f"\n{fleet_summary(status)}")
    shown = shown_nodes(status.nodes)
    if shown:
        output.print_text(nodes_table(shown[:MAX_ROWS_SHOWN], status.now))
    if len(shown) > MAX_ROWS_SHOWN:
        output.print_text(f"and {len(shown) - MAX_ROWS_SHOWN} more: `stoker nodes`")
    open_ones = [i for i in status.incidents if is_open(i)]
    closed = f"no open incident; {len(status.incidents)} closed, see `stoker incidents`"
    is_closed = status.incidents and not open_ones
    output.print_text(f"\n{closed if is_closed else incidents_table(open_ones)}")


@command("stoker runs", "stoker runs --json | jq -r '.[] | [.name, .ettr_ratio] | @tsv'")
@cluster_option
@json_option
def runs(where: str | None, *, as_json: bool) -> None:
    """List the runs of the cluster, oldest first."""
    status = read_cluster_status(where)
    output.print_answer(status.runs, runs_table(status), as_json=as_json)


def _head(cluster: ClusterSpec, leader: clusters.Leader, status: ClusterStatus | None) -> str:
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
    age = clusters.status_age_seconds(status)
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


def _notes(status: ClusterStatus) -> tuple[str, ...]:
    """Return what there is to say of runs below their table; "" for nothing."""
    return (
        forecast_notes(status),
        rank_start_notes(status),
        remedy_notes(status),
        open_requests(status),
        page_notes(status),
    )


def _standby(standby: StandbyStatus) -> str:
    seconds = standby.takes_over_within_seconds
    within = f" within {seconds:g} s of the supervisor's death" if seconds else ""
    who, entry = printable(standby.holder, 100), standby.followed_through
    return f"standby {who} takes over{within}; it has applied entry {entry}"


def read_cluster_status(where: str | None) -> ClusterStatus:
    """Return the published status of the cluster that `--cluster` means."""
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        return clusters.require_status(store, cluster)
