"""Signals: messages of agents. Volatile ones feed the detectors and may be lost; durable ones reach the controller.

Every signal names its source (`node`) and that source's `incarnation` (one start of its agent) and `sequence` (order per source;
the cluster's clock is the supervisor's). Seconds are seconds, bytes are bytes, steps are training steps.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions
from runner.facts.matches import LoggedStep, Match
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.wire import Value

# Characters of RanksStarted.not_forked_reason that are sent and kept; chosen, not measured.
MAX_NOT_FORKED_REASON = 300


class Signal(Value):
    """The fields of every signal: its source."""

    node: str
    incarnation: int
    # Counts from 1 within the incarnation; 0: not counted.
    sequence: int = 0
    # The instance of the agent: two agents of one name, or of one folder copied, differ.
    instance_id: str = ""


class LaunchSignal(Signal):
    """The fields of every signal about the ranks of one assignment."""

    generation: int
    attempt: AttemptId


class StepRecord(Value):
    """One training step as a node saw it: the folded reports of its ranks. None means: no rank here reported it."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    loss_scale: float | None = None
    skipped: bool = False
    tokens_per_second: float | None = None
    model_tflops_per_second: float | None = None
    mfu_ratio: float | None = None
    compute_seconds_max: float | None = None
    compute_seconds_max_rank: int | None = None
    step_seconds_max: float | None = None
    local_grad_norm_max: float | None = None
    local_grad_norm_max_rank: int | None = None
    num_nonfinite: int | None = None
    data_wait_seconds_max: float | None = None
    peak_memory_bytes_max: int | None = None
    first_nonfinite_layer: str | None = None
    validation_loss: float | None = None
    # The largest that a rank here reported.
    activation_norm: float | None = None
    data_step: int | None = None
    # Of trainers that count no tokens: images, sequences, utterances.
    samples_per_second: float | None = None


class StartPhase(Value):
    """The rank that took longest in one phase of a start. `node` is left out where it is the source."""

    seconds: float
    rank: int
    node: str = ""


class RankCompute(Value):
    """A rank's own time of a step: the median, without collectives, of the steps since its node's last report.

    `stage` of the pipeline, from 0; None: not reported; such ranks are compared with each other.
    """

    rank: int
    seconds: float
    stage: int | None = None


class RankBlocked(Value):
    """A rank with a thread in state D (it waits in the kernel, for a disk, a file system or a driver) at every check."""

    rank: int
    seconds: float


class RankResources(Value):
    """What a rank holds, the processes it has started included.

    `memory_bytes`: anonymous and shared memory, in RAM or swapped out, without the page cache. `descriptors` are open in that
    one of its processes which is nearest to its own soft limit, `descriptors_limit`; None: not to be read, or without a limit.
    """

    rank: int
    memory_bytes: int
    descriptors: int | None = None
    descriptors_limit: int | None = None


class HungFolder(Value):
    """A file system that does not answer: the agent asked for `folder` that many seconds ago. `source`: its server or device."""

    folder: str
    mount: str
    file_system: str
    source: str
    seconds: float


# ---- volatile -------------------------------------------------------------------------------------------------------


class Heartbeat(Signal, kind="heartbeat"):
    """An agent is alive, and reports what it sees. Sent every `heartbeat_seconds`, and at once on a gang's first step."""

    generation: int = 0
    # Unix seconds by the agent's clock; 0: an older agent.
    sent_at: float = 0.0
    attempt: AttemptId | None = None
    ranks_alive: tuple[int, ...] = ()
    # Ranks in state T for `stopped_seconds` or longer.
    ranks_stopped: tuple[int, ...] = ()
    # Measured only while no rank here makes a step.
    ranks_blocked: tuple[RankBlocked, ...] = ()
    # Rank -> phase (start, step, evaluate, checkpoint).
    phases: Mapping[str, str] = field(default_factory=dict)
    # Steps finished since the last heartbeat, oldest first.
    steps: tuple[StepRecord, ...] = ()
    last_step: int | None = None
    # Ranks that report no steps: the steps in their output, in its order.
    logged_steps: tuple[StepRecord, ...] = ()
    log_bytes_skipped: int = 0
    # Ranks that report no steps: how often their output was seen to grow since the launch, for how long, the longest pause.
    num_writes: int = 0
    writing_seconds: float = 0.0
    longest_gap_seconds: float = 0.0
    # Of the same: the furthest step that they have printed, and how often a step was printed that differs from the one before.
    printed_step: int | None = None
    num_printed: int = 0
    # These two are sent now and then; empty: not due, or no step since.
    rank_computes: tuple[RankCompute, ...] = ()
    rank_resources: tuple[RankResources, ...] = ()
    # Memory that was free on the node when `rank_resources` were measured; 0: not known.
    memory_free_bytes: int = 0
    agent_resident_bytes: int = 0
    # The slowest rank here in each phase of the start, once all have made a step. Sent when it changes, and now and then; empty:
    # not due, or not known yet. Older agents send it, and `warm_versions`, in every heartbeat.
    start_phases: Mapping[str, StartPhase] = field(default_factory=dict)
    # The warm process: "", importing, ready, or why ranks are started without one.
    warm: str = ""
    warm_resident_bytes: int = 0
    # Of Python and of modules that it imported; sent when they change, and now and then; empty: not due, or it is not ready.
    warm_versions: Mapping[str, str] = field(default_factory=dict)
    # File systems below the run's folders that do not answer, in every heartbeat until they do.
    hung_folders: tuple[HungFolder, ...] = ()
    # Digests of what the ranks here run with (`launch_conditions.digests`). Sent when they change, and now and then; empty: not
    # due, or not known.
    conditions: Mapping[str, str] = field(default_factory=dict)


# ---- durable --------------------------------------------------------------------------------------------------------


class NodeJoined(Signal, kind="node_joined"):
    """An agent started on a node, perhaps adopting ranks whose keeper outlived the agent before."""

    hardware: str
    slots: int
    address: str
    pid: int
    generation: int = 0
    attempt: AttemptId | None = None
    ranks_alive: tuple[int, ...] = ()
    # What `hardware` was made of and may be recognised by: "board:...", "gpu:...", "mac:...", "file:...".
    parts: tuple[str, ...] = ()
    # Unix seconds by the agent's clock; 0: an older agent.
    sent_at: float = 0.0


class Notice(Signal, kind="notice"):
    """The node will be taken away, in `deadline_seconds` if given, so it is drained at a checkpoint."""

    notice: Literal["maintenance", "preemption"]
    reason: str = ""
    deadline_seconds: float | None = None


class RanksStarted(LaunchSignal, kind="ranks_started"):
    """The node made its assignment true: all its ranks are started.

    `not_forked_reason`: why they were not forked from a warm process although one was wanted; "" when they were, or none was.
    """

    pids: Mapping[str, int] = field(default_factory=dict)
    not_forked_reason: str = ""


class ConditionsFound(LaunchSignal, kind="conditions_found"):
    """What the ranks of an attempt run with, as far as it is not left out.

    From the node with rank 0 while they start, and once more when a rank reports its data; from another node when it is asked.
    """

    conditions: LaunchConditions


class LaunchFailed(LaunchSignal, kind="launch_failed"):
    """The node could not spawn its ranks (no such program, folder missing, no keeper).

    `devices_busy`: because the memory of its devices was not released in time; DevicesReleased follows once it is.
    """

    reason: str
    devices_busy: bool = False


class DevicesReleased(Signal, kind="devices_released"):
    """The devices whose memory had kept a launch from starting are free again."""


class RankExited(LaunchSignal, kind="rank_exited"):
    """A rank ended by itself (not killed by its agent). `exit_code` is negative for a signal, None if unobserved.

    `unobserved`: why it is not known, if that is not that its keeper died. `last_step_age_seconds`: since the agent saw that step.
    """

    rank: int
    exit_code: int | None
    last_step: int | None = None
    last_step_age_seconds: float | None = None
    # Last lines, cut to 2 KB: hostile text, never parsed for decisions except as a fingerprint.
    stderr_tail: str = ""
    unobserved: str = ""


class RanksTerminated(LaunchSignal, kind="ranks_terminated"):
    """No rank of `attempt` is left on the node, except those SIGKILL could not end in 1 s (`left_behind`).

    `fenced`: the agent killed them on its own, having lost the store and seen no step. `num_stacks`: ranks whose stacks were
    written down before, in the folder `stacks`; at most `rank_stacks.MAX_RANK_STACKS` are in `rank_stacks`.
    `last_step_age_seconds`: since the agent saw that step.
    """

    last_step: int | None = None
    last_step_age_seconds: float | None = None
    left_behind: tuple[int, ...] = ()
    fenced: bool = False
    num_stacks: int = 0
    rank_stacks: tuple[RankStack, ...] = ()


class LinesMatched(LaunchSignal, kind="lines_matched"):
    """What was found in the output of ranks, or in the kernel's log of their node.

    `ranks_alive`: found while they live, and sent at once. Otherwise: in the output of ranks that ended, moments after RankExited.
    """

    matches: tuple[Match, ...] = ()
    steps: tuple[LoggedStep, ...] = ()
    ranks_alive: bool = False
    last_step: int | None = None
    # The ends of these ranks' output were searched: whatever was found in it is reported, in this message at the latest.
    is_last: bool = False


class KernelLinesMatched(Signal, kind="kernel_lines_matched"):
    """What was found in the kernel's log of a node while it had no ranks."""

    matches: tuple[Match, ...] = ()


class ReplicasDisagree(Signal, kind="replicas_disagree"):
    """Copies of `what` (weight, master, moment, gradient) that must be equal differ. `ranks`: the outliers; empty: not known.

    `suspects`: without a majority, the ranks of which one is wrong. `agreed_step`: after it the copies
    still agreed; None: not known.
    """

    attempt: AttemptId
    step: int
    what: str
    ranks: tuple[int, ...] = ()
    detail: str = ""
    suspects: tuple[int, ...] = ()
    agreed_step: int | None = None


class RanksReady(Signal, kind="ranks_ready"):
    """The ranks' `hello`: what they understand. From the node with rank 0, once per attempt, and again when they name more.

    `checks_checkpoints`: they compare each file that they load with the manifest while they load it.
    """

    attempt: AttemptId
    requests: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    checks_checkpoints: bool = False
    drills: tuple[str, ...] = ()


class NodeLeft(Signal, kind="node_left"):
    """An agent ends on purpose, its ranks and keeper gone."""


class Progress(Signal, kind="progress"):
    """The first step of an attempt, and a mark at most every `progress_mark_seconds` after: what the ledger reckons with.

    Step N is done when N steps contribute to the weights. The first mark has `timings`: start phase -> the slowest rank's seconds.
    `printed_by`: the rank whose output shows the step, of ranks that report none. Since the mark before: `tokens` that the gang
    trained on, by the throughput that ranks report (0: they report none), and steps that the optimizer skipped.
    """

    attempt: AttemptId
    step: int
    loss: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    printed_by: int | None = None
    tokens: int = 0
    num_skipped: int = 0


class CheckpointSealed(Signal, kind="checkpoint_sealed"):
    """A rank reports a sealed checkpoint. It counts only after verification. `needs_code`: its rank had the run's key.

    `loss_scale`, `activation_norm`: medians of what the node's ranks reported in their last steps; None: they did not.
    """

    attempt: AttemptId
    step: int
    path: str
    needs_code: bool = False
    loss_scale: float | None = None
    activation_norm: float | None = None


class SettingsInEffect(Signal, kind="settings_in_effect"):
    """What the trainer read back after loading `step` steps: sent once per start. Values, not wishes."""

    attempt: AttemptId
    step: int
    values: Mapping[str, Any] = field(default_factory=dict)


class RequestTaken(Signal, kind="request_taken"):
    """The ranks agreed on the step at which a request (stop, checkpoint, drill) takes effect."""

    attempt: AttemptId
    request: str
    step: int


class TaskProgressed(Signal, kind="task_progressed"):
    """How far the task `id`, a share of a verification, is on its node: when it begins to read, then now and then as bytes come.

    What an earlier instance of the agent verified counts as done.
    """

    id: str
    done_bytes: int = 0
    total_bytes: int = 0
    done_files: int = 0
    total_files: int = 0


class MalformedMessage(Signal, kind="malformed"):
    """A malformed message arrived; reported once, counted, never obeyed."""

    reason: str
    count: int = 1
