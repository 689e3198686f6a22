"""Warming: this node has imported what its assignment wants, or says why not; and how long a launch waits for that."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.launch import rank_commands, users
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.launch.program import NotForkableCommand
from runner.agent.launch.users import NoSuchUser
from runner.facts.messages.assignments import PreloadPlan

log = logging.getLogger("stoker.agent")

# before a warm process that died is made anew; doubles up to the next; both chosen
REVIVAL_SECONDS = 1.0
LAST_REVIVAL_SECONDS = 60.0

State = Literal["", "importing", "ready", "odd", "dead"]


class Preloader:
    """The wish for a warm process, and what the keeper says of it. `on_change` is called when a launch may go on."""

    def __init__(
        self,
        config: AgentConfig,
        loop: EventLoop,
        *,
        keeper: KeeperLifecycle,
        on_change: Callable[[], None],
    ) -> None:
        self._config, self._loop, self._keeper, self._on_change = config, loop, keeper, on_change
        self._plan: PreloadPlan | None = None
        # before that, a keeper that is found may hold one
        self._was_told = False
        self._request: dict[str, Any] = {}
        self._since = 0.0
        self._revival_seconds = 0.0
        self.state: State = ""
        self.reason = ""
        self.pid = 0
        self.versions: dict[str, str] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether the assignment wants ranks to be forked."""
        return self._plan is not None

    @property
    def shown(self) -> str:
        """What a heartbeat says: "", importing, ready, or why there is none."""
        return self.state if self.state in ("", "importing", "ready") else self.reason

    def want(self, plan: PreloadPlan | None) -> None:
        """Take over what the assignment says; asking again for the same changes nothing."""
        if plan == self._plan and self._was_told:
            return
        self._plan, self._was_told = plan, True
        self._revival_seconds = 0.0
        self.begin()

    def begin(self) -> None:
        """Ask the keeper, which may be a new one."""
        self._loop.cancel("revive")
        self._request, self.pid, self.versions = {}, 0, {}
        if self._plan is None:
            self._set("", "")
            self._keeper.send("warm", request={})
            return
        try:
            user = users.find(self._plan.user)
            users.require_ability(user, self._keeper.abilities)
            self._request = rank_commands.warm_request(
                self._plan, python=self._config.python, user=user
            )
        except (NotForkableCommand, NoSuchUser) as error:
            self._set("odd", str(error))
            self._keeper.send("warm", request={})
            return
        self._since = time.monotonic()
        self._set("importing", "")
        self._keeper.send("warm", request=self._request)

    def hear(self, message: dict[str, Any]) -> None:
        """Take what the keeper tells of its warm process; one that died is made anew, one that is odd stays so."""
        if message["request"] != self._request:
            return
        self.pid, self.versions = message["pid"], message["versions"]
        self._set(message["state"], message["reason"])
        if self.state == "dead":
            self._loop.at("revive", time.monotonic() + self._revival_seconds, self.begin)
            longer_seconds = max(2 * self._revival_seconds, REVIVAL_SECONDS)
            self._revival_seconds = min(longer_seconds, LAST_REVIVAL_SECONDS)

    def served(self) -> None:
        """Note that ranks were forked: should it die now, it is worth another at once."""
        self._revival_seconds = 0.0

    def wait_until(self) -> float | None:
        """Return until when (monotonic seconds) a launch is to wait for it, or None when it need not."""
        if self.state != "importing":
            return None
        # They take seconds, and a gang of fresh processes would only compete with them.
        until = self._since + self._config.cluster.preload_seconds
        return until if time.monotonic() < until else None

    def why_cold(self) -> str:
        """Return why ranks that are started now are not forked; "" when they are, or that is not wanted."""
        if not self.is_wanted or self.state == "ready":
            return ""
        if self.state == "importing":
            return f"the preload takes longer than {self._config.cluster.preload_seconds:g} s"
        return self.reason

    def _set(self, state: State, reason: str) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        if state in ("odd", "dead"):
            log.warning("no warm process: %s", reason)
        elif state == "ready":
            log.info("warm after %.1f s", time.monotonic() - self._since)
        self._on_change()
