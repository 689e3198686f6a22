"""`stoker run`: start a run and follow it to its end, or detach."""

from __future__ import annotations

import click

from runner.cli import exit_codes, output
from runner.cli.clusters import cluster_for_run, has_leader, store_of, with_token, write_spec
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.run_follower import (
    Foreground,
    Interrupts,
    KilledByUser,
    end_cluster,
    kill_cluster,
    other_live_runs,
    start_run,
)
from runner.cli.foreground.screen import screen_for
from runner.cli.foreground.summary import Summary, summarize, summary_text
from runner.cli.foreground.supervisor_child import (
    SupervisorChild,
    SupervisorLost,
    SupervisorRefused,
)
from runner.cli.options import cluster_option, examples, json_option
from runner.cli.runs.trainer_settings import apply_changes, check_trainer
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.serve.status_reader import read_status
from runner.store.protocol import Store

# for the trainer to judge its settings; chosen, not measured
CHECK_SECONDS = 60.0


@click.command(
    epilog=examples(
        "stoker run run.yaml                        on a new cluster of local nodes",
        "stoker run run.yaml --spares 1             with a spare node",
        "stoker run run.yaml --set optimizer.lr=1e-4 --set steps=500",
        "stoker run run.yaml --cluster cluster.yaml --detach",
    )
    + exit_codes.HELP
)
@click.argument("file", metavar="RUN.yaml")
@cluster_option
@click.option(
    "--spares", type=click.IntRange(min=0), help="Spare nodes of a new local cluster. Default: 0."
)
@click.option(
    "--detach", is_flag=True, help="Return once the run is admitted; it goes on in the background."
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the built-in trainer, such as optimizer.lr=1e-4.",
)
@json_option
def run(
    file: str,
    *,
    where: str | None,
    spares: int | None,
    detach: bool,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start the run that RUN.yaml describes and follow it to its end.

    If no supervisor holds the lease, one is started, and restarted if it dies. Ctrl-C stops the run
    at the next step boundary, with a checkpoint if its ranks can save one, and ends what was
    started; a second Ctrl-C kills at once.
    """
    from runner.load.specs import load_run

    spec = apply_changes(load_run(file), changes)
    spec = check_trainer(spec)
    cluster = cluster_for_run(where, spec, spares=spares)
    cluster = prepare_cluster(cluster, spec)
    with store_of(cluster, create=True) as store:
        if detach:
            _detached(store, cluster, spec, as_json=as_json)
            return
        code = _foreground(store, cluster, spec, as_json=as_json)
    click.get_current_context().exit(code)


def prepare_cluster(cluster: ClusterSpec, spec: RunSpec) -> ClusterSpec:
    """Write the cluster for its agents, unless a supervisor runs it already; return it, with its token.

    Raises UserError if the cluster can never hold the run; with a supervisor, which knows the
    joined nodes, that one refuses.
    """
    if has_leader(cluster):
        return cluster
    local = cluster.local
    is_small = spec.nodes > local.nodes + local.spares or spec.ranks_per_node > local.slots
    # Otherwise nodes join by themselves.
    if local.nodes > 0 and not cluster.store.address and is_small:
        raise UserError(
            f"nodes x ranks_per_node: {spec.nodes} x {spec.ranks_per_node} requested, but cluster {cluster.name!r} has "
            f"{local.nodes + local.spares} nodes (spares counted) with {local.slots} slots each; request less, or raise "
            "`local.nodes` or `local.slots`"
        )
    cluster = with_token(cluster)
    write_spec(cluster)
    return cluster


def _detached(store: Store, cluster: ClusterSpec, spec: RunSpec, *, as_json: bool) -> None:
    child = SupervisorChild(cluster, store, log=output.print_note)
    child.start()
    number = start_run(store, cluster, spec)
    if as_json:
        output.print_json(
            {"run": number, "name": spec.name, "cluster": cluster.name, "state": cluster.state}
        )
        return
    output.print_text(
        f"run {number} {spec.name} goes on in the background; see `stoker status`, end it with `stoker shutdown`"
    )


def _foreground(store: Store, cluster: ClusterSpec, spec: RunSpec, *, as_json: bool) -> int:
    """Follow the run; return the exit code."""
    with Interrupts(store) as interrupts:
        child = SupervisorChild(cluster, store, log=output.print_note)
        number = -1
        try:
            child.start()
            number = start_run(store, cluster, spec)
            status = Foreground(
                store=store,
                cluster=cluster,
                child=child,
                screen=screen_for(number, as_json=as_json),
                interrupts=interrupts,
                run=number,
            ).follow()
        except KilledByUser:
            return _killed(cluster, child)
        except SupervisorRefused:
            raise
        except UserError:
            seen = read_status(store)
            if child.is_ours and not (seen is not None and other_live_runs(seen, number)):
                end_cluster(store, cluster, child, interrupts=interrupts)
            raise
        except SupervisorLost:
            output.print_note("still running: " + (", ".join(_names(cluster)) or "nothing"))
            raise
        others = other_live_runs(status, number)
        if child.is_ours and not others:
            _ended(store, cluster, child, interrupts=interrupts)
        elif child.is_ours:
            output.print_note(
                f"the supervisor stays for {', '.join(others)}; end all with `stoker shutdown`"
            )
    ended = find_run(status, number)
    assert ended is not None
    report(summarize(status, ended), as_json=as_json)
    return exit_codes.INTERRUPTED if interrupts.count else exit_codes.of_run(ended.state)


def report(summary: Summary, *, as_json: bool) -> None:
    """Print the summary."""
    if as_json:
        output.print_json(summary)
    else:
        output.print_text()
        output.print_text(summary_text(summary))


def _ended(
    store: Store, cluster: ClusterSpec, child: SupervisorChild, *, interrupts: Interrupts
) -> None:
    ending = end_cluster(store, cluster, child, interrupts=interrupts)
    if ending.killed:
        output.print_note(
            f"killed what did not end in order: {', '.join(p.what for p in ending.killed)}"
        )
    if ending.left:
        output.print_note(
            f"STILL RUNNING: {', '.join(f'{p.what} (pid {p.pid})' for p in ending.left)}"
        )


def _killed(cluster: ClusterSpec, child: SupervisorChild) -> int:
    left = kill_cluster(cluster, child)
    named = ", ".join(f"{process.what} (pid {process.pid})" for process in left)
    output.print_note(f"killed; still running: {named}" if left else "killed; nothing is left")
    return exit_codes.INTERRUPTED


def _names(cluster: ClusterSpec) -> list[str]:
    from runner.cli.foreground.leftovers import processes_of

    return [f"{process.what} (pid {process.pid})" for process in processes_of(cluster)]
