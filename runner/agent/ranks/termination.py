"""Ending ranks: SIGTERM, grace, SIGKILL; or where they stand written down, then SIGKILL; or SIGKILL at once."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from runner.agent.event_loop import EventLoop
from runner.agent.hangs import flight_recorder, stack_dumps
from runner.agent.hangs.stack_summary import read_stacks
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.ranks.gang import LocalGang
from runner.facts.messages.rank_stacks import RankStack

log = logging.getLogger("stoker.agent")


@dataclass(slots=True, kw_only=True)
class Termination:
    """Ranks on their way out. `kill_at`: monotonic seconds."""

    gang: LocalGang
    kill_at: float
    is_killed: bool = False
    fenced: bool = False
    # ranks whose stacks were written down before
    stacks: int = 0
    # where they stood by these
    stands: tuple[RankStack, ...] = ()


class Terminator:
    """One gang's end at a time: `under_way`, None when there is none."""

    def __init__(self, loop: EventLoop, keeper: KeeperLifecycle) -> None:
        self._loop = loop
        self._keeper = keeper
        self.under_way: Termination | None = None

    def begin(
        self,
        gang: LocalGang,
        *,
        grace_seconds: float,
        stacks_seconds: float = 0.0,
        fenced: bool = False,
    ) -> None:
        """End a gang, or have the end that is under way come sooner."""
        now = time.monotonic()
        late_seconds = 2 * stack_dumps.REAP_SECONDS if stacks_seconds > 0 else 0.0
        kill_at = now + max(grace_seconds, stacks_seconds + late_seconds)
        if self.under_way is None:
            self.under_way = Termination(gang=gang, kill_at=kill_at)
            if stacks_seconds > 0 and gang.alive:
                self._dump_stacks(self.under_way, stacks_seconds)
            if grace_seconds > 0:
                for rank in gang.alive:
                    number = int(signal.SIGTERM)
                    self._keeper.send("signal", rank=rank.rank, signal=number, ends=True)
        end = self.under_way
        end.kill_at = min(end.kill_at, kill_at)
        end.fenced = end.fenced or fenced
        if end.kill_at <= now or not gang.alive:
            self.kill()
        else:
            self._loop.at("grace", end.kill_at, self.kill)

    def kill(self) -> None:
        """Have the keeper kill what is left, once."""
        end = self.under_way
        if end is None or end.is_killed:
            return
        end.is_killed = True
        self._keeper.send("kill", epoch=end.gang.epoch, attempt=str(end.gang.attempt))
        self._keeper.expect_answer()

    def over(self) -> Termination | None:
        """Note that the ranks are gone; return how they ended, None if nobody here had meant it."""
        self._loop.cancel("grace")
        end, self.under_way = self.under_way, None
        return end

    def _dump_stacks(self, end: Termination, budget_seconds: float) -> None:
        """Write down where ranks stand, then kill them; the kill does not wait for a folder that hangs."""
        gang = end.gang
        pids = {rank.rank: rank.pid for rank in gang.alive}
        moving = {rank.rank: rank.pid for rank in gang.alive if rank.stopped_since is None}
        begun, place = time.monotonic(), gang.plan.output_folder
        folder = Path(place, stack_dumps.FOLDER)

        def job() -> tuple[int, tuple[RankStack, ...]]:
            program = stack_dumps.find_program()
            recorded = flight_recorder.collect_records(
                place, flight_recorder.request_records(place, moving), budget_seconds=budget_seconds
            )
            left_seconds = max(0.0, begun + budget_seconds - time.monotonic())
            count = stack_dumps.dump(
                pids, folder=folder, budget_seconds=left_seconds, program=program
            )
            return count, read_stacks(folder, pids, recorded)

        def dumped(
            found: tuple[int, tuple[RankStack, ...]] | None, error: Exception | None
        ) -> None:
            if error is not None:
                log.warning("cannot write stacks of %s: %s", gang.attempt, error)
            if self.under_way is end:
                end.stacks, end.stands = found or (0, ())
                self.kill()

        self._loop.in_background(job, dumped)
