"""The controller's durable state. Mutable, owned by one controller, changed by `apply` alone, kept in snapshots.

Everything is reached through dicts and lists in insertion order; no sets, so that a replay walks it in the same order. One file,
past the usual length: these classes hold one another, and a snapshot is all of them.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from runner.decide.state.isolation import Isolation
from runner.decide.state.people import Hold, IncidentEvent, PendingRequest, Proposal
from runner.decide.state.targeted_check import TargetedCheck
from runner.facts.actions import Action
from runner.facts.causes import Cause, Failure
from runner.facts.checkpoints import Checkpoint, LinePart, Rewind, Trust
from runner.facts.faults import fault_kind
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions
from runner.facts.matches import Match
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.messages.records import (
    AttemptStateName,
    MetricNoteAdded,
    NodeStateName,
    Outcome,
    RateRead,
    RequestRecorded,
    RunStateName,
)
from runner.facts.messages.records_checks import MeasuredValue, OutcomeGroup
from runner.facts.messages.signals import StartPhase
from runner.facts.remedies.applied import AppliedRemedy
from runner.facts.specs.cluster import CheckLevel
from runner.facts.specs.placeholders import remedies_of_command
from runner.facts.specs.run import RunSpec
from runner.facts.trials import Trajectory, Trial
from runner.facts.wire import MutableValue, Value

# States of nodes that are out of service until an operator readmits them, and of all nodes that take no part.
OUT: tuple[NodeStateName, ...] = ("quarantined", "maintenance", "retired")
GONE: tuple[NodeStateName, ...] = ("lost", "left", *OUT)

# States of an attempt that starts or runs, and of all whose nodes are assigned to run it.
RUNNING: tuple[AttemptStateName, ...] = ("launching", "running")
LAUNCHED: tuple[AttemptStateName, ...] = (*RUNNING, "stop_requested")

# What is kept of history, for recognising and for showing; the journal has all. Chosen, not measured.
MAX_REQUESTS_KEPT = 200
MAX_REQUEST_IDS_KEPT = 1000
MAX_INCIDENTS_KEPT = 200
MAX_CHECK_MESSAGE = 1000
MAX_REFUSED_AGENTS_KEPT = 100
MAX_REFUSED_JOINS_KEPT = 1000
MAX_INSTANCE_IDS_KEPT = 64
MAX_MATCHES_KEPT = 100
MAX_METRIC_NOTES = 10
MAX_FAILURES_KEPT = 100
MAX_HARDWARE_FAULTS_KEPT = 100


class PendingDrain(Value):
    """A node's way out of service: where to, and who wanted it."""

    to: Literal["maintenance", "quarantined", "retired"]
    since: float
    reason: str = ""
    spare: str | None = None
    request: str | None = None
    by_time: float | None = None


class HardwareFault(Value):
    """Something that hardware did."""

    at: float
    node: str
    fault: str
    evidence: str = ""
    incident: str | None = None


class Hardware(MutableValue):
    """A machine, by its parts. Its history stays with it under any node name; the newest names and faults come last."""

    hardware: str
    parts: list[str] = field(default_factory=list)
    node_names: list[str] = field(default_factory=list)
    faults: list[HardwareFault] = field(default_factory=list)
    verdict: Literal["", "quarantined", "retired"] = ""
    reason: str = ""
    judged_at: float | None = None
    by: str = ""
    # The newest pass of checks: when, and at which level ("": checks that were named one by one).
    passed_at: float | None = None
    passed_level: str = ""
    # It was suspected, or a person had it: passes before that say nothing of it, those of its machine neither.
    voided_at: float | None = None
    # Passes in a row that it owes before it serves, after its checks failed, or it was refused and readmitted.
    passes_due: int = 0
    # What was measured at the newest check that passed or failed, and which of it was behind.
    hardware_class: str = ""
    measured_at: float | None = None
    values: list[MeasuredValue] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    # Checks in a row in which anything was.
    num_behind: int = 0


class Source(MutableValue):
    """The newest durable signal taken from a node, and its agent: what does not come after it was taken before."""

    incarnation: int = 0
    sequence: int = 0
    instance_id: str = ""
    # Of earlier agents: they never join again.
    past_instance_ids: list[str] = field(default_factory=list)


class CheckOutcome(Value):
    """How a node's last check ended, `message` for people; what was measured stays in the journal.

    The message of a PASS is the outcome alone, or what the node is short of although it may serve.
    """

    at: float
    # PASS, FAIL, UNKNOWN; "": the agent did not answer
    outcome: str
    message: str = ""

    @property
    def shortage(self) -> str:
        """What a node that passed is short of, with the way out; "" when it has enough."""
        return self.message if self.outcome == "PASS" and self.message != self.outcome else ""


class Node(MutableValue):
    """A node of the fleet, its agent, and its newest assignment. Ranks of `ranks_may_run` may still live on it."""

    node: str
    index: int
    state: NodeStateName = "absent"
    since: float = 0.0
    reason: str = ""
    checked: CheckOutcome | None = None
    # Why it is to be checked once it is idle, and since when; "": nothing asks for it.
    check_wanted: str = ""
    check_wanted_at: float = 0.0
    # "": the cluster's.
    check_wanted_level: CheckLevel = ""
    # The last that asked for it, answered or not.
    check_request: str = ""
    # The last outcome of each check, the newest groups last; no check is in two of them.
    check_outcomes: list[OutcomeGroup] = field(default_factory=list)
    incarnation: int = 0
    hardware: str = ""
    instance_id: str = ""
    # The supervisor can start its agent.
    provided: bool = False
    # It was lost, and its agent started again, since it was last in service.
    revived: bool = False
    # Its agent is known to have ended, and no other has joined.
    ended: bool = False
    # It has yet to pass its checks, whatever state it is in meanwhile.
    unchecked: bool = False
    # Checks in a row that ended without a verdict.
    check_tries: int = 0
    # While its machine or its agent is busy with something else: when it is checked again. How often a machine put that off in a
    # row.
    check_after: float = 0.0
    num_postponed: int = 0
    # Until `check_after`: the task for which it refused a check.
    check_awaits: str = ""
    refused_instance_id: str = ""
    refusals: int = 0
    pending_drain: PendingDrain | None = None
    # "rack r2": it was lost with that domain, through no fault of its own.
    domain_down: str = ""
    slots: int = 0
    address: str = ""
    pid: int = 0
    generation: int = 0
    attempt: AttemptId | None = None
    grace_seconds: float = 0.0
    stacks_seconds: float = 0.0
    ranks_may_run: AttemptId | None = None
    # Ranks that outlived SIGKILL, until another agent comes.
    left_behind: list[int] = field(default_factory=list)
    probed_at: float = 0.0
    # Probes in a row that found the agent alive though it does not answer.
    probes: int = 0
    # Suspect for its devices alone: its agent is alive, and it takes no ranks until they are free.
    devices_busy: bool = False
    # Probes in a row that could not reach the node.
    unreachable: int = 0
    # When its gang last made steps while the node was silent.
    gang_stepped_at: float | None = None
    gang_step_seconds: float = 0.0
    # When a person was last paged that it stays in service for that.
    kept_in_service_at: float | None = None


class PendingEvidence(Value):
    """A line of a running gang. `step`: what a rank of its node had done by then."""

    match: Match
    step: int | None = None
    at: float = 0.0


class Attempt(MutableValue):
    """One launch of a run. `launched`: nodes whose ranks are all spawned; `settings`: those read back from the trainer."""

    attempt: AttemptId
    generation: int
    nodes: list[str]
    # Those of them that the attempt before did not have.
    newcomers: list[str] = field(default_factory=list)
    state: AttemptStateName = "preparing"
    outcome: Outcome | None = None
    reason: str = ""
    incident: str | None = None
    resume: str = ""
    resume_step: int = 0
    master_address: str = ""
    master_port: int = 0
    remedies: dict[str, Any] = field(default_factory=dict)
    # The last attempt before it that made a step and went on as the run had before, and its remedies.
    stepped_before: AttemptId | None = None
    remedies_before: dict[str, Any] = field(default_factory=dict)
    # Attempts after that one -> their remedies.
    passed_over: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    understood_remedies: list[str] = field(default_factory=list)
    drills: list[str] = field(default_factory=list)
    # Its ranks compare what they load with the manifest: by their hello, and until it comes, by that of the attempt before.
    checks_checkpoints: bool = False
    # What the run was known to run with when it was planned: the digests of each part that count, and its data's fingerprint.
    known_conditions: dict[str, list[str]] = field(default_factory=dict)
    known_data: str = ""
    # A person approved of what differs in it.
    accepts_drift: bool = False
    # All digests of each part that its nodes have reported; empty: they are not compared yet.
    compared: dict[str, list[str]] = field(default_factory=dict)
    # Nodes that are asked what they run with -> the nodes like it, in words.
    asked_conditions: dict[str, str] = field(default_factory=dict)
    # Furthest step of the run when it was planned.
    best_before: int = 0
    planned_at: float = 0.0
    # When it was assigned to its nodes; they may still wait for devices and preloads.
    launched_at: float | None = None
    # The last of its nodes has started its ranks.
    started_at: float | None = None
    first_step_at: float | None = None
    stopping_at: float | None = None
    stop_requested_at: float | None = None
    last_step: int | None = None
    last_step_at: float | None = None
    # The rank whose output shows the steps; None: ranks report them, or none is known.
    printed_by: int | None = None
    # Nodes that have started their ranks: why these are fresh processes although they were to be forked; "" if all is as wanted.
    launched: dict[str, str] = field(default_factory=dict)
    # "n2: why" of the first of them; "": none did
    not_forked_reason: str = ""
    exit_codes: dict[int, int | None] = field(default_factory=dict)
    # One rank is confirmed dead: a synchronous gang cannot advance any more.
    dead_rank_seen: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Of ranks that hung, of nodes clear so far.
    rank_stacks: list[RankStack] = field(default_factory=list)
    start: dict[str, StartPhase] = field(default_factory=dict)
    pending_evidence: list[PendingEvidence] = field(default_factory=list)
    judge_at: float | None = None

    @property
    def up_since(self) -> float | None:
        """Return when the whole gang was up; None while a node has yet to start its ranks."""
        if self.started_at is None and len(self.launched) == len(self.nodes):
            # From a snapshot of before the two were kept apart.
            return self.launched_at
        return self.started_at


class Verification(MutableValue):
    """A checkpoint that nodes are reading. `tries`: share -> how often it ended without a verdict, of shares not yet verified.

    `tensors` and `uncovered`: what the scans of the others found.
    """

    path: str
    manifest: str
    stamp: str
    shares: int
    size_bytes: int = 0
    tries: dict[int, int] = field(default_factory=dict)
    tensors: int = 0
    uncovered: str = ""


class Run(MutableValue):
    """One training goal. `attempt`: the current one, or the last; `checkpoints`: by step, refused ones too."""

    run: int
    spec: RunSpec
    user: str = ""
    state: RunStateName = "active"
    reason: str = ""
    admitted_at: float = 0.0
    ended_at: float | None = None
    attempt: Attempt | None = None
    num_attempts: int = 0
    best_step: int = 0
    # The newest configuration of which an attempt made a step; 0: not known.
    stepped_configuration: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    # Composed from those in effect, `applied_remedies` without the reverted ones.
    remedies: dict[str, Any] = field(default_factory=dict)
    applied_remedies: list[AppliedRemedy] = field(default_factory=list)
    # The newest notes of its detectors.
    metric_notes: list[MetricNoteAdded] = field(default_factory=list)
    # The last rate in its lines, where its command has a placeholder for it.
    rate_read: RateRead | None = None
    # Of the last hello of its ranks.
    understood_remedies: list[str] = field(default_factory=list)
    # Remedies changed since the last attempt was planned.
    reconfigured: bool = False
    # Attempts with the next names may have been before the store was rolled back.
    skips_attempt_ids: bool = False
    checkpoints: list[Checkpoint] = field(default_factory=list)
    verification: Verification | None = None
    rewinds: list[Rewind] = field(default_factory=list)
    # The newest attempts that did not go on as the run had before them, oldest first.
    mismatched: list[AttemptId] = field(default_factory=list)
    # Whose steps the run's state is made of, oldest first; the last is the newest attempt.
    line: list[LinePart] = field(default_factory=list)
    # The furthest step when the last incident about its numbers was over.
    clean_since: int = 0
    # The one that governs what is done next.
    incident: str | None = None
    # The one about its numbers.
    trial_incident: str | None = None
    # Crashed in a row without a step beyond the furthest.
    attempts_without_progress: int = 0
    failed_preparations: int = 0
    # The next attempt is planned no sooner, and if possible without these nodes.
    retry_at: float | None = None
    retry_reason: str = ""
    avoid: list[str] = field(default_factory=list)
    # Why the ranks are to start again after a checkpoint; "": they are not.
    restart_reason: str = ""
    # Its ranks have sent a hello, or reported a step, in some attempt.
    has_reported: bool = False
    # Its steps are known by what its ranks print.
    prints_steps: bool = False
    stop_requests: list[str] = field(default_factory=list)
    # Answered when the settings in effect have been read back.
    settings_requests: list[str] = field(default_factory=list)
    hold: Hold | None = None
    # What its attempts run with; None: not known yet.
    conditions: LaunchConditions | None = None
    # Part -> digests of what some of its nodes run with, of which a person approved, beside `conditions`.
    approved_digests: dict[str, list[str]] = field(default_factory=dict)
    # A person approved of what differs in the next attempt.
    accepts_drift: bool = False
    # What people asked for that is not done yet, oldest first.
    pending_requests: list[PendingRequest] = field(default_factory=list)
    # Live incidents whose ladders wait: for a person (True), or until a person's request is done.
    suspended: dict[str, bool] = field(default_factory=dict)
    # Page -> when it took rungs within the last day, oldest first.
    page_times: dict[str, list[float]] = field(default_factory=dict)

    def newest(self, *trusts: Trust) -> Checkpoint | None:
        """Return the newest checkpoint that has one of these degrees of trust and is not set aside."""
        newest_first = reversed(self.checkpoints)
        return next(
            (c for c in newest_first if c.trust in trusts and not self.is_set_aside(c)), None
        )

    def is_set_aside(self, checkpoint: Checkpoint) -> bool:
        """Whether the run went back beyond this checkpoint: it is never resumed from again."""
        step, attempt = checkpoint.age
        return any(rewind.sets_aside(step, attempt) for rewind in self.rewinds)

    def is_on_line(self, checkpoint: Checkpoint) -> bool:
        """Whether the steps of the newest attempt follow from this checkpoint."""
        own = self.attempt is not None and checkpoint.attempt == self.attempt.attempt
        return own or any(
            part.attempt == checkpoint.attempt
            and (part.last_step is None or checkpoint.step <= part.last_step)
            for part in self.line
        )

    def was_left(self, attempt: AttemptId) -> bool:
        """Whether the run went back since this attempt was planned: its steps say nothing of how far the run is now."""
        return any(attempt <= rewind.until for rewind in self.rewinds)

    @property
    def is_wanted(self) -> bool:
        """Whether it is to go on."""
        return self.state in ("active", "waiting", "paused")

    @property
    def is_alive(self) -> bool:
        """Whether it is to go on, or its last attempt has not ended."""
        return self.is_wanted or (self.attempt is not None and self.attempt.state != "ended")

    @property
    def supported_remedies(self) -> list[str]:
        """Return the remedies that its trainer applies: its last hello names them, or its command has their placeholders."""
        attempt = self.attempt
        named = (attempt.understood_remedies if attempt else []) or self.understood_remedies
        return [*named, *(n for n in remedies_of_command(self.spec.command) if n not in named)]

    @property
    def reports_steps(self) -> bool:
        """Whether its ranks are known to report steps: some did, or they are the built-in trainer's. A hello promises none."""
        return self.best_step > 0 or bool(self.spec.trainer)

    def has_proved_itself(self, now: float) -> bool:
        """Whether the current attempt has been up for so long that it counts as progress, though it reports no steps.

        Ranks that are known to report steps prove themselves by a step, however long their start takes.
        """
        attempt = self.attempt
        if self.has_reported or self.spec.trainer or attempt is None or attempt.up_since is None:
            return False
        until = now if attempt.stopping_at is None else min(now, attempt.stopping_at)
        return until >= attempt.up_since + self.spec.steady_seconds


class AwaitedAnswer(Value):
    """What an incident's rung waits for: the lines of the node where the first rank died, until then at most."""

    node: str
    until: float
    reason: str = ""


class PagePlace(Value):
    """How far the ladder of a page was taken: the rung, from 0, and its tries."""

    rung: int = -1
    tries: int = 0


class Incident(MutableValue):
    """Findings with one cause."""

    incident: str
    fault: str
    state: str = "open"
    run: int | None = None
    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    # Nodes of which one is at fault, where it is not known which.
    suspects: tuple[str, ...] = ()
    fingerprint: str = ""
    # Furthest step of the run at its last failure.
    step: int | None = None
    condition: str = "always"
    opened_at: float = 0.0
    detected_after_seconds: float | None = None
    closed_at: float | None = None
    runbook: str = ""
    rung: int = -1
    tries: int = 0
    rungs_taken: list[str] = field(default_factory=list)
    # Pages that answered it before `runbook` did: the rung that each had come to, and its tries.
    earlier_pages: dict[str, PagePlace] = field(default_factory=dict)
    # The attempt whose end the last rung answered.
    answered: AttemptId | None = None
    awaited: AwaitedAnswer | None = None
    # Attempts that ended with it, the newest last.
    failures: list[Failure] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    reason: str = ""
    # What the lines of the ranks that died say it was.
    cause: Cause | None = None
    # These lines, of all nodes; while it is live.
    matches: list[Match] = field(default_factory=list)
    non_fatal: bool = False
    # The first step that was not as it should be.
    onset: int | None = None
    # It is about the run's numbers, and over when a trial says so (`incidents/trials.py`). What they were before the onset.
    on_trial: bool = False
    before: Trajectory | None = None
    trial: Trial | None = None
    answer_at: float | None = None
    # How much has happened to it, and the newest of that.
    version: int = 0
    events: list[IncidentEvent] = field(default_factory=list)
    # Who looks at it; "": no person has acknowledged it.
    acknowledged_by: str = ""
    acknowledged_at: float | None = None
    # Who denied what its ladder proposed: it is left to people.
    left_to: str = ""

    @property
    def is_in_weights(self) -> bool:
        """Whether checkpoints from its onset on are in doubt: their numbers are what is wrong."""
        return fault_kind(self.fault).on_trial and self.onset is not None

    @property
    def is_live(self) -> bool:
        """Whether it still asks for something."""
        return self.state in ("open", "acting", "proving")


def shared_fields(record: Struct, cls: type[Struct]) -> dict[str, Any]:
    """Return what a record says under names that a class has, too."""
    names = cls.__struct_fields__
    return {name: getattr(record, name) for name in record.__struct_fields__ if name in names}


class OpenAction(MutableValue):
    """An action without an outcome yet. `orphaned`: the agent that had this task has ended, so it will send none."""

    action: Action
    issued_at: float
    orphaned: bool = False


class OpenActions(dict[str, OpenAction]):
    """Open actions by id, oldest first, and sorted by what they do and to which node: asked for each node after each input."""

    def __init__(self, actions: Mapping[str, OpenAction] | None = None) -> None:
        super().__init__()
        self._about: dict[tuple[str, object], dict[str, Action]] = {}
        for name, item in (actions or {}).items():
            self[name] = item

    def about(self, kind: str, node: object = None) -> Collection[Action]:
        """Return the actions of a kind, oldest first; `node`: only those that name it."""
        return self._about.get((kind, node), {}).values()

    def __setitem__(self, name: str, item: OpenAction) -> None:
        super().__setitem__(name, item)
        for key in _sorted_under(item.action):
            self._about.setdefault(key, {})[name] = item.action

    def end(self, name: str) -> OpenAction | None:
        """Take an action out, and return it; None if it is not open."""
        item = super().pop(name, None)
        for key in _sorted_under(item.action) if item is not None else ():
            del self._about[key][name]
            if not self._about[key]:
                del self._about[key]
        return item


def _sorted_under(action: Action) -> list[tuple[str, object]]:
    node, task = action.args.get("node"), action.args.get("task")
    keys: list[tuple[str, object]] = [(action.action, None)]
    if isinstance(node, str):
        keys.append((action.action, node))
        if isinstance(task, str):
            keys += [(f"{action.action}/{task}", node), (f"{action.action}/{task}", None)]
    return keys


class State(MutableValue, kind="state"):
    """Everything the controller knows. A snapshot is this, encoded."""

    now: float = 0.0
    sequence: int = 0
    cursors: dict[str, int] = field(default_factory=dict)
    next_generation: int = 1
    next_run: int = 1
    next_incident: int = 1
    next_action: int = 1
    next_isolation: int = 1
    nodes: dict[str, Node] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)
    actions: dict[str, OpenAction] = field(default_factory=lambda: OpenActions())
    requests: dict[str, RequestRecorded] = field(default_factory=dict)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    # Id -> `sent_at` of the newest requests, and before when all others were sent.
    request_ids: dict[str, float] = field(default_factory=dict)
    other_requests_until: float = 0.0
    correlated_silence: list[str] = field(default_factory=list)
    # "rack r2" -> its nodes, and since when one of them sends heartbeats again.
    domains_down: dict[str, list[str]] = field(default_factory=dict)
    domains_recovering: dict[str, float] = field(default_factory=dict)
    hardware: dict[str, Hardware] = field(default_factory=dict)
    # By the suspected node.
    targeted_checks: dict[str, TargetedCheck] = field(default_factory=dict)
    # Open ones, and the newest that are over.
    isolations: dict[str, Isolation] = field(default_factory=dict)
    # Name that is no node -> instance of the last agent that was refused it.
    refused_agents: dict[str, str] = field(default_factory=dict)
    # Instance of an agent that was refused -> sequence of the newest join that was.
    refused_joins: dict[str, int] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    # There were as many spares as there should be, since it was last low.
    spares_reached: bool = False
    spares_low: bool = False
    # When a supervisor began to listen, or ran again after a pause of its process.
    receiving_since: float = 0.0
    closing: bool = False
    closing_request: str = ""
    decision_failures: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the actions that a snapshot brings."""
        if not isinstance(self.actions, OpenActions):
            self.actions = OpenActions(self.actions)

    def count(self, counter: str) -> None:
        """Count one more of something, for metrics."""
        self.counters[counter] = self.counters.get(counter, 0) + 1

    def attempt_of(self, attempt: AttemptId | None) -> Attempt | None:
        """Return the attempt if it is its run's newest, else None: older ones are history."""
        run = self.runs.get(attempt.run) if attempt is not None else None
        current = run.attempt if run else None
        return current if current and current.attempt == attempt else None

    def live_incidents(self, **fields: object) -> Iterator[Incident]:
        """Yield the live incidents with these fields, oldest first."""
        for incident in self.incidents.values():
            if incident.is_live and all(
                getattr(incident, name) == value for name, value in fields.items()
            ):
                yield incident

    def open_actions(self, kind: str, **args: object) -> list[Action]:
        """Return the actions of this kind without an outcome whose args include these."""
        return [
            action
            for action in self._open.about(kind, args.get("node"))
            if all(action.args.get(key) == value for key, value in args.items())
        ]

    def is_open(self, kind: str, node: str, task: str = "") -> bool:
        """Whether an action of this kind about this node, or this task for it, has no outcome yet. As fast as can be."""
        return bool(self._open.about(f"{kind}/{task}" if task else kind, node))

    def open_tasks(self, task: str) -> Collection[Action]:
        """Return the actions without an outcome that are this task for some node, oldest first."""
        return self._open.about(f"node_task/{task}")

    def orphan_tasks(self, node: str) -> None:
        """Mark the open tasks of a node whose agent has ended; `apply` alone does. Its next agent goes on with `verify`."""
        for action in self._open.about("node_task", node):
            self._open[action.id].orphaned = action.args.get("task") != "verify"

    def num_open(self, kind: str, task: str) -> int:
        """Return how many actions of this kind have no outcome yet that are this task for some node."""
        return len(self._open.about(f"{kind}/{task}"))

    def end_action(self, name: str) -> OpenAction | None:
        """Take an action out; `apply` alone does. None if it is not open."""
        return self._open.end(name)

    @property
    def _open(self) -> OpenActions:
        assert isinstance(self.actions, OpenActions)
        return self.actions
