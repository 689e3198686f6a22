"""A new supervisor's detectors learn from the step history what no summary has, and find what one supervisor would have found."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from bench.detectors.runs import Labelled, labelled_curves
from runner.detect.live.awaited_past import MAX_HEARTBEATS, NUM_STEPS, PATIENCE_SECONDS
from runner.detect.registry import DetectorRegistry
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import StepRecord
from runner.facts.watch import PastStep, StepsWanted, WatchedAttempt, WatchList
from tests.detect.test_learned import (
    ATTEMPT,
    WATCH,
    drifting,
    followed,
    handed_over,
    led,
    slowing,
    steps,
)

BEFORE = AttemptId(1, 1, 0)


def past_of(records: Sequence[StepRecord], attempt: AttemptId = ATTEMPT) -> list[PastStep]:
    """Return records as the history has them, one in a second."""
    names = [name for name in PastStep._fields if name not in ("attempt", "at")]
    return [
        PastStep(attempt=attempt, at=float(at), **{name: getattr(record, name) for name in names})
        for at, record in enumerate(records)
    ]


def asked(detectors: DetectorRegistry) -> StepsWanted:
    """Return what the detectors want of the run's newest steps, once."""
    (wanted,) = [one for one in detectors.wanted() if one.newest]
    assert not [one for one in detectors.wanted() if one.newest]
    return wanted


def seeded(records: Sequence[StepRecord], cut: int) -> list[Finding]:
    """Return the findings of a supervisor that takes over at a cut without a summary, with the history up to there."""
    detectors = led()
    found = list(detectors.recall(asked(detectors), past_of(records[:cut])[-NUM_STEPS:]))
    for now, heartbeat in steps(records)[cut:]:
        found += detectors.on_heartbeat(heartbeat, now)
    return [one for one in found if isinstance(one, Finding)]


def one_supervisor(records: Sequence[StepRecord], cut: int) -> list[Finding]:
    """Return the findings of a supervisor that was there all the time, from the cut on."""
    found = followed(steps(records))
    return [one for now, one in found if now >= cut and isinstance(one, Finding)]


@pytest.mark.costly
@pytest.mark.parametrize("before", [900, 120, 20, 1])
def test_a_drift_is_found_at_its_onset_without_a_summary(before: int) -> None:
    """Wherever the take-over is, before its onset or in the middle of it, with the same evidence."""
    records = drifting()
    (whole,) = one_supervisor(records, 0)
    assert whole.fault == "divergence"
    cut = found_at(records) - before
    assert seeded(records, cut) == [whole]
    # What was found before has its incident.
    assert seeded(records, found_at(records) + 1) == []


def found_at(records: Sequence[StepRecord]) -> int:
    """Return the number of the record at which one supervisor finds the first fault."""
    return next(int(now) for now, one in followed(steps(records)) if isinstance(one, Finding))


@pytest.mark.costly
@pytest.mark.parametrize("curve", labelled_curves(), ids=lambda curve: str(curve.name))
def test_curves_of_others_get_the_same_findings(curve: Labelled) -> None:
    """Cut in three: nothing that had been found is found again, and nothing else is."""
    for cut in (len(curve.records) // 3, 2 * len(curve.records) // 3):
        assert seeded(curve.records, cut) == one_supervisor(curve.records, cut)


def test_what_lasts_and_has_no_incident_any_more_is_reported_again() -> None:
    """Incidents that no verdict ends are closed where the summary is lost: a drop in throughput that has lasted, once more."""
    records = slowing()
    (dropped,) = one_supervisor(records, 0)
    assert dropped.fault == "throughput_drop"
    assert [one.evidence for one in seeded(records, 1_300)] == [dropped.evidence]


def test_a_summary_is_brought_up_to_date() -> None:
    """Of the history, only what is newer than the summary counts, and what it shows has its incident."""
    records = drifting()
    detectors = led()
    cut = found_at(records) - 5
    for now, heartbeat in steps(records)[: cut - 200]:
        detectors.on_heartbeat(heartbeat, now)
    new = handed_over(detectors, cut - 200.0)
    assert new.recall(asked(new), past_of(records[:cut])) == []
    found = [
        one for now, heartbeat in steps(records)[cut:] for one in new.on_heartbeat(heartbeat, now)
    ]
    assert [one for one in found if isinstance(one, Finding)] == one_supervisor(records, cut)


def test_heartbeats_wait_for_the_past_and_count_once() -> None:
    """They come while the disk reads, and the history has some of their steps, too."""
    records = drifting()
    cut = found_at(records) - 30
    whole = one_supervisor(records, cut)
    detectors = led()
    wanted = asked(detectors)
    found: list[object] = []
    for now, heartbeat in steps(records)[cut : cut + 20]:
        assert detectors.on_heartbeat(heartbeat, now) == []
    found += detectors.recall(wanted, past_of(records[: cut + 15]))
    for now, heartbeat in steps(records)[cut + 20 :]:
        found += detectors.on_heartbeat(heartbeat, now)
    assert [one for one in found if isinstance(one, Finding)] == whole


def test_a_disk_that_hangs_is_not_waited_for_for_ever() -> None:
    """The steps that waited are judged without a past, and an answer that comes later changes nothing."""
    records = [StepRecord(step=step, loss=2.0) for step in range(1, 100)]
    records += [StepRecord(step=100, loss=float("nan"))]
    detectors = led()
    wanted = asked(detectors)
    stream = steps(records)
    found = [one for now, heartbeat in stream for one in detectors.on_heartbeat(heartbeat, now)]
    assert [one.fault for one in found if isinstance(one, Finding)] == ["nan_loss"]
    assert detectors.recall(wanted, past_of(records)) == []
    assert PATIENCE_SECONDS < len(stream) < MAX_HEARTBEATS


def test_attempts_of_the_past_follow_each_other() -> None:
    """A NaN in the last attempt is no finding of the next one, and the first NaN of that one is."""
    healthy = [StepRecord(step=step, loss=2.0) for step in range(1, 100)]
    spoilt = [StepRecord(step=step, loss=float("nan")) for step in range(100, 103)]
    detectors = led()
    detectors.watch(WatchList(nodes=WATCH.nodes, attempts=(later(AttemptId(1, 1, 1)),)))
    assert detectors.recall(asked(detectors), past_of([*healthy, *spoilt], BEFORE)) == []
    found: list[object] = []
    for now, heartbeat in steps([*healthy[90:], *spoilt]):
        found += detectors.on_heartbeat(replace(heartbeat, attempt=AttemptId(1, 1, 1)), now)
    (nan,) = [one for one in found if isinstance(one, Finding)]
    assert (nan.fault, nan.step, nan.attempt) == ("nan_loss", 100, AttemptId(1, 1, 1))


def later(attempt: AttemptId) -> WatchedAttempt:
    """Watch another attempt of the run."""
    return replace(WATCH.attempts[0], attempt=attempt)
