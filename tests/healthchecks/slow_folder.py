"""`python slow_folder.py FOLDER BACKING CONTROL [COMMAND ...]`: mounts the folder BACKING on FOLDER; reads are slow, or hang.

A FUSE file system in plain Python, for reading and writing. CONTROL is a JSON file, which may change at any time:
{"read_bytes_per_second": 1e6 or null, "hangs": true for all requests or the end of a name for reads of such files, "error": a
number of errno, or 0, for reads of files whose names end with "error_in", "flips": true for a wrong bit in each read,
"fsync_seconds": what each fsync takes}. Each read is a line in CONTROL.reads: the bytes and the file. It ends with COMMAND, in a
mount namespace of its own where one may mount nothing else, or with its standard input. Tests use `slow_folder`.
"""

import contextlib
import ctypes
import errno
import json
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
NUM_THREADS = 32
MAX_WRITE_BYTES = 128 * 1024
# How soon a change of CONTROL reaches a request that waits.
POLL_SECONDS = 0.02
# From linux/fuse.h: the structures of requests and answers, little-endian as this machine.
HEADER = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
IO = struct.Struct("<QQIIQII")
MODE, UID, GID, SIZE, ATIME, MTIME, _HANDLE, ATIME_NOW, MTIME_NOW = (1 << bit for bit in range(9))
FORGET, INTERRUPT, DESTROY, BATCH_FORGET = 2, 36, 38, 42
# Stands for the file's name in the line of a request that hangs.
HANGS = "(hangs)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseRequest:
    """One request of the kernel's: `node` is the file's number, `body` what follows the header."""

    node: int
    uid: int
    gid: int
    body: bytes

    def names(self, skip: int) -> list[bytes]:
        """Return the names in the body, after so many bytes."""
        return self.body[skip:].split(b"\0")[:-1]


class PassThrough:
    """Answers the kernel's requests with what the backing folder has."""

    def __init__(self, device: int, backing: Path, control: Path) -> None:
        self._device, self._backing, self._control = device, os.fsencode(backing), control
        self._lock = threading.Lock()
        self._paths: dict[int, bytes] = {1: b""}
        self._numbers: dict[bytes, int] = {b"": 1}
        self._newest = 1
        # The last that was opened of each file: one that was removed is reached through it.
        self._handles: dict[int, int] = {}
        self._listings: dict[int, list[bytes]] = {}
        self._free_at = 0.0
        self._settings: dict[str, Any] = {}
        self._settings_mark = 0
        reads = control.with_name(f"{control.name}.reads")
        self._reads = os.open(reads, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def serve(self) -> None:
        """Answer requests until the file system is unmounted."""
        while True:
            try:
                data = os.read(self._device, MAX_WRITE_BYTES + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            _, code, unique, node, uid, gid, *_ = HEADER.unpack_from(data)
            if code in (FORGET, BATCH_FORGET, INTERRUPT, DESTROY):
                continue
            request = FuseRequest(node=node, uid=uid, gid=gid, body=data[HEADER.size :])
            self._answer(unique, *self._handle(code, request))

    def _handle(self, code: int, request: FuseRequest) -> tuple[int, bytes]:
        handler = HANDLERS.get(code)
        if handler is None:
            return errno.ENOSYS, b""
        try:
            if code != INIT_CODE:
                self._hang()
            return 0, handler(self, request)
        except OSError as error:
            return error.errno or errno.EIO, b""

    def _hang(self, name: str = "") -> None:
        """Hold a request, of the read of a file if it has a name, for as long as CONTROL wants it."""
        if self._hangs(name):
            os.write(self._reads, f"0 {HANGS}\n".encode())
        while self._hangs(name):
            time.sleep(POLL_SECONDS)

    def _hangs(self, name: str) -> bool:
        hangs = self._setting("hangs")
        return hangs is True or bool(hangs and name.endswith(hangs))

    def _answer(self, unique: int, number: int, payload: bytes) -> None:
        # The request may have been interrupted.
        with contextlib.suppress(OSError):
            os.write(
                self._device, ANSWER.pack(ANSWER.size + len(payload), -number, unique) + payload
            )

    def _setting(self, name: str) -> Any:
        with contextlib.suppress(OSError, ValueError):
            mark = self._control.stat().st_mtime_ns
            if mark != self._settings_mark:
                self._settings = json.loads(self._control.read_bytes())
                self._settings_mark = mark
        return self._settings.get(name)

    # -- files by number

    def _path(self, node: int, name: bytes = b"") -> bytes:
        """Return the path in the backing folder. Raises OSError for a number whose file is gone."""
        inner = self._paths.get(node)
        if inner is None:
            raise OSError(errno.ESTALE, "gone")
        return os.path.join(self._backing, *(part for part in (inner, name) if part))

    def _target(self, node: int) -> Any:
        """Return the path, or an open descriptor if the file was removed."""
        if node not in self._paths and node in self._handles:
            return self._handles[node]
        return self._path(node)

    def _number(self, path: bytes) -> int:
        inner = os.path.relpath(path, self._backing)
        with self._lock:
            if inner not in self._numbers:
                self._newest += 1
                self._numbers[inner], self._paths[self._newest] = self._newest, inner
            return self._numbers[inner]

    def _move(self, old: bytes, new: bytes | None) -> None:
        """Have numbers follow a rename; None: a removal."""
        old = os.path.relpath(old, self._backing)
        new = None if new is None else os.path.relpath(new, self._backing)
        with self._lock:
            if new in self._numbers:
                del self._paths[self._numbers.pop(new)]
            for inner in [p for p in self._numbers if p == old or p.startswith(old + b"/")]:
                number = self._numbers.pop(inner)
                del self._paths[number]
                if new is not None:
                    moved = new + inner[len(old) :]
                    self._numbers[moved], self._paths[number] = number, moved

    def _entry(self, path: bytes) -> bytes:
        attributes = _attributes(os.lstat(path))
        return struct.pack("<QQQQII", self._number(path), 0, 0, 0, 0, 0) + attributes

    def _give(self, path: bytes, request: FuseRequest) -> None:
        """Make what was created the caller's, where this process may."""
        with contextlib.suppress(OSError):
            os.lchown(path, request.uid, request.gid)

    # -- requests

    def _init(self, request: FuseRequest) -> bytes:
        _, _, readahead, flags = struct.unpack_from("<IIII", request.body)
        # Reads in parallel (1), large writes (32).
        given = (7, 31, min(readahead, 1 << 17), flags & 0b100001, 32, 24, MAX_WRITE_BYTES, 1)
        return struct.pack("<IIIIHHII", *given) + bytes(36)

    def _lookup(self, request: FuseRequest) -> bytes:
        return self._entry(self._path(request.node, request.names(0)[0]))

    def _getattr(self, request: FuseRequest) -> bytes:
        target = self._target(request.node)
        return bytes(16) + _attributes(os.stat(target, follow_symlinks=isinstance(target, int)))

    def _setattr(self, request: FuseRequest) -> bytes:
        valid, _, _, size, _, atime, mtime, _, *rest = SETATTR.unpack_from(request.body)
        atime_ns, mtime_ns, _, mode, _, uid, gid, _ = rest
        target = self._target(request.node)
        if valid & MODE:
            os.chmod(target, stat.S_IMODE(mode))
        if valid & (UID | GID):
            os.chown(target, uid if valid & UID else -1, gid if valid & GID else -1)
        if valid & SIZE:
            os.truncate(target, size)
        if valid & (ATIME | MTIME):
            status, now = os.stat(target), time.time_ns()
            access = now if valid & ATIME_NOW else atime * 10**9 + atime_ns
            content = now if valid & MTIME_NOW else mtime * 10**9 + mtime_ns
            access = access if valid & ATIME else status.st_atime_ns
            content = content if valid & MTIME else status.st_mtime_ns
            os.utime(target, ns=(access, content))
        return bytes(16) + _attributes(os.stat(target))

    def _open(self, request: FuseRequest) -> bytes:
        (flags,) = struct.unpack_from("<I", request.body)
        # The kernel gives each write its place.
        handle = os.open(self._path(request.node), flags & (os.O_ACCMODE | os.O_TRUNC))
        self._handles[request.node] = handle
        return struct.pack("<QII", handle, 0, 0)

    def _create(self, request: FuseRequest) -> bytes:
        flags, mode, umask, _ = struct.unpack_from("<IIII", request.body)
        path = self._path(request.node, request.names(16)[0])
        kept = os.O_ACCMODE | os.O_TRUNC | os.O_EXCL
        handle = os.open(path, flags & kept | os.O_CREAT, stat.S_IMODE(mode) & ~umask)
        self._give(path, request)
        self._handles[self._number(path)] = handle
        return self._entry(path) + struct.pack("<QII", handle, 0, 0)

    def _read(self, request: FuseRequest) -> bytes:
        handle, offset, size, *_ = IO.unpack_from(request.body)
        name = self._paths.get(request.node, b"?")
        number = self._setting("error")
        if number and os.fsdecode(name).endswith(self._setting("error_in")):
            raise OSError(number, "as CONTROL wants it")
        data = os.pread(handle, size, offset)
        os.write(self._reads, b"%d %b\n" % (len(data), name))
        rate = self._setting("read_bytes_per_second")
        if rate:
            with self._lock:
                self._free_at = max(self._free_at, time.monotonic()) + len(data) / rate
                due = self._free_at
            time.sleep(max(0.0, due - time.monotonic()))
        self._hang(os.fsdecode(name))
        # Bit 0 of its first byte comes back wrong.
        return bytes([data[0] ^ 1]) + data[1:] if data and self._setting("flips") else data

    def _write(self, request: FuseRequest) -> bytes:
        handle, offset, size, *_ = IO.unpack_from(request.body)
        written = os.pwrite(handle, request.body[IO.size : IO.size + size], offset)
        return struct.pack("<II", written, 0)

    def _release(self, request: FuseRequest) -> bytes:
        (handle,) = struct.unpack_from("<Q", request.body)
        if self._handles.get(request.node) == handle:
            del self._handles[request.node]
        self._listings.pop(handle, None)
        os.close(handle)
        return b""

    def _fsync(self, request: FuseRequest) -> bytes:
        time.sleep(self._setting("fsync_seconds") or 0.0)
        os.fsync(struct.unpack_from("<Q", request.body)[0])
        return b""

    def _flush(self, _request: FuseRequest) -> bytes:
        return b""

    def _statfs(self, request: FuseRequest) -> bytes:
        found = os.statvfs(self._path(request.node))
        counts = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<5Q4I24x", *counts, found.f_bsize, 255, found.f_frsize, 0)

    def _mkdir(self, request: FuseRequest) -> bytes:
        mode, umask = struct.unpack_from("<II", request.body)
        path = self._path(request.node, request.names(8)[0])
        os.mkdir(path, mode & ~umask)
        self._give(path, request)
        return self._entry(path)

    def _symlink(self, request: FuseRequest) -> bytes:
        name, target = request.names(0)
        path = self._path(request.node, name)
        os.symlink(target, path)
        self._give(path, request)
        return self._entry(path)

    def _readlink(self, request: FuseRequest) -> bytes:
        return os.readlink(self._path(request.node))

    def _link(self, request: FuseRequest) -> bytes:
        path = self._path(request.node, request.names(8)[0])
        os.link(self._path(struct.unpack_from("<Q", request.body)[0]), path)
        return self._entry(path)

    def _unlink(self, request: FuseRequest) -> bytes:
        path = self._path(request.node, request.names(0)[0])
        os.unlink(path)
        self._move(path, None)
        return b""

    def _rmdir(self, request: FuseRequest) -> bytes:
        path = self._path(request.node, request.names(0)[0])
        os.rmdir(path)
        self._move(path, None)
        return b""

    def _rename(self, request: FuseRequest, skip: int = 8) -> bytes:
        old_name, new_name = request.names(skip)
        old = self._path(request.node, old_name)
        new = self._path(struct.unpack_from("<Q", request.body)[0], new_name)
        os.rename(old, new)
        self._move(old, new)
        return b""

    def _rename2(self, request: FuseRequest) -> bytes:
        if struct.unpack_from("<I", request.body, 8)[0]:
            raise OSError(errno.EINVAL, "no flags")
        return self._rename(request, skip=16)

    def _opendir(self, request: FuseRequest) -> bytes:
        path = self._path(request.node)
        entries = [b".", b"..", *sorted(os.listdir(path))]
        # A descriptor as the handle, so that folders are flushed and closed as files are.
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._listings[handle] = entries
        return struct.pack("<QII", handle, 0, 0)

    def _readdir(self, request: FuseRequest) -> bytes:
        handle, offset, size, *_ = IO.unpack_from(request.body)
        data = b""
        for index, name in enumerate(self._listings[handle][offset:], offset + 1):
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                continue
            item = struct.pack(
                "<QQII", status.st_ino, index, len(name), stat.S_IFMT(status.st_mode) >> 12
            )
            item = (item + name).ljust(-(-(24 + len(name)) // 8) * 8, b"\0")
            if len(data) + len(item) > size:
                break
            data += item
        return data


def _attributes(status: os.stat_result) -> bytes:
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return ATTRIBUTES.pack(
        *(status.st_ino, status.st_size, status.st_blocks),
        *(each // 10**9 for each in times),
        *(each % 10**9 for each in times),
        *(status.st_mode, status.st_nlink, status.st_uid, status.st_gid),
        *(0, status.st_blksize, 0),
    )


INIT_CODE = 26
# By the numbers of linux/fuse.h. Locks are the kernel's own business, as long as nothing answers for them.
HANDLERS: dict[int, Callable[[PassThrough, FuseRequest], bytes]] = {
    1: PassThrough._lookup,
    3: PassThrough._getattr,
    4: PassThrough._setattr,
    5: PassThrough._readlink,
    6: PassThrough._symlink,
    9: PassThrough._mkdir,
    10: PassThrough._unlink,
    11: PassThrough._rmdir,
    12: PassThrough._rename,
    13: PassThrough._link,
    14: PassThrough._open,
    15: PassThrough._read,
    16: PassThrough._write,
    17: PassThrough._statfs,
    18: PassThrough._release,
    20: PassThrough._fsync,
    25: PassThrough._flush,
    INIT_CODE: PassThrough._init,
    27: PassThrough._opendir,
    28: PassThrough._readdir,
    29: PassThrough._release,
    30: PassThrough._fsync,
    35: PassThrough._create,
    45: PassThrough._rename2,
}


@dataclass(slots=True, kw_only=True)
class SlowFolder:
    """A mounted folder. What is changed in `backing` is seen in `folder` at once."""

    folder: Path
    backing: Path
    control: Path

    def set(
        self,
        *,
        read_bytes_per_second: float | None = None,
        hangs: bool | str = False,
        error: int = 0,
        error_in: str = "",
        flips: bool = False,
        fsync_seconds: float = 0.0,
    ) -> None:
        """Have reads be so slow from now on, all together, or fail with an `error` in files whose names end so.

        `flips`: one bit of each read comes back wrong. `fsync_seconds`: what each fsync takes.
        `hangs`: no request is answered, or no read of files whose names end so; a process that waits for one cannot be killed.
        """
        settings = {
            "read_bytes_per_second": read_bytes_per_second,
            "hangs": hangs,
            "error": error,
            "error_in": error_in,
            "flips": flips,
            "fsync_seconds": fsync_seconds,
        }
        scratch = self.control.with_name(f"{self.control.name}.part")
        scratch.write_text(json.dumps(settings))
        scratch.rename(self.control)

    @property
    def num_hung(self) -> int:
        """How many requests have hung so far."""
        return self.control.with_name(f"{self.control.name}.reads").read_text().count(HANGS)

    def bytes_read(self) -> Counter[str]:
        """Return how many bytes were read of each file, by its path in the folder; the page cache's reads do not count."""
        reads: Counter[str] = Counter()
        for line in self.control.with_name(f"{self.control.name}.reads").read_text().splitlines():
            size, _, name = line.partition(" ")
            reads[name] += int(size)
        return reads


@contextlib.contextmanager
def slow_folder(place: Path, *, read_bytes_per_second: float | None = None) -> Iterator[SlowFolder]:
    """Mount a slow folder in `place`; skips the test where this user may mount nothing."""
    slow = SlowFolder(folder=place / "slow", backing=place / "backing", control=place / "control")
    slow.folder.mkdir(parents=True)
    slow.backing.mkdir()
    slow.set(read_bytes_per_second=read_bytes_per_second)
    command = [sys.executable, __file__, str(slow.folder), str(slow.backing), str(slow.control)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            if not server.stdout.readline():
                pytest.skip("this user may not mount a FUSE file system here")
            yield slow
        finally:
            LIBC.umount2(os.fsencode(slow.folder), MNT_DETACH)
            # Ends it; then the kernel refuses whatever still waits for an answer.
            server.stdin.close()
            server.wait(60)


def main(folder: str, backing: str, control: str, *command: str) -> int:
    """Mount and serve; return the command's exit code."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    owner = f"user_id={os.getuid()},group_id={os.getgid()}"
    options = f"fd={device},rootmode=40000,{owner},allow_other,default_permissions".encode()
    if LIBC.mount(b"slow", os.fsencode(folder), b"fuse", 0, options) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    served = PassThrough(device, Path(backing), Path(control))
    for _ in range(NUM_THREADS):
        threading.Thread(target=served.serve, daemon=True).start()
    if command:
        return subprocess.run(command, check=False).returncode
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    # Threads may wait for the kernel, or sleep.
    os._exit(code)
