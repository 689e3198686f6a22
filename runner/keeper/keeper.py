"""The main loop: one agent, one gang at a time."""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from runner.keeper.child import EXIT_SIGNALS
from runner.keeper.forker import Forker
from runner.keeper.kill_sequence import KillSequence
from runner.keeper.orphans import (
    FIRST_PAUSE_SECONDS,
    OrphanReaper,
    Orphans,
    find_orphans,
    shared_memory_files,
)
from runner.keeper.procfs import send_signal
from runner.keeper.protocol import ABILITIES, PROTOCOL, Connection, Message
from runner.keeper.rank import Rank, spawn_failure, spawn_rank

# Without an agent, a keeper looks at its ranks so often; without ranks too, it ends. Both chosen.
_UNATTENDED_SECONDS = 5.0
_UNUSED_SECONDS = 60.0
# Of the time that ranks may live without a report, before it looks whether they write; chosen.
_WITHOUT_FILES = 0.25


class Keeper:
    """Serves one agent at a time. `options` are those of the command line."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._selector = selectors.DefaultSelector()
        self._agent: Connection | None = None
        self._agentless_since = time.monotonic()
        # Holds attempt, generation and annotations from the agent, and not_forked_reason.
        self._gang: Message = {}
        self._files_before: frozenset[tuple[str, int]] = frozenset()
        self._ranks: dict[int, Rank] = {}
        self._by_pid: dict[int, Rank] = {}
        self._kill_sequence: KillSequence | None = None
        self._forker = Forker(
            options.folder,
            self._selector,
            emit=self._emit,
            on_forked=self._on_forked,
            on_not_forked=self._spawn,
        )
        # Of living ranks; None: not looked at.
        self._reports: tuple[int, ...] = ()
        self._output_sizes: tuple[tuple[int, ...], ...] | None = None
        self._activity_changed_at = self._agentless_since
        self._is_shutting_down = False

    def run(self, listener: socket.socket) -> None:
        """Serve until the ranks are gone and no agent needs a keeper."""
        wake_in, wake_out = socket.socketpair()
        wake_in.setblocking(False)
        wake_out.setblocking(False)
        signal.set_wakeup_fd(wake_out.fileno(), warn_on_full_buffer=False)
        for number in (*EXIT_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._watch(listener, lambda: self._accept(listener))
        self._watch(wake_in, lambda: self._on_signals(wake_in))
        while not self._is_over():
            for key, _ in self._selector.select(self._timeout_seconds()):
                key.data()
            self._check_timers()
            self._flush()
        self._forker.stop()
        signal.set_wakeup_fd(-1)
        deadline = time.monotonic() + self._options.kill_wait_seconds
        while self._forker.has_unreaped and time.monotonic() < deadline:
            self._reap()
            time.sleep(FIRST_PAUSE_SECONDS)

    def _watch(self, descriptor: Any, callback: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def _is_over(self) -> bool:
        if self._kill_sequence is not None:
            return False
        if self._is_shutting_down:
            return self._agent is None or not self._agent.has_unsent
        is_unused = self._agent is None and not self._by_pid
        return is_unused and time.monotonic() - self._agentless_since >= _UNUSED_SECONDS

    def _timeout_seconds(self) -> float | None:
        if self._kill_sequence is not None:
            due_at = self._kill_sequence.due_at
        elif self._forker.deadline is not None:
            due_at = self._forker.deadline
        elif self._agent is not None:
            return None
        elif self._by_pid:
            limit_seconds = self._options.hard_cap_seconds or _UNATTENDED_SECONDS
            return float(min(_UNATTENDED_SECONDS, limit_seconds / 4))
        else:
            due_at = self._agentless_since + _UNUSED_SECONDS
        return max(0.0, due_at - time.monotonic())

    def _check_timers(self) -> None:
        now = time.monotonic()
        self._forker.check_deadline(now)
        if self._kill_sequence is not None and now >= self._kill_sequence.due_at:
            self._poll_kill(self._kill_sequence, now)
        if self._agent is None and self._by_pid and self._kill_sequence is None:
            self._check_unattended(now)

    def _check_unattended(self, now: float) -> None:
        """Without an agent: let ranks continue while they advance, but not for ever when they do not."""
        alive = [rank for rank in self._ranks.values() if rank.is_alive]
        for rank in self._ranks.values():
            rank.drain()
        reports = tuple(rank.num_reports for rank in alive)
        if reports != self._reports:
            self._reports, self._output_sizes, self._activity_changed_at = reports, None, now
        limit_seconds, quiet_seconds = (
            self._options.hard_cap_seconds,
            now - self._activity_changed_at,
        )
        if not limit_seconds or quiet_seconds < limit_seconds * _WITHOUT_FILES:
            # A file system that hangs must not keep the next agent waiting.
            return
        before, self._output_sizes = (
            self._output_sizes,
            tuple(rank.output_sizes for rank in alive),
        )
        if before is None:
            return
        if before != self._output_sizes:
            self._activity_changed_at = now
        elif quiet_seconds >= limit_seconds:
            # No agent requested this: the next one is to report these as exits.
            send_signal([rank.pid for rank in alive], signal.SIGKILL)

    def _accept(self, listener: socket.socket) -> None:
        stream, _ = listener.accept()
        self._disconnect()
        self._agent = Connection(stream)
        self._watch(stream, self._read)

    def _disconnect(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent.stream)
            self._agent.stream.close()
            self._agent = None
            self._agentless_since = self._activity_changed_at = time.monotonic()
            self._output_sizes = None
            if self._forker.cancel():
                self._gang = {}

    def _read(self) -> None:
        if self._agent is None:
            return
        try:
            requests = self._agent.receive()
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self._disconnect()
            return
        for request in requests:
            try:
                _HANDLERS[request["kind"]](self, request)
            except (LookupError, TypeError, ValueError) as error:
                # An agent of another release may request what we do not know; ranks must not die of that.
                sys.stderr.write(f"cannot handle {str(request)[:200]}: {error!r}\n")

    def _emit(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        if self._agent is not None:
            self._agent.queue(message, descriptors)

    def _flush(self) -> None:
        if self._agent is None:
            return
        try:
            self._agent.flush()
        except OSError:
            self._disconnect()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._agent.has_unsent else 0)
        self._selector.modify(self._agent.stream, events, self._read)

    def _on_hello(self, request: Message) -> None:
        for rank in self._ranks.values():
            self._emit_channel(rank)
            packets = rank.pop_buffered()
            if packets:
                self._emit({"kind": "buffered", "rank": rank.number, "packets": packets})
        about = {"protocol": PROTOCOL, "abilities": ABILITIES, "pid": os.getpid()}
        self._emit({"kind": "state", **about, "ranks": self._rank_messages(), **self._gang})

    def _on_warm(self, request: Message) -> None:
        self._forker.preload(request["request"])

    def _on_spawn(self, request: Message) -> None:
        if self._ranks or self._kill_sequence is not None or self._forker.deadline is not None:
            attempt = self._gang.get("attempt")
            reason = f"the keeper still holds ranks of attempt {attempt}; end them first"
            self._emit({"kind": "failed", "reason": reason})
            return
        self._gang = {name: request[name] for name in ("attempt", "generation", "annotations")}
        self._files_before = shared_memory_files()
        if not request.get("fork"):
            self._spawn(request, request.get("not_forked_reason", ""))
            return
        try:
            self._forker.fork(request)
        except OSError as error:
            self._fail(error, request["ranks"][0], request)

    def _on_signal(self, request: Message) -> None:
        rank = self._ranks.get(request["rank"])
        if rank is not None and rank.is_alive:
            rank.end_requested = rank.end_requested or request["ends"]
            send_signal([rank.pid], request["signal"])

    def _on_acknowledge(self, request: Message) -> None:
        if request["generation"] == self._gang.get("generation") and request["rank"] in self._ranks:
            self._ranks[request["rank"]].acknowledged = True

    def _on_annotate(self, request: Message) -> None:
        if request["generation"] == self._gang.get("generation"):
            self._gang["annotations"] = request["annotations"]

    def _on_kill(self, request: Message) -> None:
        if request.get("attempt"):
            self._gang.setdefault("attempt", request["attempt"])
        self._terminate({"kind": "terminated", "generation": request["generation"]})

    def _on_shutdown(self, request: Message | None = None) -> None:
        self._is_shutting_down = True
        self._terminate({"kind": "terminated", "generation": self._gang.get("generation", 0)})

    def _spawn(self, request: Message, not_forked_reason: str) -> None:
        """Start all ranks as fresh processes; `not_forked_reason`: why they are not forked although that was requested."""
        for spec in request["ranks"]:
            try:
                self._add(spawn_rank(spec, request))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._fail(error, spec, request)
                return
        self._emit_started(not_forked_reason)

    def _on_forked(self, ranks: list[Rank]) -> None:
        for rank in ranks:
            self._add(rank)
        self._emit_started("")

    def _add(self, rank: Rank) -> None:
        self._ranks[rank.number] = self._by_pid[rank.pid] = rank
        self._watch(rank.pidfd, self._reap)

    def _fail(self, error: Exception, spec: Message, request: Message) -> None:
        self._terminate({"kind": "failed", "reason": spawn_failure(error, spec, request)})

    def _emit_started(self, not_forked_reason: str) -> None:
        self._gang["not_forked_reason"] = not_forked_reason
        for rank in self._ranks.values():
            self._emit_channel(rank)
        started = {"kind": "started", "not_forked_reason": not_forked_reason}
        self._emit({**started, "ranks": self._rank_messages()})

    def _emit_channel(self, rank: Rank) -> None:
        self._emit({"kind": "channel", "rank": rank.number}, (rank.channel.fileno(),))

    def _rank_messages(self) -> list[Message]:
        return [rank.as_message() for rank in self._ranks.values()]

    def _on_signals(self, wake_in: socket.socket) -> None:
        numbers = wake_in.recv(256)
        if any(number in numbers for number in EXIT_SIGNALS):
            self._on_shutdown()
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if exited is None:
                return
            self._forker.before_reap(exited.si_pid)
            pid, status = os.waitpid(exited.si_pid, 0)
            # Without a rank it was left behind by one and inherited by us.
            rank = self._by_pid.pop(pid, None)
            if rank is not None:
                self._on_exit(rank, os.waitstatus_to_exitcode(status))
            if self._kill_sequence is not None:
                self._kill_sequence.on_reaped(pid)

    def _on_exit(self, rank: Rank, exit_code: int) -> None:
        rank.exit_code = exit_code
        self._selector.unregister(rank.pidfd)
        if self._ranks.get(rank.number) is rank:
            self._emit(rank.as_message(kind="exited", generation=self._gang["generation"]))
        else:
            rank.close()

    def _terminate(self, event: Message) -> None:
        """Kill all ranks at once; `event` goes out when they are gone, or not gone in time."""
        if self._forker.cancel():
            self._gang = {"attempt": self._gang.get("attempt", "")}
        options = self._options
        self._kill_sequence = KillSequence(
            event,
            list(self._ranks.values()),
            OrphanReaper(wait_seconds=options.kill_wait_seconds, last=self._is_shutting_down),
            find=self._find_orphans,
            files_before=self._files_before,
        )

    def _poll_kill(self, sequence: KillSequence, now: float) -> None:
        left_behind = sequence.poll(now)
        if left_behind is None:
            return
        self._emit({**sequence.event, "left_behind": left_behind})
        for rank in self._ranks.values():
            if not rank.is_alive:
                rank.close()
        self._ranks, self._gang, self._kill_sequence = {}, {}, None

    def _find_orphans(self) -> Orphans:
        if not self._gang.get("attempt"):
            return find_orphans({}, keeper=os.getpid())
        variables = {
            "STOKER_CLUSTER": self._options.cluster,
            "STOKER_NODE": self._options.node,
            "STOKER_ATTEMPT": self._gang["attempt"],
        }
        return find_orphans(variables, keeper=os.getpid())


_HANDLERS: dict[str, Callable[[Keeper, Message], None]] = {
    "hello": Keeper._on_hello,
    "warm": Keeper._on_warm,
    "spawn": Keeper._on_spawn,
    "signal": Keeper._on_signal,
    "kill": Keeper._on_kill,
    "annotate": Keeper._on_annotate,
    "acknowledge": Keeper._on_acknowledge,
    "shutdown": Keeper._on_shutdown,
}
