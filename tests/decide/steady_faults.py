"""SteadyFaults: random inputs on a cluster that serves: agents obey, ranks train and seal, actions end, so that ladders get far.

`serve` plays the healthy rest of the world for a moment; what a test draws besides are faults, verdicts and people.
"""

from collections.abc import Callable
from typing import Any

from runner.decide.state.cluster_state import GONE, LAUNCHED, Attempt, Run
from runner.facts.actions import Action, ActionResult
from runner.facts.faults import HeartbeatResumed
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.remedies import REMEDIES
from runner.facts.trials import TrialJudged
from runner.simulate.training import Training
from tests.decide.random_faults import NODES, PEAK_LR, RandomFaults

# Rounds in which all that is asked of a healthy cluster is done.
ROUNDS = 12


class SteadyFaults(RandomFaults):
    """Runs start on nodes that joined; see the module."""

    num_agents = 0

    def begin(self) -> None:
        """Let the nodes join, and a run start."""
        for node in NODES:
            self._join(node)
        self.serve(0, 0)

    # ---- the healthy rest of the world ------------------------------------------------------------------------------

    def serve(self, _: int, how: int) -> None:
        """Let agents and actions do all that is asked of them by now; seconds pass."""
        for _round in range(ROUNDS):
            self.now += 0.1
            before = len(self.entries)
            for action in [item.action for item in self.state.actions.values()]:
                self._carry_out(action)
            for node in list(self.state.nodes.values()):
                if node.state in ("lost", "left", "absent") and how % 3 == 0:
                    self._join(node.node)
                if node.state == "suspect" and how % 3 == 0:
                    stamp = self._stamp(node.node)
                    incarnation = int(str(stamp["incarnation"]))
                    self.take(HeartbeatResumed(node=node.node, incarnation=incarnation))
                attempt = node.ranks_may_run
                if attempt is not None and node.attempt is None and node.state not in GONE:
                    self.read(
                        s.RanksTerminated(
                            **self._about(node.node, attempt), generation=node.generation
                        )
                    )
            for run in list(self.state.runs.values()):
                self._start(run)
            wake_at = self.turns.controller.wake_at()
            if wake_at is not None and self.now >= wake_at:
                self.take(r.Tick())
            if len(self.entries) == before:
                return

    def _join(self, name: str) -> None:
        """Let a new agent join on a node, without ranks."""
        self.num_agents += 1
        known = self.state.nodes.get(name)
        self.read(
            s.NodeJoined(
                node=name,
                incarnation=(known.incarnation if known is not None else 0) + 1,
                instance_id=f"agent-{self.num_agents}",
                hardware=f"board:{name}",
                parts=(f"board:{name}",),
                slots=2,
                address="10.0.0.1",
                pid=1,
            )
        )

    def _about(self, node: str, attempt: AttemptId) -> dict[str, Any]:
        return {**self._stamp(node), "attempt": attempt}

    def _carry_out(self, action: Action) -> None:
        task = action.args.get("task")
        detail = self._outcome(action, 0).detail
        if task == "verify":
            found = self.folder(action.run or 0).find(str(action.args["args"]["path"]))
            is_sick = found is not None and found.is_sick
            detail = {"tensors": 1, "uncovered": "", "not_finite": "NaN" if is_sick else ""}
        if action.action == "inspect_checkpoint":
            # Small enough for one share.
            detail = {**detail, "size_bytes": 1}
        self.take(ActionResult(id=action.id, outcome="done", detail=detail))
        if action.action == "start_agent":
            self._join(str(action.args["node"]))
        if task == "ask_ranks" and action.args.get("args", {}).get("request") == "stop":
            self._stop_gang(str(action.args["node"]))

    def _stop_gang(self, node: str) -> None:
        known = self.state.nodes.get(node)
        attempt = self.state.attempt_of(known.attempt) if known is not None else None
        if attempt is not None and attempt.state in LAUNCHED:
            self._end_ranks(attempt, 75)

    def _end_ranks(self, attempt: Attempt, code: int) -> None:
        spec = self.state.runs[attempt.attempt.run].spec
        self._seal(attempt, attempt.last_step or attempt.resume_step)
        for place, name in enumerate(list(attempt.nodes)):
            for local in range(spec.ranks_per_node):
                self.read(
                    s.RankExited(
                        **self._about(name, attempt.attempt),
                        generation=attempt.generation,
                        rank=place * spec.ranks_per_node + local,
                        exit_code=code,
                    )
                )

    def _start(self, run: Run) -> None:
        """Let the ranks of an attempt that was launched start, greet, and read back what is in effect."""
        attempt = run.attempt
        if attempt is None or attempt.state != "launching":
            return
        for name in list(attempt.nodes):
            if name not in attempt.launched:
                self.read(
                    s.RanksStarted(
                        **self._about(name, attempt.attempt), generation=attempt.generation
                    )
                )
        where = self._about(attempt.nodes[0], attempt.attempt)
        self.read(
            s.RanksReady(
                **where,
                requests=("stop", "checkpoint"),
                remedies=tuple(REMEDIES),
                checks_checkpoints=run.run % 2 == 0,
            )
        )
        factor = attempt.remedies.get("lr_factor", 1.0)
        peak = attempt.remedies.get("lr_peak", PEAK_LR)
        values = {"lr": peak * factor, "lr_peak": peak, **attempt.remedies, "lr_factor": factor}
        values["data_position"] = attempt.resume_step
        self.read(s.SettingsInEffect(**where, step=attempt.resume_step, values=values))

    # ---- what ranks do ----------------------------------------------------------------------------------------------

    def advance(self, pick: int, how: int) -> None:
        """Let a gang that runs make some steps, and seal a checkpoint now and then."""
        current, _ = self._running(pick)
        if current is None or current.state != "running":
            return
        self.now += 1.0
        step = (current.last_step or current.resume_step) + 1 + how % 30
        where = self._about(current.nodes[0], current.attempt)
        self.read(s.Progress(**where, step=step, loss=2.0))
        if how % 3 == 0:
            self._seal(current, step, is_sick=how % 17 == 0)

    def _seal(self, attempt: Attempt, step: int, *, is_sick: bool = False) -> None:
        if not step or step <= attempt.resume_step:
            return
        run = attempt.attempt.run
        sealed = self.folder(run).seal(attempt.attempt, attempt.generation, step, Training())
        if sealed is not None:
            sealed.is_sick = is_sick
            where = self._about(attempt.nodes[0], attempt.attempt)
            self.read(s.CheckpointSealed(**where, step=step, path=sealed.path))

    def crash(self, pick: int, how: int) -> None:
        """Let a rank die, before its first step or later, now and then because it refuses what it loads."""
        current, _ = self._running(pick)
        if current is None or current.state not in LAUNCHED:
            return
        code = 79 if how % 9 == 0 and current.resume else (-9, 1, 1)[how % 3]
        self.read(
            s.RankExited(
                **self._about(current.nodes[0], current.attempt),
                generation=current.generation,
                rank=0,
                exit_code=code,
                stderr_tail="" if code == -9 else f"RuntimeError: {'abc'[pick % 3]}",
            )
        )

    def begin_run(self, pick: int, how: int) -> None:
        """Let a person start a run."""
        self.ask(pick, 24 * (how % 40))

    def let_go_on(self, pick: int, how: int) -> None:
        """Let a person let a run go on that waits for one, or approve or deny what is proposed."""
        self.num_requests += 1
        about: dict[str, Any] = {"id": f"q{self.num_requests}", "by": "ann"}
        proposed = [one.action for one in self.state.proposals.values() if one.state == "proposed"]
        if proposed and how % 2:
            answer = q.ApproveAction if how % 4 == 1 else q.DenyAction
            self.read(answer(**about, action=proposed[pick % len(proposed)]))
            return
        names = [run.spec.name for run in self.state.runs.values() if run.hold is not None]
        if names:
            self.read(q.RestartRun(**about, run=names[pick % len(names)]))

    # ---- the end ----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Let the cluster be healthy: what is asked is done, gangs train past what they had reached, and all trials help."""
        for _ in range(ROUNDS):
            self.now += 60.0
            self.serve(0, 0)
            for run in list(self.state.runs.values()):
                attempt = run.attempt
                if attempt is None or attempt.state != "running":
                    continue
                step = max(run.best_step, attempt.best_before, attempt.last_step or 0) + 50
                where = self._about(attempt.nodes[0], attempt.attempt)
                self.read(s.Progress(**where, step=step, loss=2.0))
                tried = self.state.incidents.get(run.trial_incident or "")
                if tried is not None and tried.trial is not None and tried.is_live:
                    self.take(
                        TrialJudged(
                            incident=tried.incident,
                            attempt=attempt.attempt,
                            step=step,
                            verdict="helped",
                            evidence="healed",
                        )
                    )

    def finish(self) -> None:
        """Let every gang that runs come to its goal."""
        for run in list(self.state.runs.values()):
            if run.attempt is not None and run.attempt.state == "running":
                self._end_ranks(run.attempt, 0)
        self.serve(0, 0)


STEADY: tuple[Callable[[SteadyFaults, int, int], None], ...] = (
    SteadyFaults.serve,
    SteadyFaults.serve,
    SteadyFaults.serve,
    SteadyFaults.advance,
    SteadyFaults.advance,
    SteadyFaults.advance,
    SteadyFaults.advance,
    SteadyFaults.find_in_numbers,
    SteadyFaults.judge_trial,
    SteadyFaults.judge_trial,
    SteadyFaults.crash,
    SteadyFaults.crash,
    SteadyFaults.begin_run,
    SteadyFaults.let_go_on,
    SteadyFaults.ask_as_person,
    SteadyFaults.answer,
    SteadyFaults.pass_time,
    SteadyFaults.find,
    SteadyFaults.repeat,
    SteadyFaults.restart,
)
