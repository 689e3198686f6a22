"""RandomFaults: inputs that fit the state, and some that do not (stale, repeated, about unknown nodes).

A `RandomFaults` is a cluster without machines behind the real decision log: a test chooses its inputs by small numbers that pick
from the state.
"""

from collections.abc import Callable
from typing import Any, Literal

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.runs.verification import SHARE_BYTES
from runner.decide.state.cluster_state import LAUNCHED, Attempt, Node, State
from runner.errors import StoreUnavailable
from runner.facts.actions import Action, ActionResult, PrepareAttempt
from runner.facts.checkpoints import Rewind
from runner.facts.faults import (
    CorrelatedSilence,
    DomainSilence,
    Fault,
    Finding,
    GangStillStepping,
    HeartbeatResumed,
)
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import task_of
from runner.facts.remedies import REMEDIES
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.facts.trials import MetricLevel, Trajectory, TrialJudged, TrialVerdict
from runner.journal.journal import Journal
from runner.simulate.check_verdicts import detail_of
from runner.simulate.training import SimCheckpoints, Training
from runner.store.memory.store import MemoryStore
from runner.supervisor.decisions import DecisionLog
from tests.decide.invariants import Books
from tests.decide.rules import Rules
from tests.decide.scenario import runbooks

NODES = ("n1", "n2", "n3", "n4")
UNKNOWN_NODES = ("n9", "x")
CODES = (0, 0, 1, 75, 78, 79, -9, None)
WORDS = ("", "RuntimeError: a", "OSError: b 0x17")
FINDINGS: tuple[Fault, ...] = (
    "node_silent",
    "node_silent",
    "rank_stopped",
    "no_progress",
    "malformed_message",
    "divergence",
    "straggler",
)
# Found in a run's numbers.
NUMERIC: tuple[Fault, ...] = (
    "loss_spike",
    "divergence",
    "nan_loss",
    "grad_norm_spike",
    "loss_scale_floor",
    "skipped_steps",
    "replicas_disagree",
    "validation_divergence",
    "throughput_drop",
)
VERDICTS: tuple[TrialVerdict, ...] = ("helped", "not_helped", "not_helped", "made_worse")
MODES: tuple[Literal["", "act", "advise", "off"], ...] = ("", "act", "act", "advise", "off")
PEAK_LR = 1e-3
# Of checks: TFLOP/s and their floor.
RATES = ((100.0, 0.0), (101.0, 0.0), (50.0, 0.0), (100.0, 200.0), (99.0, 0.0))


def policy(**fields: Any) -> Policy:
    """Make a small cluster with short limits, so that deadlines pass between the faults; `fields`: of the cluster, besides."""
    cluster = ClusterSpec(
        name="faults",
        state="state",
        local=LocalNodes(nodes=3, slots=2, spares=1),
        hard_cap_seconds=40.0,
        fence_seconds=5.0,
        action_deadline_seconds=10.0,
        **fields,
    )
    return Policy(cluster=cluster, runbooks=runbooks())


def _checked(action: Action, how: int) -> dict[str, object]:
    """Answer a check: most pass, with rates that are like their peers', behind them, or beyond a floor."""
    outcome: Literal["PASS", "FAIL", "UNKNOWN"] = ("PASS", "PASS", "FAIL", "UNKNOWN", "PASS")[
        how % 5
    ]
    return detail_of(task_of(action), outcome, RATES[how % len(RATES)])


class RandomFaults:
    """A controller behind its decision log, and a journal whose every entry is checked."""

    def __init__(self, given: Policy | None = None) -> None:
        self.policy = given or policy()
        self.store = MemoryStore()
        self.lease = self.store.acquire_lease("supervisor", "faults", ttl_seconds=1e9)
        self.books, self.rules = Books(policy=self.policy), Rules(policy=self.policy)
        self.entries: list[r.JournalEntry] = []
        self.now = 100.0
        self.cursor = 0
        self.num_requests = 0
        self.last: object | None = None
        # Of each run, as a survey finds them.
        self.folders: dict[int, SimCheckpoints] = {}
        self.turns = self._turns(self._note)
        self.take(r.SupervisorStarted(holder="h", token=1, version="0", nodes=NODES))

    def _turns(self, on_entry: Callable[[r.JournalEntry], None]) -> DecisionLog:
        def refuse(error: StoreUnavailable) -> None:
            raise error

        journal = Journal(self.store, self.lease)
        return DecisionLog(Controller(self.policy), journal, on_entry=on_entry, on_outage=refuse)

    def _note(self, entry: r.JournalEntry) -> None:
        self.entries.append(entry)
        self.books.take(entry)
        self.rules.take(entry)

    @property
    def state(self) -> State:
        """The controller's state."""
        return self.turns.controller.state

    def take(self, fact: object) -> None:
        """Handle an input of an operator or of an edge inside the supervisor."""
        self.turns.process(fact, self.now)

    def read(self, fact: object) -> None:
        """Handle the next item of a stream."""
        self.cursor += 1
        self.last = fact
        self.turns.process(fact, self.now, stream="signals", cursor=self.cursor)

    def recovered(self) -> DecisionLog:
        """Recover from the journal and its snapshots, as a new supervisor does."""
        turns = self._turns(lambda entry: None)
        turns.recover()
        return turns

    # ---- picking ----------------------------------------------------------------------------------------------------

    def node(self, pick: int) -> str:
        """Pick a node, now and then an unknown one."""
        names = NODES * 4 + UNKNOWN_NODES
        return names[pick % len(names)]

    def attempt(self, pick: int) -> tuple[AttemptId, int]:
        """Pick an attempt and a generation: most often the current ones of some run."""
        runs = list(self.state.runs.values())
        run = runs[pick % len(runs)] if runs else None
        current = run.attempt if run is not None else None
        if current is None or pick % 11 == 0:
            return AttemptId(1 + pick % 3, 1 + pick % 2, pick % 4), pick % 7
        if pick % 7 == 0:
            return AttemptId(current.attempt.run, 1, 0), max(0, current.generation - 3)
        return current.attempt, current.generation

    def _running(self, pick: int) -> tuple[Attempt | None, str]:
        """Pick a current attempt and one of its nodes."""
        attempts = [run.attempt for run in self.state.runs.values() if run.attempt is not None]
        found = attempts[pick % len(attempts)] if attempts else None
        return found, found.nodes[pick % len(found.nodes)] if found else self.node(pick)

    def _stamp(self, node: str, pick: int = 0) -> dict[str, object]:
        known = self.state.nodes.get(node, Node(node=node, index=0))
        instance_id = "another" if pick % 17 == 16 else known.instance_id
        incarnation = known.incarnation + (1 if pick % 5 == 4 else 0)
        return {"node": node, "incarnation": incarnation, "instance_id": instance_id}

    # ---- what can come in -------------------------------------------------------------------------------------------

    def pass_time(self, pick: int, _: int) -> None:
        """Let time pass, and handle the deadline that has come."""
        self.now += (0.01, 0.5, 2.0, 6.0, 15.0, 45.0)[pick % 6]
        wake_at = self.turns.controller.wake_at()
        if wake_at is not None and self.now >= wake_at:
            self.take(r.Tick())

    def answer(self, pick: int, how: int) -> None:
        """Let an open action end, or one that was never issued."""
        actions = [item.action for item in self.state.actions.values()]
        if not actions or pick % 13 == 0:
            self.read(ActionResult(id=f"a{pick % 40}", outcome="done"))
            return
        self.take(self._outcome(actions[pick % len(actions)], how))

    def _outcome(self, action: Action, how: int) -> ActionResult:
        if how % 6 == 4:
            trouble = ({}, {"refused": True}, {"missing": True}, {"damaged": True})[how // 6 % 4]
            return ActionResult(id=action.id, outcome="failed", message="no", detail=trouble)
        if how % 6 == 5:
            return ActionResult(id=action.id, outcome="unknown")
        detail: dict[str, object] = {}
        if action.args.get("task") == "check":
            detail = _checked(action, how)
        elif action.action == "probe_node":
            alive = ("alive", "dead")
            detail = {
                "reachable": how % 4 != 3,
                "agent": alive[how % 2],
                "keeper": alive[how // 2 % 2],
                "ranks_alive": [[], [1], [0, 1]][how % 3],
            }
        elif action.action == "prepare_attempt":
            detail = self._surveyed(action, how)
        elif action.action == "prune_checkpoints":
            folder, gone = self.folder(action.run or 0), action.args["paths"]
            folder.sealed = [known for known in folder.sealed if known.path not in gone]
        elif action.args.get("task") == "verify":
            is_sick, is_covered = how % 7 == 3, how % 5 != 2
            detail = {"tensors": 1, "uncovered": "" if is_covered else "no known format"}
            detail["not_finite"] = "weight has NaN" if is_sick else ""
        elif action.action == "inspect_checkpoint":
            size_bytes = how * SHARE_BYTES
            detail = {"stamp": "st", "manifest": "ma", "size_bytes": size_bytes, "step": 1}
        return ActionResult(id=action.id, outcome="done", detail=detail)

    def folder(self, run: int) -> SimCheckpoints:
        """Return what lies in the folder of a run's checkpoints."""
        return self.folders.setdefault(run, SimCheckpoints())

    def _surveyed(self, action: Action, how: int) -> dict[str, object]:
        """Choose what an attempt resumes from as a survey does; now and then it finds something torn that no one has reported."""
        work = action.read(PrepareAttempt)
        chosen = self.folder(action.run or 0).survey(
            skip=work.refused,
            verified=work.verified,
            newest_first=work.newest_first,
            set_aside=[Rewind.of_plain(each) for each in work.set_aside],
        )
        if not work.folder:
            # Its script saves on its own.
            chosen = None
        torn = {"path": "ck/1.1.0-00000003", "attempt": "1.1.0", "step": 3, "reason": "torn"}
        bad = [torn] if how % 23 == 7 else []
        return {"chosen": chosen, "refused": bad, "address": "10.0.0.1", "port": 29500}

    def join(self, pick: int, how: int) -> None:
        """Let an agent report in: new or stale, alone or with ranks."""
        name = self.node(pick)
        known = self.state.nodes.get(name, Node(node=name, index=0))
        attempt = (known.attempt, known.ranks_may_run, self.attempt(pick)[0], None)[how % 4]
        # Now and then a machine reports under another's name.
        other = self.node(pick + how)
        hardware = f"board:{other if how % 9 == 8 else name}"
        self.read(
            s.NodeJoined(
                node=name,
                incarnation=known.incarnation + (1, 1, 1, 0, -1)[how % 5],
                instance_id=f"{name}{how % 13}" if pick % 3 else "",
                hardware=hardware,
                parts=(hardware, "gpu:g1") if how % 7 == 0 else (hardware,),
                slots=2,
                address="10.0.0.1",
                pid=1,
                attempt=attempt,
                ranks_alive=(0, 1) if attempt is not None and how % 3 else (),
            )
        )

    def leave(self, pick: int, how: int) -> None:
        """Let an agent leave."""
        self.read(s.NodeLeft(**self._stamp(self.node(pick), how)))  # type: ignore[arg-type]

    def start_ranks(self, pick: int, how: int) -> None:
        """Let a node report that its ranks run, or cannot."""
        attempt, generation = self.attempt(how)
        current, name = self._running(pick)
        if current is not None and how % 5:
            attempt, generation = current.attempt, current.generation
        where = {**self._stamp(name), "attempt": attempt, "generation": generation}
        if how % 8 == 7:
            held = how % 16 == 15
            self.read(s.LaunchFailed(**where, reason=WORDS[pick % 3], devices_busy=held))  # type: ignore[arg-type]
        elif how % 8 == 6 and self.state.nodes.get(name, Node(node=name, index=0)).devices_busy:
            self.read(s.DevicesReleased(**self._stamp(name)))  # type: ignore[arg-type]
        else:
            self.read(s.RanksStarted(**where))  # type: ignore[arg-type]

    def bring_up(self, pick: int, how: int) -> None:
        """Let a planned attempt come up as it should: nodes checked, prepared, launched on every node, and greeting."""
        for item in list(self.state.actions.values()):
            if item.action.args.get("task") == "check":
                self.take(self._outcome(item.action, 0))
        for item in list(self.state.actions.values()):
            if item.action.action == "prepare_attempt":
                self.take(self._outcome(item.action, 0))
        current, _ = self._running(pick)
        if current is None:
            return
        for name in list(current.nodes):
            where = {
                **self._stamp(name),
                "attempt": current.attempt,
                "generation": current.generation,
            }
            self.read(s.RanksStarted(**where))  # type: ignore[arg-type]
        if how % 4:
            self.report(pick, 25)

    def pause_supervisor(self, pick: int, _: int) -> None:
        """Let the supervisor pause."""
        self.now += pick % 30
        self.take(r.SupervisorPaused(seconds=float(pick % 30), reason="faults"))

    def end_gang(self, pick: int, how: int) -> None:
        """Let all ranks of an attempt end alike, as after a stop or at the goal."""
        current, name = self._running(pick)
        if current is None:
            return
        for rank in range(6):
            self.read(
                s.RankExited(
                    **self._stamp(name),  # type: ignore[arg-type]
                    attempt=current.attempt,
                    generation=current.generation,
                    rank=rank,
                    exit_code=(75, 75, 0)[how % 3],
                )
            )

    def end_rank(self, pick: int, how: int) -> None:
        """Let a rank end."""
        current, name = self._running(how)
        attempt, generation = self.attempt(pick)
        if current is not None and pick % 5:
            attempt, generation = current.attempt, current.generation
        self.read(
            s.RankExited(
                **self._stamp(name),  # type: ignore[arg-type]
                attempt=attempt,
                generation=generation,
                rank=pick % 6,
                exit_code=CODES[how % len(CODES)],
                last_step=None if how % 3 == 0 else how % 50,
                stderr_tail=WORDS[how % 3],
            )
        )

    def clear(self, pick: int, how: int) -> None:
        """Let a node confirm that it is clear of ranks."""
        name = self.node(pick)
        known = self.state.nodes.get(name)
        attempt, generation = self.attempt(how)
        if known is not None and known.ranks_may_run is not None and how % 5:
            attempt = known.ranks_may_run
        self.read(
            s.RanksTerminated(
                **self._stamp(name),  # type: ignore[arg-type]
                attempt=attempt,
                generation=generation,
                last_step=how % 60 if how % 2 else None,
                left_behind=(1,) if how % 17 == 0 else (),
                fenced=how % 5 == 0,
            )
        )

    def report(self, pick: int, how: int) -> None:
        """Let ranks report: a hello, a step, settings, a checkpoint."""
        attempt, _ = self.attempt(pick)
        where = {**self._stamp("n1"), "attempt": attempt}
        kind = how % 5
        if kind == 0:
            fact: object = s.RanksReady(
                **where,  # type: ignore[arg-type]
                requests=("stop", "checkpoint")[: (how + 1) % 3],
                remedies=("lr_factor", "lr_peak"),
            )
        elif kind == 1:
            values = {"lr": 1e-3, "lr_factor": (1.0, 0.9)[how % 2]}
            fact = s.SettingsInEffect(**where, step=how, values=values)  # type: ignore[arg-type]
        elif kind == 2:
            folder = self.folder(attempt.run)
            sealed = folder.seal(attempt, folder.generation, how % 9, Training())
            assert sealed is not None, "its generation is the newest"
            fact = s.CheckpointSealed(**where, step=how % 9, path=sealed.path)  # type: ignore[arg-type]
        else:
            fact = s.Progress(**where, step=how % 60 + 1)  # type: ignore[arg-type]
        self.read(fact)

    def find(self, pick: int, how: int) -> None:
        """Let a detector find something."""
        fault = FINDINGS[how % len(FINDINGS)]
        attempt, _ = self.attempt(pick)
        self.take(
            Finding(
                fault=fault,
                evidence="seen",
                attempt=None if fault == "node_silent" else attempt,
                node=self.node(pick) if how % 4 else None,
                silent_seconds=5.0,
            )
        )

    def train(self, pick: int, how: int) -> None:
        """Let the ranks of a gang that runs make steps, seal a checkpoint, or show what they can and what is in effect."""
        current, _ = self._running(pick)
        if current is None or current.state not in LAUNCHED:
            return
        where = {**self._stamp(current.nodes[0]), "attempt": current.attempt}
        step = (current.last_step or current.resume_step) + 1 + how % 13
        kind = how % 5
        if kind == 0:
            hello = {"requests": ("stop", "checkpoint"), "remedies": tuple(REMEDIES)}
            checks = pick % 3 == 0
            self.read(s.RanksReady(**where, **hello, checks_checkpoints=checks))  # type: ignore[arg-type]
            factor = current.remedies.get("lr_factor", 1.0)
            values = {"lr": PEAK_LR * factor, "lr_peak": PEAK_LR, **current.remedies}
            values |= {"lr_factor": factor, "data_position": current.resume_step}
            fact = s.SettingsInEffect(**where, step=current.resume_step, values=values)  # type: ignore[arg-type]
            self.read(fact)
        else:
            self.read(s.Progress(**where, step=step, loss=2.0))  # type: ignore[arg-type]
        if kind == 4:
            run, training = current.attempt.run, Training()
            generation = current.generation
            sealed = self.folder(run).seal(current.attempt, generation, step, training)
            if sealed is not None:
                self.read(s.CheckpointSealed(**where, step=step, path=sealed.path))  # type: ignore[arg-type]

    def find_in_numbers(self, pick: int, how: int) -> None:
        """Let a detector find something in the numbers of a gang that runs, or that it is over."""
        current, name = self._running(pick)
        if current is None:
            return
        step = current.last_step or current.resume_step
        onset = max(1, step - how % 40)
        trajectory = Trajectory(
            first_step=1, last_step=onset, num_samples=9, loss=MetricLevel(level=0.7)
        )
        self.take(
            Finding(
                fault=NUMERIC[how % len(NUMERIC)],
                evidence=f"seen at step {step}",
                attempt=current.attempt,
                node=name if pick % 3 == 0 else None,
                rank=pick % 4 if pick % 6 == 0 else None,
                step=onset,
                recovered=how % 7 == 6,
                before=trajectory,
            )
        )

    def judge_trial(self, pick: int, how: int) -> None:
        """Let a trial come to a verdict: of an incident that is tried, or of another."""
        incidents = [one for one in self.state.incidents.values() if one.trial is not None]
        tried = incidents[pick % len(incidents)] if incidents and how % 9 else None
        run = self.state.runs.get(tried.run or 0) if tried is not None else None
        attempt = run.attempt.attempt if run is not None and run.attempt else self.attempt(pick)[0]
        self.take(
            TrialJudged(
                incident=tried.incident if tried is not None else f"i{pick % 9}",
                attempt=attempt,
                step=how,
                verdict=VERDICTS[how % len(VERDICTS)],
                evidence="judged",
                loss=2.0,
            )
        )

    def send_heartbeats(self, pick: int, how: int) -> None:
        """Let a node resume its heartbeats, or many stop theirs, or those of a domain."""
        if how % 8 == 1:
            names = NODES[pick % 3 :][: 1 + how % 3]
            self.take(DomainSilence(domain="rack", name=f"r{pick % 2}", nodes=names))
            return
        if how % 4 == 0:
            self.take(CorrelatedSilence(nodes=NODES[: pick % 5]))
            return
        if how % 16 == 7:
            attempt, _ = self.attempt(pick)
            self.take(
                GangStillStepping(attempt=attempt, nodes=NODES[pick % 3 :][:2], step=pick % 50)
            )
            return
        name = self.node(pick)
        known = self.state.nodes.get(name, Node(node=name, index=0))
        self.take(HeartbeatResumed(node=name, incarnation=known.incarnation + (how % 5 == 4)))

    def notice(self, pick: int, how: int) -> None:
        """Let the provider announce that a node will be taken away."""
        seconds = (None, 0.0, 5.0, 60.0)[how % 4]
        self.read(
            s.Notice(
                **self._stamp(self.node(pick), how),  # type: ignore[arg-type]
                notice="preemption",
                deadline_seconds=seconds,
            )
        )

    def ask_about_node(self, pick: int, how: int) -> None:
        """Let an operator ask for a node to go, or to come back."""
        self.num_requests += 1
        about = {"id": f"q{self.num_requests}", "by": "ann", "node": self.node(pick)}
        kinds: tuple[type, ...] = (
            q.SwapNode,
            q.DrainNode,
            q.QuarantineNode,
            q.ReadmitNode,
            q.ReadmitNode,
            q.ReadmitNode,
        )
        kind = q.RetireNode if how % 29 == 0 else kinds[how % len(kinds)]
        if kind is q.SwapNode and how % 4 == 0:
            about["spare"] = self.node(how)
        self.read(kind(**about))

    def ask(self, pick: int, how: int) -> None:
        """Let an operator send a request; now and then the same one again."""
        self.num_requests += pick % 4 != 0
        name, run = f"q{self.num_requests}", ("a", "b", "1", "c")[pick % 4]
        kind = how % 8
        if kind <= 2:
            command = ("train",) if how % 5 == 0 else ()
            spec = RunSpec(
                name=("a", "b")[pick % 2],
                nodes=1 + pick % 3,
                ranks_per_node=1 + how % 2,
                command=command,
                trainer={} if command else {"recipe": "tiny"},
                steady_seconds=5.0,
                keep_checkpoints=2 + how % 4,
                proven_steps=5,
                mode=MODES[pick % len(MODES)],
                reference_lr=5e-4 if how % 2 else 0.0,
                lr_floor=2e-4,
                max_attempts_without_progress=2 + pick % 3,
            )
            fact: object = q.StartRun(id=name, spec=spec)
        elif kind == 3:
            fact = q.StopRun(id=name, run=run)
        elif kind == 4:
            fact = q.AddRemedy(
                id=name, run=run, remedy="lr_factor", value=(0.9, 30.0, -1.0)[how % 3]
            )
        elif kind == 5:
            fact = q.AddRemedy(id=name, run=run, remedy="lr_peak", value=1e-4)
        elif kind == 6:
            fact = q.Drill(id=name, run=run, fault="kill-rank", rank=pick % 5)
        else:
            fact = q.ShutDown(id=name) if pick % 9 == 0 else q.StopRun(id=name, run=run)
        self.read(fact)

    def ask_as_person(self, pick: int, how: int) -> None:
        """Let one of two operators pause a run, let it go on, restart it, write a note, or look at an incident."""
        self.num_requests += 1
        incidents = list(self.state.incidents.values())
        incident = incidents[pick % len(incidents)] if incidents and how % 3 else None
        version = incident.version - how % 2 if incident is not None else None
        about = {
            "id": f"q{self.num_requests}",
            "by": ("ann", "bob")[how % 2],
            "incident": incident.incident if incident is not None else "",
            "seen": version if version and version > 0 and how % 4 else None,
        }
        run = ("a", "b", "1", "c")[pick % 4]
        kinds: tuple[type[q.PauseRun | q.ResumeRun | q.RestartRun], ...] = (
            q.PauseRun,
            q.ResumeRun,
            q.ResumeRun,
            q.RestartRun,
        )
        if how % 13 == 3:
            step = pick % 12
            self.read(q.RewindRun(**about, run=run, before_step=step))  # type: ignore[arg-type]
            return
        if how % 13 == 4:
            self.read(q.RestartRun(**about, run=run, from_step=pick % 9))  # type: ignore[arg-type]
            return
        if how % 13 == 5:
            self.read(q.RevertRemedy(**about, run=run, remedy=f"r{pick % 3}"))  # type: ignore[arg-type]
            return
        if how % 13 == 6:
            names = [*self.state.proposals, "a1"]
            answer = (q.ApproveAction, q.DenyAction)[pick % 2]
            self.read(answer(**about, action=names[pick % len(names)]))  # type: ignore[arg-type]
            return
        if how % 7 == 5:
            self.read(q.AddNote(**about, run=run if pick % 2 else "", text=WORDS[how % 3]))  # type: ignore[arg-type]
        elif how % 7 == 6:
            self.read(q.AcknowledgeIncident(**about))  # type: ignore[arg-type]
        else:
            release = {"releases_nodes": True} if how % 11 == 0 else {}
            kind = kinds[how // 7 % 4]
            self.read(kind(**about, run=run, **(release if kind is q.PauseRun else {})))  # type: ignore[arg-type]

    def repeat(self, pick: int, how: int) -> None:
        """Deliver the last message again, as news or as an item already read."""
        if self.last is not None and how % 2:
            self.read(self.last)
        elif self.last is not None:
            self.turns.process(self.last, self.now, stream="signals", cursor=self.cursor)

    def restart(self, _: int, how: int) -> None:
        """Let another supervisor take over, after a snapshot or without one."""
        if how % 2:
            self.turns.snapshot()
        turns = self._turns(self._note_new)
        turns.recover()
        self.turns = turns
        self.take(r.SupervisorStarted(holder="h", token=2, version="0", nodes=NODES))

    def _note_new(self, entry: r.JournalEntry) -> None:
        if entry.sequence > len(self.entries):
            self._note(entry)


Deed = Callable[[RandomFaults, int, int], None]
DEEDS: tuple[Deed, ...] = (
    RandomFaults.pass_time,
    RandomFaults.pass_time,
    RandomFaults.answer,
    RandomFaults.answer,
    RandomFaults.answer,
    RandomFaults.join,
    RandomFaults.join,
    RandomFaults.leave,
    RandomFaults.start_ranks,
    RandomFaults.bring_up,
    RandomFaults.bring_up,
    RandomFaults.pause_supervisor,
    RandomFaults.end_gang,
    RandomFaults.end_rank,
    RandomFaults.clear,
    RandomFaults.clear,
    RandomFaults.report,
    RandomFaults.train,
    RandomFaults.train,
    RandomFaults.train,
    RandomFaults.train,
    RandomFaults.find,
    RandomFaults.find_in_numbers,
    RandomFaults.judge_trial,
    RandomFaults.judge_trial,
    RandomFaults.send_heartbeats,
    RandomFaults.ask,
    RandomFaults.ask,
    RandomFaults.ask_about_node,
    RandomFaults.ask_as_person,
    RandomFaults.notice,
    RandomFaults.repeat,
    RandomFaults.restart,
)
