"""`python -m runner.checkpoints.script_saves.sealer`: the process beside rank 0 that copies and seals what the script saves.

It has the lowest priority, and ends with the rank. Its standard input is a socket of the rank: first come, as a line of JSON, the
saves that were there before the script; a byte after that asks for a last look when the script has ended in order; its end is the
rank's death, after which nothing is sealed. `folder_sealer` is the same for an agent.
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
from runner.checkpoints.formats.pattern import STEP_NAMES
from runner.checkpoints.formats.saves import Incomplete, Save, Signature, read_save, read_signature
from runner.checkpoints.generation_file import GENERATION
from runner.checkpoints.manifest import MANIFEST, FileSeal, Manifest, checkpoint_folder
from runner.checkpoints.script_saves.sources import PatternSource, Placement, SaveSource
from runner.checkpoints.sealed_folder import seal
from runner.errors import Fenced, StokerError
from runner.facts.ids import AttemptId

# All chosen, not measured.
POLL_SECONDS = 0.25
REST_SECONDS = 1.0
REPORT_SECONDS = 5.0
COPY_BYTES = 1 << 20
NICE = 19
# Time between two looks, as a multiple of what a look takes.
IDLE_RATIO = 20.0
# Of one process: each is logged once.
MAX_MESSAGES = 100
# Of a copy that is not whole yet: no checkpoint's name.
PART_PREFIX = ".script-save-"


class _RankGone(Exception):
    """The rank died: what it was saving may be torn."""


class _Changed(Exception):
    """The script wrote to a save while it was copied."""


@dataclass(slots=True, kw_only=True)
class Sealer:
    """Seals the saves of one attempt. `rank`: the socket to it; `report`: called with the step and the folder of each seal.

    `rest_seconds`: how long a save must have been left alone, if its form does not show its end. `log` gets messages.
    """

    source: SaveSource
    root: Path
    rank: socket.socket
    run: str
    attempt: AttemptId
    generation: int
    report: Callable[[int, Path], None] = lambda _step, _folder: None
    log: Callable[[str], None] = lambda text: _log(text)
    rest_seconds: float = REST_SECONDS
    # Saves that are dealt with, and those that are to rest: signature, and since when it is the same.
    _done: dict[Path, Signature] = field(default_factory=dict)
    _resting: dict[Path, tuple[Signature, float]] = field(default_factory=dict)
    # Of those that rest: why they are not sealed.
    _unsealed: dict[Path, str] = field(default_factory=dict)
    _logged: set[str] = field(default_factory=set)
    # As they were when they were whole.
    _whole: dict[Path, Signature] = field(default_factory=dict)

    def serve(self) -> None:
        """Seal until the rank ends. Raises Fenced, and _RankGone when it ended otherwise than in order."""
        before = json.loads(_first_line(self.rank))
        self._done = {Path(path): read_signature(plain) for path, plain in before.items()}
        for part in self.root.glob(f"{PART_PREFIX}*"):
            # Of an earlier attempt, which is gone.
            shutil.rmtree(part, ignore_errors=True)
        pause = POLL_SECONDS
        while not select.select([self.rank], [], [], pause)[0]:
            began = time.monotonic()
            self.poll(began)
            # A folder with very many entries, or on a slow disk, is looked at less often.
            pause = max(POLL_SECONDS, IDLE_RATIO * (time.monotonic() - began))
        self._check_rank()
        try:
            self.poll(time.monotonic(), is_last=True)
        except Fenced:
            self._report_last()
            raise

    def poll(self, now: float, *, is_last: bool = False) -> None:
        """Seal what is new and whole. `is_last`: nothing is written any more. Raises Fenced, and _RankGone."""
        for save in self.source.saves():
            if self._done.get(save.path) == save.signature and not save.irregular:
                self._report_unsealed(save, now, is_last=is_last)
                continue
            known = self._resting.get(save.path)
            if known is None or known[0] != save.signature:
                self._resting[save.path] = known = (save.signature, now)
            has_rested = is_last or now >= known[1] + self.rest_seconds
            if has_rested or self._is_finished(save):
                self._handle(save)
                self._report_unsealed(save, now, is_last=is_last)
        for text in self.source.remarks():
            self._log_once(text)

    def _report_last(self) -> None:
        """Report which saves of before the next attempt are not whole: it has begun, and they are not copied any more."""
        begun = (self.root / GENERATION).stat().st_mtime_ns
        for save in self.source.saves():
            if self._done.get(save.path) != save.signature and save.changed_at <= begun:
                try:
                    self.source.place(save)
                except (StokerError, OSError, ValueError) as error:
                    self._log_once(f"{save.path} is not sealed: {error}")

    def _handle(self, save: Save) -> None:
        """Seal one save. Why one cannot be sealed is kept, and it is left until it changes."""
        reason = ""
        try:
            self.seal_save(save)
        except (Fenced, _RankGone):
            raise
        except _Changed:
            return
        except FileNotFoundError as error:
            if not save.path.exists():
                # The trainer deleted it meanwhile.
                return
            reason = str(error)
        except (StokerError, OSError, ValueError) as error:
            reason = str(error)
        finally:
            # The disk may be full of it.
            shutil.rmtree(self._part, ignore_errors=True)
        self._done[save.path] = save.signature
        self._unsealed.pop(save.path, None)
        if reason:
            self._unsealed[save.path] = reason
        else:
            self._resting.pop(save.path, None)

    def _report_unsealed(self, save: Save, now: float, *, is_last: bool) -> None:
        """Report to the log, once it has rested, why a save is not sealed."""
        reason, resting = self._unsealed.get(save.path), self._resting.get(save.path)
        if reason is None or resting is None:
            return
        if is_last or now >= resting[1] + self.source.patience_seconds:
            del self._unsealed[save.path]
            self._log_once(f"{save.path} is not sealed: {reason}")

    def _log_once(self, text: str) -> None:
        if text not in self._logged and len(self._logged) < MAX_MESSAGES:
            self._logged.add(text)
            self.log(text)

    def _is_finished(self, save: Save) -> bool:
        try:
            return self.source.is_finished(save)
        except OSError:
            # It is being deleted, or replaced.
            return False

    def seal_save(self, save: Save) -> int:
        """Copy and seal a save; return its step. Raises Incomplete for one that is not whole, or is sealed already."""
        self._check_last_file(save)
        placement = self.source.place(save)
        self._whole[save.path] = save.signature
        folder = checkpoint_folder(self.root, self.attempt, placement.step)
        if (folder / MANIFEST).exists():
            if not self.source.reports_repeated:
                return placement.step
            raise Incomplete(f"step {placement.step} of {self.attempt} is sealed already")
        if folder.exists() and not self.source.owns_unsealed:
            raise Incomplete(f"{folder} is there without a manifest: the script may be writing it")
        files = self._copy(save, placement, folder)
        manifest = Manifest(
            run=self.run,
            attempt=self.attempt,
            generation=self.generation,
            step=placement.step,
            files=files,
            settings=placement.settings,
        )
        seal(folder, manifest, generation=self.generation)
        self.report(placement.step, folder)
        return placement.step

    def _check_last_file(self, save: Save) -> None:
        """Raise Incomplete for a save that is being written a second time: what is written last is still the first one's."""
        last, before = self.source.last_file(save), self._whole.get(save.path, save.signature)
        if not last or before == save.signature:
            return
        then, now = (
            [each for each in files if each[0] == last] for files in (before, save.signature)
        )
        if then == now:
            raise Incomplete(f"it has changed, and {last}, which is written last, has not")

    def _copy(self, save: Save, placement: Placement, folder: Path) -> dict[str, FileSeal]:
        """Copy the files of a save, flushed, and hash them on the way. Raises _Changed when the script wrote meanwhile."""
        part = self._part
        shutil.rmtree(part, ignore_errors=True)
        files = {
            f"{placement.prefix}{name}": _copy_file(
                source, part / f"{placement.prefix}{name}", self._check_rank
            )
            for name, source in save.files
        }
        for name, content in placement.extra.items():
            files[name] = _write_file(part / name, content)
        try:
            now = read_save(save.path, follows_links=True).signature
        except OSError:
            now = ()
        if now != save.signature:
            raise _Changed
        self._check_rank()
        if folder.exists() and self.source.owns_unsealed:
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


def report_to(channel: socket.socket) -> Callable[[int, Path], None]:
    """Return what reports a checkpoint as a rank does; it counts as well when it is found by the next survey of the folder."""

    def report(step: int, folder: Path) -> None:
        packet = json.dumps({"kind": "checkpoint", "step": step, "path": str(folder)}).encode()
        deadline = time.monotonic() + REPORT_SECONDS
        while time.monotonic() < deadline:
            try:
                channel.send(packet, socket.MSG_DONTWAIT)
            except BlockingIOError:
                time.sleep(POLL_SECONDS)
            except OSError:
                return
            else:
                return

    return report


def _write_file(path: Path, content: bytes) -> FileSeal:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return FileSeal(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


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
    source = PatternSource(
        options.saved,
        named_last_file=options.last_file,
        step_names=tuple(options.step_name) or STEP_NAMES,
    )
    sealer = Sealer(
        source=source,
        rank=socket.socket(fileno=0),
        root=Path(variables["STOKER_CHECKPOINTS"]),
        run=variables["STOKER_RUN"],
        attempt=AttemptId.parse(variables["STOKER_ATTEMPT"]),
        generation=int(variables["STOKER_GENERATION"]),
        report=report_to(socket.socket(fileno=int(variables["STOKER_CHANNEL"]))),
    )
    return served(sealer)


def served(sealer: Sealer) -> int:
    """Serve at the lowest priority until the rank ends; return the exit code of the process: 1 if it was fenced or ended early."""
    with suppress(OSError):
        os.nice(NICE)
    try:
        sealer.serve()
    except _RankGone:
        return 1
    except Fenced as error:
        sealer.log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
