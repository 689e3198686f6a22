"""Matches: lines of logs that a signature knows, and what it makes of them. Only these leave a node, never the log itself."""

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import field

from runner.facts.wire import Value

# The source of a line, the deepest first: a line of a deeper layer is the cause of those above it.
Layer = Literal[
    # A GPU, a power supply: the kernel's log, or a library that names the hardware.
    "device",
    # Between GPUs: it goes with the GPU at its other end.
    "link",
    "machine",
    # The rank itself: an exception, its data, its numbers, its settings.
    "program",
    # Loss, gradients, loss scale, speed: findings of detectors about the steps in a log.
    "metrics",
    # What a driver logs after a program has failed, or before the cause is known.
    "consequence",
    # A connection that could not be made, or was lost.
    "network",
    # Ranks that waited for others until a timeout.
    "collective",
    # An operator or a scheduler ended the job on purpose.
    "scheduler",
    # The program that started the ranks reports how they ended.
    "launcher",
    # It looks like an error, and no signature knows it.
    "other",
]
LAYERS: tuple[Layer, ...] = get_args(Layer)
# Layers of lines that healthy ranks write, too, when they lose a peer.
ECHOES: tuple[Layer, ...] = ("network", "collective", "launcher", "other")
DEEP: tuple[Layer, ...] = ("device", "link", "machine")
Scope = Literal["rank", "gpu", "node", "fabric", "storage", "user", "scheduler"]
# "primary": an incident by itself. "supporting": evidence beside a line that names a fault, and nothing alone.
# "benign": another signature that matches this line is wrong about it.
Weight = Literal["primary", "supporting", "benign"]

# What a line is good for besides naming a fault.
Role = Literal[
    "",
    "ended-well",
    # The work may be over; what follows of a tear-down is none of its failures.
    "reached-end",
    # Of Python: frames follow, each for what the traceback goes through, and an exception.
    "traceback",
    "frame",
    "frame-of-data",
    "frame-of-checkpoints",
    # Through what loads data or checkpoints.
    "frame-of-serialization",
    "frame-of-imports",
    # The exception that follows is harmless: the interpreter raised it while it ended.
    "ignored",
    # Likewise the exception of this traceback.
    "frame-of-tear-down",
    # A loss scaler lowers its scale: a division by zero soon after is one by the scale.
    "overflow",
    # It may mean anything; the frames above it decide.
    "exception",
    "exception-of-code",
    # An exception whose message shows its fault; it counts where Python printed it.
    "raised",
    # The file's name and the frames above show what is missing.
    "missing-file",
    "disk-full",
    "names-rank",
    # The next rank that is named failed first.
    "root-cause",
    "death",
    # Of a process that a rank has started, which notices it some lines later.
    "death-of-worker",
    # The first line of a record, whose text follows on the next one.
    "names-writer",
    # Of the GPU that the next lines are about.
    "names-gpu",
    # The title of a part of a report, and a row that means something below that title only.
    "section",
    "in-section",
    # What a disk reports of itself explains the errors of file systems of its node.
    "broken-disk",
    # The cloud or the scheduler took a node back: that the node is gone is no fault of it.
    "node-taken-back",
    "waited-in-vain",
    "error-of-any-kind",
    # What was needed went away, and may come back: a link, a server. A line that says so of the same subject ends it.
    "interrupted",
    "cleared",
    # Of the kernel's stack of a task that is blocked.
    "frame-of-gpu-driver",
    "frame-of-network-driver",
    # Whether the hardware lost nothing: then the other lines of the same report are no fault.
    "corrected",
    "uncorrected",
    # The driver has its GPU back: what it reported before has an end.
    "gpu-is-back",
    # A run goes on from a checkpoint.
    "resumed",
    # From here on a step is other work than before, and may take another time.
    "other-work",
    # Code that does not return; what a device of the same node did just before is the cause.
    "stuck",
]

# How a line is known, the most specific first: a hand-written signature, the emitter's own words in a catalogue, the exception
# and the frames of a traceback, or no more than the family of its emitter.
KnownBy = Literal["signature", "catalogue", "traceback", "family"]

# Characters of a line that are kept; chosen.
MAX_TEXT = 500


class Match(Value):
    """One line that a signature knows. `line` counts from 1 within `file`; `at` is the line's own time, Unix seconds."""

    signature: str
    fault: str
    layer: Layer
    scope: Scope
    weight: Weight = "primary"
    role: Role = ""
    # It will be the same again on this hardware, or with these settings.
    is_lasting: bool = False
    of_kernel: bool = False
    known_by: KnownBy = "signature"
    file: str = ""
    line: int = 0
    text: str = ""
    rank: int | None = None
    node: str = ""
    at: float | None = None
    # Of its log, lost until then because the log was truncated before they were read.
    lost_bytes: int = 0
    # What the line names: gpu (PCI address or index), peer, node, rank, xid, step, pid, path, seconds.
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def warrants_incident(self) -> bool:
        """Whether it opens an incident while the ranks are alive: a lasting hardware fault, or one in the kernel's own log."""
        names_hardware = self.weight == "primary" and self.layer in DEEP and bool(self.fault)
        return names_hardware and (self.is_lasting or self.of_kernel)


class LoggedStep(Value):
    """A step in a log: no line before it in the same file ended the run."""

    file: str
    line: int
    step: int


class ScannedLogs(Value, kind="scanned_logs"):
    """What is left of logs once they were searched: the lines that count, and the furthest step of each."""

    matches: tuple[Match, ...] = ()
    steps: tuple[LoggedStep, ...] = ()
