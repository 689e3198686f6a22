"""Keeping a keeper: one is there, or is being started, until the agent leaves."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.launch import keeper_client
from runner.agent.launch.keeper_client import KeeperLink, KeeperLost, KeeperState
from runner.keeper import procfs

log = logging.getLogger("stoker.agent")

# between tries to start a keeper; chosen
MEND_SECONDS = 1.0

_Started = tuple[KeeperLink, "subprocess.Popen[bytes]"]


class KeeperLifecycle:
    """The link to the keeper. `on_message` gets what it tells.

    When it died, `on_lost(left_behind)` is called once its ranks were seen to be gone (but those), and a new one is up. When
    the agent leaves, `on_lost` is the last call.
    """

    def __init__(
        self,
        config: AgentConfig,
        loop: EventLoop,
        *,
        on_message: Callable[[dict[str, Any]], None],
        on_lost: Callable[[tuple[int, ...]], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._on_message = on_message
        self._on_lost = on_lost
        self._link: KeeperLink | None = None
        # the keeper, if it is a child of ours
        self._child: subprocess.Popen[bytes] | None = None
        self._is_leaving = False

    @property
    def is_up(self) -> bool:
        """Whether a keeper can be asked."""
        return self._link is not None

    @property
    def pid(self) -> int | None:
        """Process id of the keeper."""
        return self._link.pid if self._link is not None else None

    @property
    def abilities(self) -> tuple[str, ...]:
        """What the keeper can do beyond its protocol; nothing while there is none."""
        return self._link.abilities if self._link is not None else ()

    def begin(self) -> KeeperState:
        """Sweep, find the keeper or start one, return what it holds. Raises PermanentError when none can be had."""
        found = keeper_client.connect(self._config.folder)
        state = KeeperState()
        if found is not None:
            try:
                state = found.state()
            except KeeperLost as error:
                log.warning("%s; ending it", error)
                procfs.send_signal([found.pid], signal.SIGKILL)
                found.close()
                found = None
        keeper_client.sweep(self._config)
        if found is None:
            found, self._child = keeper_client.start(self._config)
            state = found.state()
        self._hold(found)
        return state

    def send(self, kind: str, **fields: Any) -> None:
        """Ask for something. A keeper that takes nothing is ended; that is then seen as any death of it."""
        if self._link is None:
            return
        try:
            self._link.send(kind, **fields)
        except KeeperLost as error:
            log.warning("%s; ending it", error)
            procfs.send_signal([self._link.pid], signal.SIGKILL)

    def expect_answer(self) -> None:
        """Have the keeper ended if it does not answer in time; `answered` calls that off."""
        wait_seconds = self._config.cluster.kill_wait_seconds + keeper_client.ANSWER_SECONDS
        self._loop.at("keeper answers", time.monotonic() + wait_seconds, self._is_stuck)

    def answered(self) -> None:
        """Call off `expect_answer`."""
        self._loop.cancel("keeper answers")

    def wake(self) -> None:
        """Let the keeper go on if somebody stopped it."""
        if self._link is not None:
            keeper_client.let_go_on(self._link.pid)

    def leave(self) -> None:
        """End ranks and keeper; `on_lost` is called when they are gone, and no other is started."""
        self._is_leaving = True
        # else one is being started, and `_mended` comes back here
        if self._link is not None:
            self.send("shutdown")
            self.expect_answer()

    def _hold(self, found: KeeperLink) -> None:
        self._link = found
        self._loop.watch(found.fileno(), self._hear)

    def _hear(self) -> None:
        if self._link is None:
            return
        try:
            messages = self._link.receive()
        except KeeperLost as error:
            self._died(error)
            return
        for message in messages:
            self._on_message(message)

    def _is_stuck(self) -> None:
        if self._link is not None:
            log.warning("keeper %d does not answer; ending it", self._link.pid)
            procfs.send_signal([self._link.pid], signal.SIGKILL)

    def _died(self, error: KeeperLost) -> None:
        assert self._link is not None
        if not self._is_leaving:
            log.warning("%s", error)
        self.answered()
        self._loop.unwatch(self._link.fileno())
        self._link.close()
        self._link = None
        self._mend()

    def _mend(self) -> None:
        self._loop.in_background(self._sweep_and_start, self._mended)

    def _sweep_and_start(self) -> tuple[tuple[int, ...], _Started | None]:
        if self._child is not None:
            self._child.wait()
            self._child = None
        left_behind = keeper_client.sweep(self._config)
        return left_behind, None if self._is_leaving else self._begun()

    def _begun(self) -> _Started:
        found, child = keeper_client.start(self._config)
        # a keeper just started holds nothing; what it can do is asked for
        found.state()
        return found, child

    def _mended(
        self, result: tuple[tuple[int, ...], _Started | None] | None, error: Exception | None
    ) -> None:
        if result is None:
            log.error("cannot start a keeper: %s", error)
            self._loop.at("mend", time.monotonic() + MEND_SECONDS, self._mend)
            return
        left_behind, started = result
        if started is not None:
            found, self._child = started
            self._hold(found)
        if started is not None and self._is_leaving:
            self.leave()
        else:
            self._on_lost(left_behind)
