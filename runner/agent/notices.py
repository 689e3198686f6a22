"""Notices: somebody announces that this node will be taken away, in a file or by a signal.

The file's text is JSON, such as {"kind": "maintenance", "reason": "new DIMMs", "deadline_seconds": 3600}. Whoever writes it should
rename it into place: what is read half written is junk once, and a notice as soon as it is whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NOTICE_NAME = "notice.json"
# chosen
MAX_NOTICE_BYTES = 4096
# characters; chosen
MAX_REASON = 300
_KINDS: dict[str, Literal["maintenance", "preemption"]] = {
    "maintenance": "maintenance",
    "preemption": "preemption",
}


@dataclass(frozen=True, slots=True)
class Announcement:
    """What was announced. `deadline_seconds` counts from when it was read; None: not said."""

    kind: Literal["maintenance", "preemption"]
    reason: str = ""
    deadline_seconds: float | None = None


class Notices:
    """One file, looked at by `look`; each content is told once as long as the file is there."""

    def __init__(
        self,
        path: Path,
        *,
        on_notice: Callable[[Announcement], None],
        on_junk: Callable[[str], None],
    ) -> None:
        self._path = path
        self._on_notice = on_notice
        self._on_junk = on_junk
        self._stamp: tuple[int, int, int] | None = None
        self._content: bytes | None = None

    def look(self) -> None:
        """Tell what is new; costs one look at the file's times while nothing is."""
        try:
            seen = self._path.stat()
        except OSError:
            self._stamp = self._content = None
            return
        stamp = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_NOTICE_BYTES + 1)
        except OSError as error:
            self._on_junk(f"notice {self._path}: {error}")
            return
        if content == self._content:
            return
        self._content = content
        try:
            announced = read(content)
        except ValueError as error:
            self._on_junk(f"notice {self._path}: {error}")
        else:
            self._on_notice(announced)


def file_of(notice_file: str, *, node: str, folder: Path) -> Path:
    """Return where a node's notices appear."""
    return Path(notice_file.replace("{node}", node)) if notice_file else folder / NOTICE_NAME


def read(content: bytes) -> Announcement:
    """Read a notice; raises ValueError for anything else."""
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
    return Announcement(_KINDS[kind], reason[:MAX_REASON], seconds)
