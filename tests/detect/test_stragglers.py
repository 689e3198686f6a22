"""Stragglers: the slow rank is named; noise, uneven work or too few peers name no rank."""

import math
import random
import statistics
from collections.abc import Callable

import pytest

from runner.detect.registry import DetectorRegistry
from runner.detect.stragglers import MAX_FINDINGS, NUM_WINDOWS, WINDOW_SECONDS, StragglerDetector
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, RankCompute
from runner.facts.watch import WatchedAttempt, WatchList

ATTEMPT = AttemptId(1, 1, 0)
# seconds between two reports of a node
REPORT_SECONDS = 10.0
RANKS_PER_NODE = 8


def watch(num_nodes: int, attempt: AttemptId = ATTEMPT) -> WatchList:
    """Watch one gang."""
    nodes = tuple(f"n{number}" for number in range(num_nodes))
    watched = WatchedAttempt(
        attempt=attempt, nodes=nodes, since=0.0, start_seconds=600.0, progress_seconds=600.0
    )
    return WatchList(nodes=nodes, attempts=(watched,))


class Gang:
    """A gang whose nodes report every ten seconds, at moments of their own, what a step costs each rank.

    `slow` changes a rank's seconds: (rank, now) -> factor. Noise is heavy-tailed: every rank is its own few percent off for good,
    every word some percent, one in a hundred far more, and now and then something disturbs a rank, or a node, for up to five
    minutes.
    """

    def __init__(
        self,
        size: int,
        seed: int,
        *,
        slow: Callable[[int, float], float] = lambda rank, now: 1.0,
        stage_of: Callable[[int], int | None] = lambda rank: 0,
    ) -> None:
        self.dice = random.Random(seed)
        self.size, self.slow, self.stage_of = size, slow, stage_of
        self.own = [1.0 + self.dice.gauss(0.0, 0.015) for _ in range(size)]
        # disturbed
        self.until = [0.0] * size
        self.by = [1.0] * size
        self.stragglers, self.now = StragglerDetector(), 0.0
        self.num_nodes = -(-size // RANKS_PER_NODE)
        self.watch = watch(self.num_nodes)
        self.found: list[tuple[float, Finding]] = []

    def ranks(self, node: int) -> range:
        """Return the ranks of a node."""
        return range(node * RANKS_PER_NODE, min(self.size, (node + 1) * RANKS_PER_NODE))

    def go_on(self, hours: float) -> list[tuple[float, Finding]]:
        """Let time pass; return all that was found until now, with the seconds at which it was."""
        for _ in range(int(hours * 3600 / REPORT_SECONDS)):
            for node in range(self.num_nodes):
                self.disturb(node)
                at = self.now + REPORT_SECONDS * node / self.num_nodes
                heartbeat = Heartbeat(
                    node=f"n{node}",
                    incarnation=1,
                    attempt=ATTEMPT,
                    rank_computes=self.computed(node),
                )
                self.found += [
                    (at, each) for each in self.stragglers.on_heartbeat(heartbeat, self.watch, at)
                ]
            self.now += REPORT_SECONDS
        return self.found

    def disturb(self, node: int) -> None:
        """Begin a disturbance: of each rank once in two hours, of a whole node once in ten."""
        dice, ranks = self.dice, self.ranks(node)
        slowed = [rank for rank in ranks if dice.random() < REPORT_SECONDS / 7200]
        if dice.random() < REPORT_SECONDS / 36000:
            slowed = list(ranks)
        for rank in slowed:
            self.by[rank] = 1.0 + dice.expovariate(1.0)
            self.until[rank] = self.now + min(300.0, 10.0 * dice.paretovariate(0.8))

    def computed(self, node: int) -> tuple[RankCompute, ...]:
        """Return what each rank of a node computes."""
        dice, computes = self.dice, []
        for rank in self.ranks(node):
            noise = dice.gauss(0.0, 0.02)
            if dice.random() < 0.01:
                noise = abs(noise) * 20
            seconds = 2.0 * self.own[rank] * math.exp(noise) * self.slow(rank, self.now)
            if self.now < self.until[rank]:
                seconds *= self.by[rank]
            computes.append(RankCompute(rank=rank, seconds=seconds, stage=self.stage_of(rank)))
        return tuple(computes)


@pytest.mark.costly
@pytest.mark.parametrize(("size", "hours"), [(2, 80), (3, 80), (4, 80), (16, 24), (64, 8)])
def test_heavy_tailed_noise_raises_no_alarm(size: int, hours: float) -> None:
    """Over hours of noise and disturbances of up to five minutes no rank is named."""
    found = Gang(size, seed=size).go_on(hours)
    print(f"{size} ranks, {hours} h of noise: {len(found)} false alarms")
    assert found == []


@pytest.mark.parametrize(
    ("size", "factor"), [(2, 2.5), (3, 1.25), (4, 1.25), (16, 1.2), (64, 1.2), (4, 1.5), (64, 1.5)]
)
def test_a_slow_rank_is_named(size: int, factor: float) -> None:
    """A rank that becomes slower after half an hour is named, it alone, within twenty minutes."""
    delays = []
    for seed in range(5):
        culprit = random.Random(seed).randrange(size)
        gang = Gang(
            size,
            seed,
            slow=lambda rank, now, culprit=culprit: (  # type: ignore[misc]
                factor if rank == culprit and now >= 1800 else 1.0
            ),
        )
        found = gang.go_on(0.9)
        assert [(each.rank, each.node) for _, each in found] == [
            (culprit, f"n{culprit // RANKS_PER_NODE}")
        ]
        delays.append(found[0][0] - 1800)
    print(
        f"{size} ranks, one {factor - 1:.0%} slower: {len(delays)} of 5 found, after "
        f"{statistics.median(delays) / 60:.1f} min (median), {max(delays) / 60:.1f} at most"
    )
    assert max(delays) <= 1200


def test_a_finding_names_what_it_was_compared_with() -> None:
    """The evidence holds the rank's seconds, its peers', and for how long; once is enough."""
    gang = Gang(16, 1, slow=lambda rank, now: 1.5 if rank == 3 else 1.0, stage_of=lambda rank: 2)
    ((_, found),) = gang.go_on(2.0)
    assert (found.fault, found.attempt, found.node, found.rank) == ("straggler", ATTEMPT, "n0", 3)
    assert found.evidence.startswith("rank 3 on n0 computes ")
    assert "the median of 16 ranks of stage 2" in found.evidence
    assert "slow in 24 of 30 windows, for 12." in found.evidence


def test_a_slow_node_is_one_finding() -> None:
    """Eight slow ranks of one node of four are one finding, of the node and no rank of it."""
    gang = Gang(32, 1, slow=lambda rank, now: 1.4 if rank // 8 == 2 else 1.0)
    ((_, found),) = gang.go_on(1.0)
    assert (found.node, found.rank) == ("n2", None)
    assert "slow there: ranks 16, 17, 18, 19, 20, 21, 22, 23" in found.evidence


def test_a_straggler_that_recovers_is_reported() -> None:
    """Some minutes after it is as fast as the others again the finding is over; should it be slow again, it is found again."""

    def slow(rank: int, now: float) -> float:
        return 1.3 if rank == 5 and (now < 3600 or now >= 7200) else 1.0

    first, over, again = Gang(16, 1, slow=slow).go_on(3.0)
    assert (over[1].recovered, over[1].node, over[1].rank) == (True, "n0", 5)
    assert 3600 < over[0] <= 3600 + NUM_WINDOWS * (WINDOW_SECONDS + REPORT_SECONDS)
    assert [each[1].recovered for each in (first, again)] == [False, False]


def test_stages_are_not_compared_with_each_other() -> None:
    """A last stage with half as much work again is no straggler; nor are two ranks that report no stage, however slow."""
    heavy = Gang(
        16, 1, slow=lambda rank, now: 1.5 if rank >= 12 else 1.0, stage_of=lambda rank: rank // 4
    )
    assert heavy.go_on(3.0) == []
    silent = Gang(2, 1, slow=lambda rank, now: 3.0 if rank else 1.0, stage_of=lambda rank: None)
    assert silent.go_on(3.0) == []


def test_a_straggler_is_found_among_its_stage() -> None:
    """In a light stage, a rank a third slower than its peers is found though the heavy stage is slower than it."""
    gang = Gang(
        16,
        1,
        slow=lambda rank, now: 2.0 if rank >= 8 else (1.33 if rank == 4 else 1.0),
        stage_of=lambda rank: rank // 8,
    )
    assert [each.rank for _, each in gang.go_on(1.0)] == [4]


def test_uneven_work_names_no_rank() -> None:
    """Half of the ranks a third slower than the others: that is how the work is cut."""
    assert Gang(32, 1, slow=lambda rank, now: 1.33 if rank % 2 else 1.0).go_on(3.0) == []


def test_steps_longer_than_a_window() -> None:
    """With a step every 95 s a window lasts until most ranks have made one; the slow rank is found all the same."""
    stragglers, seen, dice = StragglerDetector(), watch(1), random.Random(1)
    for number in range(60):
        computes = tuple(
            RankCompute(
                rank=rank, seconds=90 * (1.3 if rank == 6 else 1.0) * dice.gauss(1, 0.01), stage=0
            )
            for rank in range(8)
        )
        heartbeat = Heartbeat(node="n0", incarnation=1, attempt=ATTEMPT, rank_computes=computes)
        found = stragglers.on_heartbeat(heartbeat, seen, 95.0 * number)
        if found:
            break
    assert [each.rank for each in found] == [6]
    print(f"steps of 95 s, 30 % slower: found after {95 * number / 60:.0f} min")


def test_a_pause_of_the_supervisor_is_no_window() -> None:
    """Reports from before a pause are not compared with those after it; the pause itself finds nothing."""
    gang = Gang(16, 1, slow=lambda rank, now: 1.5 if rank == 1 else 1.0)
    gang.go_on(0.1)
    for _ in range(20):
        gang.stragglers.shift(3600.0)
        gang.now += 3600.0
    assert gang.found == []
    assert [each.rank for _, each in gang.go_on(0.2)] == [1]


def test_memory_and_findings_are_bounded() -> None:
    """Invalid values are skipped, past attempts dropped, and the number of findings is bounded."""
    stragglers, seen, found = StragglerDetector(), watch(60), list[Finding]()
    for number in range(100):
        bad_value = (math.nan, math.inf, -1.0, 0.0)[number % 4]
        for node in range(60):
            computes = (
                RankCompute(rank=2 * node, seconds=2.0 if node < 20 else 1.0, stage=0),
                RankCompute(rank=2 * node + 1, seconds=bad_value, stage=0),
            )
            heartbeat = Heartbeat(
                node=f"n{node}", incarnation=1, attempt=ATTEMPT, rank_computes=computes
            )
            found += stragglers.on_heartbeat(heartbeat, seen, 10.0 * number)
    assert [each.rank for each in found] == [2 * node for node in range(MAX_FINDINGS)]
    other = watch(1, ATTEMPT.restarted())
    heartbeat = Heartbeat(node="n0", incarnation=1, attempt=ATTEMPT, rank_computes=computes)
    assert stragglers.on_heartbeat(heartbeat, other, 2000.0) == []
    assert list(stragglers._gangs.known) == [ATTEMPT.restarted()]


def test_a_new_attempt_starts_without_history() -> None:
    """Reports of one attempt do not count for the next; the registry of detectors passes the restart on."""
    detectors, found, now = DetectorRegistry(heartbeat_timeout_seconds=1e9), list[object](), 0.0

    def go_on(attempt: AttemptId, seconds: int) -> None:
        nonlocal now
        for _ in range(0, seconds, 10):
            now += 10.0
            computes = tuple(
                RankCompute(rank=rank, seconds=1.5 if rank == 2 else 1.0, stage=0)
                for rank in range(8)
            )
            heartbeat = Heartbeat(
                node="n0",
                incarnation=1,
                attempt=attempt,
                last_step=int(now),
                rank_computes=computes,
            )
            found.extend(detectors.on_heartbeat(heartbeat, now))

    for attempt in (ATTEMPT, ATTEMPT.restarted()):
        detectors.watch(watch(1, attempt))
        go_on(attempt, 690)
    assert found == []
    go_on(ATTEMPT.restarted(), 60)
    assert [each.fault for each in found if isinstance(each, Finding)] == ["straggler"]
