"""The cluster's status, as the supervisor publishes it for readers. Readable when the supervisor is dead.

The register `status`, written at most twice a second on average.
Times are the controller's clock (seconds since the epoch, never runs back).
"""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from runner.facts.causes import Cause
from runner.facts.ids import AttemptId
from runner.facts.messages.records_checks import MeasuredValue, OutcomeGroup
from runner.facts.messages.signals import StartPhase, StepRecord
from runner.facts.remedies.applied import AppliedRemedy
from runner.facts.wire import Value

# A node's clock and the supervisor's agree so far: heartbeats take a while, and less is of no consequence; chosen.
MAX_CLOCK_SECONDS = 5.0


class DrainStatus(Value):
    """A node that is being drained, then to be in state `to`. `spare` ("": any) takes its place; it leaves by `by_time`."""

    to: str
    since: float
    reason: str = ""
    spare: str = ""
    by_time: float | None = None


class SparesStatus(Value):
    """The spares. `low`: an operator was paged, as fewer than `low_mark` are left. `recommended`: enough in 99 % of all cases."""

    spares: int
    low_mark: int = 0
    recommended: int | None = None
    low: bool = False


class NodeStatus(Value):
    """One node, in its state since `since`. `hardware_faults` are those that still count.

    `domain`: its nearest failure domain, "switch s1". `domain_down`: the one with which it was given up, without being at fault.
    """

    node: str
    state: str
    since: float | None = None
    hardware: str = ""
    hardware_faults: int = 0
    domain: str = ""
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
    # What it is short of although it may serve, with the way out.
    shortage: str = ""
    # Its warm process: "" (none), importing, ready, or why ranks are started without one.
    warm: str = ""
    warm_resident_bytes: int = 0
    warm_versions: Mapping[str, str] = field(default_factory=dict)
    log_bytes_skipped: int = 0
    # By its last heartbeat, less if that was long on its way; 0 where the clocks agree to MAX_CLOCK_SECONDS.
    clock_ahead_seconds: float = 0.0


class IncidentStatus(Value):
    """One incident. A run goes on with a non-fatal one. `rungs`: what was done, in order, such as "restart", "swap".

    `version` counts what happened to it, `events` are the newest of that, "7: swap (try 1)"; a request names the version seen.
    """

    incident: str
    state: str
    fault: str
    run: int | None = None
    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    opened_at: float = 0.0
    detected_after_seconds: float | None = None
    recovered_after_seconds: float | None = None
    closed_at: float | None = None
    step: int | None = None
    steps_lost: int | None = None
    cause: Cause | None = None
    non_fatal: bool = False
    # It is about the run's numbers: it may stay open when the run has ended.
    on_trial: bool = False
    rungs: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    reason: str = ""
    version: int = 0
    events: tuple[str, ...] = ()
    # Who looks at it.
    acknowledged_by: str = ""
    # How far the newest page about it got: "sent to oncall/1", "waits for oncall/1: HTTP 500"; "": none was due.
    page: str = ""


class HoldStatus(Value):
    """Why no attempt of a run starts. `hold`: "paused" (a person asked for it), or "person" (it waits for one)."""

    hold: str
    since: float
    reason: str = ""
    by: str = ""
    incident: str | None = None
    releases_nodes: bool = False


class ProposalStatus(Value):
    """A rung that waits for `stoker approve` or `deny`. `text`: what it does."""

    action: str
    run: int
    incident: str
    text: str
    since: float
    reason: str = ""


class RunForecast(Value):
    """When a run will be done, by its own effective rate, lost time included. Times: the controller's clock.

    `unknown`: why there is no `ends_at`. In 80 % of all cases the end lies between `earliest` and `latest`; `ends_at` is the mean.
    `margin_seconds`: from the expected end, or from that of a finished run, to `deadline`; below 0 it is too late.
    """

    unknown: str = ""
    ends_at: float | None = None
    earliest: float | None = None
    latest: float | None = None
    # It is paused or waits for nodes: as if it went on now.
    if_resumed: bool = False
    steps_left: int | None = None
    # Lost time included.
    seconds_per_step: float | None = None
    interruptions: int = 0
    deadline: float | None = None
    margin_seconds: float | None = None


class RunSpending(Value):
    """What a run has used, in rank hours (one rank for an hour, usually one GPU); useful and lost add up to all.

    Costs in the unit of `rate`, the price of a rank hour; None without one. `budget_rank_hours`: `compute_budget` of run.yaml.
    """

    rank_hours: float = 0.0
    useful_rank_hours: float = 0.0
    lost_rank_hours: float = 0.0
    budget_rank_hours: float | None = None
    # At its expected end.
    rank_hours_at_end: float | None = None
    rate: float | None = None
    cost: float | None = None
    lost_cost: float | None = None
    cost_at_end: float | None = None


class PhaseSeconds(Value):
    """Seconds that recoveries spent in one phase. `counts`: by bucket (`history/run_counters.BUCKET_SECONDS`), each alone."""

    counts: tuple[int, ...]
    total_seconds: float


class RunTotals(Value):
    """Sums of a run since it was admitted, none of which ever falls (`history/run_counters.py`)."""

    productive_seconds: float = 0.0
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    skipped_steps: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)
    recovery: Mapping[str, PhaseSeconds] = field(default_factory=dict)


class RunStatus(Value):
    """One run. `step` is the last finished one of the current or last attempt; `lost_seconds` are by cause, from the ledger.

    `checkpoints` is their folder, empty where the run saves on its own. `preload`: modules with which its ranks are forked.
    """

    run: int
    name: str
    state: str
    reason: str = ""
    # No attempt is planned before, by the cluster's clock.
    retry_at: float | None = None
    attempt: AttemptId | None = None
    attempt_state: str = ""
    num_attempts: int = 0
    nodes: tuple[str, ...] = ()
    step: int = 0
    best_step: int = 0
    total_steps: int | None = None
    phase: str = ""
    phase_seconds: float | None = None
    last: StepRecord | None = None
    # Newest last, at most 120.
    recent_losses: tuple[float, ...] = ()
    first_loss: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Composed from those in effect.
    remedies: Mapping[str, Any] = field(default_factory=dict)
    applied_remedies: tuple[AppliedRemedy, ...] = ()
    # Trends of its numbers that ask for no action, the newest last.
    metric_notes: tuple[str, ...] = ()
    # Phase -> the attempt's slowest rank in it.
    start_phases: Mapping[str, StartPhase] = field(default_factory=dict)
    checkpoint_step: int | None = None
    ettr_ratio: float | None = None
    # Of the last hour and the last day, or of all its time if that is less.
    ettr_hour_ratio: float | None = None
    ettr_day_ratio: float | None = None
    totals: RunTotals = field(default_factory=RunTotals)
    # Checkpoints by how far they are trusted, those that the run has left behind not counted. Of each level: the seconds since
    # the newest that is trusted at least so far was sealed.
    checkpoints_by_trust: Mapping[str, int] = field(default_factory=dict)
    checkpoint_age_seconds: Mapping[str, float] = field(default_factory=dict)
    # Attempts in a row without progress, before the run is given up.
    attempts_left: int | None = None
    # Page -> rungs that it may still take within 24 hours, of pages with such a limit that have taken one.
    rungs_left: Mapping[str, int] = field(default_factory=dict)
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    # Steps that were made and are not part of the run's state; None in a status of an earlier release.
    lost_steps: int | None = None
    folder: str = ""
    checkpoints: str = ""
    preload: tuple[str, ...] = ()
    # "n3: torch 2.12.0, most have 2.13.0": nodes warm for this run with other versions than most.
    version_mismatches: tuple[str, ...] = ()
    # "n2: why": the first node of the current attempt that started fresh processes although forked ones were wanted.
    not_forked_reason: str = ""
    hold: HoldStatus | None = None
    # "q-1 restart run, by ann: why": what people asked for that is not done; the ladder waits for it.
    open_requests: tuple[str, ...] = ()
    # "act", "advise" or "off"; pages may be more cautious.
    mode: str = ""
    # "commit" -> of what its attempts run with, as `launch_conditions.summary` has it.
    runs_with: Mapping[str, str] = field(default_factory=dict)
    # None in a status of an earlier release.
    forecast: RunForecast | None = None
    spending: RunSpending | None = None


class PagesStatus(Value):
    """Pages so far, over all supervisors of the cluster; `addresses` are their names, "oncall/1 slack".

    `failed` counts tries. A page that was `dropped` reached an address never; one that was `inhibited` had a cause that is paged.
    """

    addresses: tuple[str, ...] = ()
    sent: int = 0
    failed: int = 0
    dropped: int = 0
    inhibited: int = 0
    # Not delivered although they are due, and those that are due later: quiet hours, or too many within an hour.
    waiting: int = 0
    due_later: int = 0
    # Since when the oldest of those that wait has been due, and when the newest was sent.
    waiting_since: float | None = None
    last_sent_at: float | None = None
    # Why the newest tries failed, of each address, and what is wrong with the file of addresses; "": nothing.
    problem: str = ""
    # Of the sign of life for a dead-man's switch: when the newest got through, if there is an address for it.
    heartbeat_at: float | None = None


class ClusterStatus(Value, kind="status"):
    """The cluster at one moment. `holder` leads it (host:pid); `wall` is its clock."""

    cluster: str
    now: float
    wall: float
    holder: str = ""
    journal_sequence: int = 0
    closing: bool = False
    nodes: tuple[NodeStatus, ...] = ()
    runs: tuple[RunStatus, ...] = ()
    # Newest first, at most 100.
    incidents: tuple[IncidentStatus, ...] = ()
    open_actions: tuple[str, ...] = ()
    # Oldest first.
    proposals: tuple[ProposalStatus, ...] = ()
    pool: SparesStatus | None = None
    # "rack r2" -> its silent nodes.
    domains_down: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # "quarantined", "retired" -> pieces of hardware.
    hardware_refused: Mapping[str, int] = field(default_factory=dict)
    hardware_faults: int = 0
    # "" or what is wrong with the store or fabric.
    store_note: str = ""
    # Nothing is signed: any process that reaches the store is obeyed.
    unsigned: bool = False
    # Reason -> messages that this supervisor refused: `Reason` of the message validator.
    refused_messages: Mapping[str, int] = field(default_factory=dict)
    metrics_port: int = 0
    # None: pages reach the supervisor's log alone.
    pages: PagesStatus | None = None
    decision_failures: int = 0
    supervisor_resident_bytes: int = 0
    supervisor_cpu_seconds: float = 0.0
    # Of the present supervisor: how often it appended entries to the journal, and how long that took in all.
    num_journal_appends: int = 0
    journal_append_seconds: float = 0.0
    # Restarts, swaps, journal appends, malformed messages, ...
    counters: Mapping[str, float] = field(default_factory=dict)


class NodeChecks(Value):
    """The last outcome of each check of one node, and what was measured of its hardware.

    `num_behind`: of those values; `num_values`: how many they are, for readers that read few; 0: not counted.
    """

    node: str
    outcomes: tuple[OutcomeGroup, ...] = ()
    hardware_class: str = ""
    measured_at: float | None = None
    num_behind: int = 0
    num_values: int = 0
    values: tuple[MeasuredValue, ...] = ()


class CheckStatus(Value, kind="check_status"):
    """The register `status.checks`: of every node that was checked. It is written when a result has come, apart from the status.

    Beyond a limit the values of further nodes are left out, `num_left_out` of them.
    """

    cluster: str
    nodes: tuple[NodeChecks, ...] = ()
    num_left_out: int = 0


class StandbyStatus(Value, kind="standby_status"):
    """A standby supervisor: the register `status.standby.<holder>`, written about once a second. `holder`: host:pid:start."""

    holder: str
    wall: float
    followed_through: int = 0
    version: str = ""
    takes_over_within_seconds: float = 0.0
