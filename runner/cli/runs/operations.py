"""Commands that change runs: each is a request, answered by the supervisor. Only kill-supervisor acts by itself."""

import math
import os
import re
import signal
import time
from decimal import Decimal

import click

from runner.cli import clusters, exit_codes, output
from runner.cli.foreground.leftovers import restarter_of
from runner.cli.options import command, request_options, why_option
from runner.cli.request_client import ask, checked_reason, new_request_id, requester
from runner.errors import TemporaryError, UserError
from runner.facts.drills import DAMAGES, DRILL_KINDS, DrillOptions, problem_of
from runner.facts.messages.cluster_status import RunStatus
from runner.facts.messages.requests import AddRemedy, Answer, Drill, Request, ShutDown, StopRun
from runner.facts.remedies import RemedyName
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import known_words
from runner.store.protocol import Store

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# Of a run whose ranks have not reported: the supervisor judges the rank. No gang is larger.
MAX_RANKS = 1 << 24
DRILLS: dict[str, str] = {
    "kill-rank": "SIGKILL to one training process",
    "stop-rank": "SIGSTOP to one: alive, but it does not move",
    "kill-node": "SIGKILL to a node's agent, keeper and ranks at once, no clean-up",
    "kill-agent": "SIGKILL to an agent alone; its ranks go on",
    "kill-supervisor": "SIGKILL to the supervisor; agents and ranks go on",
    **{name: kind.about for name, kind in DRILL_KINDS.items()},
}


@command("stoker stop tiny", "stoker stop            # when there is only one run")
@click.argument("run", required=False)
@why_option
@request_options(120.0)
def stop(
    run: str | None, *, reason: str, timeout_seconds: float, where: str | None, as_json: bool
) -> None:
    """Stop a run for good, with a checkpoint if its ranks can save one.

    Ranks that take requests end at the next step boundary; others get SIGTERM, and SIGKILL after `stop_grace_seconds`.
    """
    with clusters.open_cluster(where) as (cluster, store):
        picked = pick_live_run(store, cluster, run)
        why = checked_reason(reason)
        request = StopRun(id=new_request_id(), by=requester(), reason=why, run=str(picked.run))
        report(store, cluster, request, timeout_seconds=timeout_seconds, as_json=as_json)


@command("stoker shutdown", "stoker shutdown --cluster cluster.yaml --timeout 300")
@why_option
@request_options(180.0)
def shutdown(*, reason: str, timeout_seconds: float, where: str | None, as_json: bool) -> None:
    """Stop all runs, then all agents, then the supervisor; nothing of the cluster keeps running."""
    with clusters.open_cluster(where) as (cluster, store):
        deadline = time.monotonic() + timeout_seconds
        request = ShutDown(id=new_request_id(), by=requester(), reason=checked_reason(reason))
        clusters.require_leader(store, cluster)
        answer = ask(
            store, cluster, request, timeout_seconds=timeout_seconds, on_accepted=_print_progress
        )
        while _is_kept_up(store, cluster) and time.monotonic() < deadline:
            time.sleep(0.05)
        if clusters.leader_of(store).alive:
            raise TemporaryError(
                f"the supervisor of cluster {cluster.name!r} has not ended after {timeout_seconds:g} s; "
                "wait longer with --timeout"
            )
    _finish(answer, as_json=as_json)


def _is_kept_up(store: Store, cluster: ClusterSpec) -> bool:
    """Whether a supervisor leads, or a process of this machine would start one."""
    return clusters.leader_of(store).alive or any(restarter_of(cluster))


@command(
    "stoker lr tiny x0.9      multiply the whole schedule by 0.9",
    "stoker lr tiny 5.4e-5    a new peak for the schedule",
    "stoker lr tiny =4e-5     that rate at every step, instead of the schedule",
    "stoker lr x0.9           when there is only one run",
)
@click.argument("words", nargs=-1, required=True, metavar="[RUN] CHANGE")
@why_option
@request_options(300.0)
def lr(
    words: tuple[str, ...],
    *,
    reason: str,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    """Change a run's learning rate, and print the value that the trainer reports back.

    CHANGE is a factor for the whole schedule (x0.9), a new peak in exponent notation (5.4e-5), or one rate for all steps (=4e-5).
    The run saves a checkpoint, is launched again with the change, and the trainer reports what is in effect. A command that knows
    nothing of Stoker needs {lr} or {lr_factor} among its arguments; the rate in its lines is compared.
    """
    if len(words) > 2:
        raise UserError(
            f"lr: {' '.join(words)!r} has too many parts; write a run and a change, such as `tiny x0.9`"
        )
    remedy, value = parse_lr(words[-1])
    with clusters.open_cluster(where) as (cluster, store):
        picked = pick_live_run(store, cluster, words[0] if len(words) == 2 else None)
        request = AddRemedy(
            id=new_request_id(),
            by=requester(),
            reason=checked_reason(reason),
            run=str(picked.run),
            remedy=remedy,
            value=value,
        )
        report(store, cluster, request, timeout_seconds=timeout_seconds, as_json=as_json)


@command(
    "stoker drill kill-rank tiny --rank 3",
    "stoker drill kill-node tiny --node n2",
    "stoker drill nan tiny --rank 1 --steps 20",
    "stoker drill kill-supervisor",
    more="\b\nDrills (`stoker docs drills`):\n"
    + "".join(f"  {name:<18}  {what}\n" for name, what in DRILLS.items()),
)
@click.argument("fault", type=click.Choice(list(DRILLS)))
@click.argument("run", required=False)
@click.option("--rank", type=click.IntRange(min=0), help="Which rank; default: the last, or all.")
@click.option("--node", help="Which node; default: the last of the run.")
@click.option("--step", type=int, help="First step, or data position; default: the next.")
@click.option("--steps", type=int, help="How many steps it lasts.")
@click.option("--strength", type=float, help="How strong it is; the unit is the drill's own.")
@click.option("--damage", type=click.Choice(list(DAMAGES)), help="Of corrupt-checkpoint.")
@request_options(30.0)
def drill(  # noqa: PLR0913 - click hands over each option
    fault: str,
    run: str | None,
    *,
    rank: int | None,
    node: str | None,
    step: int | None,
    steps: int | None,
    strength: float | None,
    damage: str | None,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    """Inject a real fault, and see whether the run recovers."""
    with clusters.open_cluster(where) as (cluster, store):
        if fault == "kill-supervisor":
            answer = Answer(id="", state="done", message=kill_supervisor(store, cluster))
            _finish(answer, as_json=as_json)
            return
        picked = pick_live_run(store, cluster, run)
        num_ranks = _num_ranks(store, cluster, picked)
        options = DrillOptions(
            rank=rank, step=step, steps=steps, strength=strength, damage=damage or ""
        )
        request = make_drill(fault, picked, options, node=node, num_ranks=num_ranks)
        report(store, cluster, request, timeout_seconds=timeout_seconds, as_json=as_json)


def make_drill(
    fault: str, run: RunStatus, options: DrillOptions, *, node: str | None, num_ranks: int
) -> Drill:
    """Return the request for a drill; raise UserError if options contradict each other. `num_ranks` 0: unknown yet."""
    rank, kind = options.rank, DRILL_KINDS.get(fault)  # type: ignore[call-overload]
    of_rank = kind is not None or fault.endswith("-rank")
    asked = {"step": options.step, "steps": options.steps, "strength": options.strength}
    given = [name for name, value in asked.items() if value is not None]
    given += ["damage"] if options.damage else []
    if kind is None and given:
        raise UserError(f"--{given[0]}: {fault} takes none")
    if of_rank and node is not None:
        raise UserError(f"--node: {fault} takes a rank, not a node; give --rank")
    if not of_rank and rank is not None:
        raise UserError(f"--rank: {fault} takes a node, not a rank; give --node")
    if node is not None and node not in run.nodes:
        raise UserError(
            f"--node: no node {node!r} in run {run.name!r}; {known_words(node, list(run.nodes))}"
        )
    if of_rank and num_ranks and rank is not None and rank >= num_ranks:
        raise UserError(
            f"--rank: no rank {rank} in run {run.name!r}; ranks are 0 to {num_ranks - 1}"
        )
    if of_rank and kind is None and rank is None:
        rank = max(0, num_ranks - 1)
    problem = problem_of(fault, options, world_size=num_ranks or MAX_RANKS) if kind else ""  # type: ignore[arg-type]
    if problem:
        raise UserError(problem)
    return Drill(
        id=new_request_id(),
        by=requester(),
        run=str(run.run),
        fault=fault,  # type: ignore[arg-type]  # the command's Choice allows no other
        rank=rank,
        node=node,
        step=options.step,
        steps=options.steps,
        strength=options.strength,
        damage=options.damage,
    )


def kill_supervisor(store: Store, cluster: ClusterSpec) -> str:
    """Send SIGKILL to the lease's holder, if it is a process of this machine; return what was done."""
    from runner.supervisor.lease import holder_pid

    leader = clusters.require_leader(store, cluster)
    pid = holder_pid(leader.holder)
    if pid is None:
        raise UserError(
            f"the supervisor of cluster {cluster.name!r} is {leader.holder} (host:pid:start), no process of this machine; "
            "run the drill where it runs"
        )
    handle = os.pidfd_open(pid)
    try:
        # The pid may have been reused before the pidfd was open.
        if holder_pid(leader.holder) != pid:
            raise UserError(
                f"supervisor {leader.holder} has just ended by itself; see `stoker status`"
            )
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
    return f"supervisor {leader.holder} was killed"


def _num_ranks(store: Store, cluster: ClusterSpec, run: RunStatus) -> int:
    """Return the number of ranks of a run, from its nodes' reports; 0 before the first report."""
    nodes = {node.node: node for node in clusters.require_status(store, cluster).nodes}
    alive = [rank for name in run.nodes if name in nodes for rank in nodes[name].ranks_alive]
    return max(alive, default=-1) + 1


def pick_live_run(store: Store, cluster: ClusterSpec, name: str | None) -> RunStatus:
    """Return the run with this name, or the only one; raise UserError if there is none, or it has ended."""
    run = clusters.pick_run(clusters.require_status(store, cluster), name)
    if run.state not in clusters.LIVE_STATES:
        why = f" ({run.reason})" if run.reason else ""
        raise UserError(
            f"run {run.name!r} ({run.run}) is {run.state}{why}: it cannot be changed any more"
        )
    return run


def report(
    store: Store, cluster: ClusterSpec, request: Request, *, timeout_seconds: float, as_json: bool
) -> None:
    """Send a request, wait, print the answer, and exit accordingly. Ctrl-C does not withdraw the request."""
    line, begun = output.ProgressLine(), time.monotonic()

    def on_accepted(answer: Answer) -> None:
        line.clear()
        output.print_note(answer.message or "accepted")

    try:
        answer = ask(
            store,
            cluster,
            request,
            timeout_seconds=timeout_seconds,
            on_accepted=on_accepted,
            on_wait=lambda: line.write(
                f"waiting for it to be done: {output.seconds(time.monotonic() - begun)}"
            ),
        )
    except KeyboardInterrupt:
        output.print_note(f"request {request.id} is not withdrawn; see `stoker status`")
        raise
    finally:
        line.clear()
    _finish(answer, as_json=as_json)


def _print_progress(answer: Answer) -> None:
    output.print_note(answer.message or "accepted")


def _finish(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    elif answer.state == "done":
        output.print_text(answer.message or "done")
    else:
        output.print_note(f"stoker: {answer.state}: {answer.message}")
    if answer.state != "done":
        code = exit_codes.BAD_INPUT if answer.state == "refused" else exit_codes.FAILED
        click.get_current_context().exit(code)


def parse_lr(text: str) -> tuple[RemedyName, float]:
    """Read `x0.9` as a factor, `5.4e-5` as a peak, `=4e-5` as a rate; returns the remedy's name and its value.

    A bare number is refused: 0.9 may mean either, and one of the meanings ruins a run.
    """
    remedy: RemedyName = "lr_peak"
    number = text.strip()
    factor = re.fullmatch(rf"[xX*\u00d7]\s*({_NUMBER})", number)
    rate = re.fullmatch(rf"=\s*({_NUMBER})", number)
    if factor:
        remedy, number = "lr_factor", factor[1]
    elif rate:
        remedy, number = "lr", rate[1]
    elif not re.fullmatch(_NUMBER, number):
        raise UserError(
            f"lr: {text!r} is not a learning rate; write x0.9 to multiply the schedule by 0.9, "
            "a new peak in exponent notation, such as 5.4e-5, or =4e-5 for one rate at every step"
        )
    elif "e" not in number.lower():
        raise UserError(
            f"lr: {text!r} is ambiguous; write x{number} to multiply the schedule by it, "
            f"or {Decimal(number):e} for that as the new peak"
        )
    if not 0 < float(number) < math.inf:
        raise UserError(
            f"lr: {text!r} is not a positive number; write something like x0.9 or 5.4e-5"
        )
    return remedy, float(number)
