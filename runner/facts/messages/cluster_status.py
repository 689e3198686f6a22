"""The cluster's status, as the supervisor publishes it for readers. Readable when the supervisor is dead.

The register `status`, written at most twice a second. Times are the controller's clock (seconds since the epoch, never runs back).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from runner.facts.causes import Cause
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import StartPhase, StepRecord
from runner.facts.wire import Value


class DrainStatus(Value):
    """A node that is being drained."""

    # The node's state afterwards.
    to: str
    since: float
    reason: str = ""
    # The node that takes its place; "": any that fits.
    spare: str = ""
    # The node leaves at this time in any case.
    by_time: float | None = None


class SparesStatus(Value):
    """The spares: how many there are, how few there may be, and how many there should be."""

    spares: int
    # Fewer than this are too few; 0: never.
    low_mark: int = 0
    # Enough in 99 % of all cases, by the cluster's failure rate.
    recommended: int | None = None
    # An operator was paged.
    low: bool = False


class NodeStatus(Value):
    """One node."""

    node: str
    state: str
    # When the node entered this state.
    since: float | None = None
    hardware: str = ""
    # Faults of this hardware that still count.
    hardware_faults: int = 0
    # The nearest failure domain it is in: "switch s1".
    domain: str = ""
    # "rack r2": it was given up with that domain, and is not at fault.
    domain_down: str = ""
    pending_drain: DrainStatus | None = None
    slots: int = 0
    address: str = ""
    attempt: AttemptId | None = None
    ranks_alive: tuple[int, ...] = ()
    last_heartbeat_seconds_ago: float | None = None
    reason: str = ""
    agent_pid: int = 0
    agent_resident_bytes: int = 0
    # Its warm process: "" (none), importing, ready, or why ranks are started without one.
    warm: str = ""
    warm_resident_bytes: int = 0
    # Versions of Python and of libraries in the warm process.
    warm_versions: Mapping[str, str] = field(default_factory=dict)
    # Output of its ranks that was skipped in floods.
    log_bytes_skipped: int = 0


class IncidentStatus(Value):
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
    # From opening to the first step of the attempt that followed.
    recovered_after_seconds: float | None = None
    closed_at: float | None = None
    step: int | None = None
    steps_lost: int | None = None
    # The cause, from lines of its ranks or of the kernel.
    cause: Cause | None = None
    # The run goes on with it.
    non_fatal: bool = False
    # What was done, in order: "restart", "swap".
    rungs: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    reason: str = ""


class RunStatus(Value):
    """One run."""

    run: int
    name: str
    state: str
    reason: str = ""
    attempt: AttemptId | None = None
    attempt_state: str = ""
    num_attempts: int = 0
    nodes: tuple[str, ...] = ()
    # Last finished step of the current or last attempt.
    step: int = 0
    best_step: int = 0
    # From the trainer's settings in effect, if reported.
    total_steps: int | None = None
    phase: str = ""
    # Seconds since the last step.
    phase_seconds: float | None = None
    last: StepRecord | None = None
    # Newest last, at most 120.
    recent_losses: tuple[float, ...] = ()
    first_loss: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    remedies: Mapping[str, float] = field(default_factory=dict)
    # Phase -> the attempt's slowest rank in it.
    start_phases: Mapping[str, StartPhase] = field(default_factory=dict)
    # The newest intact checkpoint.
    checkpoint_step: int | None = None
    ettr_ratio: float | None = None
    # Cause -> seconds, from the ledger.
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    folder: str = ""
    # Folder of checkpoints; empty: the run saves on its own.
    checkpoints: str = ""
    # Modules that its ranks are forked with; empty: they are fresh processes.
    preload: tuple[str, ...] = ()
    # "n3: torch 2.12.0, most have 2.13.0": nodes warm for this run with other versions than most.
    version_mismatches: tuple[str, ...] = ()
    # "n2: why": the first node that started the current attempt's ranks as fresh processes although forked ones were
    # wanted; "": none did, or none were wanted.
    not_forked_reason: str = ""


class ClusterStatus(Value, kind="status"):
    """The cluster at one moment."""

    cluster: str
    now: float
    # The supervisor's wall clock when it wrote this.
    wall: float
    # The leader: host:pid.
    holder: str = ""
    journal_sequence: int = 0
    closing: bool = False
    nodes: tuple[NodeStatus, ...] = ()
    runs: tuple[RunStatus, ...] = ()
    # Newest first, at most 100.
    incidents: tuple[IncidentStatus, ...] = ()
    open_actions: tuple[str, ...] = ()
    pool: SparesStatus | None = None
    # "rack r2" -> its silent nodes.
    domains_down: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # "quarantined", "retired" -> pieces of hardware.
    hardware_refused: Mapping[str, int] = field(default_factory=dict)
    # Faults of all hardware that still count.
    hardware_faults: int = 0
    # "" or what is wrong with the store or fabric.
    store_note: str = ""
    # Nothing is signed: any process that reaches the store is obeyed.
    unsigned: bool = False
    # Reason -> messages that this supervisor refused: `Reason` of the message validator.
    refused_messages: Mapping[str, int] = field(default_factory=dict)
    metrics_port: int = 0
    decision_failures: int = 0
    supervisor_resident_bytes: int = 0
    supervisor_cpu_seconds: float = 0.0
    # Restarts, swaps, journal appends, malformed messages, ...
    counters: Mapping[str, float] = field(default_factory=dict)


class StandbyStatus(Value, kind="standby_status"):
    """A standby supervisor: the register `status.standby.<holder>`, written about once a second."""

    # host:pid:start.
    holder: str
    # Its wall clock when it wrote this.
    wall: float
    # The journal entry up to which it has followed.
    followed_through: int = 0
    version: str = ""
    # Of the leader's death: the lease's time to live.
    takes_over_within_seconds: float = 0.0
