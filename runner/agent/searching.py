"""Searching: the logs of the node's ranks are followed while they live, and searched once more when some of them have died.

A child of low priority does it (`python -m runner.collect`): the word that a rank died waits for nothing, and what hostile text
does to a search it does to no agent. What comes of it is told as signals of its own (`LinesMatched`). How far logs were read is
written down after that, so that the next life of the agent goes on there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from runner.agent import output
from runner.agent.gang import Gang
from runner.agent.loop import Loop
from runner.agent.voice import Voice
from runner.errors import WireError
from runner.facts import wire
from runner.facts.matches import Match
from runner.facts.searches import Follow, Followed, Place, Search, Searched
from runner.facts.signals import LinesMatched

log = logging.getLogger("stoker.agent")

FOLLOW_SECONDS = 1.0  # after a gang's start, which is busy enough; chosen
LINGER_SECONDS = 2.0  # after a gang's end, for words about it; chosen
WAIT_SECONDS = 0.5  # after the first death of a gang, for those that die of it; chosen
LIMIT_SECONDS = 30.0  # for one search, or for taking an order; far above what it takes; chosen
PUSH_SECONDS = 0.05  # between two tries to hand over an order; chosen
AGAIN_SECONDS = (
    1.0,
    5.0,
    60.0,
)  # until a child that died is started again, the more often the later; chosen
NICE = 10  # others train, or restart ranks, meanwhile
PLACES_NAME = "followed.json"
ERRORS_NAME = "reader.err"
MOST_ANSWER_BYTES = 16 * 1024 * 1024  # an answer names every log of a node
INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # Linux, include/linux/proc_ns.h
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """Where a node's kernel speaks. `path` "": nowhere. `is_shared`: for other nodes of this machine, too."""

    path: str = ""
    is_shared: bool = False


@dataclass(slots=True)
class _Due:
    """Ranks of one gang whose output is to be searched."""

    gang: Gang
    ranks: dict[int, None] = field(default_factory=dict)


class Searching:
    """Owned by the agent's loop."""

    def __init__(self, loop: Loop, voice: Voice, *, folder: Path, kernel_log: KernelSource) -> None:
        """`folder`: the node's own."""
        self._loop, self._voice = loop, voice
        self._folder, self._kernel_log = folder, kernel_log
        self._child: subprocess.Popen[bytes] | None = None
        self._old: list[
            subprocess.Popen[bytes]
        ] = []  # killed; one that waits for a disk does not die of it
        self._said = b""  # by the child, not a whole line yet
        self._orders = b""  # that the child's pipe has not taken yet
        self._gang: Gang | None = None  # that is there
        self._followed: Gang | None = (
            None  # whose logs are followed: what kills a gang is said after it is gone
        )
        self._since_microseconds = 0
        self._places: Mapping[str, Place] = {}
        self._due: _Due | None = None
        self._asked: dict[int, tuple[Gang, Search]] = {}  # searches under way, by number
        self._repeated: dict[int, None] = {}  # searches that were asked for twice
        self._number = 0
        self._num_deaths = 0
        self._is_over = False

    # -- gangs

    def begun(self, gang: Gang, *, adopted: bool = False) -> None:
        """Follow the logs of a gang, soon; of one that an earlier life of the agent followed, from where that one stopped."""
        if self._followed is not None:
            self._unfollow()  # what the kernel says from now on is not about the gang before
        self._gang = gang
        self._since_microseconds = int(time.monotonic() * 1e6)
        self._places = {}
        if adopted:
            self._remember(gang)
        self._num_deaths = 0
        self._loop.cancel("unfollow")
        self._loop.at("follow", time.monotonic() + FOLLOW_SECONDS, self._follow)

    def gone(self) -> None:
        """The gang has no rank here any more: what those that died had written last is searched for by itself."""
        self._gang = None
        self._loop.cancel("follow")
        self._loop.at("unfollow", time.monotonic() + LINGER_SECONDS, self._unfollow)

    def ended(self, gang: Gang, rank: int) -> None:
        """Note that a rank ended by itself and should not have."""
        if self._due is None or self._due.gang is not gang:
            self._search()
            self._due = _Due(gang)
            self._loop.at("search", time.monotonic() + WAIT_SECONDS, self._search)
        self._due.ranks[rank] = None

    def close(self) -> None:
        """End what is under way: nobody will hear of it."""
        self._is_over = True
        self._loop.cancel("search")
        for timer in ("follow", "unfollow", "order", "searched", "search again", "reader"):
            self._loop.cancel(timer)
        self._drop()

    # -- orders

    def _hung(self) -> None:
        self._died(f"said nothing for {LIMIT_SECONDS:g} s")

    def _unfollow(self) -> None:
        self._followed = None
        self._loop.cancel("reader")
        if self._child is not None:
            self._order(Follow(gang=""))

    def _follow(self) -> None:
        gang = self._followed = self._gang
        if gang is None:
            return
        files = {
            str(path): rank
            for rank in gang.plan.ranks
            for path in output.paths(gang.plan.output_folder, rank)
        }
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._hung)
        self._order(
            Follow(
                gang=str(gang.attempt),
                files=files,
                kernel_log=self._kernel_log.path,
                since_microseconds=self._since_microseconds,
                places=self._places,
                metric_pattern=gang.plan.metric_pattern,
            )
        )

    def _search(self) -> None:
        due, self._due = self._due, None
        if due is None:
            return
        self._number += 1
        plan = due.gang.plan
        files = {
            str(path): rank
            for rank in sorted(due.ranks)
            for path in output.paths(plan.output_folder, rank)
        }
        self._ask(
            due.gang,
            Search(number=self._number, files=files, metric_pattern=plan.metric_pattern),
        )

    def _ask(self, gang: Gang, order: Search) -> None:
        self._asked[order.number] = (gang, order)
        self._order(order)
        expect = partial(self._expect, order.number)
        self._loop.at("searched", time.monotonic() + LIMIT_SECONDS, expect)

    def _expect(self, number: int) -> None:
        if number in self._asked:
            self._died(f"did not answer for {LIMIT_SECONDS:g} s")

    def _order(self, order: object) -> None:
        """Hand an order to the child, which is started if need be."""
        if self._is_over:
            return
        self._orders += wire.encode(order) + b"\n"
        self._push(time.monotonic() + LIMIT_SECONDS)

    def _push(self, until: float) -> None:
        """Write what the pipe takes; the child reads it between two looks. Nothing is left to write after a child's death."""
        if not self._orders:
            return
        try:
            child = self._child or self._started()
            assert child.stdin is not None
            self._orders = self._orders[os.write(child.stdin.fileno(), self._orders) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._died(f"takes no order: {error}")
            return
        if not self._orders:
            return
        if time.monotonic() > until:
            self._died(f"took no order for {LIMIT_SECONDS:g} s")
        else:
            self._loop.at("order", time.monotonic() + PUSH_SECONDS, partial(self._push, until))

    def _started(self) -> subprocess.Popen[bytes]:
        self._old = [child for child in self._old if child.poll() is None]
        if self._old:
            raise OSError(f"the one before it, pid {self._old[0].pid}, cannot be killed yet")
        # -P: whatever lies in the folder that we were started in is no module of ours.
        command = ["nice", "-n", str(NICE), sys.executable, "-P", "-m", "runner.collect"]
        with (self._folder / ERRORS_NAME).open("wb") as errors:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )
        assert child.stdout is not None
        assert child.stdin is not None
        os.set_blocking(child.stdin.fileno(), False)
        os.set_blocking(child.stdout.fileno(), False)
        self._child, self._said = child, b""
        self._loop.watch(child.stdout.fileno(), self._hear)
        return child

    # -- answers

    def _hear(self) -> None:
        child = self._child
        if child is None or child.stdout is None:
            return
        try:
            data = os.read(child.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._died("ended")
            return
        *lines, self._said = (self._said + data).split(b"\n")
        if len(self._said) > MOST_ANSWER_BYTES:
            self._died("says more than it may")
            return
        for line in lines:
            try:
                said = wire.decode(line, limit_bytes=MOST_ANSWER_BYTES)
            except WireError as error:
                self._died(f"says what is no message: {error}")
                return
            if isinstance(said, Followed):
                self._take(said)
            elif isinstance(said, Searched):
                self._searched(said)

    def _take(self, said: Followed) -> None:
        gang = self._followed
        if gang is None or said.gang != str(gang.attempt):
            return
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._hung)
        if said.trouble:
            log.warning("following the logs of %s: %s", said.gang, said.trouble)
        matches = [_of_rank(match, gang) for match in said.matches]
        if self._kernel_log.is_shared:  # what names none of our processes may be another node's
            matches = [one for one in matches if not one.of_kernel or one.rank is not None]
        if matches:
            self._voice.tell(
                LinesMatched(
                    **self._voice.stamp(),
                    epoch=gang.epoch,
                    attempt=gang.attempt,
                    matches=tuple(matches),
                    living=True,
                    last_step=gang.last_step,
                )
            )
        if said.skipped_bytes > gang.log_bytes_skipped:
            if not gang.log_bytes_skipped:
                log.warning("%s writes more than can be read: the middle is skipped", said.gang)
            gang.log_bytes_skipped = said.skipped_bytes
        if said.records:
            gang.read_steps(said.records)
        if said.places and gang is self._gang:
            self._places = {**self._places, **said.places}
            self._write_down(gang)

    def _searched(self, said: Searched) -> None:
        gang, _ = self._asked.pop(said.number, (None, None))
        self._repeated.pop(said.number, None)
        if gang is not None and said.found.matches:
            self._voice.tell(
                LinesMatched(
                    **self._voice.stamp(),
                    epoch=gang.epoch,
                    attempt=gang.attempt,
                    matches=said.found.matches,
                    steps=said.found.steps,
                )
            )

    # -- the child's end

    def _died(self, why: str) -> None:
        self._drop()
        self._loop.cancel("reader")
        if self._is_over:
            return
        again_seconds = AGAIN_SECONDS[min(self._num_deaths, len(AGAIN_SECONDS) - 1)]
        self._num_deaths += 1
        log.warning("whoever reads logs %s; again in %g s", why, again_seconds)
        at = time.monotonic() + again_seconds
        if self._gang is not None:
            self._loop.at("follow", at, self._follow)
        if self._asked:
            self._loop.at("search again", at, self._ask_again)

    def _ask_again(self) -> None:
        """Ask once more for what the reader owed when it died; what kills two of them is let be."""
        asked, self._asked = self._asked, {}
        for number, (gang, order) in asked.items():
            if number in self._repeated:
                log.warning("the search of %d outputs is lost", len(order.files))
                del self._repeated[number]
            else:
                self._repeated[number] = None
                self._ask(gang, order)

    def _drop(self) -> None:
        child, self._child = self._child, None
        self._orders = b""
        if child is None:
            return
        assert child.stdout is not None
        assert child.stdin is not None
        self._loop.unwatch(child.stdout.fileno())
        child.kill()
        self._old.append(child)  # waited for by nobody: it may be stuck in the kernel
        child.stdout.close()
        with contextlib.suppress(OSError):
            child.stdin.close()

    # -- how far logs were read

    def _write_down(self, gang: Gang) -> None:
        """Keep places for the next life of this agent; a crash of the machine takes the ranks with it, so nothing is fsynced."""
        plain = {
            "gang": str(gang.attempt),
            "since_microseconds": self._since_microseconds,
            "places": wire.to_plain(self._places),
        }
        path = self._folder / PLACES_NAME
        scratch = path.with_suffix(".part")
        with contextlib.suppress(OSError):  # a full disk: the next life tells some lines twice
            scratch.write_text(json.dumps(plain))
            scratch.replace(path)

    def _remember(self, gang: Gang) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, WireError):
            plain = json.loads((self._folder / PLACES_NAME).read_text())
            if plain["gang"] == str(gang.attempt):
                self._since_microseconds = int(plain["since_microseconds"])
                self._places = {
                    str(path): wire.from_plain(Place, place)
                    for path, place in plain["places"].items()
                }


def kernel_source(kernel_log: str, *, node: str, shares_machine: bool) -> KernelSource:
    """Return which kernel's log a node reads; `kernel_log`: the setting."""
    is_own = "{node}" in kernel_log or not shares_machine
    return KernelSource(path=kernel_log.replace("{node}", node), is_shared=not is_own)


def _of_rank(match: Match, gang: Gang) -> Match:
    """Name the rank whose process a line is about."""
    pid = match.named.get("pid", "")
    if match.rank is not None or not pid or not (match.of_kernel and _numbers_as_the_kernel()):
        return match
    for rank in gang.ranks.values():
        if pid == str(rank.pid):
            return replace(match, rank=rank.rank)
    return match


@cache
def _numbers_as_the_kernel() -> bool:
    """Whether our processes have the numbers by which the kernel's log calls them: not in a pid namespace of a container."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False
