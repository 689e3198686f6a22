"""Learned summaries: what detectors know of each run, written all the time, so that the next supervisor goes on where this one was.

One run is dumped in a turn, when its last summary is old or a finding has changed what is reported; the compactor's thread writes
it. Nothing here may stop a supervisor: what cannot be dumped or loaded is learned again, and the log says why.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from runner.decide.state.cluster_state import State
from runner.detect.registry import DetectorRegistry
from runner.errors import Fenced, StoreUnavailable
from runner.facts.faults import Finding
from runner.journal.learned import LearnedRegisters, encode_summary
from runner.store.protocol import Lease

_LOG = logging.getLogger("stoker")

# Between two summaries of a run, if there are no more than 25 runs; these are the steps that a take-over may miss. Chosen.
SUMMARY_SECONDS = 5.0
# Between two summaries of any runs: 250 runs have 30 KB each, and the store of a large cluster is to take no megabytes a second
# for them. Chosen.
PAUSE_SECONDS = 0.2
# Between two looks at all runs while no summary is due; chosen.
LOOK_SECONDS = 1.0


class SummaryImage(NamedTuple):
    """An encoded summary of a run; empty: it is to be deleted."""

    run: int
    body: bytes


class LearnedSummaries:
    """Keeps what the detectors of one supervisor learn. One thread calls it, `write` excepted."""

    def __init__(
        self, detectors: DetectorRegistry, registers: LearnedRegisters, lease: Lease
    ) -> None:
        self._detectors, self._registers, self._lease = detectors, registers, lease
        # Runs that have a register, as far as is known -> when the next summary is due.
        self._due: dict[int, float] = {}
        # Runs whose last summary could not be made whole.
        self._incomplete: dict[int, None] = {}
        # When to look again whether one is due.
        self._look_at = 0.0

    def load(self, state: State, now: float) -> tuple[int, ...]:
        """Give new detectors what the last ones knew; return the runs of which they know all that.

        A store that is out of reach now counts as one without summaries.
        """
        try:
            summaries, refused = self._registers.read()
        except StoreUnavailable as error:
            _LOG.warning("what was learned is not read, and is learned again: %s", error)
            return ()
        live = _live_runs(state)
        self._due = dict.fromkeys((*summaries, *refused), now)
        for run in (run for run in summaries if run in live):
            try:
                parts = self._detectors.load(run, summaries[run].detectors, now)
            except Exception as error:  # noqa: BLE001 - bulkhead: a start never fails of it
                parts = [repr(error)[:300]]
            if parts:
                refused[run] = "; ".join(parts)
        for run, reason in refused.items():
            _LOG.warning(
                "what was learned of run %d is refused, and is learned again: %s", run, reason
            )
        return tuple(run for run in summaries if run in live and run not in refused)

    def on_findings(self, findings: Iterable[object], now: float) -> None:
        """Let runs with findings be dumped soon: the next supervisor is to know what was reported."""
        for finding in findings:
            if isinstance(finding, Finding) and finding.attempt is not None:
                # Before all others.
                self._due[finding.attempt.run], self._look_at = -math.inf, now

    def next(self, state: State, now: float) -> SummaryImage | None:
        """Return the summary that is due, of the run that waits longest; None: none is."""
        if now < self._look_at:
            return None
        live = _live_runs(state)
        for run in live:
            self._due.setdefault(run, now)
        run = min(self._due, key=lambda each: self._due[each], default=0)
        if not run or now < self._due[run]:
            self._look_at = now + LOOK_SECONDS
            return None
        self._look_at = now + PAUSE_SECONDS
        if run not in live:
            del self._due[run]
            return SummaryImage(run, b"")
        self._due[run] = now + SUMMARY_SECONDS
        return self._image(run, now)

    def all_images(self, state: State, now: float) -> list[SummaryImage]:
        """Return the summaries of all live runs, at the end of this supervisor."""
        images = (self._image(run, now) for run in _live_runs(state))
        return [image for image in images if image is not None]

    def write(self, image: SummaryImage) -> None:
        """Write a summary. Raises Fenced when another supervisor took over, StoreUnavailable."""
        self._registers.write(image.run, image.body, self._lease)

    def write_all(self, state: State, now: float) -> None:
        """Write all summaries, as far as the store accepts them."""
        try:
            for image in self.all_images(state, now):
                self.write(image)
        except (StoreUnavailable, Fenced) as error:
            _LOG.warning("what was learned last is not written: %s", error)

    def _image(self, run: int, now: float) -> SummaryImage | None:
        try:
            body, left_out = encode_summary(run, self._detectors.dump(run, now), now)
        except Exception as error:  # noqa: BLE001 - bulkhead: what cannot be dumped is learned again
            self._complain(run, [repr(error)[:300]])
            return None
        self._complain(run, left_out)
        return SummaryImage(run, body)

    def _complain(self, run: int, problems: Sequence[str]) -> None:
        """Log once what a summary lacks."""
        if problems and run not in self._incomplete:
            _LOG.warning("the summary of run %d lacks %s", run, ", ".join(problems))
        if problems:
            self._incomplete[run] = None
        else:
            self._incomplete.pop(run, None)


def _live_runs(state: State) -> dict[int, None]:
    return {number: None for number, run in state.runs.items() if run.ended_at is None}
