"""What facts mean to a person: one phrase per kind, for the story. Text from the world is made printable and short here.

A table, and long for that reason alone: a kind without a phrase fails a test.
"""

import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from runner.facts import faults
from runner.facts.actions import ActionResult
from runner.facts.checkpoints import Trust
from runner.facts.drills import RANK_DRILLS
from runner.facts.messages import isolation as i
from runner.facts.messages import records as r
from runner.facts.messages import records_drift as d
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.messages.records_checkpoints import CheckpointJudged, RunRewound
from runner.facts.messages.records_checks import (
    CheckDeferred,
    CheckPostponed,
    CheckWanted,
    HardwareChecked,
    TargetedCheckBegun,
    TargetedCheckJudged,
    TargetedCheckResult,
    TargetedCheckWanted,
)
from runner.facts.messages.records_trials import TrialEnded, TrialStarted
from runner.facts.messages.store_rollback import CountersRaised, StoreAccepted
from runner.facts.remedies import REMEDIES, value_text
from runner.facts.trials import TrialJudged
from runner.facts.wording import counted, join_words, printable, printable_words, settings_text
from runner.rootcause.error_output import root_error

# Of a request or an acceptance that names no one.
UNKNOWN_USER = "an unknown user"


def exit_in_words(exit_code: int | None) -> str:
    """Describe how a process ended; codes are those of subprocess; None: its end was not observed."""
    if exit_code is None:
        return "ended unseen"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def duration(seconds: float) -> str:
    """Write a length of time for a person: milliseconds below a second."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def hardware_name(hardware: str) -> str:
    """Name hardware: its kind, and as much of the rest as distinguishes it."""
    return printable(hardware, 40) or "unknown hardware"


def slowest_phase(timings: Mapping[str, float]) -> str:
    """Name the start phase that took longest: "import 3.1 s of 6.8 s"; "" without timings (seconds)."""
    if not timings:
        return ""
    name = max(timings, key=lambda phase: timings[phase])
    return f"{printable(name, 40)} {timings[name]:.1f} s of {sum(timings.values()):.1f} s"


def input_phrase(fact: object) -> str:
    """Describe what came in; "" for what Stoker asks itself, the kind for what this release has no words for."""
    phrase = _INPUTS.get(type(fact))
    return phrase(fact) if phrase is not None else f"a {type(fact).__name__} came in"


def record_phrase(record: object) -> str:
    """Describe what a record decided; "" for records that only keep the books."""
    phrase = _RECORDS.get(type(record))
    return phrase(record) if phrase is not None else ""


# ---- inputs ---------------------------------------------------------------------------------------------------------


def _node_joined(fact: s.NodeJoined) -> str:
    what = f"incarnation {fact.incarnation}, pid {fact.pid}"
    ranks = f", {len(fact.ranks_alive)} ranks adopted" if fact.ranks_alive else ""
    return f"{fact.node}: an agent reports in ({what}{ranks})"


def _rank_exited(fact: s.RankExited) -> str:
    step = "" if fact.last_step is None else f" after step {fact.last_step}"
    error = root_error(fact.stderr_tail)
    text = f"; it wrote: {printable(error.line)}" if error is not None else ""
    return f"{fact.node}: rank {fact.rank} of {fact.attempt} {exit_in_words(fact.exit_code)}{step}{text}"


def _kernel_lines_matched(fact: s.KernelLinesMatched) -> str:
    lines = "a line" if len(fact.matches) == 1 else f"{len(fact.matches)} lines"
    names = [match.fault or match.signature for match in fact.matches[:1]]
    first = f", the first for {names[0]}" if names else ""
    return f"{fact.node}: {lines} of its kernel, while it had no ranks{first}"


def _lines_matched(fact: s.LinesMatched) -> str:
    whose = "" if fact.ranks_alive else " that ended"
    lines = "a line" if len(fact.matches) == 1 else f"{len(fact.matches)} lines"
    names = [match.fault or match.signature for match in fact.matches[:1]]
    first = f", the first for {names[0]}" if names else ""
    lost = {match.file: match.lost_bytes for match in fact.matches if match.lost_bytes}
    gone = "".join(
        f"; {printable(name)} lost {num} bytes when it was truncated" for name, num in lost.items()
    )
    return (
        f"{fact.node}: {lines} of the ranks of {fact.attempt}{whose} match signatures{first}{gone}"
    )


def _replicas_disagree(fact: s.ReplicasDisagree) -> str:
    outliers = f"; {_ranks(fact.ranks)} stand alone" if fact.ranks else ""
    return f"{fact.node}: copies of the {printable(fact.what, 20)} of {fact.attempt} differ at step {fact.step}{outliers}"


def _ranks_gone(fact: s.RanksTerminated) -> str:
    behind = f", but {_ranks(fact.left_behind)} outlived SIGKILL" if fact.left_behind else ""
    fenced = " (it fenced itself: no store, no step)" if fact.fenced else ""
    stacks = f"; stacks of {fact.num_stacks} written down before" if fact.num_stacks else ""
    return f"{fact.node}: no rank of {fact.attempt} is left{behind}{fenced}{stacks}"


def _progress(fact: s.Progress) -> str:
    loss = "" if fact.loss is None else f", loss {fact.loss:.4g}"
    return f"{fact.node}: step {fact.step} of {fact.attempt} is done{loss}"


def _drill(fact: q.Drill) -> str:
    rank = "" if fact.rank is None else f"rank {fact.rank}"
    usual = (
        "the ranks it usually strikes" if fact.fault in RANK_DRILLS else "a node of its own choice"
    )
    target = rank or fact.node or usual
    extent = "".join(
        f", {name} {value:g}"
        for name, value in (("step", fact.step), ("steps", fact.steps), ("strength", fact.strength))
        if value is not None
    )
    damage = f", damage {printable(fact.damage)}" if fact.damage else ""
    run = printable(fact.run)
    return f"{_who(fact)} asks for the drill {fact.fault} on {target}{extent}{damage}, run {run}"


def _notice(fact: s.Notice) -> str:
    left = "" if fact.deadline_seconds is None else f", {fact.deadline_seconds:g} s left"
    return f"{fact.node}: {fact.notice} is announced{left}{_because(fact.reason)}"


def _swap(fact: q.SwapNode) -> str:
    spare = f" for {printable(fact.spare, 60)}" if fact.spare else ""
    return f"{_who(fact)} asks to swap {printable(fact.node, 60)}{spare}{_because(fact.reason)}"


def _asked_remedy(fact: q.AddRemedy) -> str:
    kind = REMEDIES[fact.remedy]
    if kind.problem(fact.value):
        return printable(f"{fact.remedy} {value_text(fact.value)}".rstrip(), 80)
    return printable(kind.words(fact.value))


def _pause(fact: q.PauseRun) -> str:
    nodes = ", its nodes free for others" if fact.releases_nodes else ""
    return f"{_asks('pause', fact)}{nodes}"


def _restart(fact: q.RestartRun) -> str:
    step = "" if fact.from_step is None else f" from step {fact.from_step}"
    return f"{_asks('restart', fact)}{step}"


def _rewind(fact: q.RewindRun) -> str:
    return f"{_asks('rewind', fact)}, to before step {fact.before_step}"


def _decides(what: str, fact: q.DecideProposal) -> str:
    return f"{_who(fact)} {what} {printable(fact.action, 20)}{_because(fact.reason)}"


RunRequest = q.PauseRun | q.ResumeRun | q.RestartRun | q.RewindRun


def _asks(what: str, fact: RunRequest) -> str:
    return f"{_who(fact)} asks to {what} run {printable(fact.run)}{_because(fact.reason)}"


def _note(fact: q.AddNote) -> str:
    about = [f"run {printable(fact.run)}"] if fact.run else []
    about += [printable(fact.incident, 20)] if fact.incident else []
    return f"{_who(fact)} writes a note{' about ' if about else ''}{', '.join(about)}"


def _asks_of_node(what: str, fact: q.NodeRequest) -> str:
    return f"{_who(fact)} asks to {what} {printable(fact.node, 60)}{_because(fact.reason)}"


def _who(fact: q.Request) -> str:
    return printable(fact.by, 60) or UNKNOWN_USER


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(str(rank) for rank in ranks)}"


_INPUTS: dict[type, Callable[[Any], str]] = {
    r.Settle: lambda _: "",
    r.Tick: lambda _: "a deadline passed",
    r.SupervisorStarted: lambda f: (
        f"supervisor {f.holder} took the lead (token {f.token}, version {f.version})"
    ),
    r.SupervisorPaused: lambda f: (
        f"the supervisor stood still for {f.seconds:.1f} s: {printable(f.reason)}"
    ),
    StoreAccepted: lambda f: (
        f"{printable(f.by) or UNKNOWN_USER} accepted the store as it is, {f.lost} entries are known to be lost"
        f"{_because(f.reason)}"
    ),
    r.MessageUnreadable: lambda f: f"stream {f.stream}: a malformed message: {printable(f.reason)}",
    r.HeartbeatStep: lambda f: (
        f"{f.node} is silent; its last heartbeats had step {f.step} of {f.attempt}"
    ),
    r.StaleMessage: lambda _: "a message that is not fresh",
    s.NodeJoined: _node_joined,
    s.NodeLeft: lambda f: f"{f.node}: its agent ended on purpose",
    s.RanksStarted: lambda f: f"{f.node}: all its ranks of {f.attempt} are spawned",
    s.ConditionsFound: lambda f: f"{f.node}: what the ranks of {f.attempt} run with",
    faults.LaunchSurveyed: lambda f: f"what the nodes of {f.attempt} run with",
    s.LaunchFailed: lambda f: (
        f"{f.node}: could not start ranks of {f.attempt}: {printable(f.reason)}"
    ),
    s.DevicesReleased: lambda f: f"{f.node}: the memory of its devices is released",
    s.RankExited: _rank_exited,
    s.LinesMatched: _lines_matched,
    s.KernelLinesMatched: _kernel_lines_matched,
    s.ReplicasDisagree: _replicas_disagree,
    s.RanksTerminated: _ranks_gone,
    s.RanksReady: lambda f: f"{f.node}: the ranks of {f.attempt} report what requests they support",
    s.Progress: _progress,
    s.CheckpointSealed: lambda f: f"{f.node}: the checkpoint of step {f.step} is sealed",
    s.SettingsInEffect: lambda f: f"{f.node}: the trainer of {f.attempt} read its settings back",
    s.RequestTaken: lambda f: f"{f.node}: request {f.request} takes effect after step {f.step}",
    s.TaskProgressed: lambda f: (
        f"{f.node}: verified {f.done_files} of {f.total_files} files of its share of a checkpoint"
    ),
    s.Notice: _notice,
    s.MalformedMessage: lambda f: f"{f.node}: {f.count} malformed messages: {printable(f.reason)}",
    faults.Finding: lambda f: f"detector {f.fault}: {printable(f.evidence)}",
    TrialJudged: lambda f: f"trial of {f.incident} judged at step {f.step}",
    faults.GangStillStepping: lambda f: (
        f"{f.attempt} has made step {f.step} without heartbeats from {printable_words(f.nodes)}"
    ),
    faults.MetricNote: lambda f: f"the numbers of {f.attempt} show {f.fault} from step {f.step} on",
    faults.LrObserved: lambda f: (
        f"the lines of {f.attempt} hold no learning rate"
        if f.lr is None
        else f"the lines of {f.attempt} show a learning rate of {f.lr:g} at step {f.step}"
    ),
    faults.GangStartTimed: lambda f: (
        f"all ranks of {f.attempt} have reported how long their start took"
    ),
    faults.HeartbeatResumed: lambda f: f"{f.node}: heartbeats resumed",
    faults.CorrelatedSilence: lambda f: (
        f"{len(f.nodes)} nodes are silent at the same time"
        if f.nodes
        else "the nodes that were silent at the same time send heartbeats again"
    ),
    faults.DomainSilence: lambda f: (
        f"{len(f.nodes)} nodes are silent at the same time, all those of {f.domain} {printable(f.name, 60)}"
    ),
    ActionResult: lambda f: f"action {f.id} ended: {f.outcome}{_because(f.message)}",
    q.StartRun: lambda f: f"{_who(f)} asks to start run {printable(f.spec.name)}",
    q.StopRun: lambda f: f"{_who(f)} asks to stop run {printable(f.run)}{_because(f.reason)}",
    q.AddRemedy: lambda f: f"{_who(f)} asks for {_asked_remedy(f)} in run {printable(f.run)}",
    q.PauseRun: _pause,
    q.ResumeRun: partial(_asks, "resume"),
    q.RestartRun: _restart,
    q.RewindRun: _rewind,
    q.RevertRemedy: lambda f: (
        f"{_who(f)} asks to take {printable(f.remedy, 20)} of run {printable(f.run)} back{_because(f.reason)}"
    ),
    q.ApproveAction: partial(_decides, "approves"),
    q.DenyAction: partial(_decides, "denies"),
    q.AddNote: _note,
    q.AcknowledgeIncident: lambda f: (
        f"{_who(f)} looks at {printable(f.incident, 20)}{_because(f.reason)}"
    ),
    q.PinCheckpoint: lambda f: (
        f"{_who(f)} asks to {'unpin' if f.remove else 'pin'} the checkpoint of step {f.step} of run {printable(f.run)}"
    ),
    q.Drill: _drill,
    q.SwapNode: _swap,
    q.DrainNode: partial(_asks_of_node, "drain"),
    q.QuarantineNode: partial(_asks_of_node, "quarantine"),
    q.ReadmitNode: partial(_asks_of_node, "readmit"),
    q.RetireNode: partial(_asks_of_node, "retire"),
    q.CheckNodes: lambda f: (
        f"{_who(f)} asks to check {printable_words(f.nodes)}"
        f"{f' at level {f.level}' if f.level else ''}{_because(f.reason)}"
    ),
    q.IsolateNodes: lambda f: (
        f"{_who(f)} asks to find the bad one of {printable_words(f.nodes) or 'all idle nodes'}"
        f"{_because(f.reason)}"
    ),
    q.ShutDown: lambda f: f"{_who(f)} asks to shut the cluster down{_because(f.reason)}",
}


# ---- records --------------------------------------------------------------------------------------------------------


def _because(reason: str) -> str:
    return f": {printable(reason)}" if reason else ""


def _attempt_prepared(record: r.AttemptPrepared) -> str:
    if not record.resume:
        return f"{record.attempt} has no checkpoint to resume from"
    name = printable(record.resume.rstrip("/").rpartition("/")[2])
    doubt = ", which no node has verified" if record.unverified else ""
    return f"{record.attempt} resumes from step {record.resume_step} (checkpoint {name}{doubt})"


def _attempt_changed(record: r.AttemptChanged) -> str:
    outcome = f" ({record.outcome})" if record.outcome else ""
    reason = _because(record.reason)
    return {
        "launching": f"{record.attempt} launches",
        "running": f"all ranks of {record.attempt} run",
        "stopping": f"{record.attempt} is being ended{outcome}{reason}",
        "ended": f"{record.attempt} has ended{outcome}{reason}",
    }.get(record.state, "")


def _start_timed(record: r.StartTimed) -> str:
    parts = [
        f"{printable(name, 40)} {duration(phase.seconds)} (rank {phase.rank} on {phase.node})"
        for name, phase in record.slowest.items()
    ]
    return f"{record.attempt} up, slowest rank in each phase: {', '.join(parts)}"


def _settings_read(record: r.SettingsRead) -> str:
    settings = settings_text(record.values, ("lr", *REMEDIES, "betas", "weight_decay"))
    return f"settings in effect in {record.attempt}: {printable(settings)}" if settings else ""


def _verification_begun(record: r.VerificationBegun) -> str:
    """Small checkpoints are routine."""
    if record.shares == 1:
        return ""
    name = printable(record.path.rstrip("/").rpartition("/")[2])
    return f"checkpoint {name} is verified in {record.shares} shares"


def _share_ended(record: r.ShareEnded) -> str:
    return "" if record.verified else f"a share is to be verified again{_because(record.reason)}"


def _checkpoint_recorded(record: r.CheckpointRecorded) -> str:
    checkpoint = record.checkpoint
    if checkpoint.trust is not Trust.REFUSED:
        return ""
    return f"checkpoint of step {checkpoint.step} refused{_because(checkpoint.reason)}"


def _checkpoint_judged(record: CheckpointJudged) -> str:
    """Promotions are routine; what is taken away, deaths and pins are shown."""
    what = f"the checkpoint of step {record.step}"
    if record.pinned is not None:
        return f"{what} is {f'pinned by {printable(record.pinned, 60)}' if record.pinned else 'no longer pinned'}"
    if record.doubt:
        return f"{what} is in doubt{_because(record.reason)}"
    if record.died:
        return f"{what} is tried once more{_because(record.reason)}"
    if record.trust is Trust.HEALTHY:
        return f"{what} is no longer proven{_because(record.reason)}"
    return ""


def _run_rewound(record: RunRewound) -> str:
    """The reason last: it may be long."""
    name, rewind = printable(record.path.rstrip("/").rpartition("/")[2]), record.rewind
    what = f"run {record.run} goes back to step {rewind.step} (checkpoint {name})"
    return f"{what}; what was sealed after it, by {rewind.until} at the latest, is set aside{_because(record.reason)}"


def _remedy_added(record: r.RemedyAdded) -> str:
    by = f", for {printable(record.by)}" if record.by else ""
    which = f" ({record.id})" if record.id else ""
    what = printable(REMEDIES[record.remedy].words(record.value))
    return f"{what} from the next attempt on{by}{which}{_because(record.reason)}"


def _remedy_reverted(record: r.RemedyReverted) -> str:
    by = f", by {printable(record.by)}" if record.by else ""
    return f"remedy {record.id} is reverted from the next attempt on{by}{_because(record.reason)}"


def _remedy_checked(record: r.RemedyChecked) -> str:
    if record.state == "in_effect":
        return f"remedy {record.id} is in effect in {record.attempt}"
    return f"remedy {record.id} failed in {record.attempt}{_because(record.reason)}"


def _incident_opened(record: r.IncidentOpened) -> str:
    where = [record.node] if record.node else []
    where += [f"rank {record.rank}"] if record.rank is not None else []
    place = f" on {', '.join(where)}" if where else ""
    after = record.detected_after_seconds
    noticed = f", {after:.1f} s after the last good sign" if after else ""
    return f"incident {record.incident}: {record.fault}{place}{noticed}{_because(record.evidence)}"


def _incident_amended(record: r.IncidentAmended) -> str:
    rank = "" if record.rank is None else f"rank {record.rank}"
    now = [part for part in (record.fault, record.node, rank, record.condition) if part]
    parts = f" (now {', '.join(now)})" if now else ""
    return f"{record.incident} amended{parts}{_because(record.evidence)}"


def _incident_diagnosed(record: r.IncidentDiagnosed) -> str:
    cause = record.cause
    whose = f" of {cause.culprit.kind} {cause.culprit.id}" if cause.culprit is not None else ""
    where = f" on {cause.node}" if cause.node else ""
    line = printable(cause.lines[0]) if cause.lines else ""
    return f"{record.incident} was {cause.fault}{whose}{where} ({cause.confidence:.0%} sure){_because(line)}"


def _rung_taken(record: r.RungTaken) -> str:
    again = f", try {record.try_number}" if record.try_number > 1 else ""
    again += f", approved by {printable(record.by, 60)}" if record.by else ""
    return f"{record.incident}: {record.do} (rung {record.rung + 1}{again} of runbook {record.runbook}){_because(record.reason)}"


def _answer_awaited(record: r.AnswerAwaited) -> str:
    return f"{record.incident}: the answer waits for what {record.node} finds in the ranks' lines"


def _retry_planned(record: r.RetryPlanned) -> str:
    return f"run {record.run} {printable(record.reason)}"


def _action_issued(record: r.ActionIssued) -> str:
    action = record.action
    if action.action == "page":
        return f"an operator is paged{_because(action.reason)}"
    if "isolation" in action.args.get("args", {}):
        # Its round has been described.
        return ""
    on = f" on {action.args['node']}" if "node" in action.args else ""
    return f"action {action.id}: {action.action}{on}{_because(action.reason)}"


def _trial_started(record: TrialStarted) -> str:
    trial = record.trial
    until = "until it is back" if trial.is_last else f"for {trial.steps} steps"
    what = trial.statistic.replace("_", " ")
    return f"{record.incident}: {what} is watched from step {trial.after_step + 1} on, {until}"


def _trial_ended(record: TrialEnded) -> str:
    at = f" at step {record.step}" if record.step is not None else ""
    return f"{record.incident}: {record.verdict.replace('_', ' ')}{at}{_because(record.evidence)}"


def _node_cleared(record: r.NodeCleared) -> str:
    behind = f", {_ranks(record.left_behind)} left behind" if record.left_behind else ""
    seen = "" if record.confirmed_by == "agent" else " (seen by a probe)"
    return f"{record.node} is clear of {record.attempt}{behind}{seen}"


def _node_draining(record: r.NodeDraining) -> str:
    if record.to is None:
        return f"{record.node} stays in service after all{_because(record.reason)}"
    spare = f", {record.spare} takes its place" if record.spare else ""
    what = f"is to leave ({record.to}){spare}"
    return f"{record.node} {what}{_because(record.reason)}"


def _hardware_judged(record: r.HardwareJudged) -> str:
    what, by = hardware_name(record.hardware), f", by {printable(record.by)}" if record.by else ""
    verdict = {
        "": "is readmitted, its hardware faults cleared",
        "quarantined": "is refused from now on, under any name",
        "retired": "is refused for good, under any name",
    }[record.verdict]
    return f"hardware {what} {verdict}{by}{_because(record.reason)}"


def _hardware_checked(record: HardwareChecked) -> str:
    level = f" at level {record.level}" if record.level else ""
    text = f"hardware {hardware_name(record.hardware)}: {record.outcome}{level}"
    if not record.behind:
        return text
    return f"{text}; behind: {printable('; '.join(record.behind), 400)}"


def _targeted_check_begun(record: TargetedCheckBegun) -> str:
    control = f"{record.control} is the control" if record.control else "no spare is the control"
    return f"{record.node} is checked, {control}"


def _isolation_begun(record: i.IsolationBegun) -> str:
    return f"isolation {record.isolation} measures {printable_words(record.nodes)}"


def _isolation_round_begun(record: i.IsolationRoundBegun) -> str:
    measure = record.measure
    alone = f"{counted(len(measure.alone), 'node')} alone" if measure.alone else ""
    pairs = counted(len(measure.pairs), "pair") if measure.pairs else ""
    parts = [part for part in (alone, pairs) if part]
    return f"isolation {record.isolation}, round {measure.round}: {' and '.join(parts)}"


def _isolation_measured(record: i.IsolationMeasured) -> str:
    """Describe what had no rate; the verdict has the rates that matter."""
    if not record.trouble:
        return ""
    nodes = record.pair.nodes if record.pair is not None else ()
    who = record.alone.node if record.alone is not None else " and ".join(nodes)
    of = f" of {who}" if who else ""
    return f"isolation {record.isolation}: no rate{of}: {printable(record.trouble, 200)}"


def _isolation_judged(record: i.IsolationJudged) -> str:
    return f"isolation {record.isolation}: {printable(record.judged.text, 400)}"


def _domain_state_recorded(record: r.DomainStateRecorded) -> str:
    domain = f"{record.domain} {printable(record.name, 60)}"
    if not record.nodes:
        return f"{domain} is no longer down"
    return f"{domain} is down, its nodes are not suspected: {printable_words(record.nodes)}"


def _node_launched(record: r.NodeLaunched) -> str:
    why = record.not_forked_reason
    return f"{record.node} started its ranks as fresh processes{_because(why)}" if why else ""


def _run_held(record: p.RunHeld) -> str:
    by = f", by {printable(record.by, 60)}" if record.by else ""
    what = "is to pause" if record.hold == "paused" else "waits for a person"
    nodes = "others may have its nodes" if record.releases_nodes else "its nodes are kept for it"
    return f"run {record.run} {what}{by}{_because(record.reason)}; {nodes}"


def _hold_ended(record: p.HoldEnded) -> str:
    by = printable(record.by, 60) or UNKNOWN_USER
    return f"run {record.run} may go on, for {by}{_because(record.reason)}"


def _proposal_decided(record: p.ProposalDecided) -> str:
    what = {"issued": "approved", "denied": "denied"}.get(record.state, "overtaken")
    by = f" by {printable(record.by, 60) or UNKNOWN_USER}" if what != "overtaken" else ""
    return f"{record.action} is {what}{by}{_because(record.reason)}"


def _acknowledged(record: p.IncidentAcknowledged) -> str:
    by = printable(record.by, 60) or UNKNOWN_USER
    return f"{by} looks at {record.incident}: pages about it do not repeat{_because(record.reason)}"


def _conditions_recorded(record: d.ConditionsRecorded) -> str:
    if not record.differences:
        return ""
    what = printable(join_words(record.differences), 1000)
    if record.is_approved:
        return f"{record.attempt} runs with something else, as was approved: {what}"
    return f"{record.attempt} on {record.node} is not the same run: {what}"


def _nodes_compared(record: d.NodesCompared) -> str:
    parts = []
    if record.differences:
        how = ", as was approved" if record.approved else ""
        what = printable(join_words(record.differences), 500)
        parts.append(f"not all nodes of {record.attempt} run with the same{how}: {what}")
    if record.num_missing:
        more = record.num_missing - len(record.missing)
        nodes = printable_words(record.missing) + (f" and {more} more" if more > 0 else "")
        parts.append(f"what {record.attempt} runs with on {nodes} is not known")
    return "; ".join(parts)


_RECORDS: dict[type, Callable[[Any], str]] = {
    p.RunHeld: _run_held,
    p.HoldEnded: _hold_ended,
    p.NoteAdded: lambda d: (
        f"note of {printable(d.by, 60) or UNKNOWN_USER}: {printable(d.text, 500)}"
    ),
    p.IncidentAcknowledged: _acknowledged,
    d.ConditionsRecorded: _conditions_recorded,
    d.NodesCompared: _nodes_compared,
    d.ConditionsKept: lambda d: f"run {d.run} is to run with what run {d.before} ran with",
    d.DriftAccepted: lambda d: (
        f"run {d.run} may run with something else from its next attempt on, by {printable(d.by, 60) or UNKNOWN_USER}"
        f"{_because(d.reason)}"
    ),
    p.LadderSuspended: lambda d: f"{d.incident}: {printable(d.reason)}",
    p.ActionProposed: lambda d: (
        f"{d.incident}: {d.action} proposes {printable(d.text)} (rung {d.rung + 1} of runbook {d.runbook}), and waits for a person"
        f"{_because(d.reason)}"
    ),
    p.ProposalDecided: _proposal_decided,
    r.NodeRegistered: lambda d: (
        f"{d.node} registered: {d.slots} slots, incarnation {d.incarnation}"
    ),
    r.JoinRefused: lambda d: (
        f"an agent on {hardware_name(d.hardware)} may not join as {d.node}{_because(d.reason)}"
    ),
    r.NodeDraining: _node_draining,
    r.HardwareSeen: lambda d: f"{d.node} is hardware {hardware_name(d.hardware)}",
    r.HardwareFaultRecorded: lambda d: (
        f"a hardware fault of {d.node} ({hardware_name(d.hardware)}): {d.fault}{_because(d.evidence)}"
    ),
    r.HardwareJudged: _hardware_judged,
    HardwareChecked: _hardware_checked,
    TargetedCheckWanted: lambda d: f"{d.node} is to be checked for {d.cause}",
    TargetedCheckBegun: _targeted_check_begun,
    TargetedCheckResult: lambda d: f"checks of {d.checked}: {d.outcome}{_because(d.text)}",
    TargetedCheckJudged: lambda d: f"{d.node}, {d.verdict}: {printable(d.text, 300)}",
    i.IsolationWanted: lambda d: (
        f"isolation {d.isolation} of {printable_words(d.nodes)}{_because(d.reason)}"
    ),
    i.IsolationBegun: _isolation_begun,
    i.IsolationRoundBegun: _isolation_round_begun,
    i.IsolationMeasured: _isolation_measured,
    i.IsolationJudged: _isolation_judged,
    CheckDeferred: lambda x: (
        f"{x.node} refused its check, since task {x.task} is under way there: it is asked again when that has ended"
        if x.task
        else f"what was under way on {x.node} has ended: it is asked again"
    ),
    CheckPostponed: lambda x: f"{x.node} is checked later{_because(x.reason)}",
    CheckWanted: lambda x: f"{x.node} is to be checked once it is idle{_because(x.reason)}",
    r.SparesRecorded: lambda d: (
        f"spares are low: {d.spares} left, {d.wanted} wanted"
        if d.low
        else f"there are spares enough again: {d.spares}"
    ),
    r.DomainStateRecorded: _domain_state_recorded,
    r.NodeChanged: lambda d: f"{d.node} is {d.state}{_because(d.reason)}",
    r.NodeKeptInService: lambda d: (
        f"{d.node} stays in service: it is unreachable, and its gang still steps"
    ),
    r.NodeCleared: _node_cleared,
    r.NodeLaunched: _node_launched,
    r.RunAdmitted: lambda d: (
        f"run {d.run} {d.spec.name} begins: {counted(d.spec.nodes, 'node')} x {counted(d.spec.ranks_per_node, 'rank')}"
    ),
    r.RunChanged: lambda d: f"run {d.run} is {d.state}{_because(d.reason)}",
    r.AttemptPlanned: lambda d: (
        f"attempt {d.attempt} planned on {printable_words(d.nodes)}{_because(d.reason)}"
    ),
    r.AttemptPrepared: _attempt_prepared,
    r.AttemptChanged: _attempt_changed,
    r.StartTimed: _start_timed,
    r.SettingsRead: _settings_read,
    r.CheckpointRecorded: _checkpoint_recorded,
    r.VerificationBegun: _verification_begun,
    r.ShareEnded: _share_ended,
    r.ActionRenewed: lambda _: "",
    CheckpointJudged: _checkpoint_judged,
    RunRewound: _run_rewound,
    TrialStarted: _trial_started,
    TrialEnded: _trial_ended,
    r.MetricNoteAdded: lambda x: f"noted: {x.fault}, {printable(x.evidence)}",
    r.RateRead: lambda x: (
        f"{x.attempt} was launched with {x.launched:g}, and its lines show a rate of {x.lr:g}"
    ),
    r.RemedyAdded: _remedy_added,
    r.RemedyReverted: _remedy_reverted,
    r.RemedyChecked: _remedy_checked,
    r.IncidentOpened: _incident_opened,
    r.IncidentAmended: _incident_amended,
    r.IncidentDiagnosed: _incident_diagnosed,
    r.EvidenceRecorded: lambda d: (
        f"kept, should {d.attempt} die of it: {printable(d.matches[0].file)}:{d.matches[0].line}: "
        f"{printable(d.matches[0].text[:200])}"
    ),
    r.AnswerAwaited: _answer_awaited,
    r.RungTaken: _rung_taken,
    r.RetryPlanned: _retry_planned,
    r.RestartWanted: lambda d: (
        f"run {d.run} is to start again after a checkpoint{_because(d.reason)}"
    ),
    r.IncidentChanged: lambda d: f"{d.incident} is {d.state}{_because(d.reason)}",
    r.ActionIssued: _action_issued,
    r.RequestRecorded: lambda d: (
        f"request {d.request} {'accepted' if d.state == 'open' else d.state}{_because(d.message)}"
    ),
    r.CorrelatedSilenceRecorded: lambda d: (
        "attributed to the store or the network, to no node"
        if d.nodes
        else "silence counts per node again"
    ),
    r.DecisionFailed: lambda d: f"Stoker's own decision failed{_because(d.error)}",
    CountersRaised: lambda d: (
        f"generations go on at {d.next_generation}, runs at {d.next_run}; runs that go on get new attempts"
    ),
    r.ClusterClosing: lambda d: f"the cluster shuts down, for {printable(d.by) or UNKNOWN_USER}",
    r.ClusterReopened: lambda d: "the cluster is open again",
}
