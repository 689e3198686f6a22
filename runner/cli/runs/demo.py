"""`stoker demo`: a real run on real text that loses a rank and then a node, recovers from both, and prints the cost."""

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from runner.act.pager.addresses import read_addresses
from runner.cli import exit_codes, output
from runner.cli.clusters import DEMO, SPEC, STATES_FOLDER, store_of
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.leftovers import (
    SHARED_MEMORY,
    new_shared_memory,
    processes_of,
    shared_memory,
)
from runner.cli.foreground.presence import Presence
from runner.cli.foreground.run_follower import Foreground, Interrupts, KilledByUser
from runner.cli.foreground.summary import Summary
from runner.cli.made_clusters import make_cluster
from runner.cli.neighbours import neighbours
from runner.cli.options import command, json_option
from runner.cli.request_client import decode_answer, send
from runner.cli.runs.operations import make_drill
from runner.cli.runs.run import report
from runner.cli.runs.trainer_settings import check_trainer
from runner.errors import StokerError, TemporaryError, UserError
from runner.facts import wire
from runner.facts.drills import DrillOptions
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.pages import ON_CALL, PagesSpec
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import answer_register
from runner.load.specs import TRAINER_PRELOAD

NAME = DEMO
NODES, SLOTS, SPARES = 2, 2, 1
# Enough for two faults with a checkpoint before each; under three minutes on two cores.
STEPS = 120
CHECKPOINT_EVERY = 20
# So that a fault loses steps.
STEPS_PAST_CHECKPOINT = 8
RETRY_DRILL_SECONDS = 3.0


@dataclass(slots=True)
class PlannedDrill:
    """One drill of the plan: injected once the run is past a checkpoint, over once it trains again."""

    drill: str
    words: str
    request_id: str = ""
    tried_at: float = 0.0
    incidents_before: set[str] = field(default_factory=set)
    incident: str = ""

    def is_healed(self, incidents: Iterable[IncidentStatus]) -> bool:
        """Whether the run trains again after it."""
        mine = (each for each in incidents if each.incident == self.incident)
        return any(each.recovered_after_seconds is not None for each in mine)


class DrillDirector:
    """Injects the faults of the plan one after the other, as statuses arrive."""

    def __init__(self, foreground: Foreground) -> None:
        self.foreground = foreground
        self.faults = (
            PlannedDrill("kill-rank", "now a rank is killed: SIGKILL to one training process"),
            PlannedDrill(
                "kill-node", "now a node is killed: SIGKILL to its agent, keeper and ranks at once"
            ),
        )

    def on_status(self, status: ClusterStatus) -> None:
        """Inject the next fault if it is time, or check whether the run recovered from the last one."""
        fault = next((f for f in self.faults if not f.is_healed(status.incidents)), None)
        run = find_run(status, self.foreground.run)
        if fault is None or run is None:
            return
        incidents = [i for i in status.incidents if i.run == run.run]
        if fault.request_id:
            self._watch(fault, incidents)
        elif (
            _is_past_checkpoint(run, incidents)
            and time.monotonic() - fault.tried_at >= RETRY_DRILL_SECONDS
        ):
            fault.tried_at = time.monotonic()
            fault.incidents_before = {incident.incident for incident in incidents}
            self._inject(fault, run)

    def _inject(self, fault: PlannedDrill, run: RunStatus) -> None:
        request = make_drill(fault.drill, run, DrillOptions(), node=None, num_ranks=NODES * SLOTS)
        log = self.foreground.screen.log
        try:
            send(self.foreground.store, self.foreground.cluster, request)
        except TemporaryError as error:
            log(f"drill {fault.drill}: {error}")
            return
        fault.request_id = request.id
        log(f"*** {fault.words} (stoker drill {fault.drill}) at step {run.step} ***")

    def _watch(self, fault: PlannedDrill, incidents: Sequence[IncidentStatus]) -> None:
        name = answer_register(fault.request_id)
        register = self.foreground.store.get(name)
        answer = register and decode_answer(self.foreground.cluster, name, register.payload)
        if answer and answer.state in ("refused", "failed"):
            self.foreground.screen.log(
                f"drill {fault.drill} {answer.state}: {answer.message}; trying again"
            )
            fault.request_id = ""
            return
        new = [i.incident for i in incidents if i.incident not in fault.incidents_before]
        if new and not fault.incident:
            fault.incident = new[-1]


def _is_past_checkpoint(run: RunStatus, incidents: Sequence[IncidentStatus]) -> bool:
    """Whether the run is some steps past a trusted checkpoint that is newer than the last fault."""
    if run.attempt_state != "running" or run.last is None or run.checkpoint_step is None:
        return False
    reached = max((incident.step or 0 for incident in incidents), default=0)
    past = run.last.step >= run.checkpoint_step + STEPS_PAST_CHECKPOINT
    return past and run.checkpoint_step > reached


@command(
    "stoker demo",
    "stoker demo --state /tmp/demo --steps 300",
    "stoker demo --pages pages.addresses          page about each fault, as `stoker docs paging` says",
    more=exit_codes.HELP,
)
@click.option(
    "--state",
    metavar="FOLDER",
    help=f"The demo's folder. Default: {STATES_FOLDER}/{NAME}, emptied first.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=100),
    default=STEPS,
    show_default=True,
    help="Goal of the run.",
)
@click.option(
    "--pages",
    "addresses",
    metavar="FILE",
    help="File of addresses, a name and an address a line (`oncall https://...`), that get a page about each fault. Default: pages "
    "are lines of the supervisor's log.",
)
@json_option
def demo(*, state: str | None, steps: int, addresses: str | None, as_json: bool) -> None:
    """Train a small model, kill a rank and a node, and watch the run recover from both.

    The text is the source of Python's own standard library; nothing is downloaded. Takes under three minutes on two cores. Exit
    code 0 only if the run recovered from both faults and reached its last step, and no process is left behind.
    """
    pages = _paged_to(addresses)
    folder = _fresh_folder(Path(state) if state is not None else Path(STATES_FOLDER) / NAME)
    spec = make_run(steps)
    spec = check_trainer(spec, ranks_here=spec.world_size)
    before = shared_memory()
    cluster = make_cluster(folder, spec, spares=SPARES, name=NAME, pages=pages)
    for note in neighbours(cluster):
        output.print_note(note)
    with (
        Presence(folder, log=output.print_note) as presence,
        store_of(cluster, create=True) as store,
        Interrupts(store) as interrupts,
    ):
        director = DrillDirector(Foreground(store, cluster, interrupts, presence))
        code, summary = _perform(director, spec, as_json=as_json)
    if summary is not None:
        report(summary, as_json=as_json)
        log = output.print_note if as_json else output.print_text
        code = code or _judge(summary, director.faults, log=log)
    left = [*map(str, processes_of(cluster))]
    left += [str(SHARED_MEMORY / name) for name in new_shared_memory(before)]
    if left:
        output.print_note(f"LEFT BEHIND: {', '.join(left)}")
        code = code or exit_codes.FAILED
    elif not as_json:
        output.print_text("nothing is left behind: no process, no file in shared memory")
        place = shlex.quote(str(folder))
        output.print_text(
            f"look again with: stoker story --cluster {place}; stoker lineage --cluster {place}"
        )
    click.get_current_context().exit(code)


def _perform(
    director: DrillDirector, spec: RunSpec, *, as_json: bool
) -> tuple[int, Summary | None]:
    """Run it; return the exit code so far, and the summary if the run ended."""
    foreground = director.foreground
    try:
        status = foreground.follow(spec, as_json=as_json, on_status=director.on_status)
    except KilledByUser:
        foreground.kill()
        return exit_codes.INTERRUPTED, None
    except StokerError:
        foreground.kill()
        raise
    foreground.shut_down()
    return foreground.outcome(status)


def _judge(summary: Summary, faults: Sequence[PlannedDrill], *, log: Callable[[str], None]) -> int:
    """Print whether the demo succeeded; return the exit code."""
    missing = [
        f"{fault.drill} was {'not healed' if fault.request_id else 'never done'}"
        for fault in faults
        if not fault.is_healed(summary.incidents)
    ]
    run = summary.run
    if run.total_steps is not None and run.step < run.total_steps:
        missing.append(f"step {run.step} of {run.total_steps} was reached")
    log("")
    log("FAILED: " + "; ".join(missing) if missing else "both faults healed, the goal was reached")
    return exit_codes.FAILED if missing else exit_codes.DONE


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


def _paged_to(addresses: str | None) -> PagesSpec:
    """Return where the demo pages: each rung, since a restart that helps is silent otherwise. Raises UserError for a wrong file."""
    if addresses is None:
        return PagesSpec()
    path = Path(addresses).expanduser().absolute()
    try:
        found = read_addresses(path)
    except UserError as error:
        raise UserError(f"--pages: {error}") from error
    if not any(each.name == ON_CALL for each in found):
        raise UserError(f"--pages: {path} names no `{ON_CALL}`; begin a line with it")
    return PagesSpec(addresses_file=str(path), every_rung=True)


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
