"""Matches: lines of logs that a signature knows, and what it makes of them. Only these leave a node, never the log itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec import field

from runner.facts.wire import Value

# Who speaks in a line, the deepest first: what a deeper one says is the cause of what those above it say.
Layer = Literal[
    # a GPU, a power supply: the kernel's log, or a library that names the hardware
    "device",
    # between GPUs: it goes with the GPU at its other end
    "link",
    # the operating system: memory, disks, file systems, its limits
    "machine",
    # the rank itself: an exception, its data, its numbers, its settings
    "program",
    # loss, gradients, loss scale, speed: what detectors say of the steps that a log tells of
    "numbers",
    # what a driver adds once a program has failed, or before anybody knows why
    "consequence",
    # a connection that could not be made, or was lost
    "network",
    # ranks that waited for others in vain
    "collective",
    # somebody ended the job on purpose
    "scheduler",
    # whoever started the ranks tells how they ended
    "launcher",
    # it looks like an error, and no signature knows it
    "other",
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
    # the run is over, and did what it should
    "ended-well",
    # of Python: frames follow, and an exception
    "traceback",
    # the traceback goes through what reads data
    "frame-of-data",
    # ... what saves and loads checkpoints
    "frame-of-checkpoints",
    # ... what loads either of them
    "frame-of-serialization",
    # ... what imports modules
    "frame-of-imports",
    # the exception that follows was raised where nobody minds: while the interpreter ends
    "ignored",
    # which may mean anything: the frames above it say what
    "exception",
    # which says that the program is wrong, as a rule
    "exception-of-code",
    # the file's name, and the frames above, say what is missing
    "missing-file",
    "disk-full",
    # of a rank that a launcher saw fail
    "names-rank",
    # the next rank that is named failed first
    "root-cause",
    # a launcher tells that a rank ended badly
    "death",
    # of the GPU that the next lines are about
    "names-gpu",
    # of a rank, in a collective
    "waited-in-vain",
    "error-of-any-kind",
]

# characters of a line that are kept; chosen
MAX_TEXT = 500


class Match(Value):
    """One line that a signature knows. `line` counts from 1 within `file`; `at` is what the line says, Unix seconds."""

    signature: str
    fault: str
    layer: Layer
    scope: Scope
    weight: Weight = "names"
    role: Role = ""
    # it will be the same again on this hardware, or with these settings
    is_lasting: bool = False
    # it stands in the kernel's own log
    of_kernel: bool = False
    file: str = ""
    line: int = 0
    text: str = ""
    rank: int | None = None
    node: str = ""
    at: float | None = None
    # What the line names: gpu (PCI address or index), peer, node, rank, xid, step, pid, path, seconds.
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def warrants_incident(self) -> bool:
        """Whether it is worth an incident though the ranks live: hardware that will be the same again, or the kernel's own word."""
        says_hardware = self.weight == "names" and self.layer in DEEP and bool(self.fault)
        return says_hardware and (self.is_lasting or self.of_kernel)


class LoggedStep(Value):
    """A step that a log tells of: what stood before it in the same file did not end the run."""

    file: str
    line: int
    step: int


class ScannedLogs(Value, kind="scanned_logs"):
    """What is left of logs once they were searched: the lines that count, and the furthest step of each."""

    matches: tuple[Match, ...] = ()
    steps: tuple[LoggedStep, ...] = ()
