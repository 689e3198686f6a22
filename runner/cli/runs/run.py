"""`stoker run`: start a run and follow it to its end, or detach."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from runner.cli import clusters, exit_codes, made_clusters, output
from runner.cli.foreground.folder_cluster import enter_folder_cluster
from runner.cli.foreground.leftovers import Leftover, processes_of
from runner.cli.foreground.presence import Presence
from runner.cli.foreground.restarter import leave_supervisor
from runner.cli.foreground.run_follower import Foreground, Interrupts, KilledByUser, start_run
from runner.cli.foreground.summary import Summary, summary_text
from runner.cli.foreground.supervisor_child import (
    SupervisorLost,
    SupervisorRefused,
)
from runner.cli.neighbours import neighbours
from runner.cli.options import cluster_option, json_option
from runner.cli.runs.command_words import command_options, command_with_words
from runner.cli.runs.trainer_settings import apply_changes, check_trainer
from runner.cli.runs.typed_commands import TypedCommand
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.wording import counted
from runner.store.protocol import Store


@command_with_words(
    "stoker run -- python train.py --lr 3e-4    without a file: what is behind -- is the command",
    "stoker run --nproc-per-node 2 -- train.py  two ranks of it",
    "stoker run run.yaml                        on a new cluster of local nodes",
    "stoker run run.yaml --spares 1             with a spare node",
    "stoker run run.yaml --set optimizer.lr=1e-4 --set steps=500",
    "stoker run run.yaml --cluster cluster.yaml --detach",
    more=exit_codes.HELP,
)
@click.argument("file", metavar="RUN.yaml", required=False)
@command_options
@cluster_option
@click.option(
    "--spares", type=click.IntRange(min=0), help="Spare nodes of a new local cluster. Default: 0."
)
@click.option(
    "--detach",
    is_flag=True,
    help="Return once the run is admitted; it goes on in the background, and its supervisor is restarted if it dies.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the built-in trainer, such as optimizer.lr=1e-4.",
)
@click.option(
    "--accept-drift",
    "accepts_drift",
    is_flag=True,
    help="Go on from a run of this name although code, packages or variables are not those it ran with.",
)
@json_option
def run(  # noqa: PLR0913 - one for each option
    file: str | None,
    *,
    words: tuple[str, ...],
    name: str | None,
    ranks_per_node: str | None,
    nodes: int | None,
    where: str | None,
    spares: int | None,
    detach: bool,
    changes: tuple[str, ...],
    accepts_drift: bool,
    as_json: bool,
) -> None:
    """Start the run of RUN.yaml, or of the command behind --, and follow it to its end.

    A command is run as torchrun runs it: a first word that ends in .py, and -m MODULE, with the python3 of PATH. The run.yaml that
    means the same is printed, and kept in the run's folder; `stoker init` writes one to change.

    If no supervisor holds the lease, one is started, and restarted if it dies. Ctrl-C stops the run and ends
    what was started: at the next step boundary with a checkpoint if its ranks can do that, else by SIGTERM; a second one kills.
    The runs of a folder share one cluster: whichever ends first leaves the supervisor to the others, and the last one ends it.
    """
    typed = TypedCommand.of(file, words, name=name, nodes=nodes, ranks_per_node=ranks_per_node)
    if typed is None:
        from runner.load.specs import load_run

        assert file is not None
        path, spec = Path(file), load_run(file)
    else:
        path, spec = typed.file, typed.load()
        typed.show(output.print_note if as_json or detach else output.print_text)
    spec = apply_changes(spec, changes)
    # Without a cluster this machine plays all nodes.
    spec = check_trainer(spec, ranks_here=spec.world_size if where is None else 0)
    described = made_clusters.described_cluster(where, path, spares=spares)
    with contextlib.ExitStack() as stack:
        if described is not None:
            cluster = prepare_cluster(described, spec)
            presence = stack.enter_context(Presence(cluster.state, log=output.print_note))
        else:
            state = made_clusters.state_for_run(path, spec.name)
            cluster, presence = enter_folder_cluster(
                stack, state, spec, spares=spares or 0, may_wait=not detach
            )
            cluster = prepare_cluster(cluster, spec)
        store = stack.enter_context(clusters.store_of(cluster, create=True))
        start = _Start(spec, accepts_drift, partial(_keep, typed, cluster, spec.name))
        if detach:
            _detached(store, cluster, start, presence, as_json=as_json)
            return
        code = _foreground(store, cluster, start, presence, as_json=as_json)
    click.get_current_context().exit(code)


def prepare_cluster(cluster: ClusterSpec, spec: RunSpec) -> ClusterSpec:
    """Write the cluster for its agents, unless a supervisor runs it already; return it, with its token.

    Raises UserError if the cluster can never hold the run; with a supervisor, which knows the joined nodes, that one refuses.
    """
    if clusters.has_leader(cluster):
        return cluster
    local = cluster.local
    is_small = spec.nodes > local.nodes + local.spares or spec.ranks_per_node > local.slots
    # Otherwise nodes join by themselves.
    if local.nodes > 0 and not cluster.spans_machines and is_small:
        raise UserError(
            f"nodes x ranks_per_node: {spec.nodes} x {spec.ranks_per_node} requested, but cluster {cluster.name!r} has "
            f"{counted(local.nodes + local.spares, 'node')} (spares counted) with {counted(local.slots, 'slot')} each; "
            "request less, or raise "
            "`local.nodes` or `local.slots`"
        )
    cluster = made_clusters.with_token(cluster)
    with clusters.store_of(cluster, create=True) as store:
        clusters.require_own_store(store, cluster)
    made_clusters.write_spec(cluster)
    for note in neighbours(cluster):
        output.print_note(note)
    return cluster


class _Start(NamedTuple):
    """What is to be started; `on_started` gets the run's number."""

    spec: RunSpec
    accepts_drift: bool
    on_started: Callable[[int], None]


def _keep(typed: TypedCommand | None, cluster: ClusterSpec, name: str, run: int) -> None:
    """Write the run.yaml of a typed command into the run's folder, if that is on this machine."""
    if typed is None or cluster.local.nodes == 0:
        return
    folder = Path(cluster.state, "runs", f"{run}-{name}")
    try:
        typed.keep(folder)
    except OSError as error:
        output.print_note(f"{folder}/run.yaml was not written: {error.strerror}")


def _detached(
    store: Store, cluster: ClusterSpec, start: _Start, presence: Presence, *, as_json: bool
) -> None:
    leave_supervisor(store, cluster)
    presence.started()
    spec = start.spec
    number = start_run(store, cluster, spec, accepts_drift=start.accepts_drift)
    start.on_started(number)
    output.print_answer(
        {"run": number, "name": spec.name, "cluster": cluster.name, "state": cluster.state},
        f"run {number} {spec.name} goes on in the background; see `stoker status`, "
        "end it with `stoker shutdown`",
        as_json=as_json,
    )


def _foreground(
    store: Store, cluster: ClusterSpec, start: _Start, presence: Presence, *, as_json: bool
) -> int:
    """Follow the run; return the exit code."""
    with Interrupts(store) as interrupts:
        foreground = Foreground(store, cluster, interrupts, presence)
        foreground.accepts_drift, foreground.on_started = start.accepts_drift, start.on_started
        try:
            status = foreground.follow(start.spec, as_json=as_json)
        except KilledByUser:
            output.print_note(_kill(foreground))
            return exit_codes.INTERRUPTED
        except SupervisorRefused:
            raise
        except UserError:
            _leave(foreground)
            raise
        except SupervisorLost:
            output.print_note(f"still running: {_listed(processes_of(cluster)) or 'nothing'}")
            raise
        _leave(foreground)
    code, summary = foreground.outcome(status)
    report(summary, as_json=as_json)
    return code


def _kill(foreground: Foreground) -> str:
    """Kill everything, or the ranks of the run alone if others need the cluster; return what was done."""
    if foreground.is_alone():
        left = _listed(foreground.kill())
        return f"killed; still running: {left}" if left else "killed; nothing is left"
    left = _listed(foreground.kill_ranks())
    if foreground.has_attended_supervisor:
        _leave_to_others(foreground)
    return f"its ranks were killed; still running: {left}" if left else "its ranks were killed"


def _leave(foreground: Foreground) -> None:
    """End the supervisor that commands in the foreground started, unless another run or command needs it."""
    if foreground.has_attended_supervisor:
        if foreground.is_alone():
            _shut_down(foreground)
        else:
            _leave_to_others(foreground)


def _leave_to_others(foreground: Foreground) -> None:
    others = ", ".join(foreground.other_live_runs()) or "another `stoker run`"
    if not foreground.is_last():
        output.print_note(f"the supervisor stays for {others}, and ends with the last of them")
        return
    leave_supervisor(foreground.store, foreground.cluster)
    output.print_note(f"the supervisor stays for {others}; end all with `stoker shutdown`")


def _shut_down(foreground: Foreground) -> None:
    killed, left = foreground.shut_down()
    if killed:
        names = ", ".join(process.what for process in killed)
        output.print_note(f"killed what did not end in order: {names}")
    if left:
        output.print_note(f"STILL RUNNING: {_listed(left)}")


def _listed(processes: Sequence[Leftover]) -> str:
    return ", ".join(map(str, processes))


def report(summary: Summary, *, as_json: bool) -> None:
    """Print the summary."""
    output.print_answer(summary, f"\n{summary_text(summary)}", as_json=as_json)
