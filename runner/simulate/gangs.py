"""What the ranks of all nodes do together: a gang starts when all its ranks run, and hangs when one does."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.facts.contract import EXIT_CHECKPOINT_REFUSED
from runner.facts.drills import RANK_DRILLS
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import digests
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import LaunchPlan
from runner.facts.remedies import REMEDIES
from runner.simulate.node import SimNode
from runner.simulate.numbers import SimNumbers
from runner.simulate.training import SimCheckpoints, SimGang, Training
from runner.simulate.virtual_time import Agenda

LR_PEAK = 1e-3
REFUSAL_WORDS = "checkpoint refused: the hash of rank0 differs"
PEER_WORDS = "RuntimeError: Connection closed by peer"
# From the start of the last rank until its node knows what they run with.
SURVEY_SECONDS = 0.3
# Steps between two comparisons of copies, as the trainer's default.
COMPARE_EVERY = 10
# Of the start, after which ranks report that they are ready, and their settings.
HELLO_SHARE = 0.5


class SimGangs:
    """All gangs since the start of the simulation."""

    def __init__(
        self,
        agenda: Agenda,
        machines: Mapping[str, SimNode],
        training_of: Callable[[str], Training],
        folder: Callable[[int], SimCheckpoints],
    ) -> None:
        """`training_of(run name)` returns how its ranks behave, `folder(run)` its checkpoints."""
        self.all: dict[AttemptId, SimGang] = {}
        self.numbers: dict[AttemptId, SimNumbers] = {}
        # Until peers fail on a dead rank; None: they hang.
        self.echo_seconds: float | None = 0.5
        self._agenda = agenda
        self._machines = machines
        self._training_of = training_of
        self._folder = folder

    def on_ranks_started(self, plan: LaunchPlan, generation: int) -> None:
        """Begin when the last rank is up."""
        if plan.attempt in self.all or len(self.ranks(plan.attempt)) < plan.world_size:
            return
        nodes = sorted(
            (name for name, machine in self._machines.items() if _runs(machine, plan.attempt)),
            key=lambda name: min(_share_ranks(self._machines[name])),
        )
        folder = self._folder(plan.attempt.run)
        base = int(plan.resume.rpartition("-")[2]) if plan.resume else folder.own_step
        gang = SimGang(
            plan=plan,
            generation=generation,
            training=self._training_of(plan.run),
            folder=folder,
            base=base,
            step=base,
            nodes=tuple(nodes),
        )
        resumed = folder.find(plan.resume)
        position, ruined_at, ruin = resumed.weights if resumed is not None else (base, 0, "")
        self.numbers[plan.attempt] = SimNumbers(
            training=gang.training,
            remedies=plan.remedies if gang.training.takes_lr else {},
            nodes=gang.nodes,
            lr_peak=LR_PEAK,
            base=base,
            position=position,
            ruined_at=ruined_at,
            ruin=ruin,
        )
        self.all[plan.attempt] = gang
        if gang.training.commits:
            self._agenda.after(SURVEY_SECONDS, lambda: self._report_conditions(gang))
        start_seconds = gang.training.start_seconds
        self._agenda.after(start_seconds * HELLO_SHARE, lambda: self._report_ready(gang))
        self._agenda.after(start_seconds, lambda: self._first_step(gang))

    def on_rank_died(self, attempt: AttemptId) -> None:
        """Let its peers fail a little later: their connections are closed."""
        if self.echo_seconds is not None:
            self._agenda.after(self.echo_seconds, lambda: self._end_peers(attempt))

    def submit_request(self, attempt: AttemptId, request_id: str, request: dict[str, Any]) -> bool:
        """Pass a request to the ranks; the same one from several nodes counts once."""
        gang = self._reporting(attempt)
        if gang is None:
            return False
        known = [pending for _, pending in gang.requests]
        if request not in known:
            gang.requests.append((request_id, request))
        return True

    def last_step(self, attempt: AttemptId) -> int | None:
        """Return the last step the gang has reported."""
        gang = self._reporting(attempt)
        return gang.step if gang is not None and gang.step > gang.base else None

    def _reporting(self, attempt: AttemptId) -> SimGang | None:
        gang = self.all.get(attempt)
        return gang if gang is not None and gang.training.reports else None

    def heartbeat_fields(
        self, attempt: AttemptId, ranks: tuple[int, ...], reported: int | None
    ) -> dict[str, Any]:
        """Return what a node reports of these ranks: phases if they report, else how often rank 0 writes (once a step).

        `reported`: the last step of the heartbeat before.
        """
        gang = self.all.get(attempt)
        if gang is None or not ranks:
            return {}
        made, every_seconds = gang.step - gang.base, gang.training.step_seconds
        node = gang.nodes[min(ranks) // (gang.plan.world_size // len(gang.nodes))]
        conditions = gang.conditions(node)
        known = {"conditions": digests(conditions)} if conditions is not None else {}
        if gang.training.reports:
            phase = "step" if made else "start"
            slowest = _slowest(gang.training.phases, ranks) if made else {}
            phases = {str(rank): phase for rank in ranks}
            steps = _records(gang, reported) if gang.training.warmup and 0 in ranks else ()
            if made and gang.training.losses:
                steps = self.numbers[attempt].unreported(node, min(ranks))
            more = self._costs(gang, node, ranks) if made else {}
            return {"phases": phases, "start_phases": slowest, "steps": steps, **known, **more}
        if 0 not in ranks:
            return known
        return {
            **known,
            "num_writes": made,
            "writing_seconds": every_seconds * max(0, made - 1),
            "longest_gap_seconds": every_seconds if made > 1 else 0.0,
        }

    def _costs(self, gang: SimGang, node: str, ranks: tuple[int, ...]) -> dict[str, Any]:
        """Return what a step costs these ranks, of runs in which one node is slow."""
        faults = gang.training
        found: dict[str, Any] = {}
        if faults.slow_node:
            seconds = faults.slow_ratio if node == faults.slow_node else 1.0
            found["rank_computes"] = tuple(
                s.RankCompute(rank=rank, seconds=seconds, stage=0) for rank in ranks
            )
        return found

    def ranks(self, attempt: AttemptId, *, running: bool = False) -> list[int]:
        """Return the ranks of an attempt that are alive (`running`: not stopped, and in reach of their peers)."""
        return [
            rank
            for machine in self._machines.values()
            if machine.share is not None and _runs(machine, attempt)
            for rank, how in machine.share.ranks.items()
            if not running or (how == "running" and machine.reaches_peers)
        ]

    def live(self, run: int) -> list[AttemptId]:
        """Return the attempts of a run all of whose ranks are alive: never more than one."""
        return [
            name
            for name, gang in self.all.items()
            if name.run == run and len(self.ranks(name)) == gang.plan.world_size
        ]

    def _is_whole(self, gang: SimGang) -> bool:
        nodes = gang.nodes
        is_cut = any(peer in nodes for name in nodes for peer in self._machines[name].cut_peers)
        return not is_cut and len(self.ranks(gang.attempt, running=True)) == gang.plan.world_size

    def _signal(self, gang: SimGang, kind: Callable[..., s.Signal], **fields: Any) -> None:
        """Send a signal about the gang from the node of its rank 0."""
        self._machines[gang.nodes[0]].signal(kind, attempt=gang.attempt, **fields)

    def _report_conditions(self, gang: SimGang) -> None:
        earlier = [name for name in self.all if name.run == gang.attempt.run]
        commits = gang.training.commits
        gang.commit = str(commits[min(earlier.index(gang.attempt), len(commits) - 1)])
        self.report_conditions(gang.attempt, gang.nodes[0])

    def report_conditions(self, attempt: AttemptId, node: str) -> None:
        """Let a node report what its ranks run with, if they run and it has found out."""
        gang, machine = self.all.get(attempt), self._machines[node]
        conditions = gang.conditions(node) if gang is not None else None
        if gang is not None and conditions is not None and _runs(machine, attempt):
            machine.signal(
                s.ConditionsFound,
                attempt=attempt,
                generation=gang.generation,
                conditions=conditions,
            )

    def _report_ready(self, gang: SimGang) -> None:
        if not gang.training.reports or not self._is_whole(gang):
            return
        understands = gang.training.understands
        known = {
            "requests": ("checkpoint", "stop", "drill"),
            "remedies": tuple(sorted(REMEDIES if understands is None else understands)),
            "checks_checkpoints": gang.training.checks,
            "drills": RANK_DRILLS,
        }
        self._signal(gang, s.RanksReady, **known)
        wanted = gang.plan.remedies if gang.training.takes_lr else {}
        peak, factor = wanted.get("lr_peak", LR_PEAK), wanted.get("lr_factor", 1.0)
        position = {"data_position": self.numbers[gang.attempt].position}
        values = {"lr": peak * factor, "lr_peak": peak, "lr_factor": factor, **wanted}
        values |= position if gang.training.losses else {}
        self._signal(gang, s.SettingsInEffect, step=gang.base, values=values)

    def _first_step(self, gang: SimGang) -> None:
        code = gang.training.ends_with
        resumed = gang.folder.find(gang.plan.resume)
        if code is not None and self._is_whole(gang):
            self._end_rank(0, gang, code, "ConfigError: heads do not divide")
        elif resumed is not None and resumed.corrupt and gang.training.reports:
            self._end_all(gang, EXIT_CHECKPOINT_REFUSED, REFUSAL_WORDS)
        elif gang.step >= gang.training.goal:
            # It resumed from its last checkpoint.
            self._end_all(gang, 0)
        else:
            self._step(gang)

    def _step(self, gang: SimGang) -> None:
        training = gang.training
        if not self._is_whole(gang) or self._hangs(gang):
            return
        numbers = self.numbers[gang.attempt]
        if _cannot_go_on(gang, numbers):
            self._raise(gang)
            return
        gang.step += 1
        first = gang.step == gang.base + 1
        loss = numbers.advance(gang.step).loss if training.losses else None
        if training.reports and (first or gang.step % training.mark_every == 0):
            self._signal(gang, s.Progress, step=gang.step, loss=loss)
        if first:
            for name in gang.nodes:
                self._machines[name].heartbeat()
        if gang.step % training.checkpoint_every == 0:
            self._seal(gang)
        if gang.step % COMPARE_EVERY == 0:
            self._compare_replicas(gang)
        if self._process_requests(gang):
            return
        if gang.step >= training.goal:
            self._end_all(gang, 0)
        elif gang.step - gang.base == training.crash_after and len(self.all) <= training.crashes:
            self._raise(gang)
        else:
            self._agenda.after(training.step_seconds, lambda: self._step(gang))

    def _compare_replicas(self, gang: SimGang) -> None:
        faults = gang.training
        ranks_per_node = gang.plan.world_size // len(gang.nodes)
        wrong = [
            place * ranks_per_node
            for place, node in enumerate(gang.nodes)
            if node in faults.differing_nodes
        ]
        agreed_before = gang.step - COMPARE_EVERY <= max(gang.base, faults.differ_after)
        if not wrong or gang.step <= faults.differ_after or not agreed_before:
            return
        everyone = tuple(range(0, gang.plan.world_size, ranks_per_node))
        named = {"suspects": everyone} if faults.is_tie else {"ranks": tuple(wrong)}
        agreed = max(gang.base, gang.step - COMPARE_EVERY)
        self._signal(
            gang, s.ReplicasDisagree, step=gang.step, what="weight", agreed_step=agreed, **named
        )

    def _raise(self, gang: SimGang) -> None:
        words = gang.training.words
        self._end_rank(0, gang, 1, words[(len(self.all) - 1) % len(words)])

    def _end_all(self, gang: SimGang, code: int, words: str = "") -> None:
        for rank in self.ranks(gang.attempt):
            self._end_rank(rank, gang, code, words)

    def _hangs(self, gang: SimGang) -> bool:
        hangs = gang.training.hangs_after == gang.step and not gang.folder.hung
        gang.folder.hung = gang.folder.hung or hangs
        return hangs

    def _seal(self, gang: SimGang) -> None:
        if not gang.training.reports:
            gang.folder.own_step = gang.step
            return
        sealed = gang.folder.seal(gang.attempt, gang.generation, gang.step, gang.training)
        if sealed is not None:
            numbers = self.numbers[gang.attempt]
            position = numbers.data_position(gang.step)
            sealed.weights = (position, numbers.ruined_at, numbers.ruin)
            newest = numbers.records[-1] if numbers.records else s.StepRecord(step=gang.step)
            self._signal(
                gang,
                s.CheckpointSealed,
                step=gang.step,
                path=sealed.path,
                loss_scale=newest.loss_scale,
                activation_norm=newest.activation_norm,
            )

    def _process_requests(self, gang: SimGang) -> bool:
        """Process the requests that wait for this step boundary; True when the gang ended."""
        requests, gang.requests = gang.requests, []
        for request_id, request in requests:
            self._signal(gang, s.RequestTaken, request=request_id, step=gang.step)
            if request.get("request") == "drill":
                # Of the faults that ranks make themselves, only death shows here: these ranks have no numbers.
                if request.get("fault") != "die":
                    continue
                self._end_rank(int(request["rank"]), gang, -9)
                return True
            if gang.step % gang.training.checkpoint_every:
                self._seal(gang)
            if request.get("request") == "stop":
                self._end_all(gang, 75)
                return True
        return False

    def _end_rank(self, rank: int, gang: SimGang, code: int, words: str = "") -> None:
        for machine in self._machines.values():
            if _runs(machine, gang.attempt) and rank in _share_ranks(machine):
                machine.end_rank(rank, code, words)

    def _end_peers(self, attempt: AttemptId) -> None:
        for machine in self._machines.values():
            share = machine.share if _runs(machine, attempt) else None
            if share is not None and not share.ending:
                for rank in [rank for rank, how in share.ranks.items() if how == "running"]:
                    machine.end_rank(rank, 1, PEER_WORDS)


def _cannot_go_on(gang: SimGang, numbers: SimNumbers) -> bool:
    """Whether the next step reads what cannot be read, or the checkpoint that the gang came from does not let it make the step."""
    faults, made = gang.training, gang.step - gang.base
    is_bad = faults.bad_from is not None and gang.base >= faults.bad_from
    reads = numbers.data_position(gang.step + 1)
    return faults.raises_from <= reads <= faults.raises_to or (is_bad and made >= faults.bad_steps)


def _slowest(phases: tuple[str, ...], ranks: tuple[int, ...]) -> dict[str, s.StartPhase]:
    """Return the slowest of these ranks in each phase of the start."""
    slowest = {}
    for index, name in enumerate(phases):
        rank = max(ranks, key=lambda rank: phase_seconds(index, rank))
        slowest[name] = s.StartPhase(seconds=phase_seconds(index, rank), rank=rank)
    return slowest


def phase_seconds(index: int, rank: int) -> float:
    """Return how long a rank takes for a phase of its start; in each phase another rank is the slowest."""
    return index + 1 + (rank + 1) * (index + 3) % 7 / 10


def _share_ranks(machine: SimNode) -> range:
    return machine.share.plan.ranks if machine.share is not None else range(0)


def _runs(machine: SimNode, attempt: AttemptId) -> bool:
    return machine.share is not None and machine.share.plan.attempt == attempt


def _records(gang: SimGang, reported: int | None) -> tuple[s.StepRecord, ...]:
    """Return the steps made since the last heartbeat, with their numbers."""
    training, first = gang.training, gang.base + 1
    since = max(first, min(reported or 0, gang.step) + 1)
    begin = gang.base if training.restarts_schedule else 0
    peak = gang.plan.remedies.get("lr_peak", LR_PEAK) * gang.plan.remedies.get("lr_factor", 1.0)
    return tuple(
        s.StepRecord(
            step=step,
            loss=2.0 + 1.0 / step,
            lr=peak * min(1.0, (step - begin) / training.warmup),
        )
        for step in range(since, gang.step + 1)
    )
