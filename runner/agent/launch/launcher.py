"""The way from a plan to its ranks, step by step. Each step may end in LaunchFailed.

check slots, spec and user -> make folders, raise the generation -> wait for devices -> wait for the preload -> send to the keeper
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.folders import FolderHangs, Folders
from runner.agent.hangs import flight_recorder
from runner.agent.identity import Identity
from runner.agent.launch import rank_commands, users
from runner.agent.launch.devices import Devices, DevicesBusy
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.launch.known_specs import KnownSpecs
from runner.agent.launch.node_conditions import NodeConditions
from runner.agent.launch.preloader import Preloader
from runner.agent.launch.program import NotForkableCommand, Program
from runner.agent.launch.rank_commands import Launch
from runner.agent.launch.users import RankUser
from runner.agent.transport.session import SignalEmitter
from runner.errors import PermanentError, StokerError
from runner.facts.messages.assignments import Assignment, LaunchPlan
from runner.facts.messages.signals import DevicesReleased, LaunchFailed

log = logging.getLogger("stoker.agent")

# Chosen, not measured. The first is for folders on a slow file system.
PREPARE_SECONDS = 30.0
MAX_REASON_CHARACTERS = 2048


@dataclass
class Launcher:
    """One launch at a time: `launch`, None when there is none. It calls `on_change` when the next step can be taken."""

    config: AgentConfig
    identity: Identity
    loop: EventLoop
    folders: Folders
    emitter: SignalEmitter
    keeper: KeeperLifecycle
    on_change: Callable[[], None]
    launch: Launch | None = None

    def __post_init__(self) -> None:
        config = self.config
        self._specs = KnownSpecs(config.folder)
        self.devices = Devices(
            config.node, self.loop, self._on_devices_released, folder=config.device_files
        )
        self.conditions = NodeConditions(config, self.loop, self.folders, self.emitter)
        self.preloader = Preloader(config, self.loop, self.folders, self.keeper, self.on_change)

    def begin(self, assignment: Assignment) -> None:
        """Start what an assignment plans, which no instance of this node's agent has started before."""
        self.launch = launch = Launch(assignment=assignment)
        plan = launch.plan
        try:
            self.identity.record_launch(assignment.generation, plan.attempt)
            launch.user = self._check(plan)
        except StokerError as error:
            self.fail(str(error))
            return
        self.devices.stop_watching()
        self.folders.run(
            plan.output_folder,
            partial(self._prepare_output, launch),
            partial(self._on_output_prepared, launch, time.monotonic() + PREPARE_SECONDS),
            wait_seconds=PREPARE_SECONDS,
        )

    def advance(self) -> None:
        """Take the next step, if there is one to take."""
        launch = self.launch
        if launch is None or launch.is_sent or not launch.is_prepared:
            return
        wait_until = self.preloader.wait_until()
        if wait_until is None:
            self._spawn(launch)
        else:
            self.loop.at("preload", wait_until, self.on_change)

    def pop(self) -> Launch | None:
        """Return the launch and keep it no longer: it is cancelled before it was sent, or its ranks are started."""
        launch, self.launch = self.launch, None
        return launch

    def fail(self, reason: str, *, devices_busy: bool = False) -> None:
        """Report that the current launch failed."""
        launch = self.pop()
        if launch is None:
            return
        log.warning("attempt %s cannot be started: %s", launch.plan.attempt, reason)
        self.emitter.emit(
            LaunchFailed(
                **self.emitter.next_header(),
                generation=launch.assignment.generation,
                attempt=launch.plan.attempt,
                reason=reason[:MAX_REASON_CHARACTERS],
                devices_busy=devices_busy,
            )
        )
        self.on_change()

    def _check(self, plan: LaunchPlan) -> RankUser | None:
        """Return the user that ranks are to run as. Raises StokerError when this node does not run the plan."""
        if plan.ranks_per_node > self.config.slots:
            raise PermanentError(
                f"node {self.config.node!r} has {self.config.slots} slots, the plan wants {plan.ranks_per_node}"
            )
        user = users.find_user(plan.user)
        users.require_ability(user, self.keeper.abilities)
        self._specs.check(plan)
        return user

    def _prepare_output(self, launch: Launch) -> bool:
        """Prepare the output folder, on a thread of its mount; return whether there are devices to wait for."""
        rank_commands.prepare_output_folder(launch)
        output_folder = launch.plan.output_folder
        launch.flight_folder = flight_recorder.recorder_folder(output_folder, launch.user)
        return bool(self.config.cluster.device_release_seconds and self.devices.program())

    def _on_output_prepared(
        self, launch: Launch, deadline: float, has_devices: bool | None, error: Exception | None
    ) -> None:
        """Prepare the checkpoint folder, which may be of another mount, until `deadline` (monotonic seconds)."""
        on_prepared = partial(self._on_prepared, launch, bool(has_devices))
        if self.launch is not launch:
            return
        if error is not None or not launch.plan.checkpoints:
            on_prepared(None, error)
            return
        self.folders.run(
            launch.plan.checkpoints,
            partial(rank_commands.prepare_checkpoints, launch, state=self.config.cluster.state),
            on_prepared,
            wait_seconds=max(0.0, deadline - time.monotonic()),
        )

    def _on_prepared(
        self, launch: Launch, has_devices: bool, _: None, error: Exception | None
    ) -> None:
        if self.launch is not launch:
            return
        if error is not None:
            self.fail(f"cannot prepare: {error}")
        elif has_devices:
            wait = partial(
                self.devices.wait,
                rank_commands.lasting_environment(launch.plan),
                self.config.cluster.device_release_seconds,
                lambda: self.launch is launch,
            )
            self.loop.in_background(wait, partial(self._on_devices_free, launch))
        else:
            self._on_devices_free(launch, None, None)

    def _on_devices_free(self, launch: Launch, _: None, error: Exception | None) -> None:
        if self.launch is not launch:
            return
        if error is None:
            launch.is_prepared = True
            self.on_change()
            return
        is_busy = isinstance(error, DevicesBusy)
        if is_busy:
            self.devices.watch(rank_commands.lasting_environment(launch.plan))
        self.fail(str(error), devices_busy=is_busy)

    def _on_devices_released(self) -> None:
        self.emitter.emit(DevicesReleased(**self.emitter.next_header()))

    def _spawn(self, launch: Launch) -> None:
        spawn_request = partial(rank_commands.spawn_request, launch, self.config)
        preloader = self.preloader
        try:
            try:
                request = spawn_request(
                    program=self._program(launch) if preloader.state == "ready" else None,
                    not_forked_reason=preloader.not_forked_reason(),
                )
            except (NotForkableCommand, FolderHangs) as error:
                # It was forkable when the modules were imported.
                request = spawn_request(not_forked_reason=str(error))
        except StokerError as error:
            self.fail(str(error))
            return
        launch.is_sent, launch.sent_at = True, time.monotonic()
        self.keeper.send("spawn", **request)
        self.keeper.expect_answer()

    def _program(self, launch: Launch) -> Program:
        """Return what the warm process is to run. Raises NotForkableCommand, and FolderHangs for a working folder that does."""
        plan = launch.plan
        find = partial(rank_commands.program_of, plan, self.config.python, launch.user)
        return self.folders.ask(plan.working_directory, find)
