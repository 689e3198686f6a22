"""The warm process: it has imported what ranks import, and forks them.

One file, although it is long: the interpreter of the ranks runs it, and a second module of ours would stay among those of the
program. Standard library only, any Python from 3.9 on.

A keeper starts it in the interpreter, environment and working directory of the ranks. It imports the `preload` modules, makes
sure that it can be forked from (one thread, no descriptor left open, no GPU touched), says `ready`, and waits. Asked for ranks,
it forks a middle process that forks them and ends, so that the keeper, a subreaper, becomes their parent: exits, kills and
adoption work as for ranks it had spawned itself, and nothing dies with the warm process.

A rank then makes itself what a fresh process would have been (`_become`, `_run`): session, descriptors, environment (in
/proc/PID/environ too, by which ranks are found), arguments, sys.path, `__main__`. Where that is not possible it does not try:
a refusal names the reason, and the keeper spawns as usual.

Keeper and warm process talk in packets over a socket: JSON. A job comes as descriptors: a memory file that holds it, the start
barrier that its ranks wait at, and channel, output and errors of each.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import re
import runpy
import select
import signal
import socket
import stat
import sys
import time
import traceback
import types
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from typing import Any, NamedTuple

# In one job: each rank has three descriptors, and a packet carries 253.
MAX_RANKS = 64
# Keeps room in /proc/PID/environ for a rank's own environment.
ROOM_VARIABLE = "STOKER_WARM_ROOM"
# Distinguishes keepers and warm processes from ranks.
KEEPER_VARIABLE = "STOKER_KEEPER"
_WARM_VARIABLES = (ROOM_VARIABLE, KEEPER_VARIABLE)
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# Of a descriptor's number, at most.
_NUMBER_DIGITS = 10
_PACKET_BYTES = 64 * 1024
# Modules that note the rank while they are imported: name -> the object whose `rank` it is, and the variables it is read from. A
# forked rank notes its own instead.
_RANK_NOTES = {
    "lightning.fabric.utilities.rank_zero": ("rank_zero_only", ("RANK", "LOCAL_RANK")),
    "lightning_fabric.utilities.rank_zero": ("rank_zero_only", ("RANK", "LOCAL_RANK")),
    "torchmetrics.utilities.prints": ("rank_zero_only", ("LOCAL_RANK",)),
}
# Of the state of a Mersenne twister, in `random` and in numpy.
_NUM_WORDS = 624
# Rank 0's head start to listen where the others will connect: torch's client waits 0.25 to 0.75 s after a connection that was
# refused (measured, 2.13). A rank 0 that was forked listens after some 30 ms; one that never does costs no more than this.
_HEAD_START_SECONDS = 0.25
# Between looks for a listener; doubles up to the second. Both chosen.
_POLL_SECONDS = (0.002, 0.02)
# The first argument of the process that imports the modules a second time, and how long it may take; chosen.
_SECOND_IMPORT = "--generators"
_SECOND_IMPORT_SECONDS = 300.0
# For the middle process to end; chosen, it takes milliseconds.
_ADOPTION_SECONDS = 10.0

Message = dict[str, Any]


class NotForkable(Exception):
    """Only a fresh process will do; the text says why."""


class ProcTitle:
    """The memory behind /proc/self/cmdline and environ, by which other processes find ranks."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        # Fields 48 to 51 of proc(5), counted from 1; the split starts at field 3.
        self._arguments = (int(fields[45]), int(fields[46]))
        self._environment = (int(fields[47]), int(fields[48]))
        if not all((*self._arguments, *self._environment)):
            raise NotForkable("the kernel does not show where this process keeps its environment")

    def check(self, environment: dict[str, str]) -> None:
        """Raise NotForkable when an environment does not fit."""
        start, end = self._environment
        size = len(_as_block(environment))
        if size > end - start:
            raise NotForkable(
                f"an environment of {size} bytes is larger than the {end - start} kept free"
            )

    def write(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Show these instead; what does not fit is cut."""
        for name, value in os.environ.items():
            # Copies what the C library may still read from that memory.
            os.putenv(name, value)
        _overwrite(self._environment, _as_block(environment))
        _overwrite(self._arguments, b"".join(os.fsencode(word) + b"\0" for word in arguments))


def _differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _as_block(environment: dict[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())


def _overwrite(bounds: tuple[int, int], data: bytes) -> None:
    start, end = bounds
    size = end - start
    # To the kernel, a last byte that is not zero means that the memory continues.
    ctypes.memmove(start, data[: size - 1].ljust(size, b"\0"), size)


def _initial_environment() -> dict[str, str]:
    """Return the environment before the interpreter changed it (it sets LC_CTYPE in a C locale)."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (item.partition(b"=") for item in file.read().split(b"\0") if item)
    environment = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return {name: value for name, value in environment.items() if name not in _WARM_VARIABLES}


def _threads() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names


def _descriptors() -> dict[int, str]:
    links = {}
    for name in os.listdir("/proc/self/fd"):
        # The one that lists them is closed again.
        with contextlib.suppress(OSError):
            links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return links


class PreloadedModules:
    """What has been imported, from which files, and what that has done to the environment."""

    def __init__(self, request: Message) -> None:
        self.request = request
        self.title = ProcTitle()
        # What an attempt sets differs; all else must stay as it is when the modules are imported.
        self._own = re.compile(request["own_variables"])
        self.initial_environment = self._lasting(_initial_environment())
        self.environment_changes: dict[str, str | None] = {}
        # Of generators that the modules seed, always alike: what a fresh rank would have after the same imports.
        self.generators: dict[str, object] = {}
        self._files: dict[str, tuple[int, int]] = {}

    def import_all(self) -> None:
        """Import the modules as the program would find them. Raises NotForkable when ranks cannot be forked afterwards."""
        if os.path.exists("/dev/kfd"):
            raise NotForkable("this node has AMD GPUs, and forking has not been tried on them")
        self._set_search_path()
        descriptors, folder = _descriptors(), os.getcwd()
        environment = dict(os.environ)
        seeding = []
        for name in self.request["preload"]:
            with _forbid_reads(name, self._own):
                changed = _import(name)
            seeding += [(name, library) for library in changed]
        if seeding:
            self.generators = _lasting_generators(self.request, *seeding[0], environment)
        after = self._lasting(dict(os.environ))
        changed = _differing(after, self.initial_environment)
        self.environment_changes = {name: after.get(name) for name in changed}
        _require_forkable(self.request["preload"], descriptors, folder)
        self._files = {path: _stamp(path) for path in _files_of_modules()}
        gc.collect()
        # A collection in a rank would write to, and so copy, every page.
        gc.freeze()

    def check(self, job: Message) -> None:
        """Raise NotForkable when a rank of this job would not be what a fresh process is."""
        for path, stamp in self._files.items():
            if _stamp(path) != stamp:
                raise NotForkable(f"{path} has changed since it was imported")
        if self.request["form"] == "path":
            _require_source(self.request["target"])
        if not os.path.isdir(job["working_directory"]):
            raise NotForkable(f"{job['working_directory']} is not a folder")
        for rank in job["ranks"]:
            environment = {**job["environment"], **rank["environment"]}
            self.title.check({**environment, "STOKER_CHANNEL": "0" * _NUMBER_DIGITS})
            changed = _differing(self._lasting(environment), self.initial_environment)
            if changed:
                raise NotForkable(f"{changed[0]} has changed since the modules were imported")

    def _lasting(self, environment: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if not self._own.fullmatch(name)}

    def _set_search_path(self) -> None:
        """Search where the program will: beside the script or in the working directory, not beside this file."""
        target = self.request["target"]
        sys.argv[:] = [target]
        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            return
        is_script = self.request["form"] == "path"
        sys.path[0] = os.path.dirname(os.path.realpath(target)) if is_script else os.getcwd()
        _require_nothing_hidden(sys.path[0])


def _require_nothing_hidden(folder: str) -> None:
    """A module beside the script precedes the standard library's: too late for those this file has imported."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            name, path = entry.partition(".")[0], os.path.join(folder, entry)
            is_module = entry.endswith(".py") or os.path.exists(os.path.join(path, "__init__.py"))
            if is_module and name in sys.modules and name != "__main__":
                raise NotForkable(f"{path} has the name of a module of the standard library")


def _require_source(path: str) -> None:
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


def _import(name: str) -> list[str]:
    """Import a module; return the libraries whose random generators it seeds."""
    before, seeds = os.getpid(), _seeds()
    try:
        importlib.import_module(name)
    except BaseException as error:
        reason = "".join(traceback.format_exception_only(type(error), error)).strip()
        traceback.print_exc()
        raise NotForkable(f"preload {name!r} cannot be imported: {reason[-500:]}") from error
    finally:
        if os.getpid() != before:
            # This is a copy of us that the module has forked.
            os._exit(1)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        raise NotForkable(f"preload {name!r} starts a process while it is imported")
    return [library for library, seed in _seeds().items() if seeds.get(library, seed) != seed]


def _seeds() -> dict[str, object]:
    """Return what the next draws from each imported random generator do not change, but a seed does.

    Their state is 624 words and a place in them. Draws, such as `import rich` makes one, move the place; at the words' end
    they make new words, so the place is moved to their begin first, in a copy.
    """
    state = random.getstate()
    if state[1][-1] >= _NUM_WORDS:
        copy = random.Random()
        copy.setstate(state)
        copy.getrandbits(32)
        state = copy.getstate()
    states: dict[str, object] = {"random": hash(state[1][:-1])}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state = numpy_random.get_state()
        if state[2] >= _NUM_WORDS:
            copy = numpy_random.RandomState()
            copy.set_state(state)
            copy.bytes(4)
            state = copy.get_state()
        states["numpy.random"] = hash(state[1].tobytes())
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.initial_seed()
    return states


def _generators() -> dict[str, object]:
    """Return the whole state of each random generator that is imported."""
    states: dict[str, object] = {"random": random.getstate()}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        states["numpy.random"] = numpy_random.get_state()
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state()
    return states


def _as_text(state: object) -> str:
    """Write a generator's state such that two processes write the same state alike."""
    parts = state if isinstance(state, tuple) else (state,)
    return repr([part.tolist() if hasattr(part, "tolist") else part for part in parts])


def _lasting_generators(
    request: Message, module: str, library: str, environment: dict[str, str]
) -> dict[str, object]:
    """Return the generators that every process has alike after the imports: these are seeded with a number that is always the same.

    A second process imports the modules, too. Where its generator differs, a module seeds it with what each process has of its own,
    or only draws from it: then a forked rank draws a seed of its own, as a fresh one would.
    """
    reader, writer = os.pipe()
    options = request["interpreter"][1:]
    program = [sys.executable, *options, __file__, _SECOND_IMPORT, str(writer)]
    text = json.dumps(
        {"path": sys.path, "target": request["target"], "preload": request["preload"]}
    )
    pid = os.fork()
    if pid == 0:
        try:
            os.set_inheritable(writer, True)
            os.closerange(3, writer)
            os.closerange(writer + 1, writer + 1024)
            os.execve(sys.executable, [*program, text], environment)  # noqa: S606 - as meant
        finally:
            os._exit(1)
    os.close(writer)
    found = b""
    deadline = time.monotonic() + _SECOND_IMPORT_SECONDS
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            break
        found += chunk
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    os.waitpid(pid, 0)
    try:
        second = json.loads(found)
    except ValueError:
        raise NotForkable(
            f"preload {module!r} seeds {library}, or draws from it, while it is imported, and importing it a second time, to see "
            "which, failed"
        ) from None
    first = _generators()
    return {name: state for name, state in first.items() if second.get(name) == _as_text(state)}


def _report_generators() -> None:
    """Be the second process of `_lasting_generators`: write the generators to its pipe."""
    descriptor, request = int(sys.argv[2]), json.loads(sys.argv[3])
    os.set_inheritable(descriptor, False)
    sys.path[:] = request["path"]
    sys.argv[:] = [request["target"]]
    for name in request["preload"]:
        importlib.import_module(name)
    states = {name: _as_text(state) for name, state in _generators().items()}
    with open(descriptor, "w") as pipe:
        json.dump(states, pipe)


@contextlib.contextmanager
def _forbid_reads(name: str, own: re.Pattern[str]) -> Iterator[None]:
    """Raise NotForkable when a module reads variables of a rank while it is imported."""
    read: list[str] = []
    cls = type(os.environ)
    original = cls.__getitem__

    def record(self: Any, key: Any) -> Any:
        if isinstance(key, str) and own.fullmatch(key) and _reader() not in _RANK_NOTES:
            read.append(key)
        return original(self, key)

    cls.__getitem__ = record  # type: ignore[method-assign]
    try:
        yield
    finally:
        cls.__getitem__ = original  # type: ignore[method-assign]
    if read:
        raise NotForkable(
            f"preload {name!r} reads {read[0]} while it is imported, which is each rank's own"
        )


def _reader() -> str:
    """Return the module whose code reads the environment now."""
    frame = sys._getframe(2)
    # `os.environ.get` is a method of collections.abc.
    between = ("os", "collections.abc")
    while frame.f_back is not None and frame.f_globals.get("__name__") in between:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _note_rank() -> None:
    """Have modules that note the rank when they are imported note this one."""
    for name, (attribute, variables) in _RANK_NOTES.items():
        owner = getattr(sys.modules.get(name), attribute, None)
        ranks = [os.environ[variable] for variable in variables if variable in os.environ]
        if owner is not None and ranks and ranks[0].isdecimal():
            owner.rank = int(ranks[0])


def _require_forkable(preload: list[str], descriptors: dict[int, str], folder: str) -> None:
    """Raise NotForkable after imports that a fork would not carry over; they began with these descriptors and folder."""
    what = f"preload {', '.join(preload)}"
    left_open = sorted(set(_descriptors().items()) - set(descriptors.items()))
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


def _versions(request: Message) -> dict[str, str]:
    """Return the versions that have to be the same on all nodes of a run."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("torch", "deepspeed", *(name.partition(".")[0] for name in request["preload"])):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = str(version)
    return versions


def _files_of_modules() -> set[str]:
    """Return the files whose time shows that code has changed; for an installed package, its site-packages folder."""
    paths = {os.path.realpath(sys.executable)}
    library = os.path.dirname(os.path.realpath(os.__file__))
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or path == __file__:
            continue
        parts = path.split(os.sep)
        folders = ("site-packages", "dist-packages")
        installed = [index for index, part in enumerate(parts) if part in folders]
        if installed:
            paths.add(os.sep.join(parts[: installed[-1] + 1]))
        elif not os.path.realpath(path).startswith(library + os.sep):
            paths.add(path)
    return paths


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


class ForkSlot(NamedTuple):
    """What a forked process is to become: one rank of a job, with its descriptors.

    `start_barrier` is readable once the keeper knows the rank. `rendezvous_latch` is a pipe: the first of this node's ranks that
    connect to rank 0 closes its writing end.
    """

    job: Message
    rank: Message
    start_barrier: int
    channel: int
    output: int
    errors: int
    rendezvous_latch: tuple[int, int]

    @property
    def environment(self) -> dict[str, str]:
        """What a fresh process would be started with."""
        channel = {"STOKER_CHANNEL": str(self.channel)}
        return {**self.job["environment"], **self.rank["environment"], **channel}


def _fork_ranks(stream: socket.socket, job: Message, descriptors: list[int]) -> ForkSlot | None:
    """Fork the ranks of a job by way of a middle process; return a rank's slot in the rank, None here."""
    middle = os.fork()
    if middle:
        _, status = os.waitpid(middle, 0)
        if status:
            _refuse(stream, job, f"forking ended with status {status}")
        return None
    # The keeper kills the group of a warm process that it replaces, perhaps before a rank that runs already has a group of its own.
    os.setsid()
    pids: dict[int, int] = {}
    try:
        latch = os.pipe()
        for index, rank in enumerate(job["ranks"]):
            pid = os.fork()
            if pid == 0:
                channel, output, errors = descriptors[1 + 3 * index : 4 + 3 * index]
                return ForkSlot(job, rank, descriptors[0], channel, output, errors, latch)
            pids[rank["rank"]] = pid
        _send(stream, kind="forked", job=job["job"], pids=pids)
    except OSError as error:
        # They wait at the barrier, which never opens for them, and end by themselves.
        _refuse(stream, job, f"cannot fork: {error}")
    os._exit(0)


def _await_adoption(start_barrier: int, keeper: int) -> None:
    """Wait until the keeper knows of this rank and is its parent; end if it never will."""
    if os.read(start_barrier, 1) != b"g":
        os._exit(1)
    deadline = time.monotonic() + _ADOPTION_SECONDS
    while os.getppid() != keeper:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The keeper died before the line above took effect.
    if os.getppid() != keeper:
        os._exit(1)


def _await_rendezvous(slot: ForkSlot) -> None:
    """Let rank 0 listen before the others connect. One rank of a node looks for it, the others wait at the latch."""
    reader, writer = slot.rendezvous_latch
    followers = [rank["rank"] for rank in slot.job["ranks"] if rank["rank"] != 0]
    if slot.rank["rank"] not in followers:
        return
    deadline = time.monotonic() + _HEAD_START_SECONDS
    if slot.rank["rank"] != followers[0]:
        os.close(writer)
        select.select([reader], [], [], _HEAD_START_SECONDS)
        return
    if not _is_local_address(os.environ["MASTER_ADDR"]):
        # Whether it listens cannot be seen from here.
        return
    port = int(os.environ["MASTER_PORT"])
    pause, longest = _POLL_SECONDS
    while time.monotonic() < deadline and not _is_listened_on(port):
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _is_local_address(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _is_listened_on(port: int) -> bool:
    """Look for a listener without connecting: a script's rank 0 may take the first connection for its peer."""
    wanted = b":%04X" % port
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(path, "rb") as table:
            for line in table:
                fields = line.split(None, 4)
                # 0A is the state LISTEN.
                if fields[1].endswith(wanted) and fields[3] == b"0A":
                    return True
    return False


def _become(modules: PreloadedModules, slot: ForkSlot) -> None:
    """Become the rank as the kernel and the operating system see it."""
    os.setsid()
    for name in list(os.environ):
        del os.environ[name]
    os.environ.update(slot.environment)
    for name, value in modules.environment_changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _note_rank()
    modules.title.write(slot.rank["command_line"], slot.environment)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, os.fsencode(slot.rank["name"]))
    os.chdir(slot.job["working_directory"])
    _await_adoption(slot.start_barrier, slot.job["keeper"])
    _await_rendezvous(slot)
    os.dup2(slot.output, 1)
    os.dup2(slot.errors, 2)
    os.set_inheritable(slot.channel, True)
    for descriptor in _descriptors():
        if descriptor > 2 and descriptor != slot.channel:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _reseed(generators: dict[str, object]) -> None:
    """Draw the random values that a fresh process draws at its start; these generators have the same state in each process."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        multiprocessing.current_process().authkey = os.urandom(32)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    if "random" in generators:
        random.setstate(generators["random"])  # type: ignore[arg-type]
    if "numpy.random" in generators and numpy_random is not None:
        numpy_random.set_state(generators["numpy.random"])
    if "torch" in generators and torch is not None:
        torch.set_rng_state(generators["torch"])
    importlib.invalidate_caches()


def _run(form: str, rank: Message) -> None:
    """Run the program as the interpreter would have."""
    sys.argv[:] = rank["argv"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = rank["command_line"]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    if form == "module":
        target = sys.argv[0]
        sys.argv[0] = "-m"
        runpy._run_module_as_main(target)  # type: ignore[attr-defined]  # what the interpreter calls for -m
        return
    # The interpreter does not normalise it either.
    path = os.path.join(os.getcwd(), sys.argv[0])
    main.__dict__.update(
        __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
    )
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the program that this process is for


def _trim_tracebacks() -> None:
    """Leave the frames of this file out of tracebacks of the program."""
    original = sys.excepthook

    def hook(cls: Any, error: Any, trace: Any) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        original(cls, error.with_traceback(trace), trace)

    sys.excepthook = hook


def _send(stream: socket.socket, **message: Any) -> None:
    stream.send(json.dumps(message).encode())


def _refuse(stream: socket.socket, job: Message, reason: str) -> None:
    _send(stream, kind="refused", job=job["job"], reason=reason)


def _receive(stream: socket.socket) -> tuple[Message, list[int]]:
    """Wait for a message and its descriptors; ends the process when the keeper is gone."""
    numbers = array.array("i")
    size = socket.CMSG_SPACE((2 + 3 * MAX_RANKS) * numbers.itemsize)
    data, rights, _, _ = stream.recvmsg(_PACKET_BYTES, size, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    if not data:
        os._exit(0)
    for _, _, part in rights:
        numbers.frombytes(part[: len(part) // numbers.itemsize * numbers.itemsize])
    file_descriptor, *descriptors = numbers.tolist()
    with open(file_descriptor, "rb") as file:
        file.seek(0)
        message: Message = json.loads(file.read())
    return message, descriptors


def _serve(stream: socket.socket, modules: PreloadedModules) -> ForkSlot:
    """Do jobs; returns only in a forked rank."""
    while True:
        job, descriptors = _receive(stream)
        slot = None
        try:
            modules.check(job)
            slot = _fork_ranks(stream, job, descriptors)
        except (NotForkable, OSError) as error:
            _refuse(stream, job, str(error))
        if slot is not None:
            return slot
        for descriptor in descriptors:
            os.close(descriptor)


def _preload(stream: socket.socket) -> PreloadedModules | None:
    for name in _WARM_VARIABLES:
        os.environ.pop(name, None)
    request, _ = _receive(stream)
    started = time.monotonic()
    try:
        modules = PreloadedModules(request)
        modules.title.write(
            ["warm", "process:", *request["preload"]], {KEEPER_VARIABLE: request["keeper"]}
        )
        modules.import_all()
    except NotForkable as error:
        _send(stream, kind="odd", reason=str(error))
        return None
    _send(stream, kind="ready", seconds=time.monotonic() - started, versions=_versions(request))
    return modules


def main() -> None:
    """Import the modules, fork ranks on request, and in each rank run the program to its end."""
    if sys.argv[1] == _SECOND_IMPORT:
        _report_generators()
        return
    stream = socket.socket(fileno=int(sys.argv[1]))
    modules = _preload(stream)
    if modules is None:
        os._exit(0)
    slot = _serve(stream, modules)
    _become(modules, slot)
    stream.detach()
    _reseed(modules.generators)
    _trim_tracebacks()
    _run(modules.request["form"], slot.rank)


if __name__ == "__main__":
    main()
