"""What a fork would not carry over, or what only an interpreter can run: refused before the fork."""

from __future__ import annotations

import contextlib
import os
import stat
import sys


class NotForkable(Exception):
    """Only a fresh process will do; the text says why."""


def require_nothing_hidden(folder: str) -> None:
    """A module beside the script precedes the standard library's: too late for those that the warm process has imported."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            name, path = entry.partition(".")[0], os.path.join(folder, entry)
            is_module = entry.endswith(".py") or os.path.exists(os.path.join(path, "__init__.py"))
            if is_module and name in sys.modules and name != "__main__":
                raise NotForkable(f"{path} has the name of a module of the standard library")


def require_source(path: str) -> None:
    """An interpreter also runs folders, archives, compiled files and pipes; only a fresh process does that."""
    try:
        is_source = stat.S_ISREG(os.stat(path).st_mode)
        if is_source:
            with open(path, "rb") as file:
                is_source = b"\0" not in file.read()
    except OSError as error:
        raise NotForkable(f"{path} cannot be read: {error.strerror}") from error
    if not is_source:
        raise NotForkable(f"{path} is not a plain source file")


def require_forkable(preload: list[str], descriptors: dict[int, str], folder: str) -> None:
    """Raise NotForkable after imports that a fork would not carry over; they began with these descriptors and folder."""
    what = f"preload {', '.join(preload)}"
    left_open = sorted(set(open_descriptors().items()) - set(descriptors.items()))
    if left_open:
        raise NotForkable(f"{what} has left {left_open[0][1]} open")
    if os.getcwd() != folder:
        raise NotForkable(f"{what} has changed the working directory to {os.getcwd()}")
    # Some libraries (OpenBLAS) end their threads at a fork and start them again at need: those do no harm.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = _threads()
    if len(threads) > 1:
        raise NotForkable(
            f"{what} has started {len(threads) - 1} threads ({threads[-1]}); a fork would lose them"
        )
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise NotForkable(f"{what} has initialised CUDA")


def open_descriptors() -> dict[int, str]:
    """Return where each open descriptor of this process leads."""
    links = {}
    for name in os.listdir("/proc/self/fd"):
        # The one that lists them is closed again.
        with contextlib.suppress(OSError):
            links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return links


def _threads() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names
