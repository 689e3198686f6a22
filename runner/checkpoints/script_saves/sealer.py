"""`python -m runner.checkpoints.script_saves.sealer`: the process beside rank 0 that copies and seals what the script saves.

It has the lowest priority, and ends with the rank. Its standard input is a socket of the rank: first come, as a line of JSON, the
saves that were there before the script; a byte after that asks for a last look when the script has ended in order; its end is the
rank's death, after which nothing is sealed.
"""

import argparse
import hashlib
import json
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from runner.atomic_files import sync_folder
from runner.checkpoints.manifest import MANIFEST, FileSeal, Manifest, checkpoint_folder
from runner.checkpoints.script_saves.saved_files import (
    STEP_NAMES,
    Save,
    Signature,
    is_finished,
    list_saves,
    read_signature,
    step_of,
    torn,
)
from runner.checkpoints.sealed_folder import seal
from runner.errors import Fenced, StokerError
from runner.facts.ids import AttemptId

# All chosen, not measured.
POLL_SECONDS = 0.25
REST_SECONDS = 1.0
REPORT_SECONDS = 5.0
COPY_BYTES = 1 << 20
NICE = 19
# Of a copy that is not whole yet: no checkpoint's name.
PART_PREFIX = ".script-save-"


class _RankGone(Exception):
    """The rank died: what it was saving may be torn."""


class _Changed(Exception):
    """The script wrote to a save while it was copied."""


@dataclass(slots=True, kw_only=True)
class Sealer:
    """Seals the saves of one attempt. `rank`: the socket to it; `channel`: where its reports go.

    `last_file`: without it a folder is no save yet; "": any may be. `rest_seconds`: how long a save must have been left alone, if
    its form does not show that its end was written.
    """

    saved: str
    root: Path
    rank: socket.socket
    run: str
    attempt: AttemptId
    generation: int
    channel: socket.socket | None = None
    step_names: tuple[str, ...] = STEP_NAMES
    last_file: str = ""
    rest_seconds: float = REST_SECONDS
    # Saves that are dealt with, and those that are to rest: signature, and since when it is the same.
    _done: dict[Path, Signature] = field(default_factory=dict)
    _resting: dict[Path, tuple[Signature, float]] = field(default_factory=dict)

    def serve(self) -> None:
        """Seal until the rank ends. Raises Fenced, and _RankGone when it ended otherwise than in order."""
        before = json.loads(_first_line(self.rank))
        self._done = {Path(path): read_signature(plain) for path, plain in before.items()}
        for part in self.root.glob(f"{PART_PREFIX}*"):
            # Of an earlier attempt, which is gone.
            shutil.rmtree(part, ignore_errors=True)
        while not select.select([self.rank], [], [], POLL_SECONDS)[0]:
            self.poll(time.monotonic())
        self._check_rank()
        self.poll(time.monotonic(), is_last=True)

    def poll(self, now: float, *, is_last: bool = False) -> None:
        """Seal what is new and whole. `is_last`: nothing is written any more. Raises Fenced, and _RankGone."""
        for save in list_saves(self.saved):
            if self._done.get(save.path) == save.signature or not save.has(self.last_file):
                continue
            known = self._resting.get(save.path)
            if known is None or known[0] != save.signature:
                self._resting[save.path] = known = (save.signature, now)
            if is_last or now >= known[1] + self.rest_seconds or _is_finished(save):
                self._handle(save)

    def _handle(self, save: Save) -> None:
        """Seal one save. What cannot be sealed is reported to standard error once, and left until it changes."""
        try:
            reason = self._seal(save)
        except (Fenced, _RankGone):
            raise
        except _Changed:
            return
        except (StokerError, OSError, ValueError) as error:
            reason = str(error)
            # The disk may be full of it.
            shutil.rmtree(self._part, ignore_errors=True)
        self._done[save.path] = save.signature
        self._resting.pop(save.path, None)
        if reason:
            _log(f"{save.path} is not sealed: {reason}")

    def _seal(self, save: Save) -> str:
        """Copy and seal a save; return why not, "" if it is sealed."""
        reason = torn(save)
        if reason:
            return reason
        step = step_of(save, self.step_names)
        if step is None:
            return f"its step is not known; name it in the file ({', '.join(self.step_names[:3])}), or give --step-name"
        folder = checkpoint_folder(self.root, self.attempt, step)
        if (folder / MANIFEST).exists():
            return f"step {step} of {self.attempt} is sealed already"
        files = self._copy(save, folder)
        manifest = Manifest(
            run=self.run,
            attempt=self.attempt,
            generation=self.generation,
            step=step,
            files=files,
        )
        seal(folder, manifest, generation=self.generation)
        self._report(step, folder)
        return ""

    def _copy(self, save: Save, folder: Path) -> dict[str, FileSeal]:
        """Copy the files of a save, flushed, and hash them on the way. Raises _Changed when the script wrote meanwhile."""
        part = self._part
        shutil.rmtree(part, ignore_errors=True)
        files = {
            name: _copy_file(source, part / name, self._check_rank) for name, source in save.files
        }
        now = [each for each in list_saves(self.saved) if each.path == save.path]
        if [each.signature for each in now] != [save.signature]:
            shutil.rmtree(part, ignore_errors=True)
            raise _Changed
        self._check_rank()
        if folder.exists():
            # Of this attempt, and without a manifest: this process was about to seal it when it was stopped.
            shutil.rmtree(folder)
        part.rename(folder)
        sync_folder(self.root)
        return files

    @property
    def _part(self) -> Path:
        return self.root / f"{PART_PREFIX}{self.attempt}"

    def _check_rank(self) -> None:
        """Raise _RankGone if the socket has ended; the byte for a last look stays in it."""
        with suppress(BlockingIOError):
            if not self.rank.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise _RankGone

    def _report(self, step: int, folder: Path) -> None:
        """Report the checkpoint as a rank does; it counts as well when it is found by the next survey of the folder."""
        if self.channel is None:
            return
        packet = json.dumps({"kind": "checkpoint", "step": step, "path": str(folder)}).encode()
        deadline = time.monotonic() + REPORT_SECONDS
        while time.monotonic() < deadline:
            try:
                self.channel.send(packet, socket.MSG_DONTWAIT)
            except BlockingIOError:
                time.sleep(POLL_SECONDS)
            except OSError:
                return
            else:
                return


def _is_finished(save: Save) -> bool:
    try:
        return is_finished(save)
    except OSError:
        # It is being deleted, or replaced.
        return False


def _copy_file(source: Path, target: Path, on_piece: Callable[[], None]) -> FileSeal:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size_bytes = hashlib.sha256(), 0
    with source.open("rb") as reader, target.open("xb") as writer:
        while piece := reader.read(COPY_BYTES):
            on_piece()
            digest.update(piece)
            size_bytes += len(piece)
            writer.write(piece)
        writer.flush()
        os.fsync(writer.fileno())
        status = os.fstat(reader.fileno())
    # By its time, the checkpoint that is put back one day is known to be this one.
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    return FileSeal(size_bytes=size_bytes, sha256=digest.hexdigest())


def _log(text: str) -> None:
    sys.stderr.write(f"script_saves: {text}\n")
    sys.stderr.flush()


def _first_line(rank: socket.socket) -> bytes:
    """Return what the rank sends first, and leave what comes after. Raises _RankGone when it died before."""
    line = b""
    while not line.endswith(b"\n"):
        coming = rank.recv(COPY_BYTES, socket.MSG_PEEK)
        if not coming:
            raise _RankGone
        line += rank.recv(coming.find(b"\n") + 1 or len(coming))
    return line


def main(arguments: list[str] | None = None) -> int:
    """Serve as the environment of the rank says."""
    parser = argparse.ArgumentParser(prog="python -m runner.checkpoints.script_saves.sealer")
    parser.add_argument("saved")
    parser.add_argument("--step-name", action="append", default=[])
    parser.add_argument("--last-file", default="")
    options = parser.parse_args(arguments)
    variables = os.environ
    sealer = Sealer(
        saved=options.saved,
        rank=socket.socket(fileno=0),
        root=Path(variables["STOKER_CHECKPOINTS"]),
        run=variables["STOKER_RUN"],
        attempt=AttemptId.parse(variables["STOKER_ATTEMPT"]),
        generation=int(variables["STOKER_GENERATION"]),
        channel=socket.socket(fileno=int(variables["STOKER_CHANNEL"])),
        step_names=tuple(options.step_name) or STEP_NAMES,
        last_file=options.last_file,
    )
    with suppress(OSError):
        os.nice(NICE)
    try:
        sealer.serve()
    except _RankGone:
        return 1
    except Fenced as error:
        _log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
