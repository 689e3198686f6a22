"""Notices: an operator or scheduler announces that this node will be taken away, in a file or by a signal.

The file holds JSON, such as {"kind": "maintenance", "reason": "new DIMMs", "deadline_seconds":
3600}. Its writer should rename it into place: a half-written file is reported as malformed once,
and is a notice as soon as it is whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.facts.wording import valid_text

NOTICE_NAME = "notice.json"
# Chosen.
MAX_NOTICE_BYTES = 4096
# Characters; chosen.
MAX_REASON = 300
_KINDS: dict[str, Literal["maintenance", "preemption"]] = {
    "maintenance": "maintenance",
    "preemption": "preemption",
}


@dataclass(frozen=True, slots=True)
class Announcement:
    """One notice. `deadline_seconds` counts from when the file was read; None: the notice states none."""

    kind: Literal["maintenance", "preemption"]
    reason: str = ""
    deadline_seconds: float | None = None


class Notices:
    """Polls one file; each content is announced once while the file exists."""

    def __init__(
        self,
        path: Path,
        *,
        on_notice: Callable[[Announcement], None],
        on_malformed: Callable[[str], None],
    ) -> None:
        self._path = path
        self._on_notice = on_notice
        self._on_malformed = on_malformed
        self._version: tuple[int, int, int] | None = None
        self._content: bytes | None = None

    def poll(self) -> None:
        """Announce new content; costs one `stat` while there is none."""
        try:
            status = self._path.stat()
        except OSError:
            self._version = self._content = None
            return
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if version == self._version:
            return
        self._version = version
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_NOTICE_BYTES + 1)
        except OSError as error:
            self._on_malformed(f"notice {self._path}: {error}")
            return
        if content == self._content:
            return
        self._content = content
        try:
            announcement = parse(content)
        except ValueError as error:
            self._on_malformed(f"notice {self._path}: {error}")
        else:
            self._on_notice(announcement)


def notice_path(notice_file: str, *, node: str, folder: Path) -> Path:
    """Return the file of a node's notices. `notice_file`: the setting."""
    return Path(notice_file.replace("{node}", node)) if notice_file else folder / NOTICE_NAME


def parse(content: bytes) -> Announcement:
    """Parse a notice; raises ValueError for anything else."""
    if len(content) > MAX_NOTICE_BYTES:
        raise ValueError(f"more than {MAX_NOTICE_BYTES} bytes")
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({error})") from error
    if not isinstance(plain, dict):
        raise ValueError("no JSON object")
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"kind {str(kind)[:40]!r}; known: {', '.join(_KINDS)}")
    reason, seconds = plain.get("reason", ""), plain.get("deadline_seconds")
    if not isinstance(reason, str):
        raise ValueError("its reason is no text")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ValueError("deadline_seconds is no number")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"deadline_seconds {seconds} is out of range")
        seconds = float(seconds)
    return Announcement(_KINDS[kind], valid_text(reason)[:MAX_REASON], seconds)
