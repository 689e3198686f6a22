"""Searches: what an agent asks of the process that reads its ranks' logs, and what that one answers. One message a line each.

They do not leave the node: what is worth telling becomes a signal (`LinesMatched`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.facts.matches import Match, ScannedLogs
from runner.facts.messages.signals import StepRecord
from runner.facts.wire import message


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a log was read: `collect.tails.Position`, or the number of a kernel's record."""

    device: int = 0
    inode: int = 0
    offset: int = 0
    before: str = ""
    line: int | None = None
    changed_ns: int = 0
    boot_id: str = ""
    sequence: int | None = None


@message("follow")
@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Follow the logs of this gang from now on, and of no other; without files: of none."""

    # echoed in what is found
    gang: str
    # path -> rank
    files: Mapping[str, int] = field(default_factory=dict)
    # path; "": it is not read
    kernel_log: str = ""
    # after boot: what the kernel said before does not count
    since_microseconds: int = 0
    # of the lines that tell a step, where no format is known
    metric_pattern: str = ""
    # path -> where to go on
    places: Mapping[str, Place] = field(default_factory=dict)


@message("search")
@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search the ends of these logs, whose ranks have ended."""

    # echoed in the answer
    number: int
    # path -> rank
    files: Mapping[str, int] = field(default_factory=dict)
    metric_pattern: str = ""


@message("searched")
@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What was found in the ends of some logs."""

    number: int
    found: ScannedLogs


@message("followed")
@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What is new in the logs of a gang: lines worth telling, steps, and how far each log was read.

    `num_kept_back`: lines that were known, and not worth telling again. `skipped_bytes`: that nobody has read, in a flood.
    """

    gang: str
    matches: tuple[Match, ...] = ()
    records: tuple[StepRecord, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    num_kept_back: int = 0
    skipped_bytes: int = 0
    # what cannot be read, said once
    trouble: str = ""
