"""Line context: an exception is judged by the frames above it, and a benign line is dropped."""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import LAYERS, Layer, Match, Role, Scope
from runner.rootcause.context.report_sections import ReportSections
from runner.rootcause.families import family_of
from runner.rootcause.tracebacks.path_words import SHARED_MEMORY
from runner.rootcause.tracebacks.single_lines import QUALIFIED_CLASS

# Between a traceback's frames and its exception, with lines of other ranks; chosen.
CONTEXT_LINES = 200
# Of the kernel's stack of a task, below the line that names it; chosen.
STACK_LINES = 30
# Of one report of an error of hardware; chosen.
REPORT_LINES = 16
# Of the traceback of an ignored exception; chosen.
IGNORED_LINES = 30
# From a loss scaler's last sentence to the exception that a scale of zero raises, with its frames on several ranks; chosen.
OVERFLOW_LINES = 60
_EXCEPTION = re.compile(
    rf"\s*(?:[\w.]*(?:Error|Exception|StopIteration)\b|{QUALIFIED_CLASS}"
    # Of C modules: zlib.error, struct.error.
    r"|[a-z_][\w.]*\.error: )"
)
# What Python's module `warnings` prints: what is known of the words is of where they are raised.
_WARNED = re.compile(r"\.py:\d+: \w*Warning: ")
# A line of a report of an error of hardware; and one that says of itself that it is not harmless.
_REPORTED = re.compile(r"\[Hardware Error\]|\bAER\b|\b(?:mcelog|MCE|mce)\b")
_UNCORRECTED = re.compile(
    r"(?i)\buncorrect|\bfatal\b|\brecoverable\b|\bdeferred\b|\bfailed\b|\bpanic\b|\bthreshold\b"
)
# Words of paths, without digits at their ends.
_CHECKPOINT_WORDS = ("checkpoint", "checkpoints", "ckpt", "ckpts", "states", "optim", "safetensors")
_CONFIG_WORDS = (
    *("config", "configs", "conf", "settings", "yaml", "yml", "toml", "cfg", "ini", "py", "sh"),
)
_DATA_WORDS = (
    *("data", "dataset", "datasets", "shard", "shards", "token", "tokens", "tokenized", "corpus"),
    *("train", "val", "valid", "test", "coco", "imagenet", "wiki", "wikitext", "text", "jsonl"),
    *("parquet", "arrow", "bin", "idx", "tfrecord", "npy", "tar"),
)


# What writes and reads checkpoints, by its name in the line of an error.
_SAVES = re.compile(
    r"(?i)\bdist_?checkpoint\w*|\bcheckpoint(?:ing|er)\b|safetensor|\berror while"
    r" (?:de)?seriali[sz]ing\b|\bstate_dict\b|\btorch\.(?:save|load)\b"
    r"|\bsave_(?:pretrained|checkpoint|model|state)\b|\bSaveV2\b|\bsstable\b|\bsave_restore\w*|\.distcp\b|\borbax\b"
    r"|\b(?:sav|writ|load|read|restor|upload)\w* (?:\w+ ){0,3}(?:checkpoints?|ckpts?|model weights|optimizer states?)\b"
)
# Of one failure: the exception, and below it what NCCL says of it. Chosen.
START_LINES = 8
# NCCL's bootstrap, and sockets that are being connected. A connection that a peer closed was there before.
_CONNECTS = re.compile(
    r"\bbootstrap\.cc:\d+|\bsocket(?:Start|Poll|Finalize|Try)?Connect\w*|\bncclSocketConnect\b|\bbootstrap(?:Init|Root|Create)\w*"
    r"|\b[Cc]onnecting to address\b|\bConnect to \S{1,120} (?:\w+ )?(?:failed|returned)\b|\bBootstrap ?: .{0,80}\b(?:fail\w*"
    r"|timeout|no )\b"
    r"|\bncclCommInitRank\w*\b.{0,200}\b(?:fail\w*|refused|reset|closed|unreachable|no route)\b"
)
# The network itself is what is wrong.
_NO_WAY = re.compile(
    r"(?i)\bno route to host\b|\bunreachable\b|\bnetwork is down\b|\bhost is down\b"
)
# Families whose words say more than that an assertion failed.
_OF_FILES = ("checkpoints", "data-sets")
# Line of the last match of each role, of one rank, or of all lines without a rank.
_Lines = dict[Role, int]


def in_context(matches: Sequence[Match]) -> list[Match]:
    """Return matches with exceptions classified by the traceback above: a missing file may be data, or a checkpoint."""
    placed: list[Match] = []
    lines_of: dict[tuple[str, int | None], _Lines] = {}
    paths = _paths(matches)
    sections: dict[str, ReportSections] = {}
    for match in _without_corrected(_with_resets(_with_drivers(_with_writers(matches)))):
        if match.known_by == "traceback":
            # It was judged with all that is around it.
            placed.append(match)
            continue
        lines = lines_of.setdefault((match.file, match.rank), {})
        lines[match.role] = match.line
        if not sections.setdefault(match.file, ReportSections()).belongs(match):
            continue
        if match.role in _OF_TRACEBACKS and _is_below("ignored", match, lines, IGNORED_LINES):
            continue
        if _WARNED.search(match.text) and (match.known_by == "catalogue" or match.role in _GENERIC):
            continue
        if match.role in _RAISED and not _is_raised(match, lines):
            continue
        if match.role in _OF_TRACEBACKS and _is_of_tear_down(match, lines):
            continue
        fault = _fault_at(match, lines, paths.get(match.file, ""))
        if fault and fault != match.fault:
            match = replace(match, fault=fault, layer="program", scope=FAULTS[fault].scope)
        placed.append(match)
    return _without_duplicates(placed)


def _with_writers(matches: Sequence[Match]) -> list[Match]:
    """Return matches in which lines without a rank have that of the first line of their record, just above."""
    writers = {(one.file, one.line + 1): one.rank for one in matches if one.role == "names-writer"}
    return [
        replace(one, rank=writers[one.file, one.line])
        if one.rank is None and (one.file, one.line) in writers
        else one
        for one in matches
    ]


def _with_resets(matches: Sequence[Match]) -> list[Match]:
    """Return matches in which a GPU that its driver had back later was not lost."""
    back = {one.file: one.line for one in matches if one.role == "gpu-is-back"}
    return [
        replace(one, fault="gpu_xid_other")
        if one.fault == "gpu_lost" and "amdgpu" in one.text and one.line < back.get(one.file, 0)
        else one
        for one in matches
    ]


def _without_corrected(matches: Sequence[Match]) -> list[Match]:
    """Return matches without lines of reports of hardware that say of themselves that it was corrected.

    A report says so below its first lines: the next such line decides, or else the last one before.
    """
    severities: dict[str, list[tuple[int, bool]]] = {}
    for match in matches:
        if match.role in ("corrected", "uncorrected"):
            severities.setdefault(match.file, []).append((match.line, match.role == "corrected"))
    return [one for one in matches if not _was_corrected(one, severities.get(one.file, ()))]


def _was_corrected(match: Match, severities: Sequence[tuple[int, bool]]) -> bool:
    """Whether a match is of a report of an error that was corrected. `severities`: line, and whether it says so."""
    if match.fault != "host_hardware" or not _REPORTED.search(match.text):
        return False
    if _UNCORRECTED.search(match.text):
        return False
    near = [one for one in severities if abs(one[0] - match.line) <= REPORT_LINES]
    below = [is_corrected for line, is_corrected in near if line >= match.line]
    above = [is_corrected for line, is_corrected in near if line < match.line]
    return below[0] if below else bool(above) and above[-1]


def _with_drivers(matches: Sequence[Match]) -> list[Match]:
    """Return matches in which a task that is blocked in the driver of a device, by its stack, waits for that and for no disk."""
    blocked: dict[str, int] = {}
    # File and line of a task -> the role of the first frame of a driver in its stack.
    of_driver: dict[tuple[str, int], Role] = {}
    for match in matches:
        if match.signature == "task-blocked":
            blocked[match.file] = match.line
        task_line = blocked.get(match.file, -STACK_LINES)
        if match.role in _AWAITED and match.line - task_line <= STACK_LINES:
            of_driver.setdefault((match.file, task_line), match.role)
    return [_waiting_for(one, of_driver.get((one.file, one.line), "")) for one in matches]


def _waiting_for(match: Match, role: Role) -> Match:
    if match.signature != "task-blocked" or role not in _AWAITED:
        return match
    fault, layer, scope = _AWAITED[role]
    return replace(match, fault=fault, layer=layer, scope=scope)


# What a task waits for that is blocked in such a driver.
_AWAITED: Mapping[Role, tuple[str, Layer, Scope]] = {
    "frame-of-gpu-driver": ("gpu_xid_other", "device", "gpu"),
    "frame-of-network-driver": ("nccl_network", "network", "node"),
}


def _is_below(role: Role, match: Match, lines: _Lines, most: int = CONTEXT_LINES) -> bool:
    """Whether a match of this role is so near above this one."""
    return role in lines and match.line - lines[role] < most


def _is_raised(match: Match, lines: _Lines) -> bool:
    """Whether Python printed this exception: one quoted in a warning was handled."""
    return _EXCEPTION.match(match.text) is not None or _is_below("traceback", match, lines)


def _is_of_tear_down(match: Match, lines: _Lines) -> bool:
    """Whether the traceback that this ends went through what Python does last: the cause came before."""
    frame = lines.get("frame-of-tear-down", 0)
    return _is_below("frame-of-tear-down", match, lines) and frame > lines.get("traceback", 0)


_RAISED: tuple[Role, ...] = ("exception", "exception-of-code", "raised")
_OF_TRACEBACKS: tuple[Role, ...] = (
    "traceback",
    "exception",
    "exception-of-code",
    "raised",
    "missing-file",
    "error-of-any-kind",
    "frame-of-imports",
)


def _paths(matches: Sequence[Match]) -> dict[str, str]:
    """Return by file the fault that missing paths suggest; lines of ranks that print at once may be torn."""
    faults: dict[str, str] = {}
    for match in matches:
        if match.role == "missing-file" and match.file not in faults:
            fault = _fault_of_path(match.text.lower())
            if fault:
                faults[match.file] = fault
    return faults


def _fault_at(match: Match, lines: _Lines, path_fault: str) -> str:
    """Return the fault of a general exception by the frames above it and its path; "" if they do not show it."""
    is_data = _is_below("frame-of-data", match, lines)
    is_checkpoint = _is_below("frame-of-checkpoints", match, lines)
    is_serialization = _is_below("frame-of-serialization", match, lines)
    if match.role == "exception-of-code":
        if "ZeroDivisionError" in match.text and _is_below(
            "overflow", match, lines, OVERFLOW_LINES
        ):
            return "loss_scale_floor"
        is_lookup = any(word in match.text for word in ("KeyError", "IndexError"))
        if "AssertionError" in match.text and (family := family_of(match.text)) is not None:
            return family.fault if family.name in _OF_FILES else ""
        return "data_error" if is_lookup and is_data else ""
    if match.fault == "filesystem" and match.known_by == "signature" and _SAVES.search(match.text):
        return "checkpoint_io"
    if match.role == "disk-full":
        if SHARED_MEMORY.search(match.text):
            return "config_error"
        is_named = _fault_of_path(match.text.lower()) == "checkpoint_io"
        is_saving = is_checkpoint or is_serialization or is_named
        return "checkpoint_io" if is_saving else ""
    if match.role not in ("exception", "missing-file"):
        return ""
    if match.role == "missing-file" and path_fault:
        return path_fault
    if is_checkpoint:
        return "checkpoint_io"
    if is_data:
        return "data_error"
    if is_serialization:
        return "checkpoint_io"
    return "config_error" if _is_below("frame-of-imports", match, lines) else ""


def _fault_of_path(text: str) -> str:
    """Return the fault that the words of a path in the text suggest; "" for none."""
    for path in text.split():
        if "/" not in path and "'" not in path:
            continue
        words = [word.rstrip("0123456789") for word in re.split(r"[^a-z0-9]+", path)]
        if any(word in _CHECKPOINT_WORDS for word in words):
            return "checkpoint_io"
        if any(word in _CONFIG_WORDS for word in words):
            return "config_error"
        if any(word in _DATA_WORDS for word in words):
            return "data_error"
    return ""


def _without_duplicates(matches: list[Match]) -> list[Match]:
    """Drop benign lines, and general exceptions in lines that a specific signature knows."""
    best: dict[tuple[str, int], int] = {}
    benign = {(match.file, match.line): True for match in matches if match.weight == "benign"}
    retried = {
        (match.file, match.line - 1): True for match in matches if match.signature == "retried"
    }
    # The words of errno are those of disks as well.
    of_fabric = {
        (match.file, match.line): True
        for match in matches
        if match.signature in ("fabric-call-failed", "ib-port-event")
    }
    matches = [
        match
        for match in matches
        if (match.file, match.line) not in benign
        if match.fault not in ("filesystem", "config_error")
        or (match.file, match.line) not in of_fabric
        if (match.file, match.line) not in retried
        or match.known_by == "traceback"
        or match.layer in _NEVER_RETRIED
    ]
    for match in matches:
        is_specific = match.role not in _GENERIC or match.known_by == "traceback"
        if match.fault and match.weight == "primary" and is_specific:
            place = (match.file, match.line)
            depth = LAYERS.index(match.layer)
            best[place] = min(best.get(place, depth), depth)
    return [
        match
        for match in matches
        if match.role not in _GENERIC
        or match.known_by == "traceback"
        or (match.file, match.line) not in best
    ]


# What goes on below programs is not what they try once more.
_NEVER_RETRIED: tuple[Layer, ...] = ("device", "link", "metrics", "scheduler")
_GENERIC: tuple[Role, ...] = ("exception", "exception-of-code", "error-of-any-kind", "missing-file")


# ---- the start of a run


def with_start(matches: Sequence[Match], *, first_step: int) -> list[Match]:
    """Return the matches of one log in which what failed to connect before the first step is a rendezvous.

    `first_step`: the line of the log's first step; 0: it has none.
    """
    lines = [match.line for match in matches if _fails_to_meet(match, first_step)]
    return [
        replace(match, fault="rendezvous", layer="network", scope=FAULTS["rendezvous"].scope)
        if match.fault == "nccl_network" and _is_beside(match, lines)
        else match
        for match in matches
    ]


def _is_beside(match: Match, lines: Sequence[int]) -> bool:
    return any(abs(match.line - line) <= START_LINES for line in lines)


def _fails_to_meet(match: Match, first_step: int) -> bool:
    is_of_network = match.fault == "nccl_network" and match.layer == "network"
    if _NO_WAY.search(match.text):
        return False
    is_before = not first_step or match.line < first_step
    return is_of_network and is_before and _CONNECTS.search(match.text) is not None


# A logger's level anywhere in a line: a bar may precede it.
_WARNING = re.compile(r"(?:^|[\]\s|:\[(])WARN(?:ING)?\b")


def without_warnings(matches: Sequence[Match], progress_line: int) -> list[Match]:
    """Return matches in which what a program only warned of before its last progress, in this line, is harmless; 0: no progress."""
    return [
        replace(one, weight="benign")
        if one.fault in ("config_error", "data_error")
        and (one.layer, one.weight) == ("program", "primary")
        and one.line < progress_line
        and _WARNING.search(one.text)
        else one
        for one in matches
    ]
