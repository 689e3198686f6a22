"""Compares status and metrics of a simulated cluster with another fold of its journal, as the world goes on."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import RunStatus
from runner.history.run_accounting import CAUSES
from runner.serve.metrics import metrics_text
from runner.simulate.world import World, WorldObserver
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder
from tests.decide.accounting.effective_time import RunHistory

TOLERANCE_SECONDS = 1.0


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
