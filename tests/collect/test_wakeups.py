"""The kernel reports writes in the folders of logs; without its reports, logs are polled."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from runner.collect.tails import wakeups
from runner.collect.tails.wakeups import Wakeups


def test_a_write_is_told_once_and_a_read_is_not(tmp_path: Path) -> None:
    """Of files that were there before, and of new ones."""
    log = tmp_path / "rank0.out"
    log.write_text("before\n")
    told = Wakeups([tmp_path])
    assert told.is_active

    def is_told() -> bool:
        return bool(select.select(told.descriptors, [], [], 0.0)[0])

    assert not is_told()
    log.read_text()
    assert not is_told()
    for path in (log, tmp_path / "rank0.err"):
        with path.open("a") as file:
            file.write("a word\n")
        assert is_told()
        told.drain()
        assert not is_told()
    told.close()
    assert (told.is_active, told.descriptors) == (False, [])


@pytest.mark.parametrize("library", [None, object()])
def test_without_it_logs_are_looked_at_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: object
) -> None:
    """No library, another system; or a folder that is not there."""
    assert not Wakeups([tmp_path, tmp_path / "missing"]).is_active
    monkeypatch.setattr(wakeups, "_library", library)
    told = Wakeups([tmp_path])
    assert (told.is_active, told.descriptors) == (False, [])
    told.drain()
    told.close()
