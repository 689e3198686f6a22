"""The way from a plan to its ranks, step by step. Each step may end in LaunchFailed.

check slots, spec and user -> make folders, raise the generation -> wait for devices -> wait for the preload -> send to the keeper
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

# For folders to be made and the generation raised on a slow file system; chosen.
PREPARE_SECONDS = 30.0
# Characters of why a launch failed.
MAX_REASON = 2048


@dataclass(slots=True, kw_only=True)
class Launch:
    """A plan on its way to the keeper. `user` None: ranks run as the agent does.

    `flight_folder`: see `flight_recorder.recorder_folder`. `sent_at`: monotonic seconds.
    """

    assignment: Assignment
    user: RankUser | None = None
    flight_folder: str = ""
    is_prepared: bool = False
    is_sent: bool = False
    sent_at: float = 0.0

    @property
    def plan(self) -> LaunchPlan:
        """What is to be started."""
        assert self.assignment.plan is not None
        return self.assignment.plan


class Launcher:
    """One launch at a time: `launch`, None when there is none. It calls `on_change` when the next step can be taken."""

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
            config.node, loop, self._on_devices_released, folder=config.device_files
        )
        self.preloader = Preloader(config, loop, keeper=keeper, on_change=on_change)

    def begin(self, assignment: Assignment) -> None:
        """Start what an assignment plans, which no instance of this node's agent has started before."""
        self.launch = launch = Launch(assignment=assignment)
        plan = launch.plan
        try:
            self._identity.record_launch(assignment.generation, plan.attempt)
            launch.user = self._check(plan)
        except StokerError as error:
            self.fail(str(error))
            return
        self.devices.stop_watching()
        on_prepared = partial(self._on_prepared, launch)
        self._loop.in_background(partial(self._prepare, launch), on_prepared)
        late = TimeoutError(f"the folders did not answer within {PREPARE_SECONDS:.0f} s")
        timeout = partial(on_prepared, None, late)
        self._loop.at("prepare", time.monotonic() + PREPARE_SECONDS, timeout)

    def advance(self) -> None:
        """Take the next step, if there is one to take."""
        launch = self.launch
        if launch is None or launch.is_sent or not launch.is_prepared:
            return
        wait_until = self.preloader.wait_until()
        if wait_until is None:
            self._spawn(launch)
        else:
            self._loop.at("preload", wait_until, self._on_change)

    def pop(self) -> Launch | None:
        """Return the launch and keep it no longer: it is cancelled before it was sent, or its ranks are started."""
        launch, self.launch = self.launch, None
        return launch

    def fail(self, reason: str, *, devices_busy: bool = False) -> None:
        """Report that the current launch failed."""
        launch = self.pop()
        if launch is None:
            return
        attempt, generation = launch.plan.attempt, launch.assignment.generation
        log.warning("attempt %s cannot be started: %s", attempt, reason)
        self._emitter.emit(
            LaunchFailed(
                **self._emitter.next_header(),
                generation=generation,
                attempt=attempt,
                reason=reason[:MAX_REASON],
                devices_busy=devices_busy,
            )
        )
        self._on_change()

    def _check(self, plan: LaunchPlan) -> RankUser | None:
        """Return the user that ranks are to run as. Raises StokerError when this node does not run the plan."""
        if plan.ranks_per_node > self._config.slots:
            raise PermanentError(
                f"node {self._config.node!r} has {self._config.slots} slots, the plan wants {plan.ranks_per_node}"
            )
        user = users.find_user(plan.user)
        users.require_ability(user, self._keeper.abilities)
        self._specs.check(plan)
        return user

    def _prepare(self, launch: Launch) -> bool:
        """Prepare, on a thread of its own; return whether there are devices to wait for."""
        cluster = self._config.cluster
        rank_commands.prepare_folders(launch.assignment, launch.user, state=cluster.state)
        output_folder = launch.plan.output_folder
        launch.flight_folder = flight_recorder.recorder_folder(output_folder, launch.user)
        return bool(cluster.device_release_seconds and self.devices.program())

    def _on_prepared(
        self, launch: Launch, has_devices: bool | None, error: Exception | None
    ) -> None:
        if self.launch is not launch or launch.is_prepared:
            return
        self._loop.cancel("prepare")
        if error is not None:
            self.fail(f"cannot prepare: {error}")
        elif has_devices:
            wait = partial(
                self.devices.wait,
                _device_environment(launch.plan),
                self._config.cluster.device_release_seconds,
                lambda: self.launch is launch,
            )
            self._loop.in_background(wait, partial(self._on_devices_free, launch))
        else:
            launch.is_prepared = True
            self._on_change()

    def _on_devices_free(self, launch: Launch, _: None, error: Exception | None) -> None:
        if self.launch is not launch:
            return
        if error is None:
            launch.is_prepared = True
            self._on_change()
            return
        is_busy = isinstance(error, DevicesBusy)
        if is_busy:
            self.devices.watch(_device_environment(launch.plan))
        self.fail(str(error), devices_busy=is_busy)

    def _on_devices_released(self) -> None:
        self._emitter.emit(DevicesReleased(**self._emitter.next_header()))

    def _spawn(self, launch: Launch) -> None:
        spawn_request = partial(
            rank_commands.spawn_request,
            launch.assignment,
            rank_commands.LaunchEnvironment(
                cluster=self._config.cluster.name,
                python=self._config.python,
                user=launch.user,
                flight_folder=launch.flight_folder,
            ),
        )
        preloader = self.preloader
        try:
            try:
                request = spawn_request(
                    fork=preloader.state == "ready", not_forked_reason=preloader.not_forked_reason()
                )
            except NotForkableCommand as error:
                # It was forkable when the modules were imported.
                request = spawn_request(not_forked_reason=str(error))
        except StokerError as error:
            self.fail(str(error))
            return
        launch.is_sent, launch.sent_at = True, time.monotonic()
        self._keeper.send("spawn", **request)
        self._keeper.expect_answer()


def _device_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the part of the ranks' environment that selects devices."""
    return rank_commands.lasting_environment(plan.environment, ranks_per_node=plan.ranks_per_node)
