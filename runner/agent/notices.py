"""Notices: an operator or scheduler announces in a file that this node will be taken away.

{"kind": "maintenance", "reason": "new DIMMs", "deadline_seconds": 3600}

Its writer should rename it into place: a half-written file is reported as malformed once.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from runner.facts.wording import valid_text

# Chosen, not measured.
MAX_NOTICE_BYTES = 4096
MAX_REASON_CHARACTERS = 300

NoticeKind = Literal["maintenance", "preemption"]
KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


@dataclass(frozen=True, slots=True)
class Announcement:
    """The content of a notice. `deadline_seconds` counts from when the file was read; None: the notice states none."""

    notice: NoticeKind
    reason: str = ""
    deadline_seconds: float | None = None


@dataclass(slots=True)
class Notices:
    """Reads one file again and again; each content is announced once while the file exists. One thread reads at a time."""

    path: Path
    on_notice: Callable[[Announcement], None]
    on_malformed: Callable[[str], None]
    _version: tuple[int, int, int] | None = None
    _content: bytes | None = None

    def read(self) -> Announcement | None:
        """Return new content; None: there is none, which costs one `stat`. May block. Raises ValueError or OSError, once each."""
        try:
            status = self.path.stat()
        except OSError:
            self._version = self._content = None
            return None
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if version == self._version:
            return None
        self._version = version
        with self.path.open("rb") as file:
            content = file.read(MAX_NOTICE_BYTES + 1)
        if content == self._content:
            return None
        self._content = content
        return parse(content)

    def poll(self) -> None:
        """Read and announce at once: for a file in the agent's own folder."""
        try:
            announcement = self.read()
        except (OSError, ValueError) as error:
            self.on_read(None, error)
        else:
            self.on_read(announcement, None)

    def on_read(self, announcement: Announcement | None, error: Exception | None) -> None:
        """Announce what `read` returned, or report why it could not."""
        if isinstance(error, OSError | ValueError):
            self.on_malformed(f"notice {self.path}: {error}")
        elif announcement is not None:
            self.on_notice(announcement)


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
    if kind not in KINDS:
        raise ValueError(f"kind {str(kind)[:40]!r}; known: {', '.join(KINDS)}")
    reason, seconds = plain.get("reason", ""), plain.get("deadline_seconds")
    if not isinstance(reason, str):
        raise ValueError("its reason is no text")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ValueError("deadline_seconds is no number")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"deadline_seconds {seconds} is out of range")
        seconds = float(seconds)
    return Announcement(kind, valid_text(reason)[:MAX_REASON_CHARACTERS], seconds)
