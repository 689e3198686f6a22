"""Commands that only look. They read the View or the journal from the store, so they work when the supervisor is dead."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import click

from runner.cli import output
from runner.cli.clusters import (
    Leader,
    find_cluster,
    leader_of,
    pick_run,
    require_status,
    status_age_seconds,
    store_of,
)
from runner.cli.nodes.tables import FEW, fleet_in_short, nodes_table, shown_nodes
from runner.cli.options import cluster_option, examples, json_option
from runner.cli.reports.tables import explanation, how_ranks_started, incidents_table, runs_table
from runner.errors import UserError
from runner.facts.messages.cluster_status import ClusterStatus, StandbyStatus
from runner.facts.messages.records import JournalEntry
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import known_words
from runner.history.phrases import names, printable
from runner.serve.status_reader import read_standbys, read_status
from runner.store.protocol import Store

# past that the age of what is shown is said; chosen, not measured
OLD_VIEW_SECONDS = 5.0


@click.command(
    epilog=examples(
        "stoker status",
        "stoker status --cluster big.yaml --json | jq .view.runs[0].step",
    )
)
@cluster_option
@json_option
def status(where: str | None, *, as_json: bool) -> None:
    """Show the cluster on one screen: who leads, runs, nodes, open incidents."""
    cluster = find_cluster(where)
    with store_of(cluster) as store:
        leader, view = leader_of(store), read_status(store)
        standbys = read_standbys(store, wall=time.time())
    if as_json:
        output.print_json(
            {
                "cluster": cluster.name,
                "leader": leader,
                "standbys": standbys,
                "view_age_seconds": None if view is None else status_age_seconds(view),
                "view": view,
            }
        )
        return
    output.print_text(_head(cluster, leader, view))
    for standby in standbys:
        output.print_text(_standby(standby))
    if view is None:
        return
    output.print_text()
    output.print_text(runs_table(view))
    started = how_ranks_started(view)
    if started:
        output.print_text(started)
    output.print_text()
    output.print_text(fleet_in_short(view))
    shown = shown_nodes(view, states=(), everything=False)
    if shown:
        output.print_text(nodes_table(shown[:FEW], view.now))
    if len(shown) > FEW:
        output.print_text(f"and {len(shown) - FEW} more: `stoker nodes`")
    open_ones = [i for i in view.incidents if i.state not in ("resolved", "gave_up")]
    output.print_text()
    output.print_text(incidents_table(open_ones) if open_ones else _closed_in_short(view))


@click.command(
    epilog=examples(
        "stoker runs",
        "stoker runs --json | jq -r '.[] | [.name, .ettr_ratio] | @tsv'",
    )
)
@cluster_option
@json_option
def runs(where: str | None, *, as_json: bool) -> None:
    """List the runs of the cluster, oldest first."""
    view = _view(where)
    if as_json:
        output.print_json(view.runs)
    else:
        output.print_text(runs_table(view))


@click.command(
    epilog=examples(
        "stoker incidents",
        "stoker incidents tiny --json",
    )
)
@click.argument("run", required=False)
@cluster_option
@json_option
def incidents(run: str | None, where: str | None, *, as_json: bool) -> None:
    """List incidents, newest first: what, where, seconds to detect and to recover, steps lost."""
    view = _view(where)
    found = view.incidents
    if run is not None:
        wanted = pick_run(view, run).run
        found = tuple(incident for incident in found if incident.run == wanted)
    if as_json:
        output.print_json(found)
    else:
        output.print_text(incidents_table(found) if found else "no incident")


@click.command(
    epilog=examples(
        "stoker explain i1",
        "stoker explain i1 --json | jq .cause.lines",
    )
)
@click.argument("incident")
@cluster_option
@json_option
def explain(incident: str, where: str | None, *, as_json: bool) -> None:
    """Say what an incident was, whose, how sure that is, and show the lines that say so."""
    view = _view(where)
    found = next((one for one in view.incidents if one.incident == incident), None)
    if found is None:
        names = [one.incident for one in view.incidents]
        raise UserError(
            f"no incident {incident!r} in cluster {view.cluster!r}; {known_words(incident, names)}"
        )
    if as_json:
        output.print_json(found)
    else:
        output.print_text(explanation(found))


@click.command(
    epilog=examples(
        "stoker story i1",
        "stoker story --run tiny --since 15m",
    )
)
@click.argument("incident", required=False)
@click.option("--run", "run_name", metavar="RUN", help="Only what concerns this run.")
@click.option(
    "--since",
    metavar="AGE",
    help="Only the last while, such as 90s, 15m, 3h or 2d.",
)
@cluster_option
@json_option
def story(
    incident: str | None,
    *,
    run_name: str | None,
    since: str | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Tell what happened and why, from the first signal to the last effect.

    INCIDENT is an id such as i3 (see `stoker incidents`); without it, everything is told.
    """
    from runner.history.timeline import story as tell

    cluster = find_cluster(where)
    with store_of(cluster) as store:
        view = read_status(store)
        run = (
            pick_run(require_status(store, cluster), run_name).run if run_name is not None else None
        )
        begin = None if since is None else _last_now(view) - age_seconds(since)
        lines = tell(_entries(store, cluster, since=begin), run=run, incident=incident, since=begin)
    if incident is not None and not lines:
        names = [i.incident for i in view.incidents] if view is not None else []
        raise UserError(
            f"no incident {incident!r} in cluster {cluster.name!r}; {known_words(incident, names)}"
        )
    if as_json:
        output.print_json(lines)
        return
    day = ""
    for line in lines:
        if output.moment(line.now)[:10] != day:
            day = output.moment(line.now)[:10]
            output.print_text(day)
        lead = line.heard or "then"
        output.print_text(f"{output.clock(line.now)}  +{line.offset_seconds:9.3f} s  {lead}")
        for words in line.decided:
            output.print_text(f"{'':28}-> {words}")
    if not lines:
        output.print_text("nothing to tell")


@click.command(
    epilog=examples(
        "stoker lineage tiny",
        "stoker lineage --json | jq '.[-1].remedies'",
    )
)
@click.argument("run", required=False)
@cluster_option
@json_option
def lineage(run: str | None, where: str | None, *, as_json: bool) -> None:
    """List a run's attempts: what each continued, which of its steps are left, how it ended.

    `steps kept` are those that no later attempt overwrote: together they are the run's state.
    """
    from runner.history.lineage import lineage as trace

    cluster = find_cluster(where)
    with store_of(cluster) as store:
        picked = pick_run(require_status(store, cluster), run)
        rows = trace(_entries(store, cluster), picked.run)
    if as_json:
        output.print_json(rows)
        return
    columns = (
        "attempt",
        "from",
        "at step",
        "reached",
        "steps kept",
        "nodes",
        "start",
        "ended",
        "cause",
        "remedies",
    )
    output.print_text(
        output.table(
            columns,
            [
                (
                    str(row.attempt),
                    str(row.parent or "-"),
                    str(row.resume_step),
                    "-" if row.last_step is None else str(row.last_step),
                    "none" if row.contributes is None else "{}-{}".format(*row.contributes),
                    ",".join(row.nodes),
                    output.seconds(row.start_seconds),
                    row.outcome or "-",
                    printable(row.cause, 60) + (f" ({row.incident})" if row.incident else ""),
                    ", ".join(f"{name} {value:g}" for name, value in row.remedies.items()) or "-",
                )
                for row in rows
            ],
        )
    )


def _head(cluster: ClusterSpec, leader: Leader, view: ClusterStatus | None) -> str:
    if leader.alive:
        lines = [f"cluster {cluster.name}: led by {leader.holder}; state in {cluster.state}"]
    elif view is not None and view.closing and all(node.state == "left" for node in view.nodes):
        lines = [f"cluster {cluster.name}: shut down in order; state in {cluster.state}"]
    else:
        holder = leader.holder or (view.holder if view is not None else "")
        last = f" (the last one was {holder})" if holder else ""
        lines = [
            f"cluster {cluster.name}: NOBODY LEADS; state in {cluster.state}",
            f"no supervisor{last}: ranks go on by themselves, nothing is repaired; run `stoker supervise`",
        ]
    if view is None:
        lines.append("nothing was published yet")
        return "\n".join(lines)
    age = status_age_seconds(view)
    if age > OLD_VIEW_SECONDS or not leader.alive:
        lines.append(
            f"what follows is {output.seconds(age)} old (published {output.moment(view.wall)})"
        )
    if view.store_note:
        lines.append(f"store: {printable(view.store_note)}")
    for domain, fallen in view.domains_down.items():
        lines.append(f"{printable(domain, 80)} IS DOWN, no node is blamed: {names(fallen)}")
    if view.unsigned:
        lines.append(
            "nothing is signed: whoever reaches the store is obeyed; `stoker token` changes that"
        )
    if view.decision_failures:
        lines.append(
            f"{view.decision_failures} of Stoker's own decisions failed: see `stoker story`"
        )
    if view.closing and leader.alive:
        lines.append("the cluster is shutting down")
    return "\n".join(lines)


def _standby(standby: StandbyStatus) -> str:
    within = f", within {standby.takes_over_within_seconds:g} s of the leader's death"
    return (
        f"{printable(standby.holder, 100)} stands by and takes over"
        f"{within if standby.takes_over_within_seconds else ''}; it has followed to entry {standby.through}"
    )


def _closed_in_short(view: ClusterStatus) -> str:
    if not view.incidents:
        return "no incident"
    return f"no open incident; {len(view.incidents)} closed, see `stoker incidents`"


def _view(where: str | None) -> ClusterStatus:
    cluster = find_cluster(where)
    with store_of(cluster) as store:
        return require_status(store, cluster)


def _entries(
    store: Store, cluster: ClusterSpec, *, since: float | None = None
) -> Iterator[JournalEntry]:
    """Yield the journal's entries, oldest first, files and store as one; from about `since` on, where that is given.

    Files that are older are not read then. Where the folder of old entries is not to be seen from here, that is said.
    """
    from runner.journal.archive import archive_of
    from runner.journal.journal import Journal

    archive = archive_of(cluster)
    journal = Journal(store, archive=archive)
    begin = journal.begins_at()
    if since is not None:
        begin = max(begin, journal.since(since))
    elif begin > 1:
        output.print_note(
            f"told from journal entry {begin} on: what was before is in {archive.folder}, which is not to be seen from here"
        )
    yield from journal.replay(begin)


def _last_now(view: ClusterStatus | None) -> float:
    """The controller's clock now: what it was in the View, and the time since."""
    return time.time() if view is None else view.now + status_age_seconds(view)


def age_seconds(text: str) -> float:
    """Read 90s, 15m, 3h or 2d; raise UserError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise UserError(f"--since: {text!r} is no age; write something like 90s, 15m, 3h or 2d")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match.group(2)]
