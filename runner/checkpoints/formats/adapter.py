"""What an adapter is: the checkpoints of one trainer among the entries of a folder, judged, and resumed from."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from runner.checkpoints.formats.file_forms import torn_file
from runner.checkpoints.formats.saves import Incomplete, Save

_DIGITS = re.compile(r"\d+", re.ASCII)


class Adapter:
    """The checkpoints of one trainer.

    `name`: as in run.yaml's `checkpoint_format`. `title`: for people. `last_file`: what the trainer writes last; of a save that is
    written a second time it must be new, too. `keeps_name`: a sealed copy has the save under its own name, beside what `marker`
    gives; otherwise its files lie directly in the checkpoint's folder.
    """

    name: str = ""
    title: str = ""
    last_file: str = ""
    keeps_name: bool = False
    # Resumes only from its own folder: the original must be there.
    loads_original: bool = False
    # Deletes its lowest steps when it has saved: after a run went back, also what it saved a moment ago.
    prunes_lowest_steps: bool = False

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry of a folder is, or is becoming, a checkpoint of this trainer.

        `files`: names of what is directly in it; None for a file.
        """
        raise NotImplementedError

    def is_evident(self, save: Save) -> bool:
        """Whether a folder can be of no other trainer, and by its files is no mere beginning."""
        return False

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """Return the step of a whole save. Raises Incomplete, which names the file that is missing or torn, and OSError.

        `reads_all`: read every byte that has a checksum of its own.
        """
        raise NotImplementedError

    def marker(self, save: Save, step: int) -> Mapping[str, bytes]:
        """Return files that a sealed copy needs beside the save, so that the trainer finds it there."""
        return {}

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the arguments with which the trainer goes on from a sealed copy: `folder` has it, `name` was the save's own."""
        raise NotImplementedError


def number_of(name: str) -> int:
    """Return the last number in a name. Raises Incomplete without one."""
    digits = _DIGITS.findall(name)
    if not digits:
        raise Incomplete(f"{name!r:.80} has no step in its name")
    return int(digits[-1])


def check_regular(save: Save) -> None:
    """Raise Incomplete for a save with a link, a socket or a pipe in it, and for one without any file."""
    if save.irregular:
        raise Incomplete(f"{save.irregular!r:.80} is neither a file nor a folder")
    if not save.signature:
        raise Incomplete(f"{save.path.name!r:.80} has no file yet")


def check_forms(save: Save, *, reads_all: bool, skip: Collection[str] = ()) -> None:
    """Raise Incomplete for the first file whose form shows that it is torn."""
    for name, path in save.files:
        reason = "" if name in skip else torn_file(path, reads_all=reads_all)
        if reason:
            raise Incomplete(f"{name}: {reason}")


def require(save: Save, *names: str) -> None:
    """Raise Incomplete for the first of these files that is not there."""
    there = save.names
    for name in names:
        if name not in there:
            raise Incomplete(f"{name} is missing")
