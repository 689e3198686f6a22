"""What the outputs of a gang show, as the signals of an agent: steps, lines, lost bytes, exits and what is said of them."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from runner.agent.logs.gang_matches import with_lost_bytes, with_rank
from runner.agent.ranks.gang import LocalGang
from runner.facts.messages import signals as s
from runner.facts.messages.log_search import FollowReport
from runner.watch.core import WatchCore
from runner.watch.outputs import Outputs
from runner.watch.restarts import Restarts


class GangReports:
    """Passes on what outputs have. `on_restart(now, why)` begins the next gang where only steps show it; None: processes do."""

    def __init__(
        self,
        core: WatchCore,
        outputs: Outputs,
        note: Callable[[str], None],
        on_restart: Callable[[float, str], None] | None,
    ) -> None:
        self._core, self._outputs, self._note = core, outputs, note
        self._on_restart = on_restart
        self._restarts = Restarts()
        # A line about a fault came since the last step.
        self._has_fault = False

    def read(self, now: float) -> None:
        """Read what is new."""
        self._handle(self._outputs.poll(now), now)

    def read_all(self, now: float) -> None:
        """Read to the ends, for nothing is written any more."""
        self._handle(self._outputs.read_all(now), now)
        if self._core.gang is not None:
            self._core.heartbeat(self._core.gang.heartbeat(now))

    def emit(self, facts: Sequence[s.Signal]) -> None:
        """Pass signals on."""
        for fact in facts:
            self._core.signal(fact)

    def exited(self, rank: int, code: int | None, *, unobserved: str = "") -> None:
        """Report the end of a rank with its last words, once. `unobserved`: why its exit code is not known."""
        gang = self._core.gang
        if gang is None or rank not in gang.ranks or not gang.ranks[rank].is_alive:
            return
        words = self._outputs.last_words(rank) if code != 0 else ""
        self._core.signal(
            replace(gang.exited(rank, code, stderr_tail=words), unobserved=unobserved)
        )

    def search_ends(self, ranks: Sequence[int]) -> None:
        """Report what the outputs of ranks that failed have of the cause."""
        gang = self._core.gang
        if gang is None or not ranks:
            return
        found = self._outputs.search_ends(ranks)
        self._core.signal(
            s.LinesMatched(
                **gang.header(),
                generation=gang.generation,
                matches=found.matches,
                steps=found.steps,
                is_last=True,
            )
        )

    def _handle(self, reports: Sequence[FollowReport], now: float) -> None:
        for report in reports:
            gang = self._core.gang
            if gang is None:
                self._on_kernel_lines(report)
                continue
            for name, num_bytes in report.lost_bytes.items():
                gang.log_bytes_lost[name] = gang.log_bytes_lost.get(name, 0) + num_bytes
                self._note(f"{num_bytes} bytes of {name} were lost in a truncation")
            if report.matches:
                self._on_lines(gang, report)
            gang.log_bytes_skipped = max(gang.log_bytes_skipped, report.skipped_bytes)
            if report.records:
                self._add_steps(gang, report, now)

    def _on_kernel_lines(self, report: FollowReport) -> None:
        kernel = tuple(match for match in report.matches if match.of_kernel)
        if kernel:
            self._core.signal(s.KernelLinesMatched(**self._core.header(), matches=kernel))

    def _on_lines(self, gang: LocalGang, report: FollowReport) -> None:
        self._has_fault = self._has_fault or any(match.fault for match in report.matches)
        self._core.signal(
            s.LinesMatched(
                **gang.header(),
                generation=gang.generation,
                matches=tuple(
                    with_lost_bytes(with_rank(one, gang), gang) for one in report.matches
                ),
                ranks_alive=True,
                last_step=gang.furthest_step,
            )
        )

    def _add_steps(self, gang: LocalGang, report: FollowReport, now: float) -> None:
        if self._on_restart is None:
            self.emit(gang.add_log_steps(report.records, report.records_rank, now))
            return
        starts = self._restarts.divide(report.records, now, has_fault=self._has_fault)
        self._has_fault = False
        for number, records in enumerate(starts):
            if number:
                self._on_restart(now, f"its steps go back to {records[0].step}")
            if records and self._core.gang is not None:
                self.emit(self._core.gang.add_log_steps(records, report.records_rank, now))
