"""How each kind of action ends in the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.facts.actions import (
    Action,
    ActionResult,
    PageOperator,
    PrepareAttempt,
    ProbeNode,
    PruneCheckpoints,
    StartAgent,
    StopAgent,
    VerifyCheckpoint,
)
from runner.facts.ids import AttemptId
from runner.simulate.node import BOOT_SECONDS, SimNode
from runner.simulate.training import SimCheckpoints
from runner.simulate.virtual_time import Agenda

PREPARE_SECONDS = 0.05
PROBE_SECONDS = 0.05
QUICK_SECONDS = 0.02
LEAVE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an action ends, and after how long. None: no outcome is ever reported."""

    seconds: float
    outcome: Literal["done", "failed"] | None = "done"
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""


class SimActions:
    """Performs actions on machines and checkpoint folders."""

    def __init__(
        self,
        agenda: Agenda,
        machines: Mapping[str, SimNode],
        folder: Callable[[int], SimCheckpoints],
    ) -> None:
        """`folder(run)` returns a run's checkpoints."""
        self._agenda = agenda
        self._machines = machines
        self._folder = folder
        self._port = 29500
        # kind of action -> how many more of it never end
        self.hanging: dict[str, int] = {}
        # kind of action -> how many more of it fail
        self.failing: dict[str, int] = {}
        self._hung: list[str] = []
        self._failed: list[str] = []

    def perform(self, action: Action, report: Callable[[ActionResult], None]) -> None:
        """Start an action; report its outcome later."""
        if self._draw_budget(self.hanging, action, self._hung):
            return
        if self._draw_budget(self.failing, action, self._failed):
            found = Outcome(seconds=QUICK_SECONDS, outcome="failed", message="no space left")
        else:
            found = self._outcome(action)
        if found.outcome is not None:
            result = ActionResult(
                id=action.id, outcome=found.outcome, detail=found.detail, message=found.message
            )
            self._agenda.after(found.seconds, lambda: report(result))

    def _draw_budget(self, budget: dict[str, int], action: Action, affected: list[str]) -> bool:
        """Return whether an action is affected, using up its kind's budget; executed again, it is affected again."""
        if action.id not in affected and budget.get(action.action, 0) > 0:
            budget[action.action] -= 1
            affected.append(action.id)
        return action.id in affected

    def _outcome(self, action: Action) -> Outcome:
        return OUTCOMES[action.action](self, action)

    def _machine(self, action: Action) -> SimNode | None:
        return self._machines.get(str(action.args.get("node")))

    def _prepare(self, action: Action) -> Outcome:
        work = action.read(PrepareAttempt)
        folder = self._folder(AttemptId.parse(work.attempt).run)
        chosen, refused = None, list[dict[str, object]]()
        if work.folder:
            folder.generation = max(folder.generation, work.generation)
            chosen, refused = folder.survey(list(work.refused))
        self._port += 1
        detail = {"chosen": chosen, "refused": refused, "address": work.address, "port": self._port}
        return Outcome(seconds=PREPARE_SECONDS, detail=detail)

    def _verify(self, action: Action) -> Outcome:
        found = self._folder(action.run or 0).find(action.read(VerifyCheckpoint).path)
        if found is None:
            return Outcome(seconds=QUICK_SECONDS, outcome="failed", message="no such folder")
        if found.corrupt:
            message = "the hash of rank0 differs"
            return Outcome(seconds=QUICK_SECONDS, outcome="failed", message=message)
        return Outcome(seconds=QUICK_SECONDS, detail={"step": found.step})

    def _prune(self, action: Action) -> Outcome:
        folder, paths = self._folder(action.run or 0), action.read(PruneCheckpoints).paths
        folder.sealed = [known for known in folder.sealed if known.path not in paths]
        return Outcome(seconds=QUICK_SECONDS)

    def _start_agent(self, action: Action) -> Outcome:
        machine = self._machine(action)
        if machine is None:
            return Outcome(seconds=QUICK_SECONDS)
        if machine.partitioned:
            return Outcome(seconds=BOOT_SECONDS, outcome="failed", message="not reachable")
        self._agenda.after(BOOT_SECONDS, machine.boot)
        return Outcome(seconds=BOOT_SECONDS, message="started")

    def _stop_agent(self, action: Action) -> Outcome:
        machine = self._machine(action)
        if machine is None:
            return Outcome(seconds=QUICK_SECONDS)
        if machine.partitioned:
            return Outcome(seconds=LEAVE_SECONDS, outcome="failed", message="not reachable")
        self._agenda.after(LEAVE_SECONDS, machine.leave)
        return Outcome(seconds=2 * LEAVE_SECONDS, message="ended")

    def _probe(self, action: Action) -> Outcome:
        machine = self._machine(action)
        if machine is None:
            return Outcome(seconds=QUICK_SECONDS)
        if machine.partitioned:
            return Outcome(seconds=PROBE_SECONDS, detail={"reachable": False})
        alive = ("dead", "alive")
        detail = {
            "reachable": True,
            "agent": alive[machine.agent],
            "keeper": alive[machine.keeper],
            "ranks_alive": sorted(machine.share.ranks) if machine.share else [],
        }
        return Outcome(seconds=PROBE_SECONDS, detail=detail)

    def _page(self, _action: Action) -> Outcome:
        return Outcome(seconds=QUICK_SECONDS)


# Tasks go to nodes, which answer them.
OUTCOMES: dict[str, Callable[[SimActions, Action], Outcome]] = {
    PrepareAttempt.kind: SimActions._prepare,
    VerifyCheckpoint.kind: SimActions._verify,
    PruneCheckpoints.kind: SimActions._prune,
    StartAgent.kind: SimActions._start_agent,
    StopAgent.kind: SimActions._stop_agent,
    ProbeNode.kind: SimActions._probe,
    PageOperator.kind: SimActions._page,
}
