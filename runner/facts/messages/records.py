"""Records: what the controller decided. The journal is a list of entries: an input, and the records it led to.

`apply(record)` is the only thing that changes the controller's state, so recovery is replaying records, never deciding again.
Kinds and fields are only ever added. One file, past the usual length: it is the whole vocabulary of decisions, without logic.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from runner.facts import faults  # noqa: F401
from runner.facts.actions import Action
from runner.facts.causes import Cause, Failure
from runner.facts.checkpoints import Checkpoint
from runner.facts.ids import AttemptId
from runner.facts.matches import Match

# A journal's inputs may be of any kind: a reader of records must know them all.
from runner.facts.messages import (  # noqa: F401
    assignments,
    isolation,
    records_checkpoints,
    records_checks,
    records_drift,
    records_people,
    records_trials,
    requests,
    signals,
    store_rollback,
)
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.remedies import RemedyName, RemedyValue
from runner.facts.specs.run import RunSpec
from runner.facts.trials import Trajectory
from runner.facts.wire import Value


class AttemptRecord(Value):
    """The fields of every record about an attempt."""

    attempt: AttemptId


class JournalEntry(Value, kind="entry"):
    """One turn of the controller: what came in, when, from where in which stream, and what was decided.

    `sequence` counts from 1 without gaps, `now` is the controller's clock, which never runs back, `cursor` the inbox's after it.
    """

    sequence: int
    now: float
    input: object
    # The stream it was read from ("" for inputs that Stoker makes itself).
    stream: str = ""
    cursor: int = 0
    records: tuple[object, ...] = ()


# ---- inputs that Stoker makes itself --------------------------------------------------------------------------------


class Settle(Value, kind="settle"):
    """What follows from the state as it is now; asked after every input until nothing more follows."""


class Tick(Value, kind="tick"):
    """A deadline the controller asked for has passed."""


class SupervisorStarted(Value, kind="supervisor_started"):
    """A supervisor took the lease: `token` is its fencing token. Nodes get a fresh silence allowance."""

    holder: str
    token: int
    version: str
    # Those whose agents it can start; `down`: of these, the ones without any process of ours.
    nodes: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    # Of which its detectors know what those of the supervisor before knew.
    learned_runs: tuple[int, ...] = ()


class SupervisorPaused(Value, kind="supervisor_paused"):
    """The supervisor itself stood still (SIGSTOP, a suspended machine, a store outage): silence meanwhile proves nothing."""

    seconds: float
    reason: str


class MessageUnreadable(Value, kind="message_unreadable"):
    """Bytes in a stream that are no message of ours: passed over, and in the timeline at most once a minute."""

    stream: str
    reason: str


class HeartbeatStep(Value, kind="heartbeat_step"):
    """The furthest step in the heartbeats of a node that is silent, and when it came: a dead agent sends no other message about it.

    `is_printed`: its ranks report no steps; it is in their output. `at`: seconds on the controller's clock.
    """

    node: str
    attempt: AttemptId
    step: int
    at: float
    is_printed: bool = False


class StaleMessage(Value, kind="stale_message"):
    """A request or a join that was sent too long ago, or by a clock that is off: it is refused, and its sender gets the reason."""

    reason: str
    message: object


# ---- records: nodes -------------------------------------------------------------------------------------------------

NodeStateName = Literal[
    "absent",
    "joining",
    # Has joined, and must pass its checks before it may take ranks.
    "checking",
    "spare",
    "active",
    # No heartbeat; nothing certain is known.
    "suspect",
    "lost",
    # Its hardware is bad, or may be: refused until an operator readmits it.
    "quarantined",
    # Taken out by an operator or a notice, until it is readmitted.
    "maintenance",
    "left",
    "retired",
]


class NodeExpected(Value, kind="node_expected"):
    """A node this cluster's places can start an agent on."""

    node: str


class NodeRegistered(Value, kind="node_registered"):
    """An agent joined: a new node, or a new incarnation of a known one."""

    node: str
    incarnation: int
    hardware: str
    slots: int
    address: str
    pid: int
    parts: tuple[str, ...] = ()
    instance_id: str = ""


class JoinRefused(Value, kind="join_refused"):
    """An agent asked to join under the name of another one that sends heartbeats: it gets nothing to run."""

    node: str
    instance_id: str
    hardware: str
    reason: str


class NodeDraining(Value, kind="node_draining"):
    """A node is to leave service at the next checkpoint, and to be in `to` from then on; it stays what it is until then.

    `spare`: the node that takes its place, None for any that fits. `by_time`: the controller's clock at which it goes in any case.
    `to` None takes the wish back.
    """

    node: str
    to: Literal["maintenance", "quarantined", "retired"] | None
    reason: str = ""
    spare: str | None = None
    request: str | None = None
    by_time: float | None = None


class HardwareSeen(Value, kind="hardware_seen"):
    """A node has this hardware: new hardware, known hardware under another name, or with other parts."""

    hardware: str
    node: str
    parts: tuple[str, ...] = ()


class HardwareFaultRecorded(Value, kind="hardware_fault_recorded"):
    """Something that counts against hardware for `lemon_days`."""

    hardware: str
    node: str
    fault: str
    evidence: str = ""
    incident: str | None = None


class HardwareJudged(Value, kind="hardware_judged"):
    """Hardware is refused from now on, under any name; or, with verdict "", readmitted, its faults forgiven. `by`: an operator."""

    hardware: str
    verdict: Literal["", "quarantined", "retired"]
    reason: str = ""
    by: str = ""


class SparesRecorded(Value, kind="spares_recorded"):
    """The pool of spares is low, or no longer: `wanted` is the least there should be."""

    low: bool
    spares: int
    wanted: int


class DomainStateRecorded(Value, kind="domain_state_recorded"):
    """A failure domain is down, with these nodes; with none, all of them send heartbeats again or were handled one by one."""

    domain: str
    name: str
    nodes: tuple[str, ...] = ()
    incident: str | None = None
    # Some of its nodes send heartbeats again: the others get time.
    back: bool = False


class NodeChanged(Value, kind="node_changed"):
    """A node changed its state, or the reason for it.

    `devices_busy`: it is suspect for its devices, until its agent reports them released. `ended`: its agent has ended, too.
    `domain`: the node was lost with that failure domain, and is not at fault.
    """

    node: str
    state: NodeStateName
    reason: str = ""
    incident: str | None = None
    devices_busy: bool = False
    ended: bool = False
    domain: str = ""


class GangSteppedOn(AttemptRecord, kind="gang_stepped_on"):
    """The gang of these silent nodes has made steps: their ranks live."""

    nodes: tuple[str, ...]
    step: int
    step_seconds: float = 0.0


class NodeKeptInService(Value, kind="node_kept_in_service"):
    """An operator was paged: a node is out of reach and stays in service, since its gang makes steps."""

    node: str


class Assigned(Value, kind="assigned"):
    """A node's assignment: `attempt` None means idle. Publishing it is the effect of this record."""

    node: str
    generation: int
    attempt: AttemptId | None = None
    grace_seconds: float = 0.0
    stacks_seconds: float = 0.0


class NodeCleared(Value, kind="node_cleared"):
    """No rank of `attempt` runs on the node any more (but those left behind after SIGKILL)."""

    node: str
    attempt: AttemptId
    left_behind: tuple[int, ...] = ()
    confirmed_by: Literal["agent", "probe"] = "agent"
    rank_stacks: tuple[RankStack, ...] = ()


# ---- records: runs and attempts -------------------------------------------------------------------------------------

RunStateName = Literal["active", "waiting", "paused", "finished", "stopped", "failed"]
AttemptStateName = Literal[
    "preparing", "prepared", "launching", "running", "stop_requested", "stopping", "ended"
]
RequestStateName = Literal["open", "done", "refused", "failed"]
# "moved": ended at a checkpoint, because a node leaves; "paused", "restarted": because a person asked for it. "rewound": its last
# steps are to be made again from an older one.
Outcome = Literal[
    "finished",
    "stopped",
    "crashed",
    "hung",
    "lost",
    "refused",
    "withdrawn",
    "reconfigured",
    "moved",
    "rewound",
    "paused",
    "restarted",
]


class RunAdmitted(Value, kind="run_admitted"):
    """A run exists from now on; its number comes from the journal."""

    run: int
    spec: RunSpec
    user: str = ""


class RunChanged(Value, kind="run_changed"):
    """A run changed its state."""

    run: int
    state: RunStateName
    reason: str = ""
    incident: str | None = None


class AttemptPlanned(AttemptRecord, kind="attempt_planned"):
    """An attempt exists: these nodes, in rank order."""

    generation: int
    nodes: tuple[str, ...]
    reason: str
    incident: str | None = None


class AttemptPrepared(AttemptRecord, kind="attempt_prepared"):
    """Its checkpoint and its rendezvous are chosen."""

    resume: str
    resume_step: int
    master_address: str
    master_port: int
    # No node has read the checkpoint's files since they were written, or since they changed.
    unverified: bool = False


class AttemptChanged(AttemptRecord, kind="attempt_changed"):
    """An attempt changed its state. `outcome` is what it is going to end as, set on the way to `stopping`."""

    state: AttemptStateName
    reason: str = ""
    outcome: Outcome | None = None
    incident: str | None = None
    # Withdrawn because it could not be prepared, not in favour of another run.
    failed: bool = False


class NodeLaunched(Value, kind="node_launched"):
    """All ranks of the attempt on this node are spawned.

    `not_forked_reason` says why they are fresh processes although they were to be forked from a warm one; "" when all is as wanted.
    """

    node: str
    attempt: AttemptId
    not_forked_reason: str = ""


class RankCapabilitiesRecorded(AttemptRecord, kind="rank_capabilities_recorded"):
    """What the attempt's ranks can be asked, which remedies and drills they know, and whether they check what they load."""

    requests: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    checks_checkpoints: bool = False
    drills: tuple[str, ...] = ()


class RankEnded(AttemptRecord, kind="rank_ended"):
    """A rank ended by itself."""

    node: str
    rank: int
    exit_code: int | None


class StepsAdvanced(AttemptRecord, kind="steps_advanced"):
    """The attempt has finished `step`. `printed_by`: the rank whose output shows it; None: ranks report their steps.

    `tokens`, `num_skipped`: as in the signal. `at`: by when it was done, if that was before this record.
    """

    step: int
    loss: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    printed_by: int | None = None
    tokens: int = 0
    num_skipped: int = 0
    at: float | None = None


class StartTimed(AttemptRecord, kind="start_timed"):
    """Which rank of the gang took longest in each phase of the start."""

    slowest: Mapping[str, signals.StartPhase] = field(default_factory=dict)


class SettingsRead(AttemptRecord, kind="settings_read"):
    """Settings in effect, as the trainer read them back."""

    step: int
    values: Mapping[str, Any] = field(default_factory=dict)


class CheckpointRecorded(Value, kind="checkpoint_recorded"):
    """A checkpoint, or a new degree of trust in a known one."""

    run: int
    checkpoint: Checkpoint


class CheckpointRemoved(Value, kind="checkpoint_removed"):
    """A checkpoint was deleted by policy."""

    run: int
    path: str


class VerificationBegun(Value, kind="verification_begun"):
    """Nodes are to read a checkpoint, in so many shares. `manifest`: sha256 of its manifest's bytes; `stamp`: of its files."""

    run: int
    path: str
    manifest: str
    stamp: str
    shares: int
    size_bytes: int = 0


class ShareEnded(Value, kind="share_ended"):
    """A node has read its share of a checkpoint: it agrees with the manifest, or it is to be read again, for this reason."""

    run: int
    share: int
    verified: bool = False
    reason: str = ""
    # Of its scan: how many tensors it has, and what of it is not covered.
    tensors: int = 0
    uncovered: str = ""


class ActionRenewed(Value, kind="action_renewed"):
    """An action makes progress: its deadline counts from now."""

    id: str


class RemedyAdded(Value, kind="remedy_added"):
    """A durable change to the run, in effect from its next attempt on. `by`: who ordered it, a person or a page.

    `id`: "r1", "r2", ... among the run's; "" in journals of earlier releases, whose remedies count likewise.
    """

    run: int
    remedy: RemedyName
    value: RemedyValue
    by: str = ""
    request: str | None = None
    id: str = ""
    incident: str | None = None
    reason: str = ""


class MetricNoteAdded(AttemptRecord, kind="metric_note_added"):
    """A trend of the run's numbers that asks for no action, from this step on."""

    fault: str
    step: int
    evidence: str


class RateRead(AttemptRecord, kind="rate_read"):
    """The learning rate in the lines of a trainer whose command has a placeholder for it. `launched`: what that stood for."""

    step: int
    lr: float
    launched: float


class RemedyReverted(Value, kind="remedy_reverted"):
    """A remedy is taken back: from its next attempt on the run trains without it."""

    run: int
    id: str
    by: str = ""
    reason: str = ""
    request: str | None = None


class RemedyChecked(Value, kind="remedy_checked"):
    """What the trainer read back shows whether a remedy is in effect; `reason`: why not."""

    run: int
    id: str
    attempt: AttemptId
    state: Literal["in_effect", "failed"]
    reason: str = ""


# ---- records: incidents, actions, requests --------------------------------------------------------------------------


class IncidentOpened(Value, kind="incident_opened"):
    """An incident was opened. `step`: the furthest of its run by then; `onset`: the first abnormal one.

    `detected_after_seconds`: from the last good sign to this record, where known.
    """

    incident: str
    fault: str
    evidence: str
    run: int | None = None
    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    fingerprint: str = ""
    step: int | None = None
    detected_after_seconds: float | None = None
    # The run goes on: the incident is reported and followed, and governs nothing.
    non_fatal: bool = False
    onset: int | None = None
    # The attempt that ended with it.
    failure: Failure | None = None
    # It is about the run's numbers: a trial says when it is over. `before`: what they were before the onset.
    on_trial: bool = False
    before: Trajectory | None = None
    # Until then the rank that it began in may yet be named, and the first rung waits.
    answer_at: float | None = None
    # As in Finding.
    suspects: tuple[str, ...] = ()


class IncidentAmended(Value, kind="incident_amended"):
    """Later evidence: None leaves a field as it was. `condition` is what a probe found (agent_only, node_dead)."""

    incident: str
    evidence: str
    fault: str | None = None
    node: str | None = None
    rank: int | None = None
    condition: str | None = None
    attempt: AttemptId | None = None
    fingerprint: str | None = None
    step: int | None = None
    # Another attempt ended with it.
    failure: Failure | None = None
    # As in IncidentOpened.
    answer_at: float | None = None
    # How far the loss went without an answer.
    sick_loss: float | None = None
    suspects: tuple[str, ...] = ()


class IncidentDiagnosed(Value, kind="incident_diagnosed"):
    """The cause, from lines of the ranks that died. It explains; the response to the first death is not changed."""

    incident: str
    cause: Cause
    # The lines it was judged by, to be judged again with what other nodes find.
    matches: tuple[Match, ...] = ()


class EvidenceRecorded(AttemptRecord, kind="evidence_recorded"):
    """Lines of a running gang: if it fails, they are judged with the lines found then."""

    matches: tuple[Match, ...]
    # The last step of their node's ranks by then.
    step: int | None = None
    # Some name hardware: they are judged then if the gang still runs.
    judge_at: float | None = None


class EvidenceJudged(AttemptRecord, kind="evidence_judged"):
    """The lines that were to be judged by now are."""


class RungTaken(Value, kind="rung_taken"):
    """The ladder's answer: rung `rung` (from 0) of `runbook`, for the `try_number`-th time (from 1). `by`: who approved it."""

    incident: str
    runbook: str
    rung: int
    do: str
    try_number: int
    reason: str = ""
    by: str = ""


class AnswerAwaited(Value, kind="answer_awaited"):
    """Ranks wrote why they ended: the rung waits until their node has sent those lines, or until then. The gang ends at once."""

    incident: str
    node: str
    until: float
    reason: str = ""


class RetryPlanned(Value, kind="retry_planned"):
    """The run's next attempt is planned no sooner than `at`, and without these nodes if there are enough others."""

    run: int
    at: float | None = None
    seconds: float = 0.0
    avoid: tuple[str, ...] = ()
    incident: str | None = None
    reason: str = ""


class RestartWanted(Value, kind="restart_wanted"):
    """The run is to start again, once its ranks have written a checkpoint."""

    run: int
    reason: str
    incident: str | None = None


class IncidentChanged(Value, kind="incident_changed"):
    """An incident changed its state (facts/lifecycles.py)."""

    incident: str
    state: str
    reason: str = ""


class ActionIssued(Value, kind="action_issued"):
    """An action to perform; performing it is the effect of this record."""

    action: Action


class ActionEnded(Value, kind="action_ended"):
    """An action's first outcome."""

    id: str
    outcome: Literal["done", "failed", "unknown"]
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


class RequestRecorded(Value, kind="request_recorded"):
    """An operator's request, its kind, its state and what it is about; publishing the answer is the effect of this record."""

    id: str
    request: str
    by: str
    state: RequestStateName
    message: str = ""
    run: int | None = None
    node: str = ""
    sent_at: float = 0.0
    reason: str = ""
    # What the operator looked at.
    incident: str = ""


class DecisionFailed(Value, kind="decision_failed"):
    """Deciding about this input raised: the input is passed over, an operator is paged."""

    error: str


class ClusterClosing(Value, kind="cluster_closing"):
    """The cluster shuts down: runs are stopped, agents are ended, then the supervisor leaves."""

    by: str
    request: str = ""


class ClusterReopened(Value, kind="cluster_reopened"):
    """A cluster that had shut down is led again: its nodes are expected again."""


class CorrelatedSilenceRecorded(Value, kind="correlated_silence_recorded"):
    """Nodes that are silent at the same time: the store or the fabric is suspected; empty when it is over."""

    nodes: tuple[str, ...] = ()
