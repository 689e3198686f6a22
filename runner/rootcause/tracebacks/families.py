"""Families: what kind of failure an exception is, by its class, the bases of its class, and its errno.

The bases of Python's own classes are asked of Python; those of libraries are in a table, read from their sources. A class that
neither knows is judged by the words of its name.
"""

import builtins
import errno as errnos
import re

from runner.rootcause.tracebacks.exception_classes import (
    CLASSES,
    MODULES,
    QUALIFIED,
    STATUS_CLASSES,
    STATUS_ERRORS,
    STATUSES,
    Family,
)
from runner.rootcause.tracebacks.objects import Raised

# By errno(3).
_ERRNOS: dict[int, Family] = {
    errnos.ENOENT: "missing",
    errnos.ENOTDIR: "missing",
    errnos.EISDIR: "missing",
    errnos.EACCES: "permission",
    errnos.EPERM: "permission",
    errnos.EEXIST: "permission",
    errnos.ENOSPC: "disk-full",
    errnos.EDQUOT: "disk-full",
    errnos.EIO: "storage",
    errnos.EROFS: "storage",
    errnos.ESTALE: "storage",
    errnos.ENOTCONN: "storage",
    errnos.EREMOTEIO: "storage",
    errnos.ESHUTDOWN: "storage",
    errnos.EUCLEAN: "storage",
    errnos.ENODEV: "storage",
    errnos.ENXIO: "storage",
    errnos.EMFILE: "limit",
    errnos.ENFILE: "limit",
    errnos.EAGAIN: "limit",
    errnos.ENOMEM: "memory",
    errnos.EPIPE: "peer",
    errnos.ECONNRESET: "peer",
    errnos.ECONNABORTED: "peer",
    errnos.EADDRINUSE: "rendezvous",
    errnos.ECONNREFUSED: "connection",
    errnos.EADDRNOTAVAIL: "connection",
    errnos.EHOSTUNREACH: "connection",
    errnos.ENETUNREACH: "connection",
    errnos.ETIMEDOUT: "timeout",
}
_ERRNO = re.compile(r"\[(?:Errno|errno|WinError) (-?\d{1,3})\]|\(os error (\d{1,3})\)")
_ERRNO_TEXTS: tuple[tuple[str, Family], ...] = (
    ("No space left on device", "disk-full"),
    ("Disk quota exceeded", "disk-full"),
    ("Input/output error", "storage"),
    ("Stale file handle", "storage"),
    ("Read-only file system", "storage"),
    ("Transport endpoint is not connected", "storage"),
    ("Cannot allocate memory", "memory"),
    ("can't allocate memory", "memory"),
    ("Too many open files", "limit"),
    ("can't start new thread", "limit"),
    # The other end of a socket had no descriptor left: multiprocessing/reduction.py.
    ("received 0 items of ancdata", "limit"),
    ("No such file or directory", "missing"),
    ("Permission denied", "permission"),
    ("Connection reset by peer", "peer"),
    ("Connection refused", "connection"),
    ("Connection timed out", "timeout"),
    ("Name or service not known", "connection"),
    ("Temporary failure in name resolution", "connection"),
)

# The most special first.
_BUILTINS: tuple[tuple[str, Family], ...] = (
    ("SystemExit", "exit"),
    ("KeyboardInterrupt", "exit"),
    ("GeneratorExit", "exit"),
    ("BrokenPipeError", "peer"),
    ("ConnectionResetError", "peer"),
    ("ConnectionAbortedError", "peer"),
    ("ConnectionError", "connection"),
    ("TimeoutError", "timeout"),
    ("FileNotFoundError", "missing"),
    ("NotADirectoryError", "missing"),
    ("IsADirectoryError", "missing"),
    ("PermissionError", "permission"),
    ("OSError", "os"),
    ("MemoryError", "memory"),
    ("ImportError", "import"),
    ("SyntaxError", "import"),
    ("UnicodeError", "format"),
    ("EOFError", "format"),
    ("LookupError", "lookup"),
    # An iterator was used up.
    ("StopIteration", "data"),
    ("StopAsyncIteration", "data"),
    ("FloatingPointError", "not-finite"),
    ("NotImplementedError", "code"),
    ("RecursionError", "code"),
    ("AttributeError", "code"),
    ("NameError", "code"),
    ("TypeError", "code"),
    ("AssertionError", "code"),
    ("ZeroDivisionError", "code"),
    ("ArithmeticError", "value"),
    ("ValueError", "value"),
    ("RuntimeError", "other"),
)
# Words in the name of a class that no table has; the first that is in it counts.
_WORDS: tuple[tuple[tuple[str, ...], Family], ...] = (
    (("outofmemory", "oomerror", "memoryerror"), "memory"),
    (("timeout", "timedout", "deadline"), "timeout"),
    (("checkpoint", "ckpt", "safetensor", "statedict"), "checkpoint"),
    (("config", "setting", "argument", "option", "validation", "schema", "usage"), "settings"),
    (("credential", "notauthorized", "unauthorized", "forbidden"), "settings"),
    (("dataset", "dataload", "dataerror", "tokeni", "sample", "shard", "record"), "data"),
    (("corrupt", "decode", "parse", "truncated", "checksum", "malformed"), "format"),
    (("nanerror", "notfinite", "nonfinite", "nanloss", "diverg"), "not-finite"),
    (("connect", "network", "http", "unavailable", "unreachable"), "connection"),
    (("rendezvous",), "rendezvous"),
    (("nccl", "collective"), "collective"),
    (("filenotfound", "nosuchfile", "missingfile"), "missing"),
    (("permission", "accessdenied"), "permission"),
    (("storage", "filesystem", "quota"), "storage"),
    (("keyerror", "indexerror", "lookup"), "lookup"),
    (("import", "dependency"), "import"),
)

_NOT_ALLOCATED = re.compile(r"(?i)\b(?:unable|failed) to allocate \d[\d.,]* ?(?:bytes|[KMGT]i?B)\b")
_OF_DEVICES = re.compile(r"(?i)\b(?:cuda|hip|gpu|device|hbm|vram|npu|xpu)\b")
# What a server answered, in the words of HTTP and of its clients.
_HTTP_STATUS = re.compile(
    r"(?i)\b(?:HTTP(?:/[\d.]+)?|status(?:[ _]code)?|error(?:[ _]code)?)[ :=(]{1,3}([45]\d\d)\b"
    r"|\b([45]\d\d) (?:client|server) error\b"
)
# Of a class that says no more than that it failed, the status does.
_OF_ANSWERS: tuple[Family, ...] = ("connection", "other", "value")


def family_of(raised: Raised) -> Family:
    """Return the family of an exception: its errno decides before its class."""
    found = _errno_family(raised)
    if found is not None:
        return found
    # Ray: RayTaskError(ValueError).
    name = raised.name.partition("(")[2].rstrip(")") or raised.name
    known = _status_family(name, raised.message) or _class_family(name)
    return (known in _OF_ANSWERS and _http_family(raised.message)) or known


def _http_family(message: str) -> Family | None:
    """Return the family of an exception that carries the answer of a server; None for any other, and for what the server lacks."""
    found = _HTTP_STATUS.search(message.partition("\n")[0])
    status = found[1] or found[2] if found is not None else ""
    if status in ("401", "403"):
        return "settings"
    return "connection" if status == "429" or status.startswith("5") else None


def is_wrapper(raised: Raised) -> bool:
    """Whether a class wraps the exception of another process, whose class it may name: RayTaskError(ValueError)."""
    return CLASSES.get(raised.name.partition("(")[0].rpartition(".")[2]) == "launcher"


def _status_family(name: str, message: str) -> Family | None:
    """Return the family of an exception that carries a status of absl; None for any other."""
    module, _, base = name.rpartition(".")
    if module.startswith("tensorflow.") and base in STATUS_ERRORS:
        return STATUS_ERRORS[base]
    return STATUSES.get(message.partition(":")[0]) if base in STATUS_CLASSES else None


def _errno_family(raised: Raised) -> Family | None:
    number = _ERRNO.search(raised.message)
    if number is not None:
        return _ERRNOS.get(int(number[1] or number[2]))
    first = raised.message.partition("\n")[0]
    if _NOT_ALLOCATED.search(first) and not _OF_DEVICES.search(first):
        return "memory"
    return next((family for text, family in _ERRNO_TEXTS if text in first), None)


def _class_family(name: str) -> Family:
    if name in QUALIFIED:
        return QUALIFIED[name]
    base = name.rpartition(".")[2].rpartition("::")[2]
    if base in CLASSES:
        # torch.OutOfMemoryError is of a GPU; that of others, of the host.
        return CLASSES[base]
    own = _builtin_family(base)
    if own is not None:
        return own
    within = [module for module in MODULES if name.startswith(module)]
    if within:
        return MODULES[max(within, key=len)]
    lowered = base.lower()
    for words, family in _WORDS:
        if any(word in lowered for word in words):
            return family
    # Torn lines of several writers: "ValueErrorValueError".
    for known, family in _BUILTINS:
        if known != "OSError" and known in base:
            return family
    return "other"


def _builtin_family(name: str) -> Family | None:
    known = getattr(builtins, name, None)
    if not isinstance(known, type) or not issubclass(known, BaseException):
        return None
    for base, family in _BUILTINS:
        if issubclass(known, getattr(builtins, base)):
            return family
    return None
