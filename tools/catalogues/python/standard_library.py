"""Catalogues of Python itself: its standard library, the texts of errno and of signals, and what the interpreter prints."""

import os
import signal
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from errno import errorcode
from pathlib import Path

from tools.catalogues.python.classes import Area, Class
from tools.catalogues.python.packages import MADE, row_of
from tools.catalogues.python.statements import statements
from tools.catalogues.rows import Header, Row, write
from tools.catalogues.sources import SourceMissing

NAMES = ("python_library", "python_interpreter")
PROGRAM = "tools/catalogues/python/standard_library.py"
# Modules that a training job runs, and what a message of them is about.
_MODULES: Mapping[str, Area] = {
    "argparse.py": "settings",
    "configparser.py": "settings",
    "dataclasses.py": "settings",
    "enum.py": "settings",
    "inspect.py": "settings",
    "typing.py": "settings",
    "importlib/_bootstrap.py": "settings",
    "importlib/_bootstrap_external.py": "settings",
    "runpy.py": "settings",
    "ast.py": "settings",
    "random.py": "settings",
    "statistics.py": "settings",
    "string.py": "settings",
    "logging/config.py": "settings",
    "concurrent/futures/process.py": "runtime",
    "concurrent/futures/_base.py": "runtime",
    "multiprocessing/context.py": "runtime",
    "multiprocessing/spawn.py": "settings",
    "multiprocessing/process.py": "runtime",
    "multiprocessing/shared_memory.py": "runtime",
    "multiprocessing/resource_tracker.py": "runtime",
    "multiprocessing/reduction.py": "runtime",
    "multiprocessing/connection.py": "runtime",
    "multiprocessing/managers.py": "runtime",
    "multiprocessing/pool.py": "runtime",
    "subprocess.py": "runtime",
    "threading.py": "runtime",
    "asyncio/base_events.py": "runtime",
    "asyncio/streams.py": "runtime",
    "socket.py": "runtime",
    "ssl.py": "runtime",
    "http/client.py": "store",
    "urllib/request.py": "store",
    "urllib/error.py": "store",
    "pickle.py": "checkpoint",
    "shelve.py": "checkpoint",
    "zipfile.py": "data",
    "tarfile.py": "data",
    "gzip.py": "data",
    "bz2.py": "data",
    "lzma.py": "data",
    "csv.py": "data",
    "json/__init__.py": "data",
    "json/decoder.py": "data",
    "codecs.py": "data",
    "wave.py": "data",
    "shutil.py": "data",
    "tempfile.py": "runtime",
}
# Of pickles and archives it is not known what they hold: the frames above decide.
_UNKNOWN_CONTENT = ("pickle.py", "zipfile.py", "tarfile.py", "gzip.py", "shutil.py", "codecs.py")
_ERRNO_FAULTS: Mapping[str, tuple[str, str]] = {
    "ENOSPC": ("filesystem", "the device of a file is full"),
    "EDQUOT": ("filesystem", "a quota of a file system"),
    "EIO": ("filesystem", "a device or server failed"),
    "ESTALE": ("filesystem", "a file of NFS that the server no longer has"),
    "EROFS": ("filesystem", "a file system that is remounted after errors, as a rule"),
    "EREMOTEIO": ("filesystem", "a server of files failed"),
    "ESHUTDOWN": ("filesystem", "Lustre and others end a transport"),
    "EUCLEAN": ("filesystem", "the kernel found a broken structure"),
    "ENOTCONN": ("", "FUSE after its server died, or a socket"),
    "ENOMEM": ("host_oom", "memory of the host, unless a device's is named"),
    "EMFILE": ("config_error", "a limit of open files"),
    "ENFILE": ("config_error", "a limit of open files"),
    "ENODEV": ("", "a device that is gone, or was never there"),
    "ENXIO": ("", "likewise"),
    "EADDRINUSE": ("rendezvous", "a port that an earlier process holds"),
    "ECONNREFUSED": ("", "a peer or a service: the frames decide"),
    "ECONNRESET": ("", "likewise"),
    "EPIPE": ("", "likewise: the reader is gone"),
    "EHOSTUNREACH": ("nccl_network", "no route between hosts"),
    "ENETUNREACH": ("nccl_network", "likewise"),
    "ENETDOWN": ("nccl_network", "the interface is down"),
    "EHOSTDOWN": ("nccl_network", "the host does not answer"),
    "ETIMEDOUT": ("", "a peer, a service or a file system"),
}
# What the interpreter prints on its error stream when it cannot go on or ends; CPython, Python/pylifecycle.c and pythonrun.c.
_INTERPRETER: tuple[tuple[str, str, str], ...] = (
    ("Fatal Python error: {}", "", "the line says what"),
    ("Fatal Python error: Segmentation fault", "", "faulthandler: the frames below decide"),
    (
        "Fatal Python error: Bus error",
        "",
        "memory of a file that is gone, or shared memory that is full",
    ),
    ("Fatal Python error: Aborted", "", "a library called abort: its own line is above"),
    ("Fatal Python error: Floating point exception", "", "a signal"),
    ("Fatal Python error: Illegal instruction", "config_error", "a build for another processor"),
    (
        "Fatal Python error: init_fs_encoding: failed to get the Python codec",
        "config_error",
        "PYTHONHOME",
    ),
    (
        "Fatal Python error: none_dealloc: deallocating None",
        "",
        "a reference count that a library broke",
    ),
    ("Fatal Python error: Cannot recover from stack overflow", "config_error", "endless recursion"),
    (
        "Fatal Python error: PyEval_SaveThread: the function must be called with the GIL held",
        "",
        "",
    ),
    ("RecursionError: maximum recursion depth exceeded", "config_error", "endless recursion"),
    ("{}: can't open file '{}': [Errno {}] {}", "config_error", "the script's path"),
    ("{}: No module named {}", "config_error", "the environment of the run"),
    ("ModuleNotFoundError: No module named '{}'", "config_error", "the environment of the run"),
    ("ImportError: cannot import name '{}' from '{}'", "config_error", "versions that do not fit"),
    (
        "ImportError: {}: cannot open shared object file: No such file or directory",
        "config_error",
        "ld.so",
    ),
    ("ImportError: {}: undefined symbol: {}", "config_error", "versions that do not fit"),
    (
        "AttributeError: module '{}' has no attribute '{}'",
        "config_error",
        "versions that do not fit",
    ),
    ("AttributeError: '{}' object has no attribute '{}'", "config_error", "code"),
    (
        "TypeError: {}() got an unexpected keyword argument '{}'",
        "config_error",
        "versions or settings",
    ),
    ("TypeError: {}() missing {} required positional argument{}", "config_error", "code"),
    ("TypeError: unsupported operand type(s) for {}: '{}' and '{}'", "config_error", "code"),
    ("NameError: name '{}' is not defined", "config_error", "code"),
    (
        "UnboundLocalError: cannot access local variable '{}' where it is not associated with a value",
        "config_error",
        "code",
    ),
    ("SyntaxError: invalid syntax", "config_error", "code"),
    ("IndentationError: {} indent", "config_error", "code"),
    (
        "UnicodeDecodeError: '{}' codec can't decode byte {} in position {}: {}",
        "",
        "data or a checkpoint: the frames decide",
    ),
    ("_pickle.UnpicklingError: invalid load key, '{}'.", "", "likewise"),
    ("_pickle.UnpicklingError: pickle data was truncated", "", "likewise"),
    ("EOFError: Ran out of input", "", "likewise"),
    ("zlib.error: Error {} while decompressing data: {}", "", "likewise"),
    ("gzip.BadGzipFile: CRC check failed {} != {}", "", "likewise"),
    (
        "socket.gaierror: [Errno {}] Name or service not known",
        "",
        "a name of a node or of a service",
    ),
    ("socket.gaierror: [Errno {}] Temporary failure in name resolution", "", "likewise"),
    (
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {}",
        "config_error",
        "certificates of the image",
    ),
    ("ssl.SSLError: [SSL: {}] {}", "", "a service"),
)


def make(name: str) -> Counter[str]:
    """Write a catalogue of Python itself; return its rows by level."""
    version = ".".join(map(str, sys.version_info[:3]))
    is_library = name == "python_library"
    header = Header(
        name,
        version,
        made=MADE,
        program=PROGRAM,
        source="CPython's standard library"
        if is_library
        else "CPython and the C library: errno, signals, errors",
        style="braces",
        layer="program",
        scope="user",
    )
    return write(name, header, _library_rows() if is_library else interpreter_rows())


def _library_rows() -> Iterator[Row]:
    folder = Path(sysconfig.get_path("stdlib"))
    if not folder.is_dir():
        raise SourceMissing(f"no standard library at {folder}")
    for module, area in _MODULES.items():
        path = folder / module
        if not path.is_file():
            continue
        for statement in statements(path.read_text(encoding="utf-8")):
            row = row_of(statement, module, area, "python_library")
            if row is None:
                continue
            is_open = module in _UNKNOWN_CONTENT and row.fault in ("data_error", "checkpoint_io")
            yield Row(
                row.at,
                row.format,
                row.level,
                "" if is_open else row.fault,
                layer=row.layer,
                scope=None if is_open else row.scope,
                requires=row.requires,
                why="data or a checkpoint: the frames decide" if is_open else row.why,
            )


def interpreter_rows() -> Iterator[Row]:
    """Yield the texts of errno as Python prints them, of signals that end processes, and of the interpreter."""
    for number, code in sorted(errorcode.items()):
        fault, why = _ERRNO_FAULTS.get(code, ("", ""))
        text = f"[Errno {number}] {os.strerror(number)}"
        yield _row(f"errno.h {code}", text, fault, why)
    for text, fault, why in _INTERPRETER:
        yield _row("CPython", text, fault, why)
    for one in sorted(signal.Signals, key=int):
        name = signal.strsignal(one)
        if name and one.name in _FATAL_SIGNALS:
            yield Row(f"signal.h {one.name}", f"{name} (core dumped)", "error")


def _row(at: str, text: str, fault: str, why: str) -> Row:
    found = Class(fault)
    scope = None if found.scope == "user" else found.scope
    return Row(at, text, "error", fault, layer=found.layer, scope=scope, why=why)


_FATAL_SIGNALS = (
    "SIGSEGV",
    "SIGBUS",
    "SIGABRT",
    "SIGFPE",
    "SIGILL",
    "SIGTRAP",
    "SIGSYS",
    "SIGQUIT",
)
