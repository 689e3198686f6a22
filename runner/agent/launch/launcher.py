"""Starting ranks: the way from a plan to its ranks, step by step, each of which may end in LaunchFailed.

allowed (slots, spec, user) and noted -> folders made, epoch raised -> devices free -> warm, or no longer waited for -> asked for
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.hangs import flight_recorder
from runner.agent.identity import Identity
from runner.agent.launch import rank_commands, users
from runner.agent.launch.devices import Devices, DevicesBusy
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.launch.known_specs import KnownSpecs
from runner.agent.launch.preloader import Preloader
from runner.agent.launch.program import NotForkableCommand
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
class Launch:
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


class Launcher:
    """One launch at a time: `launch`, None when there is none. `on_change` is called when the next step can be taken."""

    def __init__(
        self,
        config: AgentConfig,
        identity: Identity,
        loop: EventLoop,
        *,
        emitter: SignalEmitter,
        keeper: KeeperLifecycle,
        on_change: Callable[[], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._loop = loop
        self._emitter = emitter
        self._keeper = keeper
        self._on_change = on_change
        self._specs = KnownSpecs(config.folder)
        self.launch: Launch | None = None
        self.devices = Devices(
            config.node, loop, self._devices_released, folder=config.device_files
        )
        self.preloader = Preloader(config, loop, keeper=keeper, on_change=on_change)

    def begin(self, assignment: Assignment) -> None:
        """Start what an assignment plans, which no life of this node has started before."""
        self.launch = launch = Launch(assignment=assignment)
        plan = launch.plan
        try:
            self._identity.record_launch(assignment.epoch, plan.attempt)
            launch.user = self._allow(plan)
        except StokerError as error:
            self.failed(str(error))
            return
        self.devices.cease()
        prepared = partial(self._prepared, launch)
        self._loop.in_background(partial(self._make_ready, launch), prepared)
        late = TimeoutError(f"the folders did not answer within {PREPARE_SECONDS:.0f} s")
        self._loop.at("prepare", time.monotonic() + PREPARE_SECONDS, partial(prepared, None, late))

    def go_on(self) -> None:
        """Take the next step, if there is one to take."""
        launch = self.launch
        if launch is None or launch.is_sent or not launch.is_prepared:
            return
        wait_until = self.preloader.wait_until()
        if wait_until is None:
            self._spawn(launch)
        else:
            self._loop.at("patience", wait_until, self._on_change)

    def call_off(self) -> None:
        """Forget a launch that the keeper was not asked for yet."""
        self.launch = None

    def started(self) -> Launch | None:
        """Note that the keeper has started what it was asked for; return what that was."""
        launch, self.launch = self.launch, None
        return launch

    def failed(self, reason: str, *, devices_held: bool = False) -> None:
        """Say that the launch under way came to nothing."""
        launch, self.launch = self.launch, None
        if launch is None:
            return
        attempt, epoch = launch.plan.attempt, launch.assignment.epoch
        log.warning("attempt %s cannot be started: %s", attempt, reason)
        stamp, reason = self._emitter.next_header(), reason[:MAX_REASON]
        failed = LaunchFailed(
            **stamp, epoch=epoch, attempt=attempt, reason=reason, devices_held=devices_held
        )
        self._emitter.emit(failed)
        self._on_change()

    def _allow(self, plan: LaunchPlan) -> RankUser | None:
        """Return whom the ranks are to run as. Raises StokerError when this node does not run the plan."""
        if plan.ranks_per_node > self._config.slots:
            raise PermanentError(
                f"node {self._config.node!r} has {self._config.slots} slots, the plan wants {plan.ranks_per_node}"
            )
        user = users.find(plan.user)
        users.require_ability(user, self._keeper.abilities)
        self._specs.check(plan)
        return user

    def _make_ready(self, launch: Launch) -> bool:
        """Prepare, on a thread of its own; return whether there are devices to wait for."""
        rank_commands.prepare(launch.assignment, launch.user, state=self._config.cluster.state)
        launch.flight = flight_recorder.recorder_folder(launch.plan.output_folder, launch.user)
        return bool(self._config.cluster.device_release_seconds and self.devices.program())

    def _prepared(self, launch: Launch, has_devices: bool | None, error: Exception | None) -> None:
        if self.launch is not launch or launch.is_prepared:
            return
        self._loop.cancel("prepare")
        if error is not None:
            self.failed(f"cannot prepare: {error}")
        elif has_devices:
            wait = partial(
                self.devices.wait,
                _environment_of(launch.plan),
                self._config.cluster.device_release_seconds,
                lambda: self.launch is launch,
            )
            self._loop.in_background(wait, partial(self._devices_free, launch))
        else:
            launch.is_prepared = True
            self._on_change()

    def _devices_free(self, launch: Launch, _: None, error: Exception | None) -> None:
        if self.launch is not launch:
            return
        if error is not None:
            if isinstance(error, DevicesBusy):
                self.devices.watch(_environment_of(launch.plan))
            self.failed(str(error), devices_held=isinstance(error, DevicesBusy))
        else:
            launch.is_prepared = True
            self._on_change()

    def _devices_released(self) -> None:
        self._emitter.emit(DevicesReleased(**self._emitter.next_header()))

    def _spawn(self, launch: Launch) -> None:
        fill = partial(
            rank_commands.spawn_request,
            launch.assignment,
            rank_commands.LaunchEnvironment(
                cluster=self._config.cluster.name,
                python=self._config.python,
                user=launch.user,
                flight_folder=launch.flight,
            ),
        )
        try:
            try:
                request = fill(fork=self.preloader.state == "ready", cold=self.preloader.why_cold())
            except NotForkableCommand as error:
                # it was one when the modules were imported
                request = fill(cold=str(error))
        except StokerError as error:
            self.failed(str(error))
            return
        launch.is_sent, launch.sent_at = True, time.monotonic()
        self._keeper.send(**request)
        self._keeper.expect_answer()


def _environment_of(plan: LaunchPlan) -> dict[str, str]:
    """Return what ranks of a plan have in all attempts, as far as it concerns devices."""
    return rank_commands.lasting_environment(plan.environment, ranks_per_node=plan.ranks_per_node)
