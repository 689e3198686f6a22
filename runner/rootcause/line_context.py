"""Context: what a line means where it stands: an exception is judged by the frames above it, an excused line is dropped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import LAYERS, Match, Role

# between a traceback's frames and its exception, other ranks' lines among them; chosen
CONTEXT_LINES = 200
# of a traceback of an exception that nobody minds; chosen
IGNORED_LINES = 30
_EXCEPTION = re.compile(r"\s*[\w.]*(?:Error|Exception|StopIteration)\b")
# Words of paths, without the digits at their ends.
_CHECKPOINT_WORDS = ("checkpoint", "checkpoints", "ckpt", "ckpts", "states", "optim", "safetensors")
_CONFIG_WORDS = (
    "config",
    "configs",
    "conf",
    "settings",
    "yaml",
    "yml",
    "toml",
    "cfg",
    "ini",
    "py",
    "sh",
)
_DATA_WORDS = (
    *("data", "dataset", "datasets", "shard", "shards", "token", "tokens", "tokenized", "corpus"),
    *("train", "val", "valid", "test", "coco", "imagenet", "wiki", "wikitext", "text", "jsonl"),
    *("parquet", "arrow", "bin", "idx", "tfrecord", "npy", "tar"),
)


@dataclass(slots=True, kw_only=True)
class _Frames:
    """What the traceback that is being printed went through, of one rank or of all that do not say who they are."""

    # the line it was last seen in
    data: int = -CONTEXT_LINES
    checkpoint: int = -CONTEXT_LINES
    serialization: int = -CONTEXT_LINES
    imports: int = -CONTEXT_LINES
    traceback: int = -CONTEXT_LINES
    ignored: int = -CONTEXT_LINES


def in_context(matches: Sequence[Match]) -> list[Match]:
    """Say of exceptions what the traceback above them went through: a file that is missing may be data, or a checkpoint."""
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
    return _without_doubles(placed)


def _is_raised(match: Match, around: _Frames) -> bool:
    """Whether an exception's name stands where Python prints it: what a warning quotes was dealt with."""
    stands_first = _EXCEPTION.match(match.text) is not None
    return stands_first or match.line - around.traceback < CONTEXT_LINES


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
    """Return by file what the paths that were missing say they hold; ranks that print at once tear lines apart."""
    said: dict[str, str] = {}
    for match in matches:
        if match.role == "missing-file" and match.file not in said:
            fault = _held_by(match.text.lower())
            if fault:
                said[match.file] = fault
    return said


def _fault_at(match: Match, around: _Frames, path_says: str) -> str:
    """Return what an exception of any kind is, by the frames above it and the path in it; "" if they do not say."""
    line = match.line - CONTEXT_LINES
    is_data, is_checkpoint = around.data > line, around.checkpoint > line
    if match.role == "exception-of-code":
        is_lookup = any(word in match.text for word in ("KeyError", "IndexError"))
        return "data_error" if is_lookup and is_data else ""
    if match.role == "disk-full":
        return "checkpoint_io" if is_checkpoint or around.serialization > line else ""
    if match.role not in ("exception", "missing-file"):
        return ""
    if match.role == "missing-file" and path_says:
        return path_says
    if is_checkpoint:
        return "checkpoint_io"
    if is_data:
        return "data_error"
    if around.serialization > line:
        return "checkpoint_io"
    return "config_error" if around.imports > line else ""


def _held_by(text: str) -> str:
    """Return what a path in the text holds, by its words: "" if they do not say."""
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


def _without_doubles(matches: list[Match]) -> list[Match]:
    """Drop lines that are known to be harmless, and exceptions of any kind in lines that are known for something."""
    best: dict[tuple[str, int], int] = {}
    excused = {(match.file, match.line): True for match in matches if match.weight == "excuses"}
    matches = [match for match in matches if (match.file, match.line) not in excused]
    for match in matches:
        if match.fault and match.weight == "names" and match.role not in _GENERIC:
            place = (match.file, match.line)
            depth = LAYERS.index(match.layer)
            best[place] = min(best.get(place, depth), depth)
    return [
        match
        for match in matches
        if match.role not in _GENERIC or (match.file, match.line) not in best
    ]


_GENERIC: tuple[Role, ...] = ("exception", "exception-of-code", "error-of-any-kind", "missing-file")
