"""Torch's C++: distributed (c10d and its socket library), the CUDA allocator and context, and collectives over NCCL."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.c_source.tokens import arguments, without_comments
from tools.catalogues.native.archives import c_files, debian
from tools.catalogues.native.call_sites import CallSite, call_sites
from tools.catalogues.native.classes import Rule, classify, first_sentence, letters, row, rules
from tools.catalogues.native.facts import table
from tools.catalogues.native.texts import formatted, joined, lines, streamed
from tools.catalogues.rows import LEVELS, Header, Level, Row, write

# Package, its top folder, version: the older one for what newer ones no longer write.
_SOURCES = (
    ("pytorch/bookworm", "pytorch-1.13*", "1.13.1"),
    ("pytorch/trixie", "pytorch-v2*", "2.6.0"),
)
# Name of a catalogue: the folders that it is read from.
_PARTS = {
    "torch-c10d": ("torch/csrc/distributed/c10d", "c10/util/Socket.cpp"),
    "torch-cuda": (
        "c10/cuda",
        "aten/src/ATen/cuda",
        "torch/csrc/cuda",
        "torch/csrc/distributed/rpc",
        "c10/core/CPUAllocator.cpp",
        "c10/core/impl/alloc_cpu.cpp",
    ),
}
NAMES = tuple(_PARTS)
_CHECKS = re.compile(
    r"(?:TORCH_|C10_|C10D_|AT_)(?:CHECK\w*|THROW_ERROR|ERROR|WARNING|INFO|DEBUG|TRACE|ASSERTM?"
    r"|INTERNAL_ASSERT\w*|WARN\w*)|(?:std::)?(?:runtime|logic|system|out_of_range|invalid_argument)_?"
    r"(?:error|argument)?|\w+Error"
)
_STREAMS = re.compile(r"\b(VLOG|LOG|TORCH_LOG|C10_LOG_\w+)\s*\(\s*(\w+)\s*\)")
_ASSIGNED = re.compile(r"\b(\w+)\s*=\s*(?:::)?(c10::str|fmt::format)\s*\(")
_EXPLAINED = re.compile(r'interpret\s*=\s*"([^"]*)"')
# Characters after a text that are searched for its use; chosen: one function.
_LATER = 3000
_STREAM_LEVELS: dict[str, Level] = {
    "ERROR": "error",
    "FATAL": "error",
    "WARNING": "warning",
    "INFO": "info",
}
# Errors and warnings of torch are known by themselves from so many letters on; chosen.
_FEW_LETTERS = 16
# The first arguments that are no message, by the end of the name.
_WITHOUT = {"_WITH": 2, "THROW_ERROR": 1, "TORCH_CHECK_ARG": 2}
_RULES = rules(
    (r"out of memory|tried to allocate", "cuda_oom", "GPU memory"),
    (
        r"watchdog|collective operation|timed? ?out in|operation timeout|hang|did(?:n'?t| not) (?:join|finish)"
        r"|failed or timed out|taking the entire process down|stuck|heartbeat|monitored ?barrier|desync"
        r"|flight recorder|to prevent the inconsistent data",
        "nccl_timeout",
        "ranks waited for one another",
    ),
    (
        r"(?:client|server) socket|rendezvous|tcp ?store|\bstore\b|listen|bind|hostname|ipv[46]|"
        r"address already|wait timeout|waiting for clients|key ",
        "rendezvous",
        "the store where ranks meet",
    ),
    (r"nan(?:s)? |not finite|\binf\b", "nan_loss", "a number that is not finite"),
    (r"ncclInvalid\w+", "config_error", "a wrong call"),
    (r"ncclUnhandledCudaError|ncclInternalError", "", "lines beside it say what failed"),
    (r"ncclSystemError|ncclRemoteError", "nccl_network", "a system call, or a peer"),
    (
        r"nccl error|connection|socket|network|remote|peer|communicator was aborted|abort(?:ed|ing) (?:due|comm)",
        "nccl_network",
        "a peer or the way to it",
    ),
    (r"cuda error|cuda failure|\bECC\b", "", "the text of the runtime on the same line decides"),
)
_CUDA_RULES = rules(
    (r"out of memory|tried to allocate", "cuda_oom", "GPU memory"),
    (r"illegal memory|device-side assert", "cuda_illegal_access", "a kernel's access"),
    (r"cuda unknown error", "gpu_xid_other", "the device, as often as the environment"),
    (
        r"no (?:cuda )?gpus? (?:are )?available|no nvidia driver|driver .*(?:old|insufficient)|found no",
        "config_error",
        "the driver, or which GPUs the job may see",
    ),
)
_FOLDERS = (
    (
        re.compile(r"TCPStore|FileStore|HashStore|PrefixStore|/Store|socket|control_plane|Socket"),
        "rendezvous",
    ),
    (re.compile(r"."), "config_error"),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    rows = list[Row]()
    for package, folder, _ in _SOURCES:
        with debian(package, folder) as root:
            rows += _rows(root, name)
    if name == "torch-c10d":
        rows += _of_facts()
    versions = ", ".join(version for _, _, version in _SOURCES)
    header = Header(
        "PyTorch, distributed" if name == "torch-c10d" else "PyTorch, CUDA",
        versions,
        made="2026-11-26",
        program=__name__,
        source=f"Debian source package pytorch {versions}: {', '.join(_PARTS[name])}; facts/torch-nccl.tsv",
        style="braces",
        layer="collective" if name == "torch-c10d" else "program",
        scope="rank",
    )
    return write(name, header, rows)


def _of_facts() -> Iterator[Row]:
    for word, fault, text, why in table("torch-nccl"):
        level = next(level for level in LEVELS if level == word)
        yield row("torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp", text, level, fault, why=why)


def _rows(root: Path, name: str) -> Iterator[Row]:
    own = _RULES if name == "torch-c10d" else _CUDA_RULES
    for at, text in c_files(root, *_PARTS[name]):
        by_file = next(fault for pattern, fault in _FOLDERS if pattern.search(at))
        # What is logged, and what only a defect of torch can break, has no class of its file; the store has no other use.
        is_store = by_file == "rendezvous"
        for level, message, is_check in _texts(text):
            otherwise = by_file if is_check or is_store else ""
            for line in lines(message):
                if letters(line, "braces") >= _FEW_LETTERS:
                    yield _row(at, line, level, own, otherwise)


def _row(at: str, line: str, level: Level, own: tuple[Rule, ...], by_file: str) -> Row:
    if level != "error":
        return row(at, first_sentence(line), level)
    # A socket of the store is not one of a collective.
    fault, why = classify(line, () if by_file == "rendezvous" else own, by_file)
    return row(at, first_sentence(line), level, fault, why=why)


def _texts(text: str) -> Iterator[tuple[Level, str, bool]]:
    """Yield the level of each message, its text, and whether it is a check of what it was given."""
    yield from _of_calls(text)
    yield from ((level, one, False) for level, one in _of_streams(text))
    yield from ((level, one, False) for level, one in _of_variables(text))
    yield from ((level, one, False) for level, one in _of_results(text))


def _of_calls(text: str) -> Iterator[tuple[Level, str, bool]]:
    for call in call_sites(text, _CHECKS):
        level = _level(call)
        given = _message(call)
        is_format = call.name.startswith("C10D_") and call.name != "C10D_THROW_ERROR"
        if is_format or call.name == "recordError":
            yield level, (formatted(given[0]) if given else None) or "", True
        else:
            yield level, joined(given), "ASSERT" not in call.name


def _of_streams(text: str) -> Iterator[tuple[Level, str]]:
    text = without_comments(text)
    for one in _STREAMS.finditer(text):
        level = "debug" if one[1] == "VLOG" else _STREAM_LEVELS.get(one[2], "info")
        yield level, streamed(text, one.end())


def _of_variables(text: str) -> Iterator[tuple[Level, str]]:
    """Yield texts that are put together first, and logged or thrown by the statements that follow."""
    text = without_comments(text)
    for one in _ASSIGNED.finditer(text):
        later = text[one.end() : one.end() + _LATER]
        logged = re.search(rf"\bLOG\s*\(\s*(\w+)\s*\)\s*<<[^;]*\b{one[1]}\b", later)
        thrown = re.search(
            rf"(?:CHECK|THROW|throw|exception_ptr|setException|Error)\w*\s*\([^;]*\b{one[1]}\b",
            later,
        )
        if logged or thrown:
            given = arguments(text, one.end())
            message = (
                joined(given) if one[2].endswith("str") else formatted(given[0]) if given else None
            )
            level = _STREAM_LEVELS.get(logged[1], "info") if logged and not thrown else "error"
            yield level, message or ""


def _of_results(text: str) -> Iterator[tuple[Level, str]]:
    """Yield what torch says of NCCL's results."""
    for literal in _EXPLAINED.findall(without_comments(text)):
        yield "error", literal.strip()


def _level(call: CallSite) -> Level:
    name = call.name
    # What a socket's attempt met; it is tried again, and thrown at the end.
    if "WARN" in name or name == "recordError":
        return "warning"
    if name.endswith(("_INFO", "_DEBUG", "_TRACE")):
        return "info" if name.endswith("_INFO") else "debug"
    return "error"


def _message(call: CallSite) -> list[str]:
    given = list(call.arguments)
    if "WARN" in call.name or (call.name.startswith("C10D_") and "THROW" not in call.name):
        return given
    if call.name == "AT_ERROR" or (
        not call.name.isupper() and "_" not in call.name.replace("TORCH_", "")
    ):
        return given
    for end, skipped in _WITHOUT.items():
        if call.name.endswith(end):
            return given[skipped:]
    return given[1:] if re.search(r"CHECK|ASSERT", call.name) else given
