"""Accounting bounded for snapshots: old accounts are dropped, and no figure of a run changes."""

import json

import pytest

from bench.long_journal import LongJournal
from runner.history import ledger, run_accounting
from runner.history.ledger import Ledger
from runner.history.lineage import lineage


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_ATTEMPTS", 8)
    monkeypatch.setattr(ledger, "KEPT_INCIDENTS", 6)
    monkeypatch.setattr(run_accounting, "FINE_ATTEMPTS", 3)


def test_bounded_accounting_has_the_same_figures_for_every_run() -> None:
    """At every hundredth entry of some months with failures, sums and counts equal those of the unbounded accounting."""
    whole, bounded = Ledger(), Ledger(bounded=True)
    for entry in LongJournal(nodes=30, days=150, mark_seconds=3000.0).entries():
        whole.apply(entry)
        bounded.apply(entry)
        if entry.sequence % 100 == 0 and whole.runs:
            one, other = whole.summary(1, entry.now), bounded.summary(1, entry.now)
            assert other.num_attempts == one.num_attempts
            assert other.productive_seconds == pytest.approx(one.productive_seconds)
            assert other.lost_seconds == pytest.approx(one.lost_seconds)
            kept = dict(other.contributing_steps)
            assert kept == {name: one.contributing_steps[name] for name in kept}
    assert whole.summary(1, 0.0).num_attempts > 20
    newest = whole.incidents()[-6:]
    assert bounded.incidents()[-6:] == newest
    assert len(bounded.incidents()) <= 7
    assert len(bounded.account(1).attempts) <= 8 + len(bounded.account(1).checkpoints)


def test_bounded_accounting_stops_growing() -> None:
    """Twice the time with failures takes no more room; dumped and loaded, the accounting continues as before."""

    def sizes(days: float) -> int:
        books = Ledger(bounded=True)
        for entry in LongJournal(nodes=30, days=days, mark_seconds=3000.0).entries():
            books.apply(entry)
            if entry.sequence % 997 == 0:
                books = Ledger.load(json.loads(json.dumps(books.dump())), bounded=True)
        return len(json.dumps(books.dump()))

    assert sizes(300) < 1.2 * sizes(150)


def test_lineage_has_every_attempt() -> None:
    """A reader of the whole journal gets all attempts: only snapshots are bounded."""
    entries = list(LongJournal(nodes=30, days=100, mark_seconds=3000.0).entries())
    rows = lineage(entries, 1)
    assert len(rows) == len([entry for entry in entries if "AttemptPlanned" in str(entry.records)])
