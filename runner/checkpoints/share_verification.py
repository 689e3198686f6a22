"""`python -P -m runner.checkpoints.share_verification`: reads the files of one share of a checkpoint, and prints how that went.

Each byte is hashed, and what is a floating-point number is looked at on the way (`finite`): one pass for both.

A program of the agent's, which it kills when a folder hangs. It has the lowest priority, and reads from storage, not from memory:
the page cache may hold what the disk has lost. Each line of its output is a JSON object: {"kind": "progress", ...} when it begins
to read and once a second while bytes come, and {"kind": "result", "outcome": "done"|"failed", "damaged": ..., ...} at the end.
"""

import argparse
import errno
import fcntl
import hashlib
import json
import mmap
import os
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from runner.checkpoints.finite.distributed_names import METADATA, distributed_names
from runner.checkpoints.finite.file_scan import FileScan, ScanResult
from runner.checkpoints.finite.layouts import layout_of
from runner.checkpoints.finite.pickle_outline import MAX_PICKLE_BYTES
from runner.checkpoints.manifest import MANIFEST, MAX_MANIFEST_BYTES, FileSeal, Manifest, decode
from runner.checkpoints.shares import files_of_share
from runner.checkpoints.verification import check_equal, open_regular
from runner.checkpoints.verified_files import VerifiedFiles
from runner.errors import CheckpointRefused, StokerError, TemporaryError
from runner.parent_death import die_with

# The least there is: steps, restarts and logs come first.
NICE = 19
# All chosen. Of one read: at 1 MB/s a line of progress a second.
READ_BYTES = 1 << 20
# What may lie in the page cache behind the reader.
CACHED_BYTES = 8 << 20
PROGRESS_SECONDS = 1.0
MANIFEST_POLL_SECONDS = 0.5
# Files that are not covered.
MAX_NAMED = 2
# What `open_regular` raises for a file that is missing, for one that is not regular, or for a part of the disk that is lost.
OPEN_DAMAGE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.EINVAL,
    errno.EIO,
)
READ_DAMAGE = (errno.EIO,)


@dataclass(slots=True, kw_only=True)
class ShareReader:
    """Verifies one share of the checkpoint in `folder`, whose manifest has the sha256 `manifest_sha256`.

    `wait_seconds`: how long the manifest may take to become visible; a network file system shows new files late.
    `confirm_seconds`: damage is looked at again after this time, since what is damaged is never used again.
    """

    folder: Path
    manifest_sha256: str
    share: int
    shares: int
    record: Path
    wait_seconds: float
    confirm_seconds: float
    # Of the whole share, and of the files that agree so far; `_read_bytes` of the one that is read.
    _total: tuple[int, int] = (0, 0)
    _done: tuple[int, int] = (0, 0)
    _read_bytes: int = 0
    _reported_at: float = 0.0
    _reported_bytes: int = field(default=-1)
    # What the scans say: of the whole share, of the first files that are not covered, and of the first that is not finite.
    _num_tensors: int = 0
    _uncovered: list[str] = field(default_factory=list)
    _not_finite: str = ""
    # Names of tensors, of folder and file.
    _names: dict[str, dict[str, dict[int, str]]] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Verify the share, and return the result to print. Raises StokerError or OSError: not verified, and not damaged."""
        try:
            self._verify()
        except CheckpointRefused as error:
            sys.stderr.write(f"{error}; it is read again\n")
            time.sleep(self.confirm_seconds)
            try:
                self._verify()
            except CheckpointRefused as again:
                # A folder that is deleted meanwhile is not damaged: its manifest is gone as well.
                self._read_manifest()
                return _failure(str(again), damaged=True)
        num_files, size_bytes = self._done
        return {
            "kind": "result",
            "outcome": "done",
            "files": num_files,
            "size_bytes": size_bytes,
            "tensors": self._num_tensors,
            "uncovered": "; ".join(self._uncovered[:MAX_NAMED]),
            "not_finite": self._not_finite,
        }

    def _verify(self) -> None:
        manifest = self._wait_for_manifest()
        files = {
            name: manifest.files[name] for name in files_of_share(manifest, self.share, self.shares)
        }
        self._total = len(files), sum(seal.size_bytes for seal in files.values())
        self._done, self._read_bytes = (0, 0), 0
        self._num_tensors, self._uncovered, self._not_finite = 0, [], ""
        verified = VerifiedFiles(
            self.record,
            {
                "folder": str(self.folder),
                "manifest": self.manifest_sha256,
                "share": self.share,
                "shares": self.shares,
            },
        )
        try:
            self._report(at_once=True)
            for name, seal in files.items():
                self._note(name, self._verify_file(name, seal, verified))
                num_files, size_bytes = self._done
                self._done, self._read_bytes = (num_files + 1, size_bytes + seal.size_bytes), 0
                self._report()
                if self._not_finite:
                    # It is never loaded: what else it holds is of no use.
                    return
        finally:
            verified.close()

    def _note(self, name: str, scanned: ScanResult) -> None:
        self._num_tensors += scanned.num_tensors
        if scanned.uncovered:
            self._uncovered.append(f"{name}: {scanned.uncovered}")
        if scanned.not_finite:
            self._not_finite = f"{name}: {scanned.not_finite}"

    def _wait_for_manifest(self) -> Manifest:
        until = time.monotonic() + self.wait_seconds
        # A second look at files that are there has nothing to wait for.
        self.wait_seconds = 0.0
        while True:
            try:
                return decode(self._read_manifest())
            except TemporaryError:
                # Not there yet, or an old one.
                if time.monotonic() >= until:
                    raise
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise TemporaryError(
                    f"{self.folder / MANIFEST} is no manifest: {error!r:.200}"
                ) from error
            time.sleep(MANIFEST_POLL_SECONDS)

    def _read_manifest(self) -> bytes:
        """Return the bytes of the manifest, from storage. Raises TemporaryError, also for other bytes than expected."""
        path = self.folder / MANIFEST
        try:
            with open_regular(path) as file:
                _drop_cached(file.fileno())
                payload: bytes = file.read(MAX_MANIFEST_BYTES + 1)
        except OSError as error:
            raise _failure_of(path, error, damage=()) from error
        found = hashlib.sha256(payload).hexdigest()
        if found != self.manifest_sha256:
            raise TemporaryError(
                f"{path} has the sha256 {found} here, not {self.manifest_sha256}: it was sealed again, or this node sees an "
                "older one"
            )
        return payload

    def _open_checked(self, name: str, seal: FileSeal) -> Any:
        """Open a file that has the size of its seal. Raises CheckpointRefused if it has not, is missing, or no regular file."""
        path = self.folder / name
        try:
            file = open_regular(path)
        except OSError as error:
            raise _failure_of(path, error, OPEN_DAMAGE) from error
        try:
            size_bytes = os.fstat(file.fileno()).st_size
            check_equal(path, "bytes", actual=size_bytes, expected=seal.size_bytes)
        except BaseException:
            file.close()
            raise
        return file

    def _names_of(self, name: str) -> dict[int, str]:
        """Return the names of the tensors in a file of torch.distributed.checkpoint; they are for words alone."""
        if not name.endswith(".distcp"):
            return {}
        folder, _, file_name = name.rpartition("/")
        if folder not in self._names:
            metadata = b""
            with suppress(OSError), open_regular(self.folder / folder / METADATA) as file:
                metadata = file.read(MAX_PICKLE_BYTES)
            self._names[folder] = distributed_names(metadata)
        return self._names[folder].get(file_name, {})

    def _verify_file(self, name: str, seal: FileSeal, verified: VerifiedFiles) -> ScanResult:
        path = self.folder / name
        with self._open_checked(name, seal) as file:
            status = os.fstat(file.fileno())
            if (known := verified.find(name, status)) is not None:
                return known
            try:
                layout = layout_of(file.fileno(), seal.size_bytes, self._names_of(name))
                scan = FileScan(layout)
                actual = self._hash(file.fileno(), seal.size_bytes, scan)
                scanned = scan.result(file.fileno())
            except OSError as error:
                raise _failure_of(path, error, READ_DAMAGE) from error
        check_equal(path, "sha256", actual=actual, expected=seal.sha256)
        verified.add(name, status, scanned)
        return scanned

    def _hash(self, file: int, size_bytes: int, scan: FileScan) -> str:
        """Return the sha256 of an open file, as storage has it, past the page cache where the file system can do that.

        The scan gets each piece that is hashed.

        Ranks that restart meanwhile find what the cache held. Elsewhere none of the file is left there.
        """
        # Direct reads need memory that begins at a page.
        digest, buffer, cached = hashlib.sha256(), memoryview(mmap.mmap(-1, READ_BYTES)), 0
        is_direct = _set_direct(file, True)
        if not is_direct:
            _drop_cached(file)
        # One byte more than there should be: a file that grows does not agree, and is not read for ever.
        while self._read_bytes <= size_bytes:
            try:
                count = os.readv(file, [buffer])
            except OSError as error:
                if error.errno != errno.EINVAL or not is_direct:
                    raise
                # Some file systems agree to direct reads, and refuse them.
                is_direct = not _set_direct(file, False)
                continue
            if not count:
                break
            digest.update(buffer[:count])
            scan.feed(self._read_bytes, buffer[:count])
            self._read_bytes += count
            cached += count
            if cached >= CACHED_BYTES and not is_direct:
                _drop_cached(file, self._read_bytes)
                cached = 0
            self._report()
        if is_direct:
            # A second look at a few tensors is not at whole pages.
            _set_direct(file, False)
        else:
            _drop_cached(file)
        return digest.hexdigest()

    def _report(self, *, at_once: bool = False) -> None:
        """Print how far the share is, at most once a second, and only after bytes came."""
        (num_files, size_bytes), now = self._done, time.monotonic()
        done_bytes = size_bytes + self._read_bytes
        is_due = now >= self._reported_at + PROGRESS_SECONDS and done_bytes > self._reported_bytes
        if not (is_due or at_once):
            return
        self._reported_at, self._reported_bytes = now, done_bytes
        total_files, total_bytes = self._total
        counts = {"done_files": num_files, "total_files": total_files}
        size = {"done_bytes": min(done_bytes, total_bytes), "total_bytes": total_bytes}
        _print({"kind": "progress", **counts, **size})


def main(arguments: list[str] | None = None) -> int:
    """Verify a share and print the result; 0 if there is one, whatever it is."""
    parser = argparse.ArgumentParser(prog="python -P -m runner.checkpoints.share_verification")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--manifest", dest="manifest_sha256", required=True, metavar="SHA256")
    parser.add_argument("--share", type=int, required=True)
    parser.add_argument("--shares", type=int, required=True)
    parser.add_argument("--record", type=Path, required=True, metavar="FILE")
    parser.add_argument("--wait-seconds", type=float, required=True)
    parser.add_argument("--confirm-seconds", type=float, required=True)
    parser.add_argument("--parent", type=int, required=True, metavar="PID")
    options = vars(parser.parse_args(arguments))
    die_with(options.pop("parent"))
    _lower_priority()
    try:
        result = ShareReader(**options).run()
    except (StokerError, OSError) as error:
        result = _failure(str(error), damaged=False)
    except Exception as error:  # noqa: BLE001 - the bulkhead of the program: it ends in an answer
        result = _failure(f"{type(error).__name__}: {error}", damaged=False)
    _print(result)
    return 0


def _failure(reason: str, *, damaged: bool) -> dict[str, Any]:
    return {"kind": "result", "outcome": "failed", "damaged": damaged, "reason": reason}


def _failure_of(path: Path, error: OSError, damage: Collection[int]) -> StokerError:
    """Return what an error of a file means: damage for these numbers, else anything that may pass."""
    if error.errno in damage:
        return CheckpointRefused(f"{path} is damaged: {error.strerror or error}")
    return TemporaryError(f"{path} cannot be read on this node: {error.strerror or error}")


def _set_direct(file: int, wanted: bool) -> bool:
    """Have an open file read past the page cache from now on, or not; return False where its file system cannot."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True


def _drop_cached(file: int, up_to: int = 0) -> None:
    """Drop the clean pages of an open file from the page cache, to an offset or, 0, to its end.

    A file system that keeps no such cache refuses it, and reads from storage anyway.
    """
    try:
        os.posix_fadvise(file, 0, up_to, os.POSIX_FADV_DONTNEED)
    except OSError:
        return


def _lower_priority() -> None:
    """Take processor and disk last.

    The idle class of I/O counts where the disk's scheduler knows classes (bfq, mq-deadline). Others and network file systems pass
    over it: there, only the order of reads, one at a time, is easy on the storage. A sandbox may refuse it: the same then.
    """
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    try:
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    except (psutil.Error, OSError):
        return


def _print(plain: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(plain) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
