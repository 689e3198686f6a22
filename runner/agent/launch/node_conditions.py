"""What the ranks of this node run with: found beside their launch (`survey`), reported by digest, and in full where it is wanted.

The node with rank 0 reports all that is not as the run is known to run with. Every node sends digests with its heartbeats, and
the rest when the supervisor asks for it. No launch waits for any of this.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from runner.agent import tasks
from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.folders import Folders
from runner.agent.launch import survey
from runner.agent.launch.rank_commands import Launch
from runner.agent.ranks.gang import LocalGang
from runner.agent.rare_field import RareField
from runner.agent.transport.session import SignalEmitter
from runner.facts.actions import ActionResult
from runner.facts.launch_conditions import LaunchConditions, digests, leave_out, of_data
from runner.facts.messages.assignments import Task
from runner.facts.messages.signals import ConditionsFound

log = logging.getLogger("stoker.agent")

# Nodes of a gang begin one after the other: all of them read one working folder's files, often of one server. Chosen.
SPREAD_SECONDS = 0.02
MAX_SPREAD_SECONDS = 30.0


@dataclass
class NodeConditions:
    """Of the newest launch of this agent; of ranks of an earlier agent nothing is known."""

    config: AgentConfig
    loop: EventLoop
    folders: Folders
    emitter: SignalEmitter

    def __post_init__(self) -> None:
        self._launch: Launch | None = None
        self._found: LaunchConditions | None = None
        self._digests: Mapping[str, str] = {}
        self._rare = RareField[str]()

    def begin(self, launch: Launch) -> None:
        """Find out what the ranks run with, while they start."""
        self._launch, self._found, self._digests = launch, None, {}
        self._rare = RareField[str]()
        delay_seconds = min(SPREAD_SECONDS * launch.plan.node_rank, MAX_SPREAD_SECONDS)
        self.loop.at("survey", time.monotonic() + delay_seconds, partial(self._survey, launch))

    def _survey(self, launch: Launch) -> None:
        if self._launch is launch:
            self.folders.run(
                launch.plan.working_directory,
                partial(survey.conditions_of, launch, self.config.python),
                partial(self._on_surveyed, launch),
                busy_seconds=survey.SURVEY_SECONDS,
            )

    def _on_surveyed(
        self, launch: Launch, found: LaunchConditions | None, error: Exception | None
    ) -> None:
        if self._launch is not launch:
            return
        if found is None:
            log.warning("what %s runs with is not known: %s", launch.plan.attempt, error)
            return
        plan, self._found, self._digests = launch.plan, found, digests(found)
        if plan.node_rank == 0:
            known = plan.conditions
            same = [part for part, one in self._digests.items() if one in known.get(part, ())]
            self._emit(launch, leave_out(found, same))
        # With the digests; the supervisor waits for those of all nodes.
        self.emitter.heartbeat()

    def _emit(self, launch: Launch, conditions: LaunchConditions) -> None:
        plan = launch.plan
        self.emitter.emit(
            ConditionsFound(
                **self.emitter.next_header(),
                generation=launch.assignment.generation,
                attempt=plan.attempt,
                conditions=conditions,
            )
        )

    def pop_due(self, gang: LocalGang, now: float) -> Mapping[str, str]:
        """Return the digests for the next heartbeat about these ranks, if they are due; `now`: monotonic seconds."""
        if self._launch is None or self._launch.assignment.generation != gang.generation:
            return {}
        found = {**self._digests, **digests(of_data(gang.data))} if self._found else {}
        return self._rare.pop_due(found, now)

    def answer(self, task: Task, gang: LocalGang) -> ActionResult:
        """Report in full what the ranks run with, and return the answer to the task that asks for it."""
        launch = self._launch
        if launch is None or self._found is None or launch.assignment.generation != gang.generation:
            return tasks.result(task, "failed", "this agent did not start the ranks")
        self._emit(launch, replace(self._found, data=gang.data))
        return tasks.result(task, "done", "reported")
