"""NCCL of other versions: what the libraries in NVIDIA's wheels log beyond the sources at hand, read from their machine code.

The code shows the level of a call, its file and its format, but not what it does next: a WARN is an error by its words.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.collectives.nccl import fault_of
from tools.catalogues.native.archives import packed_wheel
from tools.catalogues.native.classes import classify, required, row, rules
from tools.catalogues.native.machine_code import Library
from tools.catalogues.native.texts import lines
from tools.catalogues.rows import FOLDER, Header, Level, Row, write

NAMES = ("nccl-wheels",)
_WHEEL = "nvidia-nccl-cu12"
_VERSIONS = ("2.18.1", "2.21.5", "2.27.5", "2.32.3")
# The log functions, and the register that has their format.
_FUNCTIONS = {"ncclDebugLog": "r8", "ncclDebugLogInternal": "r9"}
_LEVELS: dict[int, Level] = {1: "info", 2: "warning", 3: "info", 4: "info", 5: "debug", 6: "debug"}
_WARN = 2
_FAILURE = re.compile(
    r"got completion from peer|out of range|not backwards|closed (?:peer|while|before|after)|"
    r"fail|error|invalid|unknown|unexpected|mismatch|incompatible|missing|not (?:found|aligned|initialized|power)|"
    r"could ?n[o']t|unable|can ?not|can't|corrupt|abort|out of bounds|exceed|too (?:small|large|big|many)|"
    r"truncated|incorrect|returned %d\(%s\) errno|\bno .*available|to (?:continue|enable this)|"
    r"fatal|wrong|unsupported|unrecognized|improper|already (?:been|checked)|!= |== 0|not (?:ready|a valid|match)|"
    r"no (?:valid|usable|transport|socket|path|device|interface)\b|without a matching|closed by|returned %d$|"
    r"must|bad |illegal|duplicate|reject|inconsistent|null\b|expected|not enough|insufficient",
    re.IGNORECASE,
)
# What NCCL goes on after: a choice that it does not follow, and what it cannot tidy up at its end.
_GOES_ON = re.compile(
    r"non-fatal|fall(?:ing|s)? ?back|(?<!_)ignor|skipp|disabl|instead(?! of)|(?<!error )retry|unset|clamp|stale|"
    r"lib wrapper|dlv?sym|PcieLink|not supported|not using|^using|recommend|"
    r"destroy|de(?:reg|alloc)|close(?!d)|cleanup|reclaim|\bfinaliz|unlink|munmap|unmap|"
    r"^\[(?:proxy )?service|INFO\]|diagnos|profiler|\btuner",
    re.IGNORECASE,
)
_RULES = rules(
    (
        r"NCCL_[A-Z_]{3,}|accepted values|config->|no algorithm",
        "config_error",
        "a setting of NCCL, or what it was asked for",
    ),
    (
        r"truncated|(?:collective|size)s? mismatch|incorrect receive",
        "config_error",
        "ranks that call different collectives",
    ),
    (r"pthread_create|thread creation", "config_error", "the limit of processes"),
)
# In files that take what the program asks for.
_ASKED = re.compile(r"src/(?:init|group|allocator|config/|enqueue)")
# Where NVIDIA builds generated files; what comes before it is of its build machine.
_BUILT = "/build/obj/"
_WRONG_CALL = re.compile(r"invalid|exceed|must|data ?type|requested|improper|match|duplicate", re.I)
_CONVERSION = re.compile(r"%[-+ #0-9.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")
# Where the call is, which NCCL writes before what it says.
_PLACE = re.compile(r"^%s:%d (?:\(%s\) )?")
_WORD = re.compile(r"[A-Za-z]{3}")


def make(name: str, *, folder: Path = FOLDER) -> Counter[str]:
    """Write the catalogue, without what NCCL's own has, and return its rows by level. Raises SourceMissing."""
    known = [json.loads(line) for line in (folder / "nccl.jsonl").read_text().splitlines()[1:]]
    seen = {_key(one["format"]) for one in known}
    rows = [one for version in _VERSIONS for one in _rows(version, seen)]
    header = Header(
        "NCCL",
        f"{_VERSIONS[0]} to {_VERSIONS[-1]}",
        made="2026-11-26",
        program=__name__,
        source=f"{_WHEEL} on PyPI, {', '.join(_VERSIONS)}: libnccl.so.2",
        style="printf",
        layer="collective",
        scope="fabric",
    )
    return write(name, header, rows, folder=folder)


def _rows(version: str, seen: set[str]) -> Iterator[Row]:
    with packed_wheel(f"{_WHEEL}=={version}") as wheel:
        name = next(one for one in wheel.namelist() if one.endswith("libnccl.so.2"))
        library = Library(wheel.read(name))
    for function, register in _FUNCTIONS.items():
        for call in library.calls(function, max(_LEVELS)):
            for line in lines(call.strings.get(register, "")):
                text = _PLACE.sub("", line)
                if _key(text) not in seen and _WORD.search(_CONVERSION.sub("", text)):
                    seen.add(_key(text))
                    yield _row(
                        f"{version} {_place(call.strings.get('rdx', ''))}", text, call.constant
                    )


def _row(at: str, text: str, number: int) -> Row:
    level = _LEVELS[number]
    if number == _WARN and _FAILURE.search(text) and not _GOES_ON.search(text):
        level = "error"
    fault, why = classify(text, _RULES, "") if level == "error" else ("", "")
    if level == "error" and not why:
        is_asked = _ASKED.search(at) and _WRONG_CALL.search(text)
        fault, why = fault_of(at, text, "InvalidArgument" if is_asked else "")
    requires = required(text, "printf", ("NCCL",)) if level == "error" else ("NCCL",)
    return row(at, text, level, fault, requires=requires, why=why)


def _key(text: str) -> str:
    return _CONVERSION.sub("%", _PLACE.sub("", text)).strip().casefold()


def _place(file: str) -> str:
    """Return the name of a source file within NCCL, generated ones included."""
    return f"build/{file.partition(_BUILT)[2]}" if _BUILT in file else f"src/{file}"
