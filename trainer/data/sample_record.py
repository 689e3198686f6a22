"""A record of the samples that a rank has trained on, for who wants to know which text a step read.

One file for each attempt and rank, `<attempt>-rank<rank>.jsonl`, one line for each step, written once the step has read:
`{"step": 61, "data_step": 81, "windows": [1093, 7, 412, 88]}`. Window i covers the tokens from i x sequence to (i + 1) x sequence.
"""

import json
from pathlib import Path

from runner.errors import SpecError
from trainer.contract.launch import Launch
from trainer.data.batches import Tokens


class SampleRecord:
    """One rank's record of this attempt. Raises SpecError if the file cannot be made."""

    def __init__(self, folder: str, launch: Launch) -> None:
        path = Path(folder).expanduser() / f"{launch.attempt}-rank{launch.rank}.jsonl"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer: the line of a step is whole, or it is not there.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise SpecError(
                f"data.record_samples = {folder!r}: {path} cannot be written: {error.strerror or error} "
                f"(working folder {Path.cwd()}); name a folder that every rank can write to, or none"
            ) from error

    def add(self, step: int, data_step: int, windows: Tokens) -> None:
        """Add a step: the data step that it read, and the windows that this rank got of it."""
        line = {"step": step, "data_step": data_step, "windows": windows.tolist()}
        self._file.write(json.dumps(line).encode() + b"\n")
