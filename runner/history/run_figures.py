"""A run in figures: uninterrupted stretches, mean time between failures by class of cause, steps lost, and what it cost.

All seconds are the ledger's. *Uptime*: seconds in which ranks made steps, those that were overwritten included. A *failure*: an
incident that ended an attempt, counted once each time. Its class: the scope of its cause, if one is known, else of its fault.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.facts.faults import fault_kind
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.history.forecast import spending
from runner.history.ledger import Ledger
from runner.history.lineage import LineageRow
from runner.history.run_accounting import AttemptAccounting

# How many of the longest stretches are named; chosen.
NUM_STRETCHES = 3
# Of the interval of a mean time between failures.
CONFIDENCE = 0.95
_HALVINGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps without interruption: an attempt from its first step until it stopped making steps."""

    attempt: AttemptId
    seconds: float
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureClass:
    """Failures with causes of one scope; "all" for all of them.

    `mtbf_seconds`: uptime / count; `least_seconds` and `most_seconds` bound it with 95 % confidence if failures are
    independent (Poisson, exact); None: no bound, or no failure.
    """

    scope: str
    count: int
    mtbf_seconds: float | None
    least_seconds: float | None
    most_seconds: float | None
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """A run as of the last entry. Seconds; `cost` in the unit of the rate, None without one."""

    run: int
    name: str
    wall_seconds: float
    productive_seconds: float
    lost_seconds: Mapping[str, float]
    ettr_ratio: float | None
    steps: int
    lost_steps: int
    num_attempts: int
    longest: tuple[Stretch, ...]
    failures: tuple[FailureClass, ...]
    num_ranks: int
    rank_hours: float
    cost: float | None
    lost_cost: float | None


def run_figures(
    entries: Iterable[r.JournalEntry],
    run: int,
    rate_per_hour: float | None = None,
    *,
    now: float = 0.0,
) -> RunFigures:
    """Fold entries into the figures of one run; `rate_per_hour`: of one rank. Raises KeyError for an unknown run.

    They are as of the last entry, or of `now` if that is later.
    """
    ledger, failures, num_ranks = Ledger(), _Failures(), 0
    for entry in entries:
        ledger.apply(entry)
        for record in entry.records:
            failures.apply(record)
            if isinstance(record, r.RunAdmitted) and record.run == run:
                num_ranks = record.spec.nodes * record.spec.ranks_per_node
    summary, account = ledger.summary(run, now), ledger.account(run)
    lost = summary.lost_seconds
    uptime = summary.productive_seconds + lost.get("rework", 0.0) + lost.get("unreported", 0.0)
    spent = spending(summary, num_ranks, rate=rate_per_hour)
    return RunFigures(
        run=run,
        name=summary.name,
        wall_seconds=summary.wall_seconds,
        productive_seconds=summary.productive_seconds,
        lost_seconds=lost,
        ettr_ratio=summary.ettr_ratio,
        steps=max((last for _, last in summary.contributing_steps.values()), default=0),
        lost_steps=summary.lost_steps,
        num_attempts=summary.num_attempts,
        longest=_longest(
            list(account.attempts.values()), account.admitted_at + summary.wall_seconds
        ),
        failures=failures.classes(run, uptime),
        num_ranks=num_ranks,
        rank_hours=spent.rank_hours,
        cost=spent.cost,
        lost_cost=spent.lost_cost,
    )


def branches(rows: Sequence[LineageRow]) -> dict[AttemptId, str]:
    """Draw the tree: of each attempt `*` if steps of it are in the run's state, `o` if not, indented once per fork.

    An attempt that continues its parent stands below it; one that was left behind by a later child of the same parent stands
    one level further in.
    """
    last_child = {row.parent: row.attempt for row in rows}
    depths: dict[AttemptId | None, int] = {None: 0}
    for row in rows:
        is_left = last_child[row.parent] != row.attempt
        depths[row.attempt] = depths.get(row.parent, 0) + is_left
    return {
        row.attempt: "| " * depths[row.attempt] + ("*" if row.contributes else "o") for row in rows
    }


def poisson_bounds(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact (Garwood) interval of the expected count, when `count` events were seen."""
    tail = (1 - confidence) / 2
    return _mean_at(count - 1, 1 - tail) if count else 0.0, _mean_at(count, tail)


class _Failures:
    """Counts how often each incident of each run ended an attempt, and what was found to be its cause."""

    def __init__(self) -> None:
        self._run_of: dict[str, int] = {}
        self._fault_of: dict[str, str] = {}
        self._times: dict[str, list[AttemptId]] = {}

    def apply(self, record: object) -> None:
        match record:
            case r.IncidentOpened():
                self._fault_of[record.incident] = record.fault
            case r.IncidentAmended(fault=str() as fault):
                self._fault_of[record.incident] = fault
            case r.IncidentDiagnosed():
                self._fault_of[record.incident] = record.cause.fault
            case r.AttemptChanged(state="stopping", incident=str() as incident):
                times = self._times.setdefault(incident, [])
                if record.attempt not in times:
                    times.append(record.attempt)

    def classes(self, run: int, uptime: float) -> tuple[FailureClass, ...]:
        """Return all failures of a run, then those of each scope, the most frequent first."""
        counts: dict[str, int] = {}
        for incident, attempts in self._times.items():
            num = sum(attempt.run == run for attempt in attempts)
            fault = self._fault_of.get(incident, "unknown")
            if num:
                counts[fault] = counts.get(fault, 0) + num
        of_scope: dict[str, list[str]] = {}
        for fault in counts:
            of_scope.setdefault(fault_kind(fault).scope, []).append(fault)
        single = [_class_of(scope, faults, counts, uptime) for scope, faults in of_scope.items()]
        everything = _class_of("all", list(counts), counts, uptime)
        return (everything, *sorted(single, key=lambda each: -each.count))


def _class_of(
    scope: str, faults: Sequence[str], counts: Mapping[str, int], uptime: float
) -> FailureClass:
    count = sum(counts[fault] for fault in faults)
    least, most = poisson_bounds(count)
    return FailureClass(
        scope=scope,
        count=count,
        mtbf_seconds=uptime / count if count else None,
        least_seconds=uptime / most,
        most_seconds=uptime / least if least else None,
        faults=tuple(sorted(faults, key=lambda fault: -counts[fault])),
    )


def _longest(attempts: Sequence[AttemptAccounting], now: float) -> tuple[Stretch, ...]:
    stretches = [
        Stretch(
            attempt=each.attempt,
            seconds=each.marks.stepping_seconds(now),
            first_step=each.marks.steps[0],
            last_step=each.marks.reached,
        )
        for each in attempts
        if each.marks.steps
    ]
    return tuple(sorted(stretches, key=lambda each: -each.seconds)[:NUM_STRETCHES])


def _at_most(count: int, mean: float) -> float:
    """The probability of at most `count` events where `mean` are expected."""
    terms = (math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(count + 1))
    return math.fsum(terms)


def _mean_at(count: int, probability: float) -> float:
    """The mean at which at most `count` events have this probability, which falls as the mean rises; by bisection."""
    low, high = 1e-9, 10.0 + 2.0 * count
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(count, middle) > probability else (low, middle)
    return low
