"""The manifest: what a sealed checkpoint consists of, how its folder is called and how it looks as bytes."""

import hashlib
import hmac
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import PermanentError
from runner.facts.ids import AttemptId

MANIFEST = "manifest.json"
VERSION = 1
# Chosen, not measured: 300,000 files.
MAX_MANIFEST_BYTES = 64 * 1024 * 1024

# Parts of a path that name no file or folder below the one before.
_NO_NAMES = frozenset({"", ".", ".."})
_NAME = re.compile(r"(\d+\.\d+\.\d+)-(\d{8,})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeal:
    """The size of a file and the sha256 of its content, in hexadecimal."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint consists of; written last. File names are relative, with "/"."""

    run: str
    attempt: AttemptId
    generation: int
    step: int
    files: Mapping[str, FileSeal]
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Whether it came with a code of one of the keys that `decode` got.
    has_code: bool = field(default=False, compare=False)


def checkpoint_folder(root: str | Path, attempt: AttemptId | str, step: int) -> Path:
    """Return a checkpoint's folder, which need not exist. Raises ValueError for a bad attempt id or step."""
    if step < 0:
        raise ValueError(f"step {step} is negative")
    return Path(root) / f"{AttemptId.parse(str(attempt))}-{step:08d}"


def read_folder_name(name: str) -> tuple[AttemptId, int] | None:
    """Parse attempt and step from a folder's name; None when it is not a checkpoint's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    attempt, step = AttemptId.parse(match[1]), int(match[2])
    return (attempt, step) if name == f"{attempt}-{step:08d}" else None


def encode(manifest: Manifest, key: bytes = b"") -> bytes:
    """Return it as compact JSON with sorted keys, its hash and, with a key, its code. Raises PermanentError over the limit."""
    fields = ("run", "attempt", "generation", "step", "data", "metrics", "settings")
    body = {name: _plain(getattr(manifest, name)) for name in fields} | {
        "v": VERSION,
        "kind": "checkpoint_manifest",
        "files": {
            _check_name(name): {"bytes": file.size_bytes, "sha256": file.sha256}
            for name, file in manifest.files.items()
        },
    }
    if key:
        body["code"] = _code(key, body)
    payload = _compact(body | {"sha256": hashlib.sha256(_compact(body)).hexdigest()})
    if len(payload) > MAX_MANIFEST_BYTES:
        raise PermanentError(f"manifest of {len(payload)} bytes; at most {MAX_MANIFEST_BYTES}")
    return payload


def decode(payload: bytes, keys: Sequence[bytes] = ()) -> Manifest:
    """Parse a manifest. Raises ValueError, TypeError, KeyError or AttributeError for any other bytes."""
    if len(payload) > MAX_MANIFEST_BYTES:
        raise ValueError(f"more than {MAX_MANIFEST_BYTES} bytes")
    body = json.loads(payload)
    signed = {key: value for key, value in body.items() if key != "sha256"}
    # Every byte must be as `encode` writes it, too: the hash alone does not cover spaces and order of keys.
    if hashlib.sha256(_compact(signed)).hexdigest() != body["sha256"] or _compact(body) != payload:
        raise ValueError("its own hash does not match")
    if body["v"] != VERSION or body["kind"] != "checkpoint_manifest":
        raise ValueError(
            f"version {body['v']!r}, kind {body['kind']!r}; version {VERSION} is known"
        )
    code = str(signed.pop("code", "")).encode(errors="replace")
    files = {
        _check_name(name): FileSeal(size_bytes=_count(file["bytes"]), sha256=file["sha256"])
        for name, file in body["files"].items()
    }
    return Manifest(
        run=body["run"],
        attempt=AttemptId.parse(body["attempt"]),
        generation=_count(body["generation"]),
        step=_count(body["step"]),
        files=files,
        data=body["data"],
        metrics=tuple(body["metrics"]),
        settings=body["settings"],
        has_code=any(hmac.compare_digest(code, _code(key, signed).encode()) for key in keys),
    )


def _code(key: bytes, body: Mapping[str, Any]) -> str:
    return hmac.new(key, _compact(body), "sha256").hexdigest()


def _compact(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    """Return what JSON can hold: text for ids and for floats that are not finite."""
    if isinstance(value, AttemptId):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _check_name(name: str) -> str:
    """Return the name. Raises ValueError if it leaves the folder or is the manifest's own."""
    # Of strings alone: there may be tens of thousands.
    if name == MANIFEST or not name.isprintable() or not _NO_NAMES.isdisjoint(name.split("/")):
        raise ValueError(
            f"{name!r} cannot name a file of a checkpoint: use a relative path inside its folder"
        )
    return name
