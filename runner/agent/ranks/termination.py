"""Termination of ranks: SIGTERM, grace, SIGKILL; or stack dumps, then SIGKILL; or SIGKILL at once."""

import logging
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from runner.agent.event_loop import EventLoop
from runner.agent.folders import Folders
from runner.agent.hangs import flight_recorder, stack_dumps
from runner.agent.hangs.stack_summary import read_stacks
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.ranks.gang import LocalGang
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.messages.signals import MalformedMessage, RanksTerminated, Signal

log = logging.getLogger("stoker.agent")


@dataclass(slots=True, kw_only=True)
class Termination:
    """Ranks being ended. `kill_at`: monotonic seconds; `stacks`: ranks with a stack dump, summarised in `rank_stacks`."""

    gang: LocalGang
    kill_at: float
    is_killed: bool = False
    fenced: bool = False
    stacks: int = 0
    rank_stacks: tuple[RankStack, ...] = ()

    def signals(self, left_behind: tuple[int, ...]) -> list[Signal]:
        """Return the signals once no rank is left but those: on malformed reports that were counted, and on the end."""
        gang = self.gang
        malformed = [
            MalformedMessage(
                **gang.next_header(),
                reason=f"rank {rank.rank} sent a malformed report",
                count=rank.num_malformed,
            )
            for rank in gang.ranks.values()
            if rank.num_malformed > 1
        ]
        terminated = RanksTerminated(
            **gang.header(),
            generation=gang.generation,
            last_step=gang.furthest_step,
            last_step_age_seconds=gang.furthest_age_seconds(gang.furthest_step),
            left_behind=left_behind,
            fenced=self.fenced,
            num_stacks=self.stacks,
            rank_stacks=self.rank_stacks,
        )
        return [*malformed, terminated]


@dataclass(slots=True)
class Terminator:
    """Ends one gang at a time: `current`, None when there is none."""

    loop: EventLoop
    keeper: KeeperLifecycle
    folders: Folders
    current: Termination | None = None

    def begin(
        self,
        gang: LocalGang,
        *,
        grace_seconds: float,
        stacks_seconds: float = 0.0,
        fenced: bool = False,
    ) -> None:
        """End a gang; if it is being ended already, that happens sooner."""
        now = time.monotonic()
        reap_seconds = 2 * stack_dumps.REAP_SECONDS if stacks_seconds > 0 else 0.0
        kill_at = now + max(grace_seconds, stacks_seconds + reap_seconds)
        if self.current is None:
            self.current = Termination(gang=gang, kill_at=kill_at)
            if stacks_seconds > 0 and gang.alive:
                self._dump_stacks(self.current, stacks_seconds)
            if grace_seconds > 0:
                for rank in gang.alive:
                    self.keeper.send("signal", rank=rank.rank, signal=signal.SIGTERM, ends=True)
        end = self.current
        end.kill_at = min(end.kill_at, kill_at)
        end.fenced = end.fenced or fenced
        if end.kill_at <= now or not gang.alive:
            self.kill()
        else:
            self.loop.at("grace", end.kill_at, self.kill)

    def kill(self) -> None:
        """Have the keeper kill the ranks, once."""
        end = self.current
        if end is None or end.is_killed:
            return
        end.is_killed = True
        self.keeper.send("kill", generation=end.gang.generation, attempt=str(end.gang.attempt))
        self.keeper.expect_answer()

    def finish(self) -> Termination | None:
        """The ranks are gone: return how they were ended, None if this agent did not end them."""
        self.loop.cancel("grace")
        end, self.current = self.current, None
        return end

    def _dump_stacks(self, end: Termination, budget_seconds: float) -> None:
        """Dump the stacks of ranks, then kill them; the kill does not wait for a folder that hangs."""
        gang, output_folder = end.gang, end.gang.plan.output_folder
        pids = {rank.rank: rank.pid for rank in gang.alive}
        running = {rank.rank: rank.pid for rank in gang.alive if rank.stopped_since is None}
        deadline = time.monotonic() + budget_seconds
        folder = Path(output_folder, stack_dumps.FOLDER)

        def dump() -> tuple[int, tuple[RankStack, ...]]:
            program = stack_dumps.find_program()
            requested = flight_recorder.request_records(output_folder, running)
            records = flight_recorder.collect_records(
                output_folder, requested, budget_seconds=budget_seconds
            )
            left_seconds = max(0.0, deadline - time.monotonic())
            count = stack_dumps.dump(
                pids, folder=folder, budget_seconds=left_seconds, program=program
            )
            return count, read_stacks(folder, pids, records)

        def on_dumped(
            dumped: tuple[int, tuple[RankStack, ...]] | None, error: Exception | None
        ) -> None:
            if error is not None:
                log.warning("cannot write stacks of %s: %s", gang.attempt, error)
            if self.current is end:
                end.stacks, end.rank_stacks = dumped or (0, ())
                self.kill()

        busy_seconds = budget_seconds + 2 * stack_dumps.REAP_SECONDS
        self.folders.run(
            output_folder, dump, on_dumped, wait_seconds=busy_seconds, busy_seconds=busy_seconds
        )
