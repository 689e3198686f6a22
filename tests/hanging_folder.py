"""A folder whose file system hangs when a test wants it: FUSE, in a process that is stopped and continued.

`python hanging_folder.py FOLDER BEHIND` shows what is in BEHIND under FOLDER, as far as ranks and agents need it, and caches none.
Layouts and numbers of messages are those of include/uapi/linux/fuse.h, version 7.31.
"""

import contextlib
import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

NAME = "stoker-test"
ROOT = 1
MAX_WRITE = 128 * 1024
VERSION = (7, 31)
# Bits of SETATTR, of GETATTR, and of what OPEN answers.
SET_MODE, SET_OWNER, SET_SIZE = 1, 6, 8
BY_HANDLE, UNCACHED = 1, 1
# FORGET, INTERRUPT, BATCH_FORGET.
UNANSWERED = (2, 36, 42)
HEAD = struct.Struct("<IIQQIIII")


@dataclass
class Hanging:
    """A mounted folder."""

    folder: Path
    process: "subprocess.Popen[str]"

    def hang(self) -> None:
        """Let nothing in the folder answer any more."""
        self.process.send_signal(signal.SIGSTOP)

    def answer(self) -> None:
        """Let it answer again, what was asked meanwhile included."""
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def hanging_folder(folder: Path, behind: Path) -> Iterator[Hanging]:
    """Mount it while the block runs; skip the test where that cannot be."""
    for path in (folder, behind):
        path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a file system of FUSE can be mounted by root only, with /dev/fuse")
    command = [sys.executable, __file__, str(folder), str(behind)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", env={}
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line != "mounted\n":
            pytest.skip(f"no file system can be mounted here: {line}")
        try:
            yield Hanging(folder, process)
        finally:
            # What waits for it gets an error.
            process.kill()
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass
class Passthrough:
    """The file system: paths by number, and open files are this process's own."""

    behind: str
    paths: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._number(self.behind)

    def serve(self, device: int) -> None:
        """Answer until the folder is unmounted."""
        with contextlib.suppress(OSError):
            while request := os.read(device, MAX_WRITE + 8192):
                _, code, unique, node, *_ = HEAD.unpack_from(request)
                if code in UNANSWERED:
                    continue
                error, body = 0, b""
                try:
                    body = self.answer(code, node, request[HEAD.size :])
                except OSError as failed:
                    error = failed.errno or errno.EIO
                os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def answer(self, code: int, node: int, body: bytes) -> bytes:
        """Return the body of an answer; raises OSError."""
        handler = _HANDLERS.get(code)
        if handler is None:
            raise OSError(errno.ENOSYS, "not here")
        return handler(self, self.paths.get(node, ""), body)

    def _number(self, path: str) -> int:
        if path not in self.numbers:
            self.numbers[path] = ROOT + len(self.paths)
            self.paths[self.numbers[path]] = path
        return self.numbers[path]

    def init(self, _: str, body: bytes) -> bytes:
        """Agree on a version, and on no feature."""
        (readahead,) = struct.unpack_from("<8xI", body)
        return struct.pack("<IIIIHHII36x", *VERSION, readahead, 0, 16, 12, MAX_WRITE, 1)

    def lookup(self, folder: str, body: bytes) -> bytes:
        """Find a name in a folder."""
        return self._entry(os.path.join(folder, _names(body)[0]))

    def getattr(self, path: str, body: bytes) -> bytes:
        """Describe a file, an open one by its handle."""
        flags, handle = struct.unpack_from("<I4xQ", body)
        return bytes(16) + _attributes(os.fstat(handle) if flags & BY_HANDLE else os.lstat(path))

    def setattr(self, path: str, body: bytes) -> bytes:
        """Change size, mode, owner; times are left alone, for no test sets them."""
        valid, size, mode, uid, gid = struct.unpack_from("<I12xQ44xI4xII", body)
        if valid & SET_SIZE:
            os.truncate(path, size)
        if valid & SET_MODE:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & SET_OWNER:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        return bytes(16) + _attributes(os.lstat(path))

    def mknod(self, folder: str, body: bytes) -> bytes:
        """Make a pipe, or a file."""
        mode, device = struct.unpack_from("<II", body)
        path = os.path.join(folder, _names(body[16:])[0])
        os.mknod(path, mode, device)
        return self._entry(path)

    def mkdir(self, folder: str, body: bytes) -> bytes:
        """Make a folder."""
        path = os.path.join(folder, _names(body[8:])[0])
        os.mkdir(path, struct.unpack_from("<I", body)[0])
        return self._entry(path)

    def unlink(self, folder: str, body: bytes) -> bytes:
        """Remove a file."""
        os.unlink(os.path.join(folder, _names(body)[0]))
        return b""

    def rmdir(self, folder: str, body: bytes) -> bytes:
        """Remove a folder."""
        os.rmdir(os.path.join(folder, _names(body)[0]))
        return b""

    def rename(self, folder: str, body: bytes, *, head_bytes: int = 8) -> bytes:
        """Rename a file or a folder."""
        (target,) = struct.unpack_from("<Q", body)
        old_name, new_name = _names(body[head_bytes:])
        old = os.path.join(folder, old_name)
        new = os.path.join(self.paths[target], new_name)
        os.rename(old, new)
        for number, path in self.paths.items():
            if path == old or path.startswith(f"{old}/"):
                self.paths[number] = new + path[len(old) :]
        self.numbers = {path: number for number, path in self.paths.items()}
        return b""

    def rename_with_flags(self, folder: str, body: bytes) -> bytes:
        """Rename; the flags are not known here."""
        return self.rename(folder, body, head_bytes=16)

    def open(self, path: str, body: bytes) -> bytes:
        """Open a file or a folder; what is read and written is not cached."""
        (flags,) = struct.unpack_from("<I", body)
        return _opened(os.open(path, flags & ~os.O_NOFOLLOW))

    def create(self, folder: str, body: bytes) -> bytes:
        """Make a file and open it."""
        flags, mode = struct.unpack_from("<II", body)
        path = os.path.join(folder, _names(body[16:])[0])
        opened = os.open(path, flags | os.O_CREAT, mode)
        return self._entry(path) + _opened(opened)

    def read(self, _: str, body: bytes) -> bytes:
        """Read."""
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def write(self, _: str, body: bytes) -> bytes:
        """Write; where a file was opened to append, at its end."""
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def release(self, _: str, body: bytes) -> bytes:
        """Close."""
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def done(self, _: str, __: bytes) -> bytes:
        """Sync what is never kept back."""
        return b""

    def statfs(self, path: str, _: bytes) -> bytes:
        """Describe the disk behind."""
        disk = os.statvfs(path)
        blocks = (disk.f_blocks, disk.f_bfree, disk.f_bavail, disk.f_files, disk.f_ffree)
        return struct.pack("<5Q3I28x", *blocks, disk.f_bsize, disk.f_namemax, disk.f_frsize)

    def readdir(self, path: str, body: bytes) -> bytes:
        """List a folder from an offset on, as much as fits."""
        _, offset, size = struct.unpack_from("<QQI", body)
        listed = b""
        for index, name in enumerate([".", "..", *sorted(os.listdir(path))]):
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", ROOT + index, index + 1, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if index >= offset and len(listed) + len(entry) <= size:
                listed += entry
            elif index >= offset:
                break
        return listed

    def _entry(self, path: str) -> bytes:
        status = os.lstat(path)
        return struct.pack("<QQQQII", self._number(path), 0, 0, 0, 0, 0) + _attributes(status)


# Without FLUSH, at which a killed process would wait before it ends.
_HANDLERS: dict[int, Callable[[Passthrough, str, bytes], bytes]] = {
    1: Passthrough.lookup,
    3: Passthrough.getattr,
    4: Passthrough.setattr,
    8: Passthrough.mknod,
    9: Passthrough.mkdir,
    10: Passthrough.unlink,
    11: Passthrough.rmdir,
    12: Passthrough.rename,
    14: Passthrough.open,
    15: Passthrough.read,
    16: Passthrough.write,
    17: Passthrough.statfs,
    18: Passthrough.release,
    20: Passthrough.done,
    26: Passthrough.init,
    27: Passthrough.open,
    28: Passthrough.readdir,
    29: Passthrough.release,
    30: Passthrough.done,
    35: Passthrough.create,
    45: Passthrough.rename_with_flags,
}


def _names(body: bytes) -> list[str]:
    return [os.fsdecode(name) for name in body.split(b"\0")[:-1]]


def _opened(handle: int) -> bytes:
    return struct.pack("<QII", handle, UNCACHED, 0)


def _attributes(status: os.stat_result) -> bytes:
    times = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    seconds, rests = [at // 10**9 for at in times], [at % 10**9 for at in times]
    numbers = (status.st_ino, status.st_size, status.st_blocks, *seconds, *rests)
    owner = (status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_rdev)
    return struct.pack("<6Q10I", *numbers, *owner, 4096, 0)


def main(folder: str, behind: str) -> None:
    """Mount and serve."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    names = (NAME.encode(), os.fsencode(folder), b"fuse")
    if libc.mount(*names, 0, options.encode()) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    os.umask(0)
    print("mounted", flush=True)
    Passthrough(behind).serve(device)


if __name__ == "__main__":
    main(*sys.argv[1:])
