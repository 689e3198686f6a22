"""How each kind of action ends in the simulated world."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.facts import actions
from runner.facts.checkpoints import Rewind
from runner.facts.ids import AttemptId
from runner.simulate.node import BOOT_SECONDS, SimNode
from runner.simulate.training import SimCheckpoints
from runner.simulate.virtual_time import Agenda

PREPARE_SECONDS = 0.05
PROBE_SECONDS = 0.05
QUICK_SECONDS = 0.02
LEAVE_SECONDS = 0.1


# How an action ends: after how many seconds, and what it reports of its outcome.
Outcome = tuple[float, dict[str, Any]]
DONE: Outcome = (QUICK_SECONDS, {})


def _failed(message: str, seconds: float = QUICK_SECONDS) -> Outcome:
    return seconds, {"outcome": "failed", "message": message}


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
        # Kind of action -> how many more of it never end, or fail.
        self.hanging: dict[str, int] = {}
        self.failing: dict[str, int] = {}
        self._hung: list[str] = []
        self._failed: list[str] = []

    def perform(
        self, action: actions.Action, report: Callable[[actions.ActionResult], None]
    ) -> None:
        """Start an action; report its outcome later."""
        if self._draw_budget(self.hanging, action, self._hung):
            return
        if self._draw_budget(self.failing, action, self._failed):
            seconds, fields = _failed("no space left")
        else:
            seconds, fields = OUTCOMES[action.action](self, action)
        result = actions.ActionResult(id=action.id, **{"outcome": "done", **fields})
        self._agenda.after(seconds, lambda: report(result))

    def _draw_budget(
        self, budget: dict[str, int], action: actions.Action, affected: list[str]
    ) -> bool:
        """Return whether an action is affected, using up its kind's budget; executed again, it is affected again."""
        if action.id not in affected and budget.get(action.action, 0) > 0:
            budget[action.action] -= 1
            affected.append(action.id)
        return action.id in affected

    def _machine(self, action: actions.Action) -> SimNode | None:
        return self._machines.get(str(action.args.get("node")))

    def _prepare(self, action: actions.Action) -> Outcome:
        work = action.read(actions.PrepareAttempt)
        folder = self._folder(AttemptId.parse(work.attempt).run)
        chosen = None
        if work.folder:
            folder.generation = max(folder.generation, work.generation)
            chosen = folder.survey(
                skip=work.refused,
                verified=work.verified,
                newest_first=work.newest_first,
                set_aside=[Rewind.of_plain(each) for each in work.set_aside],
            )
        self._port += 1
        detail: dict[str, object] = {
            "chosen": chosen,
            "refused": [],
            "address": work.address,
            "port": self._port,
        }
        return PREPARE_SECONDS, {"detail": detail}

    def _inspect(self, action: actions.Action) -> Outcome:
        found = self._folder(action.run or 0).find(action.read(actions.InspectCheckpoint).path)
        if found is None:
            return QUICK_SECONDS, {"outcome": "failed", "detail": {"missing": True}}
        known: dict[str, object] = {
            "manifest": found.path,
            "stamp": found.path,
            "size_bytes": found.training.checkpoint_bytes,
        }
        return QUICK_SECONDS, {"detail": {**known, "step": found.step}}

    def _prune(self, action: actions.Action) -> Outcome:
        folder, paths = self._folder(action.run or 0), action.read(actions.PruneCheckpoints).paths
        folder.sealed = [known for known in folder.sealed if known.path not in paths]
        return DONE

    def _start_agent(self, action: actions.Action) -> Outcome:
        machine = self._machine(action)
        if machine is None:
            return DONE
        if machine.partitioned:
            return _failed("not reachable", BOOT_SECONDS)
        self._agenda.after(BOOT_SECONDS, machine.boot)
        return BOOT_SECONDS, {"message": "started"}

    def _stop_agent(self, action: actions.Action) -> Outcome:
        machine = self._machine(action)
        if machine is None:
            return DONE
        if machine.partitioned:
            return _failed("not reachable", LEAVE_SECONDS)
        self._agenda.after(LEAVE_SECONDS, machine.leave)
        return 2 * LEAVE_SECONDS, {"message": "ended"}

    def _probe(self, action: actions.Action) -> Outcome:
        machine = self._machine(action)
        if machine is None:
            return DONE
        if machine.partitioned:
            return PROBE_SECONDS, {"detail": {"reachable": False}}
        alive = ("dead", "alive")
        detail = {
            "reachable": True,
            "agent": alive[machine.agent],
            "keeper": alive[machine.keeper],
            "ranks_alive": sorted(machine.share.ranks) if machine.share else [],
        }
        return PROBE_SECONDS, {"detail": detail}


# Tasks go to nodes, which answer them.
OUTCOMES: dict[str, Callable[[SimActions, actions.Action], Outcome]] = {
    actions.PrepareAttempt.kind: SimActions._prepare,
    actions.InspectCheckpoint.kind: SimActions._inspect,
    actions.VerifyCheckpoint.kind: SimActions._inspect,
    actions.PruneCheckpoints.kind: SimActions._prune,
    actions.StartAgent.kind: SimActions._start_agent,
    actions.StopAgent.kind: SimActions._stop_agent,
    actions.ProbeNode.kind: SimActions._probe,
    actions.PageOperator.kind: lambda _actions, _action: DONE,
}
