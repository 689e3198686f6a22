"""The cases: what is broken, in which run, and how soon it has to be at work again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.clusters import Shape
from bench.recovery.memory import report_memory
from bench.recovery.ours import run_of_ours, script_command
from bench.recovery.peer import (
    NAME,
    VERSION,
    Launcher,
    Peer,
    PeerMissing,
    ft_launcher,
    peer_running,
    torchrun,
)
from bench.recovery.rounds import one_round, one_round_of_peer
from bench.recovery.series import Draw, Series
from bench.report import Report

# Rounds of either side before the other's turn.
KILLS_PER_LAUNCH = 2
# Of the script in each step.
STEP_SECONDS = 0.02
STOPPED_STEP_SECONDS = 0.05
# How long a peer gets to notice a stopped rank; chosen, not measured.
STOPPED_WAIT_SECONDS = 60.0
# DistributedDataParallel imports torch._dynamo when the first model is wrapped, which takes as long as torch itself.
SCRIPT_PRELOAD = ["torch", "torch._dynamo"]
# Three heartbeats; shorter than shipped (1 s and 5 s), so that it is the limit, not the wait, that is measured.
# The same few nodes die in each round, which would make lemons of them.
SILENCE = {"heartbeat_seconds": 0.5, "heartbeat_timeout_seconds": 1.5, "lemon_faults": 1000}
TRAINER = {"steps": 100_000, "checkpoint_every": 4, "validate_every": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the rounds are made. `warm` False: preload nothing, to see what warm processes are worth."""

    rounds: int
    seed: int
    warm: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault in a run of ours, again and again in one cluster. `fields` are run.yaml's."""

    key: str
    text: str
    shape: Shape
    fields: Mapping[str, Any]
    # One of kill-rank, stop-rank, kill-node.
    fault: str
    limit_seconds: float | None = None
    before_start_limit_ms: float | None = None
    is_weighed: bool = False

    def measure(self, report: Report, plan: Plan) -> list[Series]:
        """Break the run once a round; print what was measured."""
        series = Series(self.text, self.limit_seconds)
        with run_of_ours(self.shape, **with_preload(self.fields, plan)) as ours:
            for number in range(plan.rounds):
                one_round(ours, series, self.fault, Draw(plan.seed, self.key, number))
            if self.is_weighed:
                ours.settled()
                report_memory(report, self.text, ours)
        series.print(report)
        series.print_phases(report, before_start_limit_ms=self.before_start_limit_ms)
        return [series]


def trainer(recipe: str) -> dict[str, Any]:
    """Return run.yaml's fields for the built-in trainer."""
    return {"trainer": {"recipe": recipe, **TRAINER}, "environment": {"OMP_NUM_THREADS": "1"}}


def script(pause_seconds: float) -> dict[str, Any]:
    """Return run.yaml's fields for the script, with what it imports."""
    return {**script_command(pause_seconds), "preload": SCRIPT_PRELOAD}


def with_preload(fields: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Return the fields as they are, or, without warm processes, with nothing to preload."""
    return dict(fields) if plan.warm else {**fields, "preload": []}


CASES = {
    case.key: case
    for case in (
        Case(
            key="phases",
            text="kill -9 of a rank, tiny_cpu, 4 ranks",
            shape=Shape(nodes=2, ranks_per_node=2, spares=0),
            fields=trainer("tiny_cpu"),
            fault="kill-rank",
            before_start_limit_ms=150.0,
        ),
        Case(
            key="rank-3d",
            text="kill -9 of a rank, tiny_3d, 8 ranks",
            shape=Shape(nodes=2, ranks_per_node=4, spares=0),
            fields=trainer("tiny_3d"),
            fault="kill-rank",
            limit_seconds=1.5,
            is_weighed=True,
        ),
        Case(
            key="stopped",
            text="SIGSTOP of a rank, script without a client, steps of 50 ms, 2 ranks",
            shape=Shape(nodes=1, ranks_per_node=2, spares=0),
            fields=script(STOPPED_STEP_SECONDS),
            fault="stop-rank",
            limit_seconds=2.5,
        ),
        Case(
            key="node",
            text="whole node killed, a spare, script, 2 ranks",
            shape=Shape(nodes=2, ranks_per_node=1, spares=1, limits=SILENCE),
            fields=script(STEP_SECONDS),
            fault="kill-node",
            limit_seconds=SILENCE["heartbeat_timeout_seconds"] + 0.5,
        ),
        Case(
            key="node-3d",
            text="whole node killed, a spare, tiny_3d, 8 ranks",
            shape=Shape(nodes=2, ranks_per_node=4, spares=1, limits=SILENCE),
            fields=trainer("tiny_3d"),
            fault="kill-node",
            limit_seconds=SILENCE["heartbeat_timeout_seconds"] + 1.2,
        ),
    )
}


def beside_peer(report: Report, plan: Plan) -> list[Series]:
    """Kill ranks of the script under Stoker and under each peer in turn; print all and the ratio to the first peer."""
    text = "kill -9 of a rank, script, 2 ranks"
    try:
        launchers = (ft_launcher(), torchrun())
    except PeerMissing as error:
        report.miss(f"{text}: {NAME} {VERSION}", f"not installed: {error}".replace("\n", " "))
        return []
    ours = Series(f"{text}: Stoker", 0.3)
    theirs = [Series(f"{text}: {launcher.name}", is_peer=True) for launcher in launchers]
    fields = with_preload(script(STEP_SECONDS), plan)
    for first in range(0, plan.rounds, KILLS_PER_LAUNCH):
        numbers = range(first, min(first + KILLS_PER_LAUNCH, plan.rounds))
        is_last = numbers[-1] == plan.rounds - 1
        for launcher, series in zip(launchers, theirs, strict=True):
            with peer_running(launcher, num_ranks=2, pause_seconds=STEP_SECONDS) as peer:
                for number in numbers:
                    one_round_of_peer(peer, series, Draw(plan.seed, "rank", number))
                if is_last:
                    finish_peer(report, text, launcher, peer)
        with run_of_ours(Shape(nodes=1, ranks_per_node=2, spares=0), **fields) as run:
            for number in numbers:
                one_round(run, ours, "kill-rank", Draw(plan.seed, "rank", number))
            if is_last:
                run.settled()
                report_memory(report, text, run)
    ratios = [a / b for a, b in zip(ours.seconds, theirs[0].seconds, strict=True)]
    for series in (ours, *theirs):
        series.print(report)
    report.figure_of(f"{text}: Stoker to the peer, round by round", ratios, "x", at_most=0.15)
    ours.print_phases(report)
    return [ours, *theirs]


def finish_peer(report: Report, text: str, launcher: Launcher, peer: Peer) -> None:
    """Print what a peer holds in memory beside its ranks, and whether it recovers from a stopped rank."""
    peer.settled()
    report.figure(f"{text}: resident beside the ranks, {launcher.name}", peer.resident_mb(), "MB")
    recovers = peer.recovers_from_stop(peer.ranks[-1], seconds=STOPPED_WAIT_SECONDS)
    outcome = "a new step" if recovers else "no new step"
    report.note(f"SIGSTOP of a rank, {launcher.name}: {outcome} within {STOPPED_WAIT_SECONDS:g} s")
