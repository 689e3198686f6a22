"""ETTR and lost seconds, as status and metrics show them, agree with another fold of the journal to the second."""

import os
import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import RunStatus
from runner.history.run_accounting import CAUSES
from runner.serve.metrics import metrics_text
from runner.simulate.world import World, WorldObserver
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder
from tests.decide.accounting.effective_time import RunHistory
from tests.decide.scenario import Scenario, parse_text, scenarios
from tests.suite.share import current

# And every how many seconds all are compared: that takes the longer the more has happened.
HOURS, EVERY_SECONDS = (24, 1800.0) if os.environ.get("STOKER_SOAK") else (2, 600.0)
TOLERANCE_SECONDS = 1.0
# Of a day with all kinds of trouble, one every few minutes.
TROUBLE = (
    ("kill-rank 1 a",),
    ("stop-rank 2 a",),
    ("kill-machine n1", "boot-node n1", "readmit n1"),
    ("kill-agent n2",),
    ("hang-agent n2", "free-agent n2"),
    ("kill-keeper n3",),
    ("cut-link n3", "mend-link n3"),
    ("kill-supervisor",),
    ("pause-supervisor 4",),
    ("lose-store 20",),
    ("pause a", "resume a"),
    ("restart a",),
    ("lr a x0.9",),
    ("swap n1", "readmit n1"),
    ("drain n2", "readmit n2"),
    ("rewind a 40",),
)


class Follower(WorldObserver):
    """Looks at status and metrics every so often, as a scrape does, and keeps what it finds."""

    def __init__(self, every_seconds: float) -> None:
        self.every_seconds = every_seconds
        self.due_at = 0.0
        self.counters: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.num_compared = 0
        self.histories: dict[int, RunHistory] = {}

    def on_entry(self, world: World, entry: r.JournalEntry) -> None:
        """Compare once it is time."""
        for record in entry.records:
            if isinstance(record, r.RunAdmitted):
                self.histories[record.run] = RunHistory(record.run)
        for history in self.histories.values():
            history.read(entry)
        if entry.now >= self.due_at:
            self.due_at = entry.now + self.every_seconds
            self.compare(world)

    def compare(self, world: World) -> None:
        """Assert that all tell the same, and that no counter has fallen."""
        supervisor = world.supervisor
        ledger, state = supervisor.loop.log.ledger, supervisor.controller.state
        now = max(world.entries[-1].now, world.now)
        builder = StatusBuilder(state, world.cluster, ledger, LastHeartbeats(), now)
        status = builder.status(now, {"wall": now})
        found = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(metrics_text(status).decode())
            for sample in family.samples
        }
        for run in status.runs:
            self.compare_run(run, self.histories[run.run], now, found)
        counters = {
            key: value
            for key, value in found.items()
            if key[0].startswith("stoker_run_") and key[0].endswith(("_total", "_bucket", "_count"))
        }
        fallen = {
            key: (value, counters.get(key))
            for key, value in self.counters.items()
            if counters.get(key, 0.0) < value
        }
        assert not fallen
        self.counters = counters

    def compare_run(
        self,
        run: RunStatus,
        history: RunHistory,
        now: float,
        metrics: dict[tuple[str, tuple[tuple[str, str], ...]], float],
    ) -> None:
        """Compare one run's status and metrics with its history."""
        if not history.reports:
            return
        expected = history.seconds(now)
        labels = (("name", run.name), ("run", str(run.run)))
        for cause in CAUSES:
            wanted = pytest.approx(expected.get(cause, 0.0), abs=TOLERANCE_SECONDS)
            assert run.lost_seconds.get(cause, 0.0) == wanted, (
                cause,
                now,
                expected,
                run.lost_seconds,
            )
            of_cause = tuple(sorted((*labels, ("cause", cause))))
            assert metrics["stoker_run_lost_seconds", of_cause] == wanted, cause
        wall = min(now, history.ended_at) - history.admitted_at
        if run.ettr_ratio is not None:
            productive = pytest.approx(expected["productive"], abs=TOLERANCE_SECONDS)
            assert run.ettr_ratio * wall == productive
            assert metrics["stoker_run_ettr_ratio", labels] * wall == productive
            self.num_compared += 1
        end = min(now, history.ended_at)
        for name, ratio, seconds in (
            ("stoker_run_ettr_hour_ratio", run.ettr_hour_ratio, 3600.0),
            ("stoker_run_ettr_day_ratio", run.ettr_day_ratio, 86_400.0),
        ):
            if ratio is not None:
                start = max(history.admitted_at, end - seconds)
                recent = history.productive_within(start, end)
                assert ratio * (end - start) == pytest.approx(recent, abs=TOLERANCE_SECONDS)
                assert metrics[name, labels] == ratio


@pytest.mark.shared
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_in_every_scenario_another_fold_of_the_journal_agrees(scenario: Scenario) -> None:
    """At every entry ten seconds after the last one compared, and at the end."""
    follower = Follower(10.0)
    world = scenario.play(scenario.build(watcher=follower))
    if world.entries and world.supervisor.is_up:
        follower.compare(world)


def day(seed: str, hours: float) -> Scenario:
    """Make a day of two runs with trouble every few minutes, the same for the same seed."""
    chance, at = random.Random(seed), 120.0
    lines = [
        "cluster nodes=5 slots=2 spares=2 heartbeat_seconds=2",
        "run a nodes=3 ranks_per_node=1 max_attempts_without_progress=1000",
        "run b nodes=2 ranks_per_node=1 max_attempts_without_progress=1000",
        "training a goal=1000000 step_seconds=4.0 checkpoint_every=20 start_seconds=15.0",
        "training b goal=1000000 step_seconds=6.0 checkpoint_every=10 start_seconds=8.0",
        "at 1 start a",
        "at 2 start b",
    ]
    while at < hours * 3600 - 600:
        for step in chance.choice(TROUBLE):
            lines.append(f"at {at:.3f} {step}")
            at += chance.uniform(20.0, 200.0)
        at += chance.uniform(60.0, 600.0)
    return parse_text(f"a day, {seed}", "\n".join([*lines, f"until {hours * 3600}"]) + "\n---\n")


def test_over_a_day_with_many_kinds_of_incident_another_fold_of_the_journal_agrees() -> None:
    """Across supervisors that are killed, every few minutes and at the end, to the second; without STOKER_SOAK two hours of it."""
    seed = str(current())
    scenario = day(seed, HOURS)
    follower = Follower(EVERY_SECONDS)
    world = scenario.play(scenario.build(watcher=follower))
    follower.compare(world)
    assert follower.num_compared >= HOURS * 3600 / EVERY_SECONDS, f"seed {seed}"
    assert (
        sum(value for (name, _), value in follower.counters.items() if "restarts" in name) > HOURS
    )
