"""Matches: lines of logs that a signature knows, and what it makes of them. Only these leave a node, never the log itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from runner.facts.wire import message

# Who speaks in a line, the deepest first: what a deeper one says is the cause of what those above it say.
Layer = Literal[
    "device",  # a GPU, a power supply: the kernel's log, or a library that names the hardware
    "link",  # between GPUs: it goes with the GPU at its other end
    "machine",  # the operating system: memory, disks, file systems, its limits
    "program",  # the rank itself: an exception, its data, its numbers, its settings
    "numbers",  # loss, gradients, loss scale, speed: what detectors say of the steps that a log tells of
    "consequence",  # what a driver adds once a program has failed, or before anybody knows why
    "network",  # a connection that could not be made, or was lost
    "collective",  # ranks that waited for others in vain
    "scheduler",  # somebody ended the job on purpose
    "launcher",  # whoever started the ranks tells how they ended
    "other",  # it looks like an error, and no signature knows it
]
LAYERS: tuple[Layer, ...] = get_args(Layer)
# What ranks say, too, that have nothing but lost a peer.
ECHOES: tuple[Layer, ...] = ("network", "collective", "launcher", "other")
# What hardware and operating system say.
DEEP: tuple[Layer, ...] = ("device", "link", "machine")
Scope = Literal["rank", "gpu", "node", "fabric", "storage", "user", "scheduler"]
# "names": an incident by itself. "supports": evidence beside something that names a fault, and nothing alone. "excuses": whatever
# else knows this line is wrong about it.
Weight = Literal["names", "supports", "excuses"]

# What a line is good for besides naming a fault.
Role = Literal[
    "",
    "ended-well",  # the run is over, and did what it should
    "traceback",  # of Python: frames follow, and an exception
    "frame-of-data",  # the traceback goes through what reads data
    "frame-of-checkpoints",  # ... what saves and loads checkpoints
    "frame-of-serialization",  # ... what loads either of them
    "frame-of-imports",  # ... what imports modules
    "ignored",  # the exception that follows was raised where nobody minds: while the interpreter ends
    "exception",  # which may mean anything: the frames above it say what
    "exception-of-code",  # which says that the program is wrong, as a rule
    "missing-file",  # the file's name, and the frames above, say what is missing
    "disk-full",
    "names-rank",  # of a rank that a launcher saw fail
    "root-cause",  # the next rank that is named failed first
    "death",  # a launcher tells that a rank ended badly
    "names-gpu",  # of the GPU that the next lines are about
    "waited-in-vain",  # of a rank, in a collective
    "error-of-any-kind",
]

MAX_TEXT = 500  # characters of a line that are kept; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One line that a signature knows. `line` counts from 1 within `file`; `at` is what the line says, Unix seconds."""

    signature: str
    fault: str
    layer: Layer
    scope: Scope
    weight: Weight = "names"
    role: Role = ""
    is_lasting: bool = False  # it will be the same again on this hardware, or with these settings
    of_kernel: bool = False  # it stands in the kernel's own log
    file: str = ""
    line: int = 0
    text: str = ""
    rank: int | None = None
    node: str = ""
    at: float | None = None
    # What the line names: gpu (PCI address or index), peer, node, rank, xid, step, pid, path, seconds.
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_telling(self) -> bool:
        """Whether it is worth an incident though the ranks live: hardware that will be the same again, or the kernel's own word."""
        says_hardware = self.weight == "names" and self.layer in DEEP and bool(self.fault)
        return says_hardware and (self.is_lasting or self.of_kernel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that a log tells of: what stood before it in the same file did not end the run."""

    file: str
    line: int
    step: int


@message("scanned_logs")
@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedLogs:
    """What is left of logs once they were searched: the lines that count, and the furthest step of each."""

    matches: tuple[Match, ...] = ()
    steps: tuple[Step, ...] = ()
