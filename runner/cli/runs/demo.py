"""`stoker demo`: a real run on real text that loses a rank and then a node, recovers from both, and prints the cost."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import click

from runner.cli import exit_codes, output
from runner.cli.clusters import SPEC, make_cluster, store_of
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.leftovers import (
    SHARED_MEMORY,
    new_shared_memory,
    processes_of,
    shared_memory,
)
from runner.cli.foreground.run_follower import (
    Foreground,
    Interrupts,
    KilledByUser,
    end_cluster,
    kill_cluster,
    start_run,
)
from runner.cli.foreground.screen import Screen, screen_for
from runner.cli.foreground.summary import Summary, summarize
from runner.cli.foreground.supervisor_child import SupervisorChild
from runner.cli.options import examples, json_option
from runner.cli.request_client import send
from runner.cli.runs.operations import make_drill
from runner.cli.runs.run import report
from runner.cli.runs.trainer_settings import check_trainer
from runner.errors import StokerError, TemporaryError, UserError
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.messages.requests import Answer
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import answer_register
from runner.load.specs import TRAINER_PRELOAD
from runner.store.protocol import Store

NAME = "demo"
NODES, SLOTS, SPARES = 2, 2, 1
# Enough for two faults with a checkpoint before each; under three minutes on two cores.
STEPS = 120
CHECKPOINT_EVERY = 20
# So that a fault loses steps.
STEPS_PAST_CHECKPOINT = 8
# Between two attempts at a drill that was refused.
AGAIN_SECONDS = 3.0


@dataclass(slots=True)
class PlannedDrill:
    """One drill of the plan: injected once the run is past a checkpoint, over once it trains again."""

    drill: str
    words: str
    # Its id, once sent.
    request: str = ""
    stop_requested_at: float = 0.0
    # Incidents before it.
    seen: set[str] = field(default_factory=set)
    incident: str = ""


@dataclass(slots=True, kw_only=True)
class DrillDirector:
    """Injects the faults of the plan one after the other, as statuses arrive."""

    store: Store
    cluster: ClusterSpec
    screen: Screen
    run: int
    faults: list[PlannedDrill]

    def on_status(self, status: ClusterStatus) -> None:
        """Inject the next fault if it is time, or check whether the run recovered from the last one."""
        fault = next((f for f in self.faults if not _is_healed(f, status)), None)
        run = find_run(status, self.run)
        if fault is None or run is None:
            return
        if fault.request:
            self._watch(fault, status)
        elif self._is_time(run, status):
            self._inject(fault, run, status)

    def _is_time(self, run: RunStatus, status: ClusterStatus) -> bool:
        """Whether the run is some steps past a trusted checkpoint that is newer than the last fault."""
        if run.attempt_state != "running" or run.last is None or run.checkpoint_step is None:
            return False
        reached = max((i.step or 0 for i in status.incidents if i.run == self.run), default=0)
        past = run.last.step >= run.checkpoint_step + STEPS_PAST_CHECKPOINT
        return past and run.checkpoint_step > reached

    def _inject(self, fault: PlannedDrill, run: RunStatus, status: ClusterStatus) -> None:
        if time.monotonic() - fault.stop_requested_at < AGAIN_SECONDS:
            return
        fault.stop_requested_at = time.monotonic()
        request = make_drill(fault.drill, run, rank=None, node=None, num_ranks=NODES * SLOTS)
        fault.seen = {incident.incident for incident in status.incidents}
        try:
            send(self.store, self.cluster, request)
        except TemporaryError as error:
            self.screen.log(f"drill {fault.drill}: {error}")
            return
        fault.request = request.id
        self.screen.log(f"*** {fault.words} (stoker drill {fault.drill}) at step {run.step} ***")

    def _watch(self, fault: PlannedDrill, status: ClusterStatus) -> None:
        register = self.store.get(answer_register(fault.request))
        answer = wire.decode(register.payload) if register is not None else None
        if isinstance(answer, Answer) and answer.state in ("refused", "failed"):
            self.screen.log(f"drill {fault.drill} {answer.state}: {answer.message}; trying again")
            fault.request = ""
            return
        new = [
            i
            for i in reversed(status.incidents)
            if i.run == self.run and i.incident not in fault.seen
        ]
        if new and not fault.incident:
            fault.incident = new[0].incident


@click.command(
    epilog=examples("stoker demo", "stoker demo --state /tmp/demo --steps 300") + exit_codes.HELP
)
@click.option(
    "--state",
    metavar="FOLDER",
    help=f"The demo's folder. Default: .stoker/{NAME}, emptied first.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=100),
    default=STEPS,
    show_default=True,
    help="Goal of the run.",
)
@json_option
def demo(*, state: str | None, steps: int, as_json: bool) -> None:
    """Train a small model, kill a rank and a node, and watch the run recover from both.

    The text is the source of Python's own standard library; nothing is downloaded. Takes under
    three minutes on two cores. Exit code 0 only if the run recovered from both faults and reached
    its last step, and no process is left behind.
    """
    folder = _fresh_folder(Path(state) if state is not None else Path(".stoker") / NAME)
    spec = make_run(steps)
    spec = check_trainer(spec)
    before = shared_memory()
    cluster = make_cluster(folder, spec, spares=SPARES)
    with store_of(cluster, create=True) as store, Interrupts(store) as interrupts:
        code, summary, faults = _perform(
            store, cluster, spec, interrupts=interrupts, as_json=as_json
        )
    if summary is not None:
        report(summary, as_json=as_json)
        code = code or _judge(
            summary, faults, log=output.print_note if as_json else output.print_text
        )
    left = _left_behind(cluster, before)
    if left:
        output.print_note(f"LEFT BEHIND: {', '.join(left)}")
        code = code or exit_codes.FAILED
    elif not as_json:
        output.print_text("nothing is left behind: no process, no file in shared memory")
        output.print_text(
            f"look again with: stoker story --cluster {folder}; stoker lineage --cluster {folder}"
        )
    click.get_current_context().exit(code)


def _perform(
    store: Store, cluster: ClusterSpec, spec: RunSpec, *, interrupts: Interrupts, as_json: bool
) -> tuple[int, Summary | None, list[PlannedDrill]]:
    """Run it; return the exit code so far, the summary if the run ended, and the drills."""
    faults = [
        PlannedDrill("kill-rank", "now a rank is killed: SIGKILL to one training process"),
        PlannedDrill(
            "kill-node", "now a node is killed: SIGKILL to its agent, keeper and ranks at once"
        ),
    ]
    child = SupervisorChild(cluster, store, log=output.print_note)
    try:
        child.start()
        number = start_run(store, cluster, spec)
        screen = screen_for(number, as_json=as_json)
        director = DrillDirector(
            store=store, cluster=cluster, screen=screen, run=number, faults=faults
        )
        status = Foreground(
            store=store,
            cluster=cluster,
            child=child,
            screen=screen,
            interrupts=interrupts,
            run=number,
            on_status=director.on_status,
        ).follow()
    except KilledByUser:
        kill_cluster(cluster, child)
        return exit_codes.INTERRUPTED, None, faults
    except StokerError:
        kill_cluster(cluster, child)
        raise
    end_cluster(store, cluster, child, interrupts=interrupts)
    ended = find_run(status, number)
    # following it ended because it was there
    assert ended is not None
    code = exit_codes.INTERRUPTED if interrupts.count else exit_codes.of_run(ended.state)
    return code, summarize(status, ended), faults


def _is_healed(fault: PlannedDrill, status: ClusterStatus) -> bool:
    incident = _incident(fault, status.incidents)
    return incident is not None and incident.recovered_after_seconds is not None


def _incident(fault: PlannedDrill, incidents: tuple[IncidentStatus, ...]) -> IncidentStatus | None:
    return next((i for i in incidents if i.incident == fault.incident), None)


def _judge(summary: Summary, faults: list[PlannedDrill], *, log: object) -> int:
    """Print whether the demo succeeded; return the exit code."""
    assert callable(log)
    missing = []
    for fault in faults:
        incident = _incident(fault, summary.incidents)
        if incident is None or incident.recovered_after_seconds is None:
            missing.append(
                f"{fault.drill} was not healed"
                if fault.request
                else f"{fault.drill} was never done"
            )
    run = summary.run
    if run.total_steps is not None and run.step < run.total_steps:
        missing.append(f"step {run.step} of {run.total_steps} was reached")
    log("")
    log("FAILED: " + "; ".join(missing) if missing else "both faults healed, the goal was reached")
    return exit_codes.FAILED if missing else exit_codes.DONE


def _left_behind(cluster: ClusterSpec, before: frozenset[str]) -> list[str]:
    processes = [f"{process.what} (pid {process.pid})" for process in processes_of(cluster)]
    return processes + [str(SHARED_MEMORY / name) for name in new_shared_memory(before)]


def make_run(steps: int) -> RunSpec:
    """Return the demo's run."""
    return RunSpec(
        name=NAME,
        trainer={"recipe": "tiny_cpu", "steps": steps, "checkpoint_every": CHECKPOINT_EVERY},
        nodes=NODES,
        ranks_per_node=SLOTS,
        python=sys.executable,
        preload=TRAINER_PRELOAD,
    )


def _fresh_folder(folder: Path) -> Path:
    """Return the folder, emptied if it holds an earlier demo; raise UserError if it holds anything else."""
    folder = folder.absolute()
    if not folder.exists() or not any(folder.iterdir()):
        return folder
    known = wire.decode((folder / SPEC).read_bytes()) if (folder / SPEC).exists() else None
    if not isinstance(known, ClusterSpec) or known.name != NAME:
        raise UserError(
            f"--state: {folder} holds something other than a demo; name an empty folder"
        )
    running = processes_of(known)
    if running:
        raise UserError(
            f"--state: a demo is still running in {folder} ({len(running)} processes); "
            f"end it with `stoker shutdown --cluster {folder}`, or name another folder"
        )
    shutil.rmtree(folder)
    return folder
