"""The learning rate in a trainer's own lines: reported once for each attempt, beside what the schedule had there before."""

from dataclasses import dataclass, field

from runner.detect.detector import Detector, NodeSilence, register
from runner.facts.faults import LrObserved
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.watch import WatchedAttempt, WatchList

# Newest steps whose rate is kept: a restart goes back some steps. Chosen, not measured.
MAX_KNOWN = 512
# Lines of steps without a rate, until they count as lines that have none. Chosen, not measured.
LEAST_WITHOUT = 20
# Whose rates are kept between attempts. Chosen, not measured.
MAX_RUNS = 50


@dataclass(slots=True)
class _Rates:
    attempt: AttemptId
    # Step -> rate, of an earlier attempt and of this one.
    before: dict[int, float] = field(default_factory=dict)
    known: dict[int, float] = field(default_factory=dict)
    num_without: int = 0
    is_reported: bool = False


@register
class LearningRateReader(Detector):
    """Reports the first rate of each attempt, or that its lines have none, for runs that it concerns.

    Rates are forgotten with the supervisor.
    """

    order = 75
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._runs: dict[int, _Rates] = {}

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[LrObserved]:
        """Follow the steps of a watched attempt."""
        steps = heartbeat.steps or heartbeat.logged_steps
        watched = next((w for w in watch.attempts if w.attempt == heartbeat.attempt), None)
        if not steps or watched is None or not watched.reads_rate:
            return []
        rates = self._rates_of(watched)
        return [found for record in steps for found in _observe(rates, record)]

    def _rates_of(self, watched: WatchedAttempt) -> _Rates:
        number = watched.attempt.run
        rates = self._runs.get(number)
        if rates is None or rates.attempt != watched.attempt:
            # Of the last attempt that showed any: what was launched since then is compared with what it was launched with.
            before = (rates.known or rates.before) if rates is not None else {}
            self._runs.pop(number, None)
            rates = self._runs[number] = _Rates(watched.attempt, before)
            for idle in list(self._runs)[:-MAX_RUNS]:
                del self._runs[idle]
        return rates


def _observe(rates: _Rates, record: StepRecord) -> list[LrObserved]:
    lr = record.lr
    if lr is None or not lr > 0:
        rates.num_without += 1
        if rates.is_reported or rates.num_without < LEAST_WITHOUT:
            return []
        rates.is_reported = True
        return [LrObserved(attempt=rates.attempt, step=record.step)]
    rates.known[record.step] = lr
    if len(rates.known) > MAX_KNOWN:
        del rates.known[next(iter(rates.known))]
    if rates.is_reported:
        return []
    rates.is_reported = True
    before = _scheduled(rates.before, record.step)
    return [LrObserved(attempt=rates.attempt, step=record.step, lr=lr, before=before)]


def _scheduled(known: dict[int, float], step: int) -> float | None:
    """Return the rate that a schedule had, or would have had, at a step; None: nothing is known before it."""
    if step in known:
        return known[step]
    steps = sorted(one for one in known if one < step)
    if not steps:
        return None
    last = steps[-1]
    if len(steps) == 1:
        return known[last]
    slope = (known[last] - known[steps[-2]]) / (last - steps[-2])
    rate = known[last] + slope * (step - last)
    return rate if rate > 0 else known[last]
