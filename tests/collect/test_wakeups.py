"""The kernel reports writes in the folders of logs; without its reports, logs are polled."""

import select
from pathlib import Path

import pytest

from runner.collect.tails import wakeups
from runner.collect.tails.wakeups import Wakeups


def test_a_write_notifies_once_and_a_read_does_not(tmp_path: Path) -> None:
    """Of files that were there before, and of new ones."""
    log = tmp_path / "rank0.out"
    log.write_text("before\n")
    watcher = Wakeups([tmp_path])
    assert watcher.is_active

    def is_notified() -> bool:
        return bool(select.select(watcher.descriptors, [], [], 0.0)[0])

    assert not is_notified()
    log.read_text()
    assert not is_notified()
    for path in (log, tmp_path / "rank0.err"):
        with path.open("a") as file:
            file.write("a word\n")
        assert is_notified()
        watcher.drain()
        assert not is_notified()
    watcher.close()
    assert (watcher.is_active, watcher.descriptors) == (False, [])


@pytest.mark.parametrize("library", [None, object()])
def test_without_notifications_logs_are_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    """No library, another system; or a folder that is not there."""
    assert not Wakeups([tmp_path, tmp_path / "missing"]).is_active
    monkeypatch.setattr(wakeups, "_library", library)
    watcher = Wakeups([tmp_path])
    assert (watcher.is_active, watcher.descriptors) == (False, [])
    watcher.drain()
    watcher.close()
