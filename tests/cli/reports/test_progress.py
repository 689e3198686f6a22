"""Reading a long journal shows that it goes on, and leaves nothing on the terminal."""

import io

import pytest

from runner.cli.reports import past
from runner.cli.reports.past import with_progress
from runner.facts.messages.records import JournalEntry, Settle

ENTRIES = [JournalEntry(sequence=n, now=1.0, input=Settle(), records=()) for n in range(1, 1201)]


class TerminalText(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.parametrize(("seconds", "is_shown"), [(0.0, True), (3600.0, False)])
def test_a_long_read_counts_entries(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_shown: bool
) -> None:
    """After two seconds there is a line with how many were read, which is cleared at the end; all entries come through."""
    terminal = TerminalText()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(past, "PROGRESS_SECONDS", seconds)
    assert list(with_progress(ENTRIES)) == ENTRIES
    text = terminal.getvalue()
    assert ("reading the journal: 1,000 entries" in text) == is_shown
    assert text.rpartition("\r")[2] == ""
