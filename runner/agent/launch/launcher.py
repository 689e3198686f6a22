"""Starting ranks: the way from a plan to its ranks, step by step, each of which may end in LaunchFailed.

allowed (slots, spec, user) and noted -> folders made, epoch raised -> devices free -> warm, or no longer waited for -> asked for
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from runner.agent.event_loop import EventLoop
from runner.agent.hangs import flight_recorder
from runner.agent.identity import Identity
from runner.agent.launch import rank_commands, users
from runner.agent.launch.devices import Devices, DevicesHeld
from runner.agent.launch.keeper_client import AgentConfig
from runner.agent.launch.keeper_lifecycle import Keeping
from runner.agent.launch.known_specs import KnownSpecs
from runner.agent.launch.preload import Warming
from runner.agent.launch.program import NoPythonProgram
from runner.agent.launch.users import RankUser
from runner.agent.transport.signal_emitter import SignalEmitter
from runner.errors import PermanentError, StokerError
from runner.facts.messages.assignments import Assignment, LaunchPlan
from runner.facts.messages.signals import DevicesReleased, LaunchFailed

log = logging.getLogger("stoker.agent")

# for folders to be made and the epoch raised on a slow file system; chosen
PREPARE_SECONDS = 30.0
# characters of why a launch failed
MAX_REASON = 2048


@dataclass(slots=True, kw_only=True)
class Launching:
    """A plan on its way to the keeper. `user` None: ranks run as the agent does. `flight`: see `flight.folder_of`."""

    assignment: Assignment
    user: RankUser | None = None
    flight: str = ""
    is_prepared: bool = False
    is_sent: bool = False
    # monotonic seconds
    sent_at: float = 0.0

    @property
    def plan(self) -> LaunchPlan:
        """What is to be started."""
        assert self.assignment.plan is not None
        return self.assignment.plan


class Starting:
    """One launch at a time: `launching`, None when there is none. `on_change` is called when the next step can be taken."""

    def __init__(
        self,
        place: AgentConfig,
        identity: Identity,
        loop: EventLoop,
        *,
        emitter: SignalEmitter,
        keeping: Keeping,
        on_change: Callable[[], None],
    ) -> None:
        self._place = place
        self._identity = identity
        self._loop = loop
        self._emitter = emitter
        self._keeping = keeping
        self._on_change = on_change
        self._specs = KnownSpecs(place.folder)
        self.launching: Launching | None = None
        self.devices = Devices(place.node, loop, self._devices_released, folder=place.device_files)
        self.warming = Warming(place, loop, keeping=keeping, on_change=on_change)

    def begin(self, assignment: Assignment) -> None:
        """Start what an assignment plans, which no life of this node has started before."""
        self.launching = launching = Launching(assignment=assignment)
        plan = launching.plan
        try:
            self._identity.record_launch(assignment.epoch, plan.attempt)
            launching.user = self._allow(plan)
        except StokerError as error:
            self.failed(str(error))
            return
        self.devices.cease()
        prepared = partial(self._prepared, launching)
        self._loop.in_background(partial(self._make_ready, launching), prepared)
        late = TimeoutError(f"the folders did not answer within {PREPARE_SECONDS:.0f} s")
        self._loop.at("prepare", time.monotonic() + PREPARE_SECONDS, partial(prepared, None, late))

    def go_on(self) -> None:
        """Take the next step, if there is one to take."""
        launching = self.launching
        if launching is None or launching.is_sent or not launching.is_prepared:
            return
        patience_ends = self.warming.patience_ends()
        if patience_ends is None:
            self._spawn(launching)
        else:
            self._loop.at("patience", patience_ends, self._on_change)

    def call_off(self) -> None:
        """Forget a launch that the keeper was not asked for yet."""
        self.launching = None

    def started(self) -> Launching | None:
        """Note that the keeper has started what it was asked for; return what that was."""
        launching, self.launching = self.launching, None
        return launching

    def failed(self, reason: str, *, devices_held: bool = False) -> None:
        """Say that the launch under way came to nothing."""
        launching, self.launching = self.launching, None
        if launching is None:
            return
        attempt, epoch = launching.plan.attempt, launching.assignment.epoch
        log.warning("attempt %s cannot be started: %s", attempt, reason)
        stamp, reason = self._emitter.next_header(), reason[:MAX_REASON]
        failed = LaunchFailed(
            **stamp, epoch=epoch, attempt=attempt, reason=reason, devices_held=devices_held
        )
        self._emitter.emit(failed)
        self._on_change()

    def _allow(self, plan: LaunchPlan) -> RankUser | None:
        """Return whom the ranks are to run as. Raises StokerError when this node does not run the plan."""
        if plan.ranks_per_node > self._place.slots:
            raise PermanentError(
                f"node {self._place.node!r} has {self._place.slots} slots, the plan wants {plan.ranks_per_node}"
            )
        user = users.find(plan.user)
        users.must_be_able(user, self._keeping.abilities)
        self._specs.check(plan)
        return user

    def _make_ready(self, launching: Launching) -> bool:
        """Prepare, on a thread of its own; return whether there are devices to wait for."""
        rank_commands.prepare(launching.assignment, launching.user, state=self._place.cluster.state)
        launching.flight = flight_recorder.recorder_folder(
            launching.plan.output_folder, launching.user
        )
        return bool(self._place.cluster.device_release_seconds and self.devices.program())

    def _prepared(
        self, launching: Launching, has_devices: bool | None, error: Exception | None
    ) -> None:
        if self.launching is not launching or launching.is_prepared:
            return
        self._loop.cancel("prepare")
        if error is not None:
            self.failed(f"cannot prepare: {error}")
        elif has_devices:
            wait = partial(
                self.devices.wait,
                _environment_of(launching.plan),
                self._place.cluster.device_release_seconds,
                lambda: self.launching is launching,
            )
            self._loop.in_background(wait, partial(self._devices_free, launching))
        else:
            launching.is_prepared = True
            self._on_change()

    def _devices_free(self, launching: Launching, _: None, error: Exception | None) -> None:
        if self.launching is not launching:
            return
        if error is not None:
            if isinstance(error, DevicesHeld):
                self.devices.watch(_environment_of(launching.plan))
            self.failed(str(error), devices_held=isinstance(error, DevicesHeld))
        else:
            launching.is_prepared = True
            self._on_change()

    def _devices_released(self) -> None:
        self._emitter.emit(DevicesReleased(**self._emitter.next_header()))

    def _spawn(self, launching: Launching) -> None:
        fill = partial(
            rank_commands.spawn_request,
            launching.assignment,
            rank_commands.LaunchEnvironment(
                cluster=self._place.cluster.name,
                python=self._place.python,
                user=launching.user,
                flight_folder=launching.flight,
            ),
        )
        try:
            try:
                request = fill(fork=self.warming.state == "ready", cold=self.warming.why_cold())
            except NoPythonProgram as error:
                # it was one when the modules were imported
                request = fill(cold=str(error))
        except StokerError as error:
            self.failed(str(error))
            return
        launching.is_sent, launching.sent_at = True, time.monotonic()
        self._keeping.send(**request)
        self._keeping.expect_answer()


def _environment_of(plan: LaunchPlan) -> dict[str, str]:
    """Return what ranks of a plan have in all attempts, as far as it concerns devices."""
    return rank_commands.lasting_environment(plan.environment, ranks_per_node=plan.ranks_per_node)
