"""Deadlines: a moment as run.yaml has it, with its offset from UTC, as seconds."""

from datetime import datetime
from typing import Any

from runner.load.problems import Problems, shown

EXAMPLE = 'such as "2026-12-24 18:00+01:00" or "2026-12-24T17:00Z"'


def deadline_seconds(text: str) -> float | None:
    """Return a moment in seconds since the epoch; None for a text that is none, or has no offset from UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def check_deadline(given: Any, problems: Problems) -> None:
    """Note what is wrong with a deadline; what is no text is refused for its type."""
    if isinstance(given, str) and given and deadline_seconds(given) is None:
        problems.add(
            ("deadline",),
            f"{shown(given)} is no date and time with its offset from UTC; give one, {EXAMPLE}",
        )
