"""Ranks in state D: no finding by themselves, and named by the one that the lack of progress makes."""

import pytest

from runner.detect.registry import DetectorRegistry
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, RankBlocked
from runner.facts.watch import WatchedAttempt, WatchList

ATTEMPT = AttemptId(1, 1, 0)
LIMIT = 100.0
WATCH = WatchList(
    nodes=("n1", "n2"),
    attempts=(
        WatchedAttempt(
            attempt=ATTEMPT,
            nodes=("n1", "n2"),
            since=0.0,
            start_seconds=LIMIT,
            progress_seconds=LIMIT,
        ),
    ),
)


def run(
    blocked: dict[int, float], *, steps_until: float, seconds: float, shift: float = 0.0
) -> list[Finding]:
    """Let two nodes of two ranks send heartbeats every second; `blocked`: rank -> when it comes into state D, for good."""
    detectors, found = DetectorRegistry(heartbeat_timeout_seconds=5.0), list[object]()
    detectors.watch(WATCH)
    for now in range(int(seconds)):
        if shift and now == seconds // 2:
            detectors.shift(shift)
        at = now + (shift if shift and now >= seconds // 2 else 0.0)
        for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
            ranks_blocked = tuple(
                RankBlocked(rank=rank, seconds=now - blocked[rank])
                for rank in ranks
                if rank in blocked and now >= blocked[rank] + 5
            )
            heartbeat = Heartbeat(
                node=node,
                incarnation=1,
                attempt=ATTEMPT,
                ranks_alive=ranks,
                ranks_blocked=ranks_blocked,
                phases={str(rank): "step" for rank in ranks},
                last_step=1 + int(min(now, steps_until)),
            )
            found += detectors.on_heartbeat(heartbeat, at)
        found += detectors.tick(at)
    return [each for each in found if isinstance(each, Finding)]


def test_state_d_alone_is_no_finding() -> None:
    """A rank that stays in state D while its gang makes steps gives no finding."""
    assert run({1: 10.0}, steps_until=1000.0, seconds=300) == []


def test_the_one_blocked_rank_is_the_findings() -> None:
    """No step for the limit, one rank in state D for most of that time: the finding names that rank and since when."""
    (found,) = run({2: 55.0}, steps_until=50.0, seconds=200)
    assert (found.fault, found.node, found.rank) == ("no_progress", "n2", 2)
    assert "; rank 2 on n2 has been in state D for" in found.evidence


def test_two_blocked_ranks_are_both_in_the_evidence_and_neither_is_the_cause() -> None:
    """Two in state D suggest a file system that all wait for: the evidence names both ranks, the finding none."""
    (found,) = run({0: 55.0, 3: 60.0}, steps_until=50.0, seconds=200)
    assert (found.fault, found.node, found.rank) == ("no_progress", None, None)
    assert "rank 0 on n1 has been in state D" in found.evidence
    assert "rank 3 on n2 has been in state D" in found.evidence


def test_a_rank_that_was_blocked_late_is_not_the_cause() -> None:
    """A rank that came into state D long after the gang's last step is in the evidence, and is not the cause."""
    (found,) = run({2: 95.0}, steps_until=20.0, seconds=200)
    assert found.rank is None
    assert "rank 2 on n2 has been in state D" in found.evidence


@pytest.mark.parametrize("pause", [0.0, 500.0])
def test_a_pause_of_the_supervisor_makes_no_rank_blocked_for_longer(pause: float) -> None:
    """Time in which the supervisor was paused is not added to the time a rank was blocked."""
    (found,) = run({2: 52.0}, steps_until=50.0, seconds=200, shift=pause)
    seconds = float(found.evidence.rpartition(" for ")[2].removesuffix(" s"))
    print(f"reported as in state D for {seconds} s, with a pause of {pause} s")
    assert seconds <= 151
