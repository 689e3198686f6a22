"""What a program sees of its process: run as a rank, fresh or forked, it writes that down. Runs in any Python from 3.9 on."""

import ctypes
import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import ballast  # type: ignore[import-not-found]  # lies beside the program

# Differs from attempt to attempt, or from rank to rank, by design.
OWN = {
    "LOCAL_RANK",
    "RANK",
    "STOKER_ATTEMPT",
    "STOKER_CHANNEL",
    "STOKER_GENERATION",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
}
PR_GET_PDEATHSIG = 2


class Thing:
    """Something to pickle by the name of its module, which is `__main__`."""


def work(queue: object) -> None:
    """Print, from a child, who its parent is and how it sees the program."""
    queue.put((os.getppid(), __name__, sys.argv))  # type: ignore[attr-defined]


def child(method: str) -> object:
    """Start a child by multiprocessing's `method`; return its output and how it ended."""
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))  # type: ignore[attr-defined]
    process.start()
    parent, name, argv = queue.get()
    process.join()
    return [parent == os.getpid(), name, argv, process.exitcode]


def descriptors() -> object:
    """Return where the first three lead, and the kinds of all others."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            # the one that lists them
            continue
    kinds = sorted(path.split(":")[0] for number, path in found.items() if number > 2)
    return [
        found[0],
        found[1],
        found[2],
        kinds,
        os.get_inheritable(int(os.environ["STOKER_CHANNEL"])),
    ]


def modules() -> list[str]:
    """Return the modules that are not of the standard library."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return sorted(
        name
        for name, path in files.items()
        if path and name != "__main__" and not os.path.realpath(path).startswith(library)
    )


def status(name: str) -> str:
    """Return a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split(None, 1)[1] for line in lines if line.startswith(name + ":"))


def words(name: str) -> list[str]:
    """Return a list of /proc/self."""
    return [word for word in Path("/proc/self", name).read_text().split("\0") if word]


def death_signal() -> int:
    """Return the signal that comes when the parent dies."""
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def main_module() -> object:
    """Return what pickle, multiprocessing and runpy go by."""
    module = sys.modules["__main__"]
    return {
        "name": module.__name__,
        "file": getattr(module, "__file__", None),
        "spec": module.__spec__ and module.__spec__.name,
        "loader": type(module.__loader__).__name__,
        "doc": module.__doc__,
        "package": module.__package__,
        "names": sorted(name for name in vars(module) if name.startswith("__")),
    }


def environment(given: dict[str, str]) -> dict[str, str]:
    """Return what does not belong to one attempt or rank."""
    return {name: value for name, value in given.items() if name not in OWN}


def seen() -> dict[str, object]:
    """Return each property by name."""
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    outside = dict(item.split("=", 1) for item in words("environ"))
    shell = "echo $OUTER $WORLD_SIZE $STOKER_NODE"
    return {
        "argv": sys.argv,
        "original argv": getattr(sys, "orig_argv", None),
        "environment": environment(dict(os.environ)),
        "environment from outside": environment(outside),
        "environment of a child": subprocess.check_output(["sh", "-c", shell], text=True),
        "command line": words("cmdline"),
        "executable": [sys.executable, os.readlink("/proc/self/exe"), status("Name")],
        "working directory": os.getcwd(),
        "search path": sys.path,
        "flags": str(sys.flags),
        "main module": main_module(),
        "modules": modules(),
        "a class of main": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "umask": status("Umask"),
        "signals": [status(name) for name in ("SigBlk", "SigIgn", "SigCgt")],
        "handlers": [str(signal.getsignal(n)).split(" at ")[0] for n in range(1, 32)],
        "descriptors": descriptors(),
        "standard input": sys.stdin.read(),
        "streams": [
            (stream.encoding, stream.errors, stream.line_buffering, stream.isatty())
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "threads": [status("Threads"), [thread.name for thread in threading.enumerate()]],
        "in the main thread": threading.current_thread() is threading.main_thread(),
        "nice": os.nice(0),
        "out of memory": Path("/proc/self/oom_score_adj").read_text(),
        "death signal": death_signal(),
        "a spawned child": child("spawn"),
        "a forked child": child("fork"),
    }


def main() -> None:
    """Write it down."""
    found = {
        "seen": seen(),
        "forked": os.getpid() != ballast.LOADED_IN,
        "random": random.random(),
    }
    name = f"seen-{os.environ['STOKER_ATTEMPT']}-{os.environ['RANK']}"
    Path(os.environ["SEEN"], name).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
