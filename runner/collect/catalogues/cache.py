"""Cache: the table of all catalogues, compiled once on a machine by whichever process needs it first.

The file's name is a hash of the catalogues, of the engine and of how tables are made, and its content has a checksum; it is written
beside its place and moved there, so that a process that is killed, and several that compile at once, leave whole files only. Where
the cache's folder can be locked, one compiles and the others wait for its table: the agents of a machine start at the same time.
"""

import hashlib
import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from runner import rootcause
from runner.atomic_files import lock
from runner.collect import engines
from runner.collect.catalogues.files import FORMAT, Catalogue, paths_in, read_catalogue
from runner.collect.catalogues.table import MAGIC, Table, is_whole, pack
from runner.facts.specs.programs import module_command

FOLDER = Path(rootcause.__file__).parent / "catalogues"
# Rises when tables are made another way of the same catalogues.
CACHE_VERSION = 12
# Compiling takes a few seconds of a core; for that, and for the turns of those that come before. Chosen.
COMPILE_SECONDS = 120.0
# Of that for the lock at most, so that there is time to compile without it. Chosen.
LOCK_SECONDS = COMPILE_SECONDS / 2
_READ_BYTES = 1 << 18


def load_table(folder: Path = FOLDER) -> Table:
    """Return the table of a folder's catalogues: from the cache, or compiled now.

    It is compiled in a process of its own, whose memory is free afterwards, or in this one where that
    one cannot write the cache.
    """
    path = cache_path(folder)
    table = _cached(path)
    if table is None:
        _compile_apart(folder)
        table = _cached(path)
    return _compiled_here(folder) if table is None else table


def _compiled_here(folder: Path) -> Table:
    """Compile in this process; what no engine can compile is a defect of an empty table."""
    try:
        return Table(memoryview(compiled(folder)))
    except ValueError as error:
        defect = f"no catalogue is used, they cannot be compiled: {error}"
        return Table(memoryview(pack([Catalogue(folder.name, defect=defect)])))


def compiled(folder: Path = FOLDER) -> bytes:
    """Compile the catalogues of a folder, and write them to the cache if that can be written."""
    data = pack(read_catalogue(path) for path in paths_in(folder))
    engines.write_cache(cache_path(folder), data)
    return data


def compile_if_missing(folder: Path = FOLDER) -> None:
    """Compile the catalogues of a folder into the cache, unless another process has done so meanwhile."""
    with _compile_lock(engines.cache_folder()):
        path = cache_path(folder)
        # What processes left that were killed while they wrote it.
        with suppress(OSError):
            for scratch in path.parent.glob(f"{path.stem}.[0-9]*"):
                scratch.unlink(missing_ok=True)
        if _cached(path) is None:
            compiled(folder)


def cache_path(folder: Path = FOLDER) -> Path:
    """Return where the table of these catalogues is cached."""
    digest = hashlib.sha256(MAGIC + f"{CACHE_VERSION} {FORMAT} {engines.version()}".encode())
    for path in paths_in(folder):
        digest.update(b"\0" + path.name.encode(errors="replace") + b"\0")
        try:
            with path.open("rb") as file:
                while block := file.read(_READ_BYTES):
                    digest.update(block)
        except OSError:
            # Reading it names the reason.
            digest.update(b"\0unread")
    return engines.cache_folder() / f"{digest.hexdigest()[:24]}.catalogues"


def _cached(path: Path) -> Table | None:
    """Return a cached table; None: there is none, it is another user's, or it is not whole."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_uid != os.geteuid():
                return None
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if not is_whole(memoryview(mapped)):
            return None
        return Table(memoryview(mapped), release=partial(mapped.madvise, mmap.MADV_DONTNEED))
    except (OSError, ValueError):
        return None


@contextmanager
def _compile_lock(cache: Path) -> Iterator[None]:
    """Hold the lock of the cache's folder; where none can be had, as on some shared file systems, or would be of no use, go on."""
    with ExitStack() as stack:
        with suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, file)
            if os.access(cache, os.W_OK):
                lock(file, deadline_seconds=LOCK_SECONDS, otherwise=TimeoutError())
        yield


def _compile_apart(folder: Path) -> None:
    command = module_command("runner.collect.catalogues", str(folder), str(os.getpid()))
    try:
        subprocess.run(
            command,
            timeout=COMPILE_SECONDS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        # It is compiled in this process.
        return
