"""What detectors have learned outlives them: cut anywhere and continued by new ones, a run gets the findings it would have got."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace

from bench.detectors.runs import Labelled, healthy, labelled_curves, synthetic_noise, with_drift
from runner.detect.detector import DETECTORS
from runner.detect.numerics.drift import LossDrift
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.metric_detector import METRIC_DETECTORS, NumericSettings
from runner.detect.numerics.numerics import Numerics, NumericsMemory
from runner.detect.registry import DetectorRegistry
from runner.detect.resource_growth import ResourceGrowth
from runner.errors import WireError
from runner.facts import wire
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.learned import LearnedSummary
from runner.facts.messages.signals import Heartbeat, RankCompute, RankResources, StepRecord
from runner.facts.watch import WatchedAttempt, WatchList
from runner.journal.learned import MAX_BYTES, encode_summary

ATTEMPT = AttemptId(1, 1, 0)
NODES = ("n1", "n2")
SILENCE = 5.0
WATCH = WatchList(
    nodes=NODES,
    attempts=(
        WatchedAttempt(
            attempt=ATTEMPT, nodes=NODES, since=0.0, start_seconds=600.0, progress_seconds=3600.0
        ),
    ),
)
Stream = Sequence[tuple[float, Heartbeat]]


def heartbeat_of(node: str, **fields: Any) -> Heartbeat:
    """Make a heartbeat of the gang."""
    return Heartbeat(node=node, incarnation=1, attempt=ATTEMPT, ranks_alive=(0,), **fields)


def led() -> DetectorRegistry:
    """Make the detectors of a supervisor."""
    detectors = DetectorRegistry(SILENCE)
    detectors.watch(WATCH)
    return detectors


def handed_over(detectors: DetectorRegistry, now: float) -> DetectorRegistry:
    """Return new detectors that have read what these wrote."""
    body, left_out = encode_summary(1, detectors.dump(1, now), now)
    assert not left_out
    assert len(body) <= MAX_BYTES
    summary = wire.decode(body)
    assert isinstance(summary, LearnedSummary)
    new = led()
    assert new.load(1, summary.detectors, now) == []
    return new


def followed(stream: Stream, cuts: Sequence[int] = ()) -> list[tuple[float, object]]:
    """Return all findings about the run, and when; before the heartbeats of these numbers another supervisor takes over."""
    detectors, found = led(), []
    for number, (now, heartbeat) in enumerate(stream):
        if number in cuts:
            detectors = handed_over(detectors, now)
        found += [(now, each) for each in detectors.tick(now)]
        found += [(now, each) for each in detectors.on_heartbeat(heartbeat, now)]
    return [
        (now, each) for now, each in found if isinstance(each, Finding) and each.attempt is not None
    ]


class Counted(dict[str, Any]):
    """Nodes that count how often they are walked from end to end."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        """Walk."""
        type(self).walks += 1
        return super().__iter__()

    def values(self) -> Any:
        """Walk."""
        type(self).walks += 1
        return super().values()

    def items(self) -> Any:
        """Walk."""
        type(self).walks += 1
        return super().items()


def steps(records: Sequence[StepRecord]) -> Stream:
    """Report these steps, one in a second."""
    return [
        (
            float(number),
            heartbeat_of("n1", steps=(record,), last_step=record.step, phases={"0": "step"}),
        )
        for number, record in enumerate(records)
    ]


def drifting() -> list[StepRecord]:
    """A run whose loss drifts up from the 1,500th sample on."""
    chance = random.Random(5)
    return with_drift(list(healthy(synthetic_noise("gauss", chance), 2_200, chance)), 1_500, chance)


def slowing() -> list[StepRecord]:
    """A run that makes a tenth fewer tokens from step 800 on."""
    chance = random.Random(6)
    return [
        StepRecord(
            step=step,
            loss=2.0 + chance.gauss(0, 0.01),
            tokens_per_second=(900.0 if step >= 800 else 1000.0) + chance.gauss(0, 3),
        )
        for step in range(1, 1_400)
    ]


def straggling() -> Iterator[tuple[float, Heartbeat]]:
    """Rank 5 of 16 computes a third more slowly from 1,800 s to 6,000 s."""
    chance = random.Random(7)
    for tick in range(1_000):
        for index, node in enumerate(NODES):
            now = tick * 10.0 + index
            computes = tuple(
                RankCompute(
                    rank=rank,
                    stage=0,
                    seconds=chance.gauss(2.0, 0.02)
                    * (1.33 if rank == 5 and 1_800 <= now < 6_000 else 1.0),
                )
                for rank in range(8 * index, 8 * index + 8)
            )
            yield now, heartbeat_of(node, rank_computes=computes)


def leaking() -> Iterator[tuple[float, Heartbeat]]:
    """Rank 0 on n1 leaks 3 GB and 40 descriptors an hour; the others do not."""
    chance = random.Random(8)
    for number in range(400):
        now = number * 300.0
        for index, node in enumerate(NODES):
            grown = now / 3600 if index == 0 else 0.0
            used = RankResources(
                rank=4 * index,
                memory_bytes=int(20e9 + grown * 3e9 + chance.random() * 1e8),
                descriptors=int(100 + grown * 40),
                descriptors_limit=1024,
            )
            yield (
                now,
                heartbeat_of(
                    node, rank_resources=(used,), memory_free_bytes=int(90e9 - grown * 3e9)
                ),
            )


STREAMS = {
    "a slow drift": (steps(drifting()), "divergence"),
    "a throughput drop": (steps(slowing()), "throughput_drop"),
    "a straggler": (list(straggling()), "straggler"),
    "a leak": (list(leaking()), "host_memory_growth"),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", STREAMS)
def test_a_new_supervisor_finds_what_the_old_one_would_have_found(name: str) -> None:
    """At the same moment, with the same onset and evidence, wherever the take-over is, before the finding and after it."""
    stream, fault = STREAMS[name]
    whole = followed(stream)
    (at, *_) = [now for now, each in whole if getattr(each, "fault", "") == fault]
    found_at = next(number for number, (now, _) in enumerate(stream) if now == at)
    for cut in (found_at // 2, found_at - 9, found_at - 1, found_at, found_at + 1):
        assert followed(stream, (cut,)) == whole
    assert followed(stream, range(100, len(stream), 331)) == whole


def test_without_what_was_learned_the_drop_is_not_found() -> None:
    """So the test above would fail without it: new detectors take the present level for the usual one."""
    stream = steps(slowing())
    detectors = led()
    observed = [each for now, one in stream[820:] for each in detectors.on_heartbeat(one, now)]
    assert [each for each in observed if isinstance(each, Finding)] == []


def cut_at(records: Sequence[StepRecord], cuts: Sequence[int]) -> list[NumericFinding]:
    """Return all findings, notes too; new detectors continue at each cut."""
    numerics, found = Numerics(), []
    for number, record in enumerate(records):
        if number in cuts:
            dumped = wire.encode_value(numerics.dump())
            numerics = Numerics()
            numerics.load(wire.from_plain(NumericsMemory, _plain(dumped)))
        found += numerics.judge(record)
    return found


def _plain(body: bytes) -> object:
    summary = wire.decode(
        b'{"v":1,"kind":"learned","run":1,"version":1,"made_at":0,"detectors":{"x":%b}}' % body
    )
    return summary.detectors["x"]


@pytest.mark.parametrize("curve", labelled_curves(), ids=lambda curve: str(curve.name))
def test_real_curves_get_the_same_findings(curve: Labelled) -> None:
    """Cut in quarters, and around each finding, also in the middle of a spike."""
    whole = cut_at(curve.records, ())
    places = {record.step: number for number, record in enumerate(curve.records)}
    near = [places[one.detected_step] for one in whole[:4]]
    quarters = [len(curve.records) * part // 4 for part in (1, 2, 3)]
    for cuts in (quarters, near, [place + 1 for place in near]):
        assert cut_at(curve.records, cuts) == whole


def test_a_run_that_goes_back_after_a_take_over_goes_back_with_what_was_learned() -> None:
    """It resumes 100 steps before the take-over: the jump of its loss is found at its first step."""
    records = drifting()[:1_200]
    again = [replace(one, loss=9.0) for one in records[1_100:1_130]]
    places = [
        [(one.fault, one.onset_step, one.detected_step) for one in cut_at([*records, *again], cuts)]
        for cuts in ([], [1_200])
    ]
    assert places[0] == places[1]
    assert places[0][0][1] == again[0].step


def test_the_pace_of_a_run_outlives_its_supervisor() -> None:
    """A hang is found by the learned limit, not by that of run.yaml, an hour later."""
    detectors = led()
    detectors.tick(0.0)
    for second in range(900):
        for node in NODES:
            detectors.on_heartbeat(
                heartbeat_of(node, last_step=second, phases={"0": "step"}), float(second)
            )
    detectors = handed_over(detectors, 900.0)
    found: list[Any] = []
    for second in range(901, 2_500):
        found += detectors.tick(float(second))
        for node in NODES:
            still = heartbeat_of(node, last_step=900, phases={"0": "step"})
            found += detectors.on_heartbeat(still, float(second))
    (hang,) = [one for one in found if getattr(one, "fault", "") == "no_progress"]
    assert "learned: the longest of " in hang.evidence


def test_every_attribute_of_a_numeric_detector_is_kept() -> None:
    """One that is not annotated would be lost in silence."""
    settings = NumericSettings()
    shared = {"settings", "baseline"}
    for kind in METRIC_DETECTORS:
        kept = set(get_type_hints(kind)) - {"_is_known"}
        assert set(vars(kind(settings))) - shared - {"_is_known"} <= kept, kind
    assert set(vars(LossDrift())) <= set(get_type_hints(LossDrift))


def test_a_summary_is_bounded_whatever_the_gang_and_the_numbers() -> None:
    """100 nodes of eight ranks that all leak and are often slow, numbers of many digits, two memories to go back to."""
    nodes = tuple(f"node-with-a-long-name-{number}" for number in range(100))
    watched = WatchedAttempt(
        attempt=ATTEMPT, nodes=nodes, since=0.0, start_seconds=600.0, progress_seconds=3600.0
    )
    detectors = DetectorRegistry(SILENCE)
    detectors.watch(WatchList(nodes=nodes, attempts=(watched,)))
    chance = random.Random(9)
    for step in range(500):
        record = StepRecord(
            step=10**9 + step,
            loss=1e-200 * (1 + chance.random() / 10),
            grad_norm=1e-200 * (1 + chance.random() / 10),
            tokens_per_second=1e9 * chance.random(),
            loss_scale=2.0 ** (16 + step % 2),
            validation_loss=1e-100 * chance.random(),
        )
        detectors.on_heartbeat(heartbeat_of(nodes[0], steps=(record,)), 1_000.0 * step)
    for tick in range(120):
        for index, node in enumerate(nodes):
            ranks = range(8 * index, 8 * index + 8)
            used = tuple(
                RankResources(
                    rank=rank,
                    memory_bytes=int(1e9 * (tick + chance.random())),
                    descriptors=10 * tick,
                    descriptors_limit=10**9,
                )
                for rank in (ranks if index < 4 else ())
            )
            slow = tuple(
                RankCompute(rank=rank, seconds=1.0 + chance.random() * (rank % 5), stage=0)
                for rank in (ranks if tick < 30 else ())
            )
            heartbeat = heartbeat_of(
                node, rank_resources=used, rank_computes=slow, memory_free_bytes=10**9
            )
            detectors.on_heartbeat(heartbeat, 1_800.0 * tick)
    (growth,) = [each for each in detectors._detectors if isinstance(each, ResourceGrowth)]
    gang = growth._gangs.known[ATTEMPT]
    gang.nodes = Counted(gang.nodes)
    body, left_out = encode_summary(1, detectors.dump(1, 216_000.0), 216_000.0)
    # What a summary costs does not grow with the gang.
    assert Counted.walks == 0
    assert left_out == []
    assert 20_000 < len(body) <= MAX_BYTES


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    """Each detector's memory by itself; the others continue."""
    detectors = led()
    for now, heartbeat in steps(drifting())[:200]:
        detectors.on_heartbeat(heartbeat, now)
    body, _ = encode_summary(1, detectors.dump(1, 200.0), 200.0)
    good = wire.decode(body).detectors
    numerics = good["LiveNumerics"]
    spoilt: dict[str, tuple[object, str]] = {
        "LiveNumerics": ({**numerics, "attempt": 7}, "expected an attempt id"),
        "GangProgress": ({"gaps": {"step": {"longest_seconds": -1.0}}}, "no numbers of seconds"),
        "StragglerDetector": ({"attempt": "1.1.0", "later": 1}, "unknown field `later`"),
        "ResourceGrowth": ([], "no GrowthMemory"),
        "Astrologer": ({}, "no such detector"),
        "HeartbeatTimeout": ({}, "keeps nothing"),
    }
    for name, (part, reason) in spoilt.items():
        (refused,) = led().load(1, {**good, name: part}, 200.0)
        assert refused.startswith(f"{name}: ")
        assert reason in refused
    level = numerics["numerics"]["detectors"]["LossDetector"]["level"]
    for value in ([*level, 1.0], ["NaN"], "x"):
        worse = {**numerics["numerics"]["detectors"]["LossDetector"], "level": value}
        kinds = {**numerics["numerics"]["detectors"], "LossDetector": worse}
        with pytest.raises(WireError):
            Numerics().load(NumericsMemory(detectors=kinds))
    with pytest.raises(WireError, match="numeric detectors"):
        Numerics().load(NumericsMemory(detectors={"LossDetector": {}}))


def test_a_run_that_no_detector_knows_has_an_empty_summary() -> None:
    """And no detector of those that keep nothing is asked for more."""
    assert led().dump(7, 0.0) == {}
    assert len(DETECTORS) > len(led().dump(1, 0.0))
