"""The watcher: looks at processes, outputs and the kernel's log, and passes on what it sees as an agent would.

One thread, one loop. It is woken by writes (inotify), by ends of ranks (pidfds) and by a command's output, and looks by itself once
a second. A gang has ended when none of its ranks is left.
"""

import math
import select
import time
from collections.abc import Sequence

from msgspec.structs import replace

from runner.agent.ranks import rank_resources
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.specs.run import RunSpec
from runner.watch.core import WatchCore
from runner.watch.cpu_use import CpuUse
from runner.watch.display import Display
from runner.watch.gang import UNSEEN, GangProcesses
from runner.watch.gang_reports import GangReports
from runner.watch.outputs import Outputs
from runner.watch.processes import NO_RANKS, FoundRanks, RankProcess, find_ranks
from runner.watch.proposals import Proposed
from runner.watch.screen import Screen
from runner.watch.targets import SignalHandlers, Target

# All chosen. Between two looks at outputs, however often they are written to; a step is seen that much later.
LOOK_SECONDS = 0.5
TICK_SECONDS = 1.0
# Between two searches for ranks: while there are none, and while there are some.
FIND_SECONDS, AGAIN_SECONDS = 0.5, 5.0
# For the ranks of a gang to appear one after the other, where it is not known how many there will be.
SETTLE_SECONDS = 1.0
# How long the end of a gang is put off for what shows how it ended: its launcher's exit, or the next gang.
UNSEEN_SECONDS, ORPHAN_SECONDS = 1.0, 10.0
# For the last words of a command whose processes hold its output open.
LINGER_SECONDS = 1.0
MOVED_ON = "it was started again"


class Watcher:
    """Watches one target to its end, or to a Ctrl-C."""

    def __init__(
        self, target: Target, outputs: Outputs, core: WatchCore, screen: Screen, spec: RunSpec
    ) -> None:
        """`spec`: of the runs, their ranks apart."""
        self.core = core
        self.exit_code: int | None = None
        # Monotonic seconds at which the watch ends in any case.
        self.until = math.inf
        self._target, self._outputs, self._screen, self._spec = target, outputs, screen, spec
        self._signals = SignalHandlers(target)
        self._processes: GangProcesses | None = None
        self._display = Display(core, screen, target.saves, target.spares)
        on_restart = self._restart_unseen if target.root is None else None
        self._reports = GangReports(core, outputs, screen.note, on_restart)
        self._cpu_use = CpuUse()
        self._launch = outputs.launch
        self._look_due = self._tick_due = self._find_due = self._show_due = 0.0
        # Ranks of the next gang so far, and since when there are that many.
        self._num_appearing, self._appearing_since = 0, 0.0
        self._are_named = False
        # Since when the gang has no ranks, or the root has ended; None: not so.
        self._gone_since: float | None = None
        self._root_ended_at: float | None = None
        # Something was written that was not looked at.
        self._has_news = False

    @property
    def was_interrupted(self) -> bool:
        """Whether a person ended the watch before its target did."""
        return self._signals.num_interrupts > 0

    def watch(self) -> ClusterStatus:
        """Watch to the end; return the last status."""
        self._signals.install()
        try:
            while not self._is_over():
                self._wait()
                self._turn(time.monotonic())
            self._finish(time.monotonic())
        finally:
            self._signals.restore()
            self._outputs.close()
            if self._processes is not None:
                self._processes.close()
            for held in (self._target.child, self._target.process):
                if held is not None:
                    held.close()
        return self.core.status()

    def note(self, text: str) -> None:
        """Show a trouble once."""
        self._display.note_once(text)

    @property
    def proposals(self) -> list[Proposed]:
        """All that was proposed."""
        return self._display.proposals.all

    # ---- the loop --------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self.was_interrupted or time.monotonic() >= self.until:
            return True
        if self._target.root is None or self._root_ended_at is None:
            return False
        child, processes = self._target.child, self._processes
        has_lingered = time.monotonic() > self._root_ended_at + LINGER_SECONDS
        if processes is None:
            return child is None or not child.is_open or has_lingered
        # Ranks may outlive what started them; a command that has ended is the end of its watch.
        return child is not None and has_lingered and processes.has_alive

    def _wait(self) -> None:
        """Wait for something to look at, no longer than to the next tick."""
        now = time.monotonic()
        due = min(self._tick_due, self._find_due)
        child, processes = self._target.child, self._processes
        descriptors = list(child.streams) if child is not None else []
        descriptors += [processes.descriptor] if processes is not None else []
        if self._target.process is not None and self._root_ended_at is None:
            root = self._target.process.descriptor
            descriptors += [root] if root is not None else []
        wakers: list[int] = []
        if self._has_news or now < self._look_due:
            # A flood of writes does not shorten the time between two looks.
            due = min(due, max(self._look_due, now))
        else:
            wakers = self._outputs.wakers
        seconds = min(max(0.0, due - now), TICK_SECONDS)
        # `select` takes no descriptor above 1023, and each log has one.
        poller = select.poll()
        for one in (*descriptors, *wakers):
            poller.register(one, select.POLLIN)
        ready = [one for one, _ in poller.poll(1000 * seconds)]
        self._has_news = self._has_news or any(one in ready for one in wakers)

    def _turn(self, now: float) -> None:
        child = self._target.child
        if child is not None:
            self._has_news = child.pass_on() or self._has_news
        self._look_at_root(now)
        is_tick = now >= self._tick_due
        if is_tick or (self._has_news and now >= self._look_due):
            self._look_due = now + LOOK_SECONDS
            self._outputs.refresh(now)
            if self._target.root is None:
                self._look_at_files(now)
            self._look_at_outputs(now)
            self._has_news = self._outputs.is_behind
        self._look_at_ranks(now)
        if is_tick:
            self._tick_due = now + TICK_SECONDS
            self._tick(now)
        self._display.show(now, self._cpu_use.text)

    def _look_at_root(self, now: float) -> None:
        target = self._target
        if target.root is None or self._root_ended_at is not None:
            return
        if target.child is not None:
            self.exit_code = target.child.poll()
            has_ended = self.exit_code is not None
        else:
            assert target.process is not None
            has_ended = not target.process.is_alive
            self.exit_code = target.process.exit_code() if has_ended else None
        if has_ended:
            self._root_ended_at = now
            self._find_due = now

    def _tick(self, now: float) -> None:
        gang = self.core.gang
        if gang is not None:
            gang.poll(now)
            self._reports.emit(gang.poll_progress(now, every_seconds=TICK_SECONDS))
            pids = {rank.rank: rank.pid for rank in gang.alive if rank.pid}
            self._cpu_use.sample(pids, now)
            if pids and gang.ranks_to_measure(now):
                gang.on_measured(rank_resources.measure(pids), None)
            if gang.wants_outputs(now):
                gang.on_outputs(now, self._outputs.stats(), now=now)
            self.core.heartbeat(gang.heartbeat(now))
        else:
            self.core.idle_heartbeat()
        self.core.judge()

    # ---- ranks -----------------------------------------------------------------------------------

    def _look_at_ranks(self, now: float) -> None:
        if self._target.root is None:
            return
        processes = self._processes
        if processes is not None:
            self._look_at_ends(processes, now)
        if now < self._find_due:
            return
        self._find_due = now + (
            AGAIN_SECONDS if self._gone_since is None and processes else FIND_SECONDS
        )
        root = self._target.root
        found = NO_RANKS if self._root_ended_at is not None else find_ranks(root)
        is_new = bool(found.ranks) and (processes is None or not processes.is_same(found.ranks))
        # A process without a rank's name beside those that had one is what started them.
        is_new = is_new and (found.is_named or not self._are_named)
        if is_new and self._is_whole(found, now):
            if processes is not None and processes.ended:
                self._end_gang(processes, now, moved_on=True)
            elif processes is not None:
                self._drop_gang(processes)
            self._begin_gang(found, now)
        elif is_new or processes is None:
            return
        elif self._gone_since is not None and now >= self._gone_since + self._patience():
            self._end_gang(processes, now, moved_on=False)

    def _is_whole(self, found: FoundRanks, now: float) -> bool:
        """Whether all ranks of the next gang are there: as many as before, as variables say, or no more have come for a while."""
        num, known = len(found.ranks), self.core.state_of_run if self.core.run else None
        if num != self._num_appearing:
            self._num_appearing, self._appearing_since = num, now
        is_expected = known is not None and known.is_wanted and num == known.spec.ranks_per_node
        is_all = not found.is_named or num == found.world_size
        return is_expected or is_all or now >= self._appearing_since + SETTLE_SECONDS

    def _patience(self) -> float:
        """How long after a gang's last rank ended it is known how it ended."""
        processes = self._processes
        is_known = processes is not None and None not in processes.ended.values()
        if is_known:
            return 0.0
        return UNSEEN_SECONDS if self._root_ended_at is not None else ORPHAN_SECONDS

    def _begin_gang(self, found: FoundRanks, now: float) -> None:
        """Take the ranks that are found for the next gang."""
        num = len(found.ranks)
        if not self.core.is_wanted or self.core.state_of_run.spec.ranks_per_node != num:
            self._begin_run(num)
        pids = {rank: process.pid for rank, process in found.ranks.items()}
        if self.core.launched(pids, now) is None:
            self._begin_run(num)
            self.core.launched(pids, now)
        self._processes, self._gone_since = GangProcesses(found.ranks), None
        self._num_appearing, self._are_named = 0, found.is_named
        self._look_due = self._tick_due = now
        child = self._target.child
        unread = self._outputs.set_ranks(found.ranks.values(), child.pipes if child else ())
        self._describe(found, unread)

    def _begin_run(self, num_ranks: int) -> None:
        self.core.begin_run(replace(self._spec, ranks_per_node=max(1, num_ranks)))
        self._screen.begin(self.core.run)

    def _describe(self, found: FoundRanks, unread: Sequence[int]) -> None:
        who = ", ".join(f"rank {rank} pid {one.pid}" for rank, one in found.ranks.items())
        if not found.is_named:
            who = f"pid {found.ranks[0].pid}, as rank 0: no variable of a launcher names ranks"
        elsewhere = (found.world_size or 0) - len(found.ranks)
        others = (
            f"; {elsewhere} more of {found.world_size} on other machines" if elsewhere > 0 else ""
        )
        self._screen.note(f"watching {who}{others}")
        if unread:
            text = f"the output of rank{'s' if len(unread) > 1 else ''} {_listed(unread)} goes to a pipe or a terminal"
            self.note(
                f"{text}, which only its reader can read; give the files it ends up in (--logs GLOB), or start torchrun "
                "with --log-dir DIR --tee 3"
            )

    def _look_at_ends(self, processes: GangProcesses, now: float) -> None:
        child = self._target.child
        known = {child.pid: self.exit_code} if child is not None else {}
        failed = []
        for rank, code in processes.new_ends(known):
            if code is not None:
                self._look_at_outputs(now)
                self._reports.exited(rank, code)
                if code:
                    failed.append(rank)
        self._reports.search_ends(failed)
        if not processes.has_alive and self._gone_since is None:
            self._gone_since, self._find_due = now, now

    def _end_gang(self, processes: GangProcesses, now: float, *, moved_on: bool) -> None:
        """Report the end of a gang of which no rank is left, or that another one follows."""
        gang = self.core.gang
        if gang is not None:
            self._reports.read_all(now)
            unseen = [rank for rank in processes.ranks if processes.ended.get(rank) is None]
            code, why = self._unseen_code(processes, moved_on=moved_on) if unseen else (0, "")
            for rank in unseen:
                self._reports.exited(rank, code, unobserved=why)
            if unseen and code != 0:
                self._reports.search_ends(unseen)
            self.core.gone()
            self.core.judge()
            # The next gang may follow at once.
            self._display.show(now, self._cpu_use.text)
        processes.close()
        self._outputs.forget_past()
        self._processes, self._gone_since = None, None

    def _drop_gang(self, processes: GangProcesses) -> None:
        """Take back what was taken for ranks: a process that has started the ranks since."""
        self._screen.note("the process that was taken for a rank has started ranks of its own")
        self.core.end_run()
        processes.close()
        self._outputs.forget_past()
        self._processes, self._gone_since = None, None

    def _unseen_code(self, processes: GangProcesses, *, moved_on: bool) -> tuple[int | None, str]:
        """Return the exit code that ranks must have had whose parent alone was given it; or why none is known."""
        if moved_on:
            return None, f"{UNSEEN}; {MOVED_ON}"
        if any(processes.ended.values()):
            return None, UNSEEN
        if self.exit_code is not None and self.exit_code != 0:
            return None, f"{UNSEEN}; what started it ended with {self.exit_code}"
        if self.exit_code == 0:
            return 0, ""
        if self._outputs.ends_well():
            self._screen.note(
                "no exit code of its ranks was seen; their output ends without an error, so they count as finished"
            )
            return 0, ""
        return None, f"{UNSEEN}; its output ends with an error"

    # ---- logs alone ------------------------------------------------------------------------------

    def _look_at_files(self, now: float) -> None:
        """Without processes, the ranks are those that files name; a later launch among the files is another gang."""
        files, launch = self._outputs.files, self._outputs.launch
        if not files:
            self.note("no file matches yet; waiting for one")
            return
        if self._processes is None:
            self._begin_unseen(now)
        elif launch != self._launch:
            self._restart_unseen(now, "files of its next launch are there")
        self._launch = launch

    def _begin_unseen(self, now: float) -> None:
        ranks = sorted(set(self._outputs.files.values()))
        if not self.core.is_wanted or self.core.state_of_run.spec.ranks_per_node != len(ranks):
            self._begin_run(len(ranks))
        self.core.launched(dict.fromkeys(ranks, 0), now)
        unseen = {rank: RankProcess(rank=rank, pid=0, start_ticks=0) for rank in ranks}
        self._processes = GangProcesses(unseen)
        self._tick_due = now
        names = ", ".join(self._outputs.files)
        self._screen.note(
            f"watching {names}" if len(names) < 200 else f"watching {len(ranks)} ranks"
        )

    def _restart_unseen(self, now: float, why: str) -> None:
        """End the gang of which only the outputs are known, and begin the next."""
        gang = self.core.gang
        if gang is None:
            return
        for rank in list(gang.ranks):
            self._reports.exited(rank, None, unobserved=f"an exit that nothing here shows; {why}")
        self._reports.search_ends(list(gang.ranks))
        self.core.gone()
        self.core.judge()
        self._outputs.forget_past()
        self._display.show(now, self._cpu_use.text)
        self._begin_unseen(now)

    # ---- outputs ---------------------------------------------------------------------------------

    def _look_at_outputs(self, now: float) -> None:
        """Read what is new; before a gang is found, and between two of them, that is left for the next one."""
        if self.core.gang is None and self._has_outputs:
            return
        self._reports.read(now)

    @property
    def _has_outputs(self) -> bool:
        return bool(self._outputs.files) or self._target.child is not None

    def _finish(self, now: float) -> None:
        """Read what is left, and bring what is shown up to date."""
        child, processes, gang = self._target.child, self._processes, self.core.gang
        while child is not None and child.pass_on():
            continue
        if processes is not None and self._root_ended_at is not None and not processes.has_alive:
            self._end_gang(processes, now, moved_on=False)
        elif gang is not None:
            self._reports.read(now)
            self._reports.emit(gang.poll_progress(now, every_seconds=0.0))
            self.core.heartbeat(gang.heartbeat(now))
        self.core.judge()
        self._display.show(now, self._cpu_use.text)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
