"""Saves that a pattern names, of a script whose trainer has no adapter: whole as far as the form of each file shows."""

import glob
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from runner.checkpoints.formats.file_forms import has_end, torn_file
from runner.checkpoints.formats.saves import Save, read_save
from runner.checkpoints.formats.states import state_of

# What scripts call the number of updates in what they save.
STEP_NAMES = (
    *("iter_num", "global_step", "step", "steps", "num_steps", "train_steps"),
    *("iteration", "iterations", "iter", "current_step", "completed_steps"),
)
_DIGITS = re.compile(r"\d+")


def is_pattern(saved: str) -> bool:
    """Whether the name stands for saves of many steps; if not, the script overwrites the one and resumes from it."""
    return glob.has_magic(saved)


def list_saves(saved: str) -> list[Save]:
    """List what is there under a path or pattern, the last by its numbers last."""
    found = []
    for name in glob.glob(saved):
        try:
            save = read_save(Path(name), follows_links=True)
        except OSError:
            # It is being deleted, or renamed.
            continue
        if save.signature:
            found.append(save)
    return sorted(found, key=lambda save: [int(n) for n in _DIGITS.findall(save.path.name)])


def is_finished(save: Save) -> bool:
    """Whether a save is one file whose form shows that its end was written. Raises OSError."""
    return not save.is_folder and not torn_file(save.path) and has_end(save.path)


def torn(save: Save) -> str:
    """Return which file of a save is not whole, and why; "" if none is known to be torn. Raises OSError."""
    if save.irregular:
        return f"{save.irregular!r:.80} is neither a file nor a folder"
    for name, path in save.files:
        reason = torn_file(path)
        if reason:
            return f"{name}: {reason}"
    return ""


def step_of(save: Save, names: Sequence[str] = STEP_NAMES) -> int | None:
    """Return how many updates a save has: the last number in its name, else what the file itself holds under one of `names`.

    None: neither. Raises OSError.
    """
    digits = _DIGITS.findall(save.path.name)
    if digits:
        return int(digits[-1])
    for _, path in save.files:
        step = _step_inside(path, names)
        if step is not None:
            return step
    return None


def _step_inside(path: Path, names: Sequence[str]) -> int | None:
    if not zipfile.is_zipfile(path):
        return None
    values = state_of(path)
    steps = (values.get(name) for name in names)
    return next((step for step in steps if type(step) is int and step >= 0), None)
