"""The keeper's life cycle: one runs, or is being started, until the agent leaves."""

import logging
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.launch import keeper_client
from runner.agent.launch.keeper_client import KeeperLink, KeeperLost, KeeperState
from runner.keeper import procfs

log = logging.getLogger("stoker.agent")

# Chosen, not measured.
RESTART_SECONDS = 1.0

_Started = tuple[KeeperLink, "subprocess.Popen[bytes]"]


@dataclass(slots=True)
class KeeperLifecycle:
    """Owns the `link` to the keeper, None while one is being started. `on_message` gets its events.

    When it dies, `on_lost(left_behind)` is called once its ranks are gone (except those) and a new keeper is up. When the agent
    leaves, `on_lost` is the last call.
    """

    config: AgentConfig
    loop: EventLoop
    on_message: Callable[[dict[str, Any]], None]
    on_lost: Callable[[tuple[int, ...]], None]
    link: KeeperLink | None = None
    # The keeper, if this agent started it.
    _child: "subprocess.Popen[bytes] | None" = None
    _is_leaving: bool = False

    @property
    def abilities(self) -> tuple[str, ...]:
        """What the keeper can do beyond its protocol; nothing while there is none."""
        return self.link.abilities if self.link is not None else ()

    def begin(self) -> KeeperState:
        """Kill orphans, find the keeper or start one, return what it holds. Raises PermanentError when none can be had."""
        link = keeper_client.connect(self.config.folder)
        state = KeeperState()
        if link is not None:
            try:
                state = link.state()
            except KeeperLost as error:
                _kill(link, error)
                link.close()
                link = None
        keeper_client.kill_orphans(self.config)
        if link is None:
            link, self._child = keeper_client.start(self.config)
            state = link.state()
        self._watch(link)
        return state

    def send(self, kind: str, **fields: Any) -> None:
        """Send a request. A keeper that accepts none is killed; its death is then handled as any."""
        if self.link is None:
            return
        try:
            self.link.send(kind, **fields)
        except KeeperLost as error:
            _kill(self.link, error)

    def expect_answer(self) -> None:
        """Kill the keeper if it does not answer in time, unless `on_answer` is called before."""
        wait_seconds = self.config.cluster.kill_wait_seconds + keeper_client.ANSWER_SECONDS
        self.loop.at("keeper answers", time.monotonic() + wait_seconds, self._on_timeout)

    def on_answer(self) -> None:
        """Cancel `expect_answer`."""
        self.loop.cancel("keeper answers")

    def resume(self) -> None:
        """Resume the keeper if it is stopped."""
        if self.link is not None:
            keeper_client.resume(self.link.pid)

    def leave(self) -> None:
        """End ranks and keeper; `on_lost` is called when they are gone, and no other is started."""
        self._is_leaving = True
        # Without a link, a keeper is being started, and `_on_restarted` calls this again.
        if self.link is not None:
            self.send("shutdown")
            self.expect_answer()

    def _watch(self, link: KeeperLink) -> None:
        self.link = link
        self.loop.watch(link.fileno(), self._read)

    def _read(self) -> None:
        link = self.link
        if link is None:
            return
        try:
            messages = link.receive()
        except KeeperLost as error:
            if not self._is_leaving:
                log.warning("%s", error)
            self.on_answer()
            self.loop.unwatch(link.fileno())
            link.close()
            self.link = None
            self._restart()
            return
        for message in messages:
            self.on_message(message)

    def _on_timeout(self) -> None:
        if self.link is not None:
            _kill(self.link, f"keeper {self.link.pid} does not answer")

    def _restart(self) -> None:
        self.loop.in_background(self._kill_orphans_and_start, self._on_restarted)

    def _kill_orphans_and_start(self) -> tuple[tuple[int, ...], _Started | None]:
        if self._child is not None:
            self._child.wait()
            self._child = None
        left_behind = keeper_client.kill_orphans(self.config)
        if self._is_leaving:
            return left_behind, None
        link, child = keeper_client.start(self.config)
        # A keeper just started holds nothing, but its abilities come with its state.
        link.state()
        return left_behind, (link, child)

    def _on_restarted(
        self, result: tuple[tuple[int, ...], _Started | None] | None, error: Exception | None
    ) -> None:
        if result is None:
            log.error("cannot start a keeper: %s", error)
            self.loop.at("restart keeper", time.monotonic() + RESTART_SECONDS, self._restart)
            return
        left_behind, started = result
        if started is not None:
            link, self._child = started
            self._watch(link)
        if started is not None and self._is_leaving:
            self.leave()
        else:
            self.on_lost(left_behind)


def _kill(link: KeeperLink, reason: object) -> None:
    log.warning("%s; killing it", reason)
    procfs.send_signal([link.pid], signal.SIGKILL)
