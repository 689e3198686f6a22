"""A journal as a large fleet would leave it: entries of real kinds for as many days as wished, the same for the same seed.

One run on all nodes but the spares. Nodes fail at the cluster's expected rate (6.5 for each 1,000 node-days); each failure is an
incident, ends the attempt on every node, takes a spare and starts another. Checkpoints are sealed, verified and pruned by the
hour. What a fold of it comes to (state, books) is what 60 days leave; waiting times in between are drawn, not modelled.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.facts.actions import Action, ActionResult
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.requests import StartRun
from runner.facts.specs.run import RunSpec

# the controller's clock at entry 1, seconds since the epoch
START = 1.75e9
DAY_SECONDS = 86_400.0
FAILURES_PER_NODE_DAY = 6.5e-3
CHECKPOINT_SECONDS = 3600.0
REPAIR_SECONDS = 4.4 * 3600
KEPT_CHECKPOINTS = 5
STEP_SECONDS = 2.5


@dataclass(slots=True, kw_only=True)
class LongJournal:
    """Makes the entries. `mark_seconds`: between two marks of a run's progress."""

    nodes: int = 2000
    days: float = 60.0
    seed: int = 1
    mark_seconds: float = 5.0
    now: float = START
    _sequence: int = 0
    _cursor: int = 0
    _generation: int = 0
    _actions: int = 0
    _incidents: int = 0
    _step: int = 0
    _num_sent: dict[str, int] = field(default_factory=dict)
    _spares: list[str] = field(default_factory=list)
    _in_repair: list[tuple[float, str]] = field(default_factory=list)
    _checkpoints: list[Checkpoint] = field(default_factory=list)

    def entries(self) -> Iterator[r.JournalEntry]:
        """Yield all of them, in order, from entry 1 on."""
        chance = random.Random(self.seed)
        names = [f"n{number}" for number in range(1, self.nodes + 1)]
        num_spares = max(1, self.nodes // 60)
        gang, self._spares = names[:-num_spares], names[-num_spares:]
        yield from self._begin(names, gang)
        end = START + self.days * DAY_SECONDS
        attempt = AttemptId(1, 1, 0)
        incident = ""
        while True:
            yield from self._launch(attempt, gang, incident)
            instance_id = chance.expovariate(FAILURES_PER_NODE_DAY * self.nodes) * DAY_SECONDS
            yield from self._train(attempt, min(instance_id, end - self.now))
            if self.now >= end:
                return
            self._incidents += 1
            incident = f"i{self._incidents}"
            place = chance.randrange(len(gang))
            yield from self._fail(attempt, gang, place, incident)
            gang = [*gang[:place], self._spares.pop(0), *gang[place + 1 :]]
            attempt = attempt.restarted()

    # ---- inside ---------------------------------------------------------------------------------------------------------

    def _entry(self, fact: object, *records: object, after: float = 0.0) -> r.JournalEntry:
        self.now += after
        self._sequence += 1
        stream = "signals" if isinstance(fact, s.Signal) else ""
        self._cursor += bool(stream)
        return r.JournalEntry(
            sequence=self._sequence,
            now=self.now,
            input=fact,
            stream=stream,
            cursor=self._cursor if stream else 0,
            records=records,
        )

    def _source(self, node: str) -> tuple[str, int, int, str]:
        self._num_sent[node] = self._num_sent.get(node, 0) + 1
        return node, 1, self._num_sent[node], f"instance-of-{node}"

    def _begin(self, names: list[str], gang: list[str]) -> Iterator[r.JournalEntry]:
        expected = [r.NodeExpected(node=name) for name in names]
        started = r.SupervisorStarted(holder="host:1:1", token=1, version="1", nodes=tuple(names))
        yield self._entry(started, *expected)
        for name in names:
            yield self._join(name)
        spec = RunSpec(name="large", command=("python", "train.py"), nodes=len(gang))
        request = StartRun(id="q1", by="operator", spec=spec)
        done = r.RequestRecorded(id="q1", request="start_run", by="operator", state="done", run=1)
        yield self._entry(request, r.RunAdmitted(run=1, spec=spec), done, after=1.0)

    def _join(self, name: str) -> r.JournalEntry:
        node, incarnation, sequence, instance_id = self._source(name)
        serial = f"board:{name}-serial"
        parts = (serial, *(f"gpu:GPU-{name}-{index}" for index in range(8)), f"mac:02:00:{name}")
        address = "10.0.0.1"
        joined = s.NodeJoined(
            node=node,
            incarnation=incarnation,
            sequence=sequence,
            instance_id=instance_id,
            hardware=serial,
            slots=8,
            address=address,
            pid=4711,
            parts=parts,
        )
        registered = r.NodeRegistered(
            node=node,
            incarnation=incarnation,
            hardware=serial,
            slots=8,
            address=address,
            pid=4711,
            parts=parts,
            instance_id=instance_id,
        )
        return self._entry(
            joined,
            registered,
            r.HardwareSeen(hardware=serial, node=node, parts=parts),
            r.NodeChanged(node=node, state="spare", reason=f"joined, incarnation {incarnation}"),
            after=0.001,
        )

    def _act(self, kind: str, reason: str, incident: str, **args: object) -> r.ActionIssued:
        self._actions += 1
        action = Action(
            id=f"a{self._actions}",
            action=kind,
            reason=reason,
            args=args,
            run=1,
            incident=incident or None,
            deadline_seconds=60.0,
        )
        return r.ActionIssued(action=action)

    def _ended(self, issued: r.ActionIssued, *records: object, after: float) -> r.JournalEntry:
        result = ActionResult(id=issued.action.id, outcome="done")
        ended = r.ActionEnded(id=issued.action.id, outcome="done")
        return self._entry(result, ended, *records, after=after)

    def _launch(
        self, attempt: AttemptId, gang: list[str], incident: str
    ) -> Iterator[r.JournalEntry]:
        self._generation += 1
        planned = r.AttemptPlanned(
            attempt=attempt,
            generation=self._generation,
            nodes=tuple(gang),
            reason="the next attempt",
            incident=incident or None,
        )
        prepare = self._act("prepare_attempt", f"attempt {attempt}", incident)
        yield self._entry(r.Settle(), planned, prepare, after=0.01)
        newest = self._checkpoints[-1] if self._checkpoints else None
        self._step = newest.step if newest else 0
        prepared = r.AttemptPrepared(
            attempt=attempt,
            resume=newest.path if newest else "",
            resume_step=self._step,
            master_address="10.0.0.1",
            master_port=29_500,
        )
        yield self._ended(prepare, prepared, after=2.0)
        assigned = [
            r.Assigned(node=name, generation=self._generation, attempt=attempt) for name in gang
        ]
        active = [
            r.NodeChanged(node=name, state="active", reason="it was assigned an attempt")
            for name in (gang if not incident else gang[:1])
        ]
        launching = r.AttemptChanged(attempt=attempt, state="launching")
        yield self._entry(r.Settle(), *assigned, *active, launching, after=0.01)
        for name in gang:
            node, incarnation, sequence, instance_id = self._source(name)
            started = s.RanksStarted(
                node=node,
                incarnation=incarnation,
                sequence=sequence,
                instance_id=instance_id,
                generation=self._generation,
                attempt=attempt,
                pids={str(rank): 5000 + rank for rank in range(8)},
            )
            yield self._entry(started, r.NodeLaunched(node=name, attempt=attempt), after=0.002)
        yield self._entry(r.Settle(), r.AttemptChanged(attempt=attempt, state="running"))

    def _train(self, attempt: AttemptId, seconds: float) -> Iterator[r.JournalEntry]:
        end, sealed_at = self.now + seconds, self.now + CHECKPOINT_SECONDS
        is_first = True
        while self.now + self.mark_seconds < end:
            self._step += max(1, round(self.mark_seconds / STEP_SECONDS))
            node, incarnation, sequence, instance_id = self._source("n1")
            progress = s.Progress(
                node=node,
                incarnation=incarnation,
                sequence=sequence,
                instance_id=instance_id,
                attempt=attempt,
                step=self._step,
                loss=2.5,
            )
            advanced = [r.StepsAdvanced(attempt=attempt, step=self._step, loss=2.5)]
            yield self._entry(progress, *advanced, after=self.mark_seconds)
            if is_first and self._incidents:
                is_first = False
                resolved = r.IncidentChanged(incident=f"i{self._incidents}", state="resolved")
                yield self._entry(r.Settle(), resolved)
            if self.now >= sealed_at:
                sealed_at += CHECKPOINT_SECONDS
                yield from self._seal(attempt)
            while self._in_repair and self._in_repair[0][0] <= self.now:
                name = self._in_repair.pop(0)[1]
                self._spares.append(name)
                yield self._join(name)
        self.now = max(self.now, end)

    def _seal(self, attempt: AttemptId) -> Iterator[r.JournalEntry]:
        path = f"/checkpoints/large/{attempt}-{self._step}"
        node, incarnation, sequence, instance_id = self._source("n1")
        sealed = s.CheckpointSealed(
            node=node,
            incarnation=incarnation,
            sequence=sequence,
            instance_id=instance_id,
            attempt=attempt,
            step=self._step,
            path=path,
        )
        known = Checkpoint(step=self._step, attempt=attempt, path=path)
        verify = self._act("verify_checkpoint", f"checkpoint at step {self._step}", "", path=path)
        yield self._entry(sealed, r.CheckpointRecorded(run=1, checkpoint=known), verify)
        intact = Checkpoint(step=self._step, attempt=attempt, path=path, trust=Trust.INTACT)
        records: list[object] = [r.CheckpointRecorded(run=1, checkpoint=intact)]
        self._checkpoints.append(intact)
        if len(self._checkpoints) > KEPT_CHECKPOINTS:
            records.append(r.CheckpointRemoved(run=1, path=self._checkpoints.pop(0).path))
        yield self._ended(verify, *records, after=20.0)

    def _fail(
        self, attempt: AttemptId, gang: list[str], place: int, incident: str
    ) -> Iterator[r.JournalEntry]:
        bad = gang[place]
        evidence = f"no heartbeat from {bad} for 5.1 s"
        opened = r.IncidentOpened(
            incident=incident,
            fault="node_silent",
            evidence=evidence,
            run=1,
            attempt=attempt,
            node=bad,
            step=self._step,
            detected_after_seconds=5.1,
        )
        probe = self._act("probe_node", evidence, incident, node=bad)
        suspect = r.NodeChanged(node=bad, state="suspect", reason=evidence, incident=incident)
        yield self._entry(r.Settle(), suspect, opened, probe)
        rung = r.RungTaken(
            incident=incident, runbook="node-silent", rung=1, do="swap", try_number=1
        )
        lost = r.NodeChanged(node=bad, state="lost", reason="its machine is dead")
        hardware_fault = r.HardwareFaultRecorded(
            hardware=f"board:{bad}-serial", node=bad, fault="node_dead", evidence=evidence
        )
        stopping = r.AttemptChanged(
            attempt=attempt, state="stopping", outcome="lost", incident=incident
        )
        self._generation += 1
        idle = [r.Assigned(node=name, generation=self._generation) for name in gang]
        yield self._ended(probe, rung, lost, hardware_fault, stopping, *idle, after=1.0)
        for name in gang:
            if name != bad:
                yield self._gone(name, attempt)
        cleared = r.NodeCleared(node=bad, attempt=attempt, confirmed_by="probe")
        ended = r.AttemptChanged(attempt=attempt, state="ended")
        yield self._entry(r.Settle(), cleared, ended, after=0.1)
        self._in_repair.append((self.now + REPAIR_SECONDS, bad))
        if not self._spares:
            self._spares.append(self._in_repair.pop(0)[1])
            yield self._join(self._spares[0])

    def _gone(self, name: str, attempt: AttemptId) -> r.JournalEntry:
        node, incarnation, sequence, instance_id = self._source(name)
        gone = s.RanksTerminated(
            node=node,
            incarnation=incarnation,
            sequence=sequence,
            instance_id=instance_id,
            generation=self._generation - 1,
            attempt=attempt,
            last_step=self._step,
        )
        return self._entry(gone, r.NodeCleared(node=name, attempt=attempt), after=0.0005)
