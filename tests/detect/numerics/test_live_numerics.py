"""Steps in heartbeats: loss and norms once for each gang, the rank that a NaN comes from, and no finding for slow minutes."""

import math
import random
from typing import Any

from runner.detect.live.live_numerics import MAX_IDLE_RUNS, SLOW_SECONDS, LiveNumerics
from runner.facts.faults import Finding, MetricNote
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.specs.planned_changes import PlannedChange
from runner.facts.watch import WatchedAttempt, WatchList

NODES = ("n1", "n2", "n3")


class Gang:
    """One run on three nodes, whose first node's ranks report no loss (an early stage of a pipeline)."""

    def __init__(self, **watched: Any) -> None:
        self.numbers = LiveNumerics()
        self.attempt = AttemptId(1, 1, 0)
        self.given = watched
        self.watch = WatchList(attempts=(self._watched(),))
        self.noise = random.Random(7)
        self.now = 0.0
        self.found: list[Finding] = []

    def _watched(self) -> WatchedAttempt:
        given = {"nodes": NODES, "since": 0.0, "start_seconds": 60.0, "progress_seconds": 60.0}
        return WatchedAttempt(attempt=self.attempt, **{**given, **self.given})

    def restart(self) -> None:
        """Begin the next attempt."""
        self.attempt = self.attempt.restarted()
        self.watch = WatchList(attempts=(self._watched(),))

    def step(self, step: int, *, seconds: float = 1.0, **shown: Any) -> list[Finding]:
        """Let all nodes report a step; `shown` overrides the usual values; `by` may name nodes with fields of their own."""
        by = shown.pop("by", {})
        self.now += seconds
        usual = {
            "loss": 2.0 + 8.0 / (1 + step) ** 0.3 + self.noise.gauss(0, 0.01),
            "grad_norm": 1.0 + abs(self.noise.gauss(0, 0.05)),
            "tokens_per_second": 1000.0 / seconds,
            **shown,
        }
        found: list[Finding] = []
        for index, node in enumerate(NODES):
            fields = {"grad_norm": usual["grad_norm"]} if index == 0 else dict(usual)
            fields |= {"local_grad_norm_max": 1.0, "local_grad_norm_max_rank": 2 * index}
            record = StepRecord(step=step, **{**fields, **by.get(node, {})})
            heartbeat = Heartbeat(node=node, incarnation=1, attempt=self.attempt, steps=(record,))
            found += self.numbers.on_heartbeat(heartbeat, self.watch, self.now)
        self.found += found
        return found

    def steps(self, first: int, last: int, **shown: Any) -> None:
        """Let steps pass."""
        for step in range(first, last + 1):
            self.step(step, **dict(shown))


def test_a_divergence_is_found_once_though_every_node_reports_it() -> None:
    """Healthy steps give no finding."""
    gang = Gang()
    gang.steps(1, 400)
    assert gang.found == []
    gang.steps(401, 480, loss=9.0, grad_norm=8.0)
    faults = [one.fault for one in gang.found if one.fault in ("divergence", "loss_spike")]
    assert faults
    assert len(faults) == len(set(faults))
    assert {one.attempt for one in gang.found} == {gang.attempt}
    assert gang.found[0].step in (401, 402, 403)


def test_a_nan_is_attributed_to_its_origin_and_not_to_the_ranks_that_report_it() -> None:
    """The gradient of rank 4 on n3 is spoilt at step 50; by step 51 every node's loss is NaN."""
    gang = Gang()
    gang.steps(1, 49)
    spoilt = {"local_grad_norm_max": math.nan, "local_grad_norm_max_rank": 4}
    gang.step(50, grad_norm=math.nan, by={"n3": spoilt})
    every_node = {node: {**spoilt, "local_grad_norm_max_rank": 1} for node in NODES}
    for step in (51, 52, 53):
        gang.step(step, loss=math.nan, grad_norm=math.nan, by=every_node)
    assert {one.fault for one in gang.found} == {"nan_loss"}
    assert {(one.node, one.rank) for one in gang.found} == {(None, None), ("n3", 4)}
    assert "rank 4 on n3 alone" in gang.found[-1].evidence


def test_a_nan_that_all_have_at_once_is_attributed_to_no_rank() -> None:
    """Data, or code: no rank is named."""
    gang = Gang()
    gang.steps(1, 49)
    every_node = {
        node: {"local_grad_norm_max": math.nan, "local_grad_norm_max_rank": rank}
        for rank, node in enumerate(NODES)
    }
    for step in (50, 51, 52, 53):
        gang.step(step, loss=math.nan, grad_norm=math.nan, by=every_node)
    assert {one.fault for one in gang.found} == {"nan_loss"}
    assert {(one.node, one.rank) for one in gang.found} == {(None, None)}


def test_of_several_ranks_of_one_node_the_node_is_named_and_no_rank() -> None:
    """A NaN born in a forward pass spreads to the ranks of its tensor group."""
    gang = Gang()
    gang.steps(1, 49)
    spoilt = {"local_grad_norm_max": math.nan, "local_grad_norm_max_rank": 4, "num_nonfinite": 2}
    gang.step(50, grad_norm=math.nan, by={"n3": spoilt})
    for step in (51, 52, 53):
        gang.step(step, loss=math.nan, grad_norm=math.nan)
    assert (gang.found[-1].node, gang.found[-1].rank) == ("n3", None)


def test_the_origin_may_be_reported_after_the_loss() -> None:
    """Heartbeats come in any order: the rank is named as soon as its node has reported."""
    gang = Gang()
    gang.steps(1, 49)
    heartbeats = {
        node: StepRecord(step=50, loss=math.nan, grad_norm=math.nan) for node in ("n2", "n1")
    }
    heartbeats["n3"] = StepRecord(step=50, local_grad_norm_max=math.inf, local_grad_norm_max_rank=5)
    found = []
    for at, (node, record) in enumerate(heartbeats.items()):
        heartbeat = Heartbeat(node=node, incarnation=1, attempt=gang.attempt, steps=(record,))
        found.append(gang.numbers.on_heartbeat(heartbeat, gang.watch, 60.0 + at))
    ((first,), (), (second,)) = found
    assert (first.node, second.node, second.rank) == (None, "n3", 5)


def test_steps_that_one_rank_spoils_again_and_again_are_attributed_to_it() -> None:
    """A loss scaler skips them; when several ranks overflow in turn no rank is named."""
    for ranks, culprit in (((5,), 5), ((1, 3, 5), None)):
        gang = Gang()
        gang.steps(1, 99, loss_scale=2.0**20)
        for step in range(100, 200):
            rank = ranks[step % len(ranks)]
            node = {1: "n1", 3: "n2", 5: "n3"}[rank]
            spoilt = {"local_grad_norm_max": math.inf, "local_grad_norm_max_rank": rank}
            scale = 2.0 ** max(0, 20 - (step - 100))
            gang.step(step, skipped=True, loss_scale=scale, by={node: spoilt})
        named = {
            one.rank for one in gang.found if one.fault in ("skipped_steps", "loss_scale_floor")
        }
        assert named, gang.found
        assert named - {None} == ({culprit} - {None})


def test_slow_minutes_are_no_drop_in_throughput_and_slow_hours_are() -> None:
    """Also when the slowness came with a restart: what the run has shown before is remembered."""
    gang = Gang()
    gang.steps(1, 300)
    gang.steps(301, 400, seconds=2.0)
    gang.steps(401, 600)
    assert gang.found == []
    gang.restart()
    gang.steps(601, 601 + int(SLOW_SECONDS), seconds=2.0)
    (finding,) = gang.found
    assert finding.fault == "throughput_drop"
    gang.steps(1200, 1500)
    assert [one.recovered for one in gang.found] == [False, True]


def test_what_is_planned_is_expected() -> None:
    """Another data mix from step 401 to 480."""
    planned = (PlannedChange(from_step=401, to_step=480, what="data"),)
    gang = Gang(planned=planned)
    gang.steps(1, 400)
    gang.steps(401, 480, loss=9.0, grad_norm=8.0)
    assert gang.found == []


def test_steps_that_agents_read_in_the_output_count_too() -> None:
    """For a trainer that reports none itself; an attempt that is not watched gives no finding."""
    gang = Gang()
    for step in range(1, 60):
        loss = math.nan if step > 55 else 3.0
        record = StepRecord(step=step, loss=loss)
        heartbeat = Heartbeat(
            node="n1", incarnation=1, attempt=gang.attempt, logged_steps=(record,)
        )
        gang.found += gang.numbers.on_heartbeat(heartbeat, gang.watch, float(step))
        other = Heartbeat(
            node="n1", incarnation=1, attempt=AttemptId(2, 1, 0), logged_steps=(record,)
        )
        assert gang.numbers.on_heartbeat(other, gang.watch, float(step)) == []
    assert [one.fault for one in gang.found] == ["nan_loss"]


def test_slow_trends_are_told_live_and_jumps_that_heal_are_not() -> None:
    """Activations that grow are a note with the first step of it, and no incident."""
    gang = Gang()
    gang.steps(1, 199, activation_norm=3.0)
    gang.step(200, grad_norm=6.0, activation_norm=3.0)
    gang.steps(201, 299, activation_norm=3.0)
    gang.steps(300, 400, activation_norm=4.0)
    (note,) = gang.found
    assert isinstance(note, MetricNote)
    assert (note.fault, note.step, note.attempt) == ("activation_norm_drift", 300, gang.attempt)
    assert "rose from 3 to 4" in note.evidence


def test_a_node_whose_heartbeat_was_lost_may_have_it_from_the_same_step() -> None:
    """Then no rank is named: the one that reported may not be the only one."""
    gang = Gang()
    gang.steps(1, 49)
    spoilt = {"local_grad_norm_max": math.nan, "local_grad_norm_max_rank": 4}
    node_of = {"n1": None, "n2": {}, "n3": spoilt}
    for step in range(50, 60):
        gang.now += 1.0
        for node, fields in node_of.items():
            if step == 50 and fields is None:
                # lost
                continue
            shown: dict[str, Any] = {"loss": math.nan if step > 50 else 2.0, "grad_norm": math.nan}
            shown |= (fields or {}) if step == 50 else {}
            record = StepRecord(step=step, **shown)
            heartbeat = Heartbeat(node=node, incarnation=1, attempt=gang.attempt, steps=(record,))
            gang.found += gang.numbers.on_heartbeat(heartbeat, gang.watch, gang.now)
    assert {one.fault for one in gang.found} == {"nan_loss"}
    assert {one.node for one in gang.found} == {None}


def test_numbers_that_no_scaler_has_break_nothing() -> None:
    """Infinity is a loss scale that some rank may report."""
    gang = Gang()
    for step in range(1, 200):
        gang.step(step, loss_scale=math.inf if step % 3 else math.nan, skipped=step % 7 == 0)


def test_state_of_finished_runs_is_dropped() -> None:
    """A thousand of them would hold a gigabyte."""
    numbers = LiveNumerics()
    record = StepRecord(step=1, loss=2.0)
    for number in range(1, 200):
        attempt = AttemptId(number, 1, 0)
        given = {"nodes": NODES, "since": 0.0, "start_seconds": 60.0, "progress_seconds": 60.0}
        watch = WatchList(attempts=(WatchedAttempt(attempt=attempt, **given),))  # type: ignore[arg-type]
        numbers.on_heartbeat(
            Heartbeat(node="n2", incarnation=1, attempt=attempt, steps=(record,)), watch, 1.0
        )
    assert len(numbers._runs) <= MAX_IDLE_RUNS + 1
