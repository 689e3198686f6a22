"""ETTR of a window that ends now, by the ledger's definitions: steps that a later rewind overwrote do not count in it."""

from collections.abc import Iterator

from runner.history.run_accounting import RunAccounting

HOUR_SECONDS, DAY_SECONDS = 3600.0, 86_400.0


def recent_ettr(account: RunAccounting, window_seconds: float, now: float) -> float | None:
    """Return the productive share of the last `window_seconds` of a run, or of all its time if that is less.

    None as long as no step is known. Of a run that ended: of the time before its end. Attempts that bounded books have put away
    count as lost; those keep the newest 200.
    """
    end = now if account.ended_at is None else account.ended_at
    start = max(account.admitted_at, end - window_seconds)
    if not account.stepped or end <= start:
        return None
    productive = 0.0
    for first, last in _stretches(account, end):
        if last <= start:
            break
        productive += max(0.0, min(last, end) - max(first, start))
    return min(1.0, productive / (end - start))


def _stretches(account: RunAccounting, end: float) -> Iterator[tuple[float, float]]:
    """Yield when the contributing steps of each attempt were made, from the first to the last of them; the newest first."""
    attempt = account.attempts.get(account.head) if account.head is not None else None
    until = account.productive_seconds(end)
    while attempt is not None:
        if attempt.marks.times:
            first = attempt.marks.times[0]
            yield first, first + max(0.0, until - attempt.inherited_seconds)
        until = attempt.inherited_seconds
        attempt = account.attempts.get(attempt.parent) if attempt.parent is not None else None
