"""`deadline` of run.yaml: a moment with its offset from UTC."""

from pathlib import Path

import pytest

from runner.errors import SpecError
from runner.load.deadlines import deadline_seconds
from runner.load.specs import load_run


def load(folder: Path, deadline: str) -> str:
    """Load a run.yaml with this deadline, and return what the spec has."""
    path = folder / "run.yaml"
    path.write_text(f"name: a\ncommand: train\ndeadline: {deadline}\n", encoding="utf-8")
    return load_run(path).deadline


@pytest.mark.parametrize("text", ["2026-12-24 18:00+01:00", "2026-12-24T17:00Z"])
def test_a_moment_is_accepted(tmp_path: Path, text: str) -> None:
    """Both forms of the documentation mean the same moment, in quotes and without."""
    assert deadline_seconds(text) == 1_798_131_600.0
    assert load(tmp_path, f'"{text}"') == load(tmp_path, text) == text


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "2026-12-24 18:00", "2026-12-24", "2026-13-01T00:00Z"],
)
def test_what_is_no_moment_is_refused(tmp_path: Path, text: str) -> None:
    """No date, none with an offset, none that exists: the message shows how to write one."""
    with pytest.raises(SpecError, match=r"no date and time with its offset.*17:00Z"):
        load(tmp_path, text)
