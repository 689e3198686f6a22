"""What the ranks of a run have read, by their own records (`data.record_samples`), and what they were to read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.facts.ids import AttemptId
from trainer.config.settings import load_settings
from trainer.data.batches import open_data

Windows = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadStep:
    """What the gang read for one step: its data step, and the windows, those of the first replica first."""

    data_step: int
    windows: Windows


def contributing_steps(folder: Path) -> dict[int, ReadStep]:
    """Return each step as the newest attempt that made it has read it; raise AssertionError where its ranks disagree."""
    steps: dict[int, ReadStep] = {}
    for attempt in sorted({_attempt(path) for path in folder.glob("*.jsonl")}):
        own = _read(folder, attempt)
        # What earlier attempts have made after the step from which this one went on is lost.
        steps = {step: read for step, read in steps.items() if step < min(own)} | own
    return steps


def _attempt(path: Path) -> AttemptId:
    return AttemptId.parse(path.name.split("-rank")[0])


def _read(folder: Path, attempt: AttemptId) -> dict[int, ReadStep]:
    shares: dict[int, dict[int, Mapping[str, Any]]] = {}
    for path in folder.glob(f"{attempt}-rank*.jsonl"):
        rank = int(path.stem.split("-rank")[1])
        for line in path.read_text().splitlines():
            step = json.loads(line)
            shares.setdefault(step["step"], {})[rank] = step
    return {step: _joined(step, by_rank) for step, by_rank in sorted(shares.items())}


def _joined(step: int, by_rank: Mapping[int, Mapping[str, Any]]) -> ReadStep:
    data_steps = {line["data_step"] for line in by_rank.values()}
    assert len(data_steps) == 1, f"step {step}: ranks read data steps {data_steps}"
    # Ranks that share a replica read the same.
    shares = dict.fromkeys(tuple(by_rank[rank]["windows"]) for rank in sorted(by_rank))
    return ReadStep(data_steps.pop(), tuple(window for share in shares for window in share))


def due_steps(
    trainer: Mapping[str, Any], num_steps: int, *, left_out: Iterable[Sequence[int]] = ()
) -> dict[int, ReadStep]:
    """Return what the steps of a run are to read: the clean order of its seed without the data steps `left_out`."""
    corpus = open_data(load_settings(trainer))
    gone = {step for first, last in left_out for step in range(first, last + 1)}
    steps: dict[int, ReadStep] = {}
    data_step = 0
    while len(steps) < num_steps:
        data_step += 1
        if data_step not in gone:
            corpus.batch(data_step)
            windows = tuple(corpus.last_windows.tolist())
            steps[len(steps) + 1] = ReadStep(data_step, windows)
    return steps
