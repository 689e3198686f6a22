"""NCCL and RCCL: WARN, INFO and TRACE of their sources. What a WARN means follows from the result that its code returns."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.c_source.calls import formats
from tools.catalogues.c_source.tokens import without_comments
from tools.catalogues.native.archives import c_files, debian
from tools.catalogues.native.call_sites import CallSite, call_sites
from tools.catalogues.native.classes import classify, required, row, rules
from tools.catalogues.native.texts import lines
from tools.catalogues.rows import Header, Level, Row, write

# Name of the catalogue: package, its top folder, version.
_PACKAGES = {
    "nccl": ("nvidia-nccl", "nccl-2.*", "2.29.7"),
    "rccl": ("rccl", "rccl-rocm-*", "5.4.3"),
}
NAMES = tuple(_PACKAGES)
_CALLS = re.compile(r"WARN|INFO|TRACE|VERSION|TRACE_CALL|SYSCHECK\w*|PTHREADCHECK\w*")
_RESULT = re.compile(
    r"nccl(SystemError|InternalError|InvalidArgument|InvalidUsage|RemoteError|UnhandledCudaError)"
)
_RESULT_TEXT = re.compile(r'case\s+nccl(\w+)\s*:\s*return\s*"([^"]*)"')
_RESULTS = {
    "UnhandledCudaError": ("", "the error of the runtime on lines before it decides"),
    "SystemError": ("nccl_network", "a system call, of a socket as often as not"),
    "InternalError": ("", "a check of the library; lines before it say which"),
    "InvalidArgument": ("config_error", "a wrong call"),
    "InvalidUsage": ("config_error", "a wrong call"),
    "RemoteError": ("nccl_network", "a peer, or the way to it"),
}
_INVALID = ("InvalidArgument", "InvalidUsage")
# A WARN whose code goes on is an error all the same if another thread gives up for it.
_FAILED = re.compile(
    r"fatal event|got completion from peer|socket progress error|corrupt", re.IGNORECASE
)
_RULES = rules(
    (r"cuda failure|^hip failure", "", "the text of the runtime's error on the same line decides"),
    (r"fail\w* to cuda ?(?:host)?malloc|cuMem\w+ failed|cuda ?malloc", "cuda_oom", "GPU memory"),
    (
        r"multicast|nvls|nvlink sharp",
        "nvlink_error",
        "multicast is set up by the fabric manager and the NVSwitches",
    ),
    (
        r"P2P is disabled between NVLINK connected",
        "nvlink_error",
        "NCCL's text: probably a hardware issue",
    ),
    (
        r"shared memory segment|/dev/shm|shm_open|posix_fallocate|ftruncate|\bshm\w* (?:open|map)",
        "config_error",
        "the size of /dev/shm is a setting of the container",
    ),
    (
        r"(?:mismatch|differ)\w*.*version|version.*(?:mismatch|incompatible)|insufficient.*driver",
        "config_error",
        "versions that do not fit together",
    ),
    (r"no socket interface found|no (?:usable )?interface", "config_error", "NCCL_SOCKET_IFNAME"),
    (
        r"ibv_reg_mr|reg_?mr|memory registration|nv_?peer_?mem|dma-?buf",
        "config_error",
        "memory cannot be registered: the limit of locked memory, or the peer memory module",
    ),
    (
        r"call to (?:socket|connect|accept|bind|listen|recv|send|poll|getsockopt|setsockopt)\b"
        r"|connect to %s",
        "nccl_network",
        "a system call on a socket",
    ),
    (
        r"connection closed by remote|remote peer|remote process|peer .* (?:exit|died)|async fatal",
        "nccl_network",
        "what is left of a peer or a link",
    ),
)
# By file, the first that matches; results of a wrong call come before.
_FILES = (
    (re.compile(r"bootstrap"), "rendezvous"),
    (re.compile(r"/ras/"), ""),
    (
        re.compile(
            r"socket|net_ib|ibv|mlx5|coll_net|/net\.|net_|plugin/net|gin|gdaki|rma|proxy|doca|/ib"
        ),
        "nccl_network",
    ),
    (re.compile(r"nvls|multicast"), "nvlink_error"),
    (re.compile(r"graph/|xml|param|argcheck|shm|cudawrap|gdrwrap|plugin|tuner"), "config_error"),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    package, folder, version = _PACKAGES[name]
    with debian(package, folder) as root:
        rows = list(_rows(root))
    header = Header(
        name.upper(),
        version,
        made="2026-11-26",
        program=__name__,
        source=f"Debian source package {package} {version}, src",
        style="printf",
        layer="collective",
        scope="fabric",
    )
    return write(name, header, rows)


def _rows(root: Path) -> Iterator[Row]:
    for at, text in c_files(root, "src"):
        if at.endswith("windows.cc"):
            continue
        if at == "src/init.cc":
            yield from _results(text)
        for call in call_sites(text, _CALLS):
            for line in _texts(call):
                yield from _row(at, line, call)


def _results(text: str) -> Iterator[Row]:
    """Yield the texts of results, which programs report without the library's prefix."""
    for name, words in _RESULT_TEXT.findall(without_comments(text)):
        if name in _RESULTS:
            fault, why = _RESULTS[name]
            yield row(f"src/init.cc {name}", words, "error", fault, requires=("NCCL",), why=why)


def _texts(call: CallSite) -> Iterator[str]:
    if "CHECK" in call.name:
        # The macro's own message, with the name of the system call that it was given.
        names = [one for given in call.arguments[1:2] for one in formats(given)]
        yield from (f"Call to {name} failed: %s" for name in names)
        return
    skipped = 0 if call.name in ("WARN", "VERSION", "TRACE_CALL") else 1
    for argument in call.arguments[skipped : skipped + 1]:
        for text in formats(argument):
            yield from lines(text)


def _row(at: str, text: str, call: CallSite) -> Iterator[Row]:
    level = _level(text, call)
    if not re.search(r"[A-Za-z]{3}", text):
        return
    result = _RESULT.search(call.after)
    given = result[1] if result else ""
    fault, why = fault_of(at, text, given) if level == "error" else ("", "")
    # A failure is reported again without the prefix, as the last error that the library remembers.
    requires = required(text, "printf", ("NCCL",)) if level == "error" else ("NCCL",)
    yield row(at, text, level, fault, requires=requires, why=why)


def _level(text: str, call: CallSite) -> Level:
    if "CHECK" in call.name:
        return "error"
    if call.name == "WARN":
        is_error = call.gives_up or _RESULT.search(call.after)
        is_failure = _FAILED.search(text) and "non-fatal" not in text
        return "error" if is_error or is_failure else "warning"
    return "debug" if call.name.startswith("TRACE") else "info"


def fault_of(at: str, text: str, result: str = "") -> tuple[str, str]:
    """Return (fault, why) of an error: by its words, by the result that the code returns, or by its file."""
    by_file = next((fault for pattern, fault in _FILES if pattern.search(at)), "")
    if result in _INVALID:
        by_file = "config_error"
    elif result == "RemoteError":
        by_file = "nccl_network"
    elif result == "UnhandledCudaError":
        by_file = ""
    return classify(text, _RULES, by_file)
