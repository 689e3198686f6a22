"""The View: what the supervisor publishes for everybody who only looks. Readable when the supervisor is dead.

The register `view`, written at most twice a second. Times are the controller's clock (seconds since the epoch, never runs back).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.facts.causes import Cause
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import StartPhase, StepRecord
from runner.facts.wire import message


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingView:
    """A node's way out of service."""

    to: str  # the state it will be in
    since: float
    reason: str = ""
    spare: str = ""  # who takes its place; "": whoever fits
    by_time: float | None = None  # it goes then in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """The spares: how many there are, how few there may be, and how many there should be."""

    spares: int
    low_mark: int = 0  # fewer than this are too few; 0: nobody minds
    recommended: int | None = None  # enough in 99 % of all cases, by the cluster's failure rate
    low: bool = False  # somebody was told


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node."""

    node: str
    state: str
    since: float | None = None  # when it came into this state
    hardware: str = ""
    offences: int = 0  # of this hardware, those that still count
    domain: str = ""  # the nearest failure domain it is in: "switch s1"
    domain_down: str = ""  # "rack r2": it was given up with that domain, and is not to blame
    leaving: LeavingView | None = None
    slots: int = 0
    address: str = ""
    attempt: AttemptId | None = None
    ranks_alive: tuple[int, ...] = ()
    heard_seconds_ago: float | None = None
    reason: str = ""
    agent_pid: int = 0
    agent_resident_bytes: int = 0
    warm: str = (
        ""  # its warm process: "" (none), importing, ready, or why ranks are started without one
    )
    warm_resident_bytes: int = 0
    warm_versions: Mapping[str, str] = field(default_factory=dict)  # of Python and libraries in it
    log_bytes_skipped: int = 0  # of what its ranks have written, in floods: nobody has read them


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentView:
    """One incident."""

    incident: str
    state: str
    fault: str
    run: int | None = None
    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    opened_at: float = 0.0
    detected_after_seconds: float | None = None
    recovered_after_seconds: float | None = (
        None  # from opening to the first step of the attempt that followed
    )
    closed_at: float | None = None
    step: int | None = None
    steps_lost: int | None = None
    cause: Cause | None = None  # what lines of its ranks, or of the kernel, say it was
    watched: bool = False  # the run goes on with it
    rungs: tuple[str, ...] = ()  # what was done, in order: "restart", "swap"
    evidence: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run."""

    run: int
    name: str
    state: str
    reason: str = ""
    attempt: AttemptId | None = None
    attempt_state: str = ""
    num_attempts: int = 0
    nodes: tuple[str, ...] = ()
    step: int = 0  # last finished step of the current or last attempt
    best_step: int = 0
    total_steps: int | None = None  # from the trainer's settings in effect, where it says
    phase: str = ""
    phase_seconds: float | None = None  # since the last step
    last: StepRecord | None = None
    recent_losses: tuple[float, ...] = ()  # newest last, at most 120
    first_loss: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    remedies: Mapping[str, float] = field(default_factory=dict)
    start: Mapping[str, StartPhase] = field(
        default_factory=dict
    )  # of the attempt: the slowest rank in each phase
    checkpoint_step: int | None = None  # newest intact one
    ettr_ratio: float | None = None
    lost_seconds: Mapping[str, float] = field(default_factory=dict)  # by cause, from the ledger
    folder: str = ""
    checkpoints: str = ""  # folder; empty: the run keeps its own
    preload: tuple[
        str, ...
    ] = ()  # modules that its ranks are forked with; empty: they are fresh processes
    # "n3: torch 2.12.0, most have 2.13.0": nodes warm for this run with other versions than most
    versions_apart: tuple[str, ...] = ()
    # "n2: why": the first node that started the current attempt's ranks as fresh processes although forked ones were
    # wanted; "": none did, or none were wanted
    cold: str = ""


@message("view")
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The cluster at one moment."""

    cluster: str
    now: float
    wall: float  # the supervisor's wall clock when it wrote this
    holder: str = ""  # who leads: host:pid
    journal_sequence: int = 0
    closing: bool = False
    nodes: tuple[NodeView, ...] = ()
    runs: tuple[RunView, ...] = ()
    incidents: tuple[IncidentView, ...] = ()  # newest first, at most 100
    open_actions: tuple[str, ...] = ()
    pool: PoolView | None = None
    # "rack r2" -> its nodes, which fell silent together
    domains_down: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hardware_refused: Mapping[str, int] = field(
        default_factory=dict
    )  # quarantined, retired -> pieces of hardware
    offences: int = 0  # of all hardware, those that still count
    store_note: str = ""  # "" or what is wrong with the store or fabric
    unsigned: bool = False  # nothing is signed: whoever reaches the store is obeyed
    # why -> messages that this supervisor passed over: unsigned, junk, uncounted, replayed, stranger
    refused_messages: Mapping[str, int] = field(default_factory=dict)
    metrics_port: int = 0
    decision_failures: int = 0
    supervisor_resident_bytes: int = 0
    supervisor_cpu_seconds: float = 0.0
    counters: Mapping[str, float] = field(
        default_factory=dict
    )  # restarts, swaps, journal appends, junk, ...


@message("standby_view")
@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyView:
    """A supervisor that stands by: the register `view.standby.<holder>`, written anew about once a second."""

    holder: str  # host:pid:start
    wall: float  # its wall clock when it wrote this
    through: int = 0  # the journal entry up to which it has followed
    version: str = ""
    takes_over_within_seconds: float = 0.0  # of the leader's death: the life of the lease
