"""The record of samples: what each rank says that it has read is the order of the data, without what was left out."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from runner import checkpoints
from tests.trainer.gangs import SMALL, Gangs, Layout
from tests.trainer.sample_order import contributing_steps, due_steps

pytestmark = pytest.mark.trainer
PAIR = Layout(data=2)


def test_ranks_record_what_they_read_across_attempts(gangs: Gangs, tmp_path: Path) -> None:
    """Two replicas, a resume from the middle without two data steps, and steps of the first attempt that are lost."""
    root, record = tmp_path / "checkpoints", tmp_path / "record"
    root.mkdir()
    settings: dict[str, Any] = {
        **SMALL,
        "data": {"source": "stdlib", "record_samples": str(record)},
        "checkpoint_every": 4,
        "steps": 6,
    }
    environment = {"STOKER_CHECKPOINTS": str(root), "STOKER_ATTEMPT": "1.1.0"}
    gangs.run(settings, layout=PAIR, environment=environment)
    assert contributing_steps(record) == due_steps(settings, 6)
    again = {
        **environment,
        "STOKER_ATTEMPT": "1.2.0",
        "STOKER_RESUME": str(checkpoints.checkpoint_folder(root, "1.1.0", 4)),
        "STOKER_REMEDIES": json.dumps({"skip_steps": [[5, 5], [7, 7]]}),
    }
    gangs.run({**settings, "steps": 8}, layout=PAIR, environment=again)
    seen = contributing_steps(record)
    assert seen == due_steps(settings, 8, left_out=[(5, 5), (7, 7)])
    assert [read.data_step for read in seen.values()] == [1, 2, 3, 4, 6, 8, 9, 10]
    # Half of the windows of a step each.
    lines = [(record / f"1.2.0-rank{rank}.jsonl").read_text().splitlines() for rank in (0, 1)]
    shares = [json.loads(one[0])["windows"] for one in lines]
    assert tuple(shares[0] + shares[1]) == seen[5].windows
    assert not set(shares[0]) & set(shares[1])


def test_a_record_that_cannot_be_written_is_refused(gangs: Gangs, tmp_path: Path) -> None:
    """The rank ends with code 78 and names setting, value and way out."""
    (tmp_path / "file").write_text("")
    settings = {**SMALL, "data": {"source": "stdlib", "record_samples": str(tmp_path / "file")}}
    ended = gangs.run(settings, layout=Layout(), expect=78)
    assert "data.record_samples" in ended.errors()
    assert "name a folder that every rank can write to" in ended.errors()
