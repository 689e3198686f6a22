"""The preloader: has the keeper import what the assignment wants, and decides how long a launch waits for that."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.folders import FolderHangs, Folders
from runner.agent.launch import rank_commands, users
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.facts.messages.assignments import PreloadPlan

log = logging.getLogger("stoker.agent")

# Chosen, not measured. The delay before a warm process is restarted doubles with its deaths.
RESTART_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
# For the working folder to answer; chosen, not measured.
FOLDER_SECONDS = 30.0

State = Literal["", "importing", "ready", "odd", "dead"]


@dataclass(slots=True)
class Preloader:
    """The request for a warm process, and its state as the keeper reports it. It calls `on_change` when a launch may continue.

    A warm process that died is restarted. One that is `odd`, from which ranks cannot be forked, stays so.
    """

    config: AgentConfig
    loop: EventLoop
    folders: Folders
    keeper: KeeperLifecycle
    on_change: Callable[[], None]
    state: State = ""
    reason: str = ""
    pid: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    _plan: PreloadPlan | None = None
    # False at first: a keeper that an earlier agent started may have a warm process.
    _has_plan: bool = False
    # None: it is being made.
    _request: dict[str, Any] | None = None
    _requested_at: float = 0.0
    _backoff_seconds: float = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether the assignment wants ranks to be forked."""
        return self._plan is not None

    @property
    def status(self) -> str:
        """Its state in a heartbeat: "", importing, ready, or why there is none."""
        return self.state if self.state in ("", "importing", "ready") else self.reason

    def set_plan(self, plan: PreloadPlan | None) -> None:
        """Follow the assignment; the same plan again changes nothing."""
        if plan == self._plan and self._has_plan:
            return
        self._plan, self._has_plan = plan, True
        self._backoff_seconds = 0.0
        self.request()

    def request(self) -> None:
        """Send the request to the keeper, which may be a new one."""
        self.loop.cancel("preload again")
        self._request, self.pid, self.versions = None, 0, {}
        plan = self._plan
        if plan is None:
            self._set("", "")
            self._request = {}
            self.keeper.send("warm", request=self._request)
            return
        self._requested_at = time.monotonic()
        self._set("importing", "")
        self.folders.run(
            plan.working_directory,
            partial(self._make_request, plan),
            partial(self._on_request, plan),
            wait_seconds=FOLDER_SECONDS,
        )

    def _make_request(self, plan: PreloadPlan) -> dict[str, Any]:
        """Return the keeper's request, on a thread of the working folder's mount. Raises what says why there is none."""
        user = users.find_user(plan.user)
        users.require_ability(user, self.keeper.abilities)
        request = rank_commands.warm_request(plan, python=self.config.python, user=user)
        rank_commands.prepare_working_folder(plan, state=self.config.cluster.state)
        return request

    def _on_request(
        self, plan: PreloadPlan, request: dict[str, Any] | None, error: Exception | None
    ) -> None:
        if plan is not self._plan:
            return
        self._request = request or {}
        if isinstance(error, FolderHangs):
            again_at = time.monotonic() + MAX_BACKOFF_SECONDS
            self.loop.at("preload again", again_at, self.request)
        if error is not None:
            self._set("odd", str(error))
        self.keeper.send("warm", request=self._request)

    def on_message(self, message: dict[str, Any]) -> None:
        """Handle what the keeper reports of its warm process."""
        if message["request"] != self._request:
            return
        self.pid, self.versions = message["pid"], message["versions"]
        self._set(message["state"], message["reason"])
        if self.state == "dead":
            due_at = time.monotonic() + self._backoff_seconds
            self.loop.at("preload again", due_at, self.request)
            longer_seconds = max(2 * self._backoff_seconds, RESTART_BACKOFF_SECONDS)
            self._backoff_seconds = min(longer_seconds, MAX_BACKOFF_SECONDS)

    def on_forked(self) -> None:
        """Ranks were forked: should the warm process die now, it is restarted at once."""
        self._backoff_seconds = 0.0

    def wait_until(self) -> float | None:
        """Return until when (monotonic seconds) a launch is to wait for it, or None when it need not."""
        if self.state != "importing":
            return None
        # Imports take seconds, and a gang of fresh processes would only compete with them.
        until = self._requested_at + self.config.cluster.preload_seconds
        return until if time.monotonic() < until else None

    def not_forked_reason(self) -> str:
        """Return why ranks that are started now are not forked; "" when they are, or that is not wanted."""
        if not self.is_wanted or self.state == "ready":
            return ""
        if self.state == "importing":
            return f"the preload takes longer than {self.config.cluster.preload_seconds:g} s"
        return self.reason

    def _set(self, state: State, reason: str) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        if state in ("odd", "dead"):
            log.warning("no warm process: %s", reason)
        elif state == "ready":
            log.info("preloaded in %.1f s", time.monotonic() - self._requested_at)
        self.on_change()
