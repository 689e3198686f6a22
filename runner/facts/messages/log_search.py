"""Log search: an agent's requests to its log reader, and the reader's answers. One message a line each.

They do not leave the node: the agent emits matches as signals (`LinesMatched`).
"""

from collections.abc import Mapping

from msgspec import field

from runner.facts.matches import Match, ScannedLogs
from runner.facts.messages.signals import StepRecord
from runner.facts.wire import Value


class LogPosition(Value):
    """How far a log was read, to be written down once the lines before it were dealt with.

    Of a file: `offset` of the first unread byte, `before` a hash of bytes before it, `line` the number of its line (None: unknown,
    too much was skipped), `changed_ns` when the file was last written to. Of the kernel's device: the boot, and the last record.
    """

    device: int = 0
    inode: int = 0
    offset: int = 0
    before: str = ""
    line: int | None = None
    changed_ns: int = 0
    boot_id: str = ""
    sequence: int | None = None


class FollowRequest(Value, kind="follow_request"):
    """Follow the logs of this gang from now on, and no others: `files` (path -> rank) from their `places` on, and the kernel's."""

    gang: str
    files: Mapping[str, int] = field(default_factory=dict)
    # A path; "": the kernel's log is not read.
    kernel_log: str = ""
    # After boot: older records do not count.
    since_microseconds: int = 0
    metric_pattern: str = ""
    places: Mapping[str, LogPosition] = field(default_factory=dict)


class SearchRequest(Value, kind="search_request"):
    """Search the ends of these logs (path -> rank), whose ranks have exited."""

    number: int
    files: Mapping[str, int] = field(default_factory=dict)
    metric_pattern: str = ""


class SearchResult(Value, kind="search_result"):
    """The matches in the ends of some logs."""

    number: int
    found: ScannedLogs


class ReadAllRequest(Value, kind="read_all_request"):
    """Read the followed logs of this gang to their ends, last lines without an end included: its ranks have exited."""

    number: int
    gang: str


class ReadAllResult(Value, kind="read_all_result"):
    """The logs are read; what was in them was reported before."""

    number: int


class ReaderReady(Value, kind="reader_ready"):
    """The reader has done its first request, and with it what takes a while once: from now on it answers soon."""


class FollowReport(Value, kind="follow_report"):
    """What is new in the logs of a gang: matches, steps, and how far each log was read.

    `num_kept_back`: matches that repeat reported ones. `skipped_bytes`: bytes of a flood that were not read. `lost_bytes`: of each
    log, named as in matches, the bytes that were lost in a truncation since the last report.
    """

    gang: str
    matches: tuple[Match, ...] = ()
    records: tuple[StepRecord, ...] = ()
    # The rank that wrote them.
    records_rank: int | None = None
    places: Mapping[str, LogPosition] = field(default_factory=dict)
    num_kept_back: int = 0
    skipped_bytes: int = 0
    lost_bytes: Mapping[str, int] = field(default_factory=dict)
    # Which logs cannot be read, each reason once.
    trouble: str = ""
