"""Line context: an exception is judged by the frames above it, and a benign line is dropped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import LAYERS, Match, Role

# Between a traceback's frames and its exception, with lines of other ranks; chosen.
CONTEXT_LINES = 200
# Of the traceback of an ignored exception; chosen.
IGNORED_LINES = 30
_EXCEPTION = re.compile(r"\s*[\w.]*(?:Error|Exception|StopIteration)\b")
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


@dataclass(slots=True, kw_only=True)
class _Frames:
    """Lines of the last frames of each kind, of one rank, or of all lines without a rank."""

    data: int = -CONTEXT_LINES
    checkpoint: int = -CONTEXT_LINES
    serialization: int = -CONTEXT_LINES
    imports: int = -CONTEXT_LINES
    traceback: int = -CONTEXT_LINES
    ignored: int = -CONTEXT_LINES


def in_context(matches: Sequence[Match]) -> list[Match]:
    """Return matches with exceptions classified by the traceback above: a missing file may be data, or a checkpoint."""
    placed: list[Match] = []
    frames: dict[tuple[str, int | None], _Frames] = {}
    paths = _paths(matches)
    for match in matches:
        around = frames.setdefault((match.file, match.rank), _Frames())
        if match.role in _FRAMES:
            setattr(around, _FRAMES[match.role], match.line)
        if match.line - around.ignored < IGNORED_LINES and match.role in _OF_TRACEBACKS:
            continue
        if match.role in _RAISED and not _is_raised(match, around):
            continue
        fault = _fault_at(match, around, paths.get(match.file, ""))
        if fault and fault != match.fault:
            match = replace(match, fault=fault, layer="program", scope=FAULTS[fault].scope)
        placed.append(match)
    return _without_duplicates(placed)


def _is_raised(match: Match, around: _Frames) -> bool:
    """Whether Python printed this exception: one quoted in a warning was handled."""
    is_first = _EXCEPTION.match(match.text) is not None
    return is_first or match.line - around.traceback < CONTEXT_LINES


_RAISED: tuple[Role, ...] = ("exception", "exception-of-code")
_OF_TRACEBACKS: tuple[Role, ...] = (
    "traceback",
    "exception",
    "exception-of-code",
    "missing-file",
    "error-of-any-kind",
    "frame-of-imports",
)
_FRAMES: dict[Role, str] = {
    "frame-of-data": "data",
    "frame-of-checkpoints": "checkpoint",
    "frame-of-serialization": "serialization",
    "frame-of-imports": "imports",
    "traceback": "traceback",
    "ignored": "ignored",
}


def _paths(matches: Sequence[Match]) -> dict[str, str]:
    """Return by file the fault that missing paths suggest; lines of ranks that print at once may be torn."""
    faults: dict[str, str] = {}
    for match in matches:
        if match.role == "missing-file" and match.file not in faults:
            fault = _fault_of_path(match.text.lower())
            if fault:
                faults[match.file] = fault
    return faults


def _fault_at(match: Match, around: _Frames, path_fault: str) -> str:
    """Return the fault of a general exception by the frames above it and its path; "" if they do not show it."""
    line = match.line - CONTEXT_LINES
    is_data, is_checkpoint = around.data > line, around.checkpoint > line
    if match.role == "exception-of-code":
        is_lookup = any(word in match.text for word in ("KeyError", "IndexError"))
        return "data_error" if is_lookup and is_data else ""
    if match.role == "disk-full":
        return "checkpoint_io" if is_checkpoint or around.serialization > line else ""
    if match.role not in ("exception", "missing-file"):
        return ""
    if match.role == "missing-file" and path_fault:
        return path_fault
    if is_checkpoint:
        return "checkpoint_io"
    if is_data:
        return "data_error"
    if around.serialization > line:
        return "checkpoint_io"
    return "config_error" if around.imports > line else ""


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
    matches = [match for match in matches if (match.file, match.line) not in benign]
    for match in matches:
        if match.fault and match.weight == "primary" and match.role not in _GENERIC:
            place = (match.file, match.line)
            depth = LAYERS.index(match.layer)
            best[place] = min(best.get(place, depth), depth)
    return [
        match
        for match in matches
        if match.role not in _GENERIC or (match.file, match.line) not in best
    ]


_GENERIC: tuple[Role, ...] = ("exception", "exception-of-code", "error-of-any-kind", "missing-file")
