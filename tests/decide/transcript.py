"""Transcripts: the controller's decisions in a scenario, one line per input that decided something, for a reviewer to read.

Routine records are left out: nodes that join as expected, step marks, checkpoints that verify.
"""

from collections.abc import Callable
from typing import Any

from runner.facts.actions import ActionResult
from runner.facts.checkpoints import Trust
from runner.facts.faults import (
    CorrelatedSilence,
    DomainSilence,
    Finding,
    GangStartTimed,
    GangStillStepping,
    HeartbeatResumed,
    LrObserved,
    MetricNote,
)
from runner.facts.ids import AttemptId
from runner.facts.messages import isolation as i
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
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
from runner.facts.remedies import value_text
from runner.facts.trials import TrialJudged
from runner.facts.wire import kind_of
from runner.history.ledger import Ledger
from runner.history.phrases import input_phrase, record_phrase
from runner.simulate.world import World


class Scribe:
    """Writes lines, and keeps what shortens later ones."""

    def __init__(self) -> None:
        self._actions: dict[str, str] = {}
        self._stepped: dict[AttemptId, int] = {}
        self._is_low = False

    def lines(self, entries: list[r.JournalEntry]) -> list[str]:
        """Return the transcript of these entries."""
        # Time, inputs, decisions.
        written: list[tuple[str, list[str], list[str]]] = []
        for entry in entries:
            decided = self._decided(entry.records)
            input_text = self._input_text(entry.input)
            time = f"{entry.now:7.2f}"
            same = bool(written) and written[-1][0] == time
            if same and (isinstance(entry.input, r.Settle) or written[-1][1][-1:] == [input_text]):
                written[-1][2].extend(decided)
            elif same and written[-1][1][0].split()[:1] == input_text.split()[:1] and input_text:
                written[-1][1].append(input_text.partition(" ")[2])
                written[-1][2].extend(decided)
            else:
                written.append((time, [input_text], decided))
        return [
            f"{time}  {', '.join(input_text)} -> {'; '.join(decided)}".replace("   -> ", "  -> ")
            for time, input_text, decided in written
            if decided
        ]

    def _input_text(self, fact: object) -> str:
        phrase = _INPUT_PHRASES.get(type(fact))
        if isinstance(fact, ActionResult):
            what = self._actions.get(fact.id, fact.id)
            detail = fact.message or _detail(fact)
            return f"{what} {fact.outcome}{': ' if detail else ''}{detail}"
        return phrase(fact) if phrase is not None else kind_of(fact)

    def _decided(self, records: tuple[object, ...]) -> list[str]:
        phrases: list[str] = []
        idle = [x.node for x in records if isinstance(x, r.Assigned) and x.attempt is None]
        given = [x.node for x in records if isinstance(x, r.Assigned) and x.attempt is not None]
        for record in records:
            if isinstance(record, r.ActionIssued):
                node = record.action.args.get("node", "")
                self._actions[record.action.id] = f"{record.action.action} {node}".strip()
            if isinstance(record, r.Assigned):
                nodes = idle if record.attempt is None else given
                if record.node == nodes[0]:
                    phrases.append(_assigned(record, nodes))
            elif isinstance(record, r.SparesRecorded):
                if record.low != self._is_low:
                    phrases.append(f"spares {'low' if record.low else 'enough'} ({record.spares})")
                self._is_low = record.low
            elif isinstance(record, r.StepsAdvanced):
                if record.attempt not in self._stepped:
                    phrases.append(f"{record.attempt} first step {record.step}")
                self._stepped[record.attempt] = record.step
            else:
                phrase = _DECIDED.get(type(record))
                words = phrase(record) if phrase is not None else ""
                phrases += [words] if words else []
        return phrases


def write(world: World) -> str:
    """Write the transcript of a world, and the state of each run at its end."""
    lines = Scribe().lines(world.entries)
    ledger = Ledger()
    for entry in world.entries:
        ledger.apply(entry)
    for run in world.state.runs.values():
        steps = ledger.summary(run.run, world.now).contributing_steps
        parts = [f"{attempt} {first}-{last}" for attempt, (first, last) in steps.items()]
        made = f"steps {', '.join(parts)}" if parts else "no steps"
        lines.append(
            f"= run {run.run} {run.spec.name} {run.state}: {run.num_attempts} attempts, {made}"
        )
    return "\n".join(lines) + "\n"


def _detail(result: ActionResult) -> str:
    detail = result.detail
    if detail.get("reachable") is False:
        return "not reachable"
    if "checks" in detail:
        return str(detail["outcome"])
    if "agent" in detail:
        ranks = list(detail["ranks_alive"])
        return f"agent {detail['agent']}, keeper {detail['keeper']}, ranks {ranks}"
    if "port" in detail:
        chosen = detail["chosen"]
        return f"resume from step {chosen['step']}" if chosen else "resume from nothing"
    return ""


def _assigned(record: r.Assigned, nodes: list[str]) -> str:
    names = " ".join(nodes)
    if record.attempt is not None:
        return f"{names} run {record.attempt} (generation {record.generation})"
    return f"{names} idle" + (f" in {record.grace_seconds:g} s" if record.grace_seconds else "")


def _exited(fact: s.RankExited) -> str:
    step = "" if fact.last_step is None else f" after step {fact.last_step}"
    return f"rank_exited {fact.node} rank {fact.rank} of {fact.attempt} with {fact.exit_code}{step}"


def _gone(fact: s.RanksTerminated) -> str:
    extra = f", left behind {list(fact.left_behind)}" if fact.left_behind else ""
    extra += f" ({fact.num_stacks} stacks)" if fact.num_stacks else ""
    return f"ranks_terminated {fact.node} {fact.attempt}{extra}{', fenced' if fact.fenced else ''}"


def _joined(fact: s.NodeJoined) -> str:
    ranks = f" with ranks {list(fact.ranks_alive)} of {fact.attempt}" if fact.ranks_alive else ""
    other = f" {fact.hardware}" if fact.hardware != f"board:{fact.node}" else ""
    return f"node_joined {fact.node}{other} (instance {fact.incarnation}){ranks}"


def _finding(fact: Finding) -> str:
    rank = f" rank {fact.rank}" if fact.rank is not None else ""
    about = fact.node or str(fact.attempt)
    seconds = f" for {fact.silent_seconds:.1f} s" if fact.silent_seconds else ""
    return f"{fact.fault} {about}{rank}{seconds}"


def _lr(fact: q.AddRemedy) -> str:
    if fact.remedy not in ("lr_factor", "lr_peak"):
        return f"remedy {fact.run} {fact.remedy} {value_text(fact.value)}".rstrip()
    return f"lr {fact.run} " + (
        f"x{fact.value:g}" if fact.remedy == "lr_factor" else f"peak {fact.value:g}"
    )


_INPUT_PHRASES: dict[type, Callable[[Any], str]] = {
    r.Settle: lambda _: "",
    r.Tick: lambda _: "deadline",
    r.SupervisorStarted: lambda fact: f"supervisor_started {fact.holder}",
    r.SupervisorPaused: lambda fact: f"paused for {fact.seconds:.1f} s: {fact.reason}",
    s.NodeJoined: _joined,
    s.NodeLeft: lambda fact: f"node_left {fact.node}",
    s.RanksStarted: lambda fact: f"ranks_started {fact.node} {fact.attempt}",
    s.LaunchFailed: lambda fact: f"launch_failed {fact.node}: {fact.reason}",
    s.Notice: lambda fact: f"{fact.notice} announced for {fact.node}",
    s.DevicesReleased: lambda fact: f"devices_released {fact.node}",
    s.RankExited: _exited,
    s.RanksTerminated: _gone,
    s.RanksReady: lambda fact: f"ranks_ready {fact.attempt}",
    s.Progress: lambda fact: f"progress {fact.attempt} step {fact.step}",
    s.SettingsInEffect: lambda fact: f"settings {fact.attempt} lr {fact.values.get('lr'):g}",
    s.CheckpointSealed: lambda fact: f"sealed step {fact.step}",
    Finding: _finding,
    TrialJudged: lambda fact: f"trial_judged {fact.incident} step {fact.step}",
    GangStillStepping: lambda fact: (
        f"gang_still_stepping {fact.attempt} step {fact.step} without {' '.join(fact.nodes)}"
    ),
    MetricNote: lambda fact: f"metric_note {fact.attempt} {fact.fault}",
    LrObserved: lambda fact: f"lr_observed {fact.attempt} step {fact.step} {fact.lr}",
    GangStartTimed: lambda fact: f"gang_start_timed {fact.attempt}",
    HeartbeatResumed: lambda fact: f"heartbeat_resumed {fact.node}",
    DomainSilence: lambda fact: f"domain_silence {fact.domain} {fact.name} {' '.join(fact.nodes)}",
    CorrelatedSilence: lambda fact: f"correlated_silence {' '.join(fact.nodes) or 'over'}",
    q.StartRun: lambda fact: f"start {fact.spec.name}",
    q.StopRun: lambda fact: f"stop {fact.run}",
    q.AddRemedy: _lr,
    q.Drill: lambda fact: f"drill {fact.run} {fact.fault}",
    q.SwapNode: lambda fact: f"swap {fact.node}" + (f" with {fact.spare}" if fact.spare else ""),
    q.DrainNode: lambda fact: f"drain {fact.node}",
    q.QuarantineNode: lambda fact: f"quarantine {fact.node}",
    q.ReadmitNode: lambda fact: f"readmit {fact.node}",
    q.RetireNode: lambda fact: f"retire {fact.node}",
    q.ShutDown: lambda _: "shut_down",
    **dict.fromkeys(
        (
            *(q.PauseRun, q.ResumeRun, q.RestartRun, q.RewindRun, q.RevertRemedy),
            *(q.ApproveAction, q.DenyAction, q.AddNote, q.AcknowledgeIncident),
        ),
        input_phrase,
    ),
}


def _node(record: r.NodeChanged) -> str:
    if record.state in ("joining", "active"):
        return "" if record.state == "joining" else f"{record.node} active"
    return f"{record.node} {record.state}"


def _attempt(record: r.AttemptChanged) -> str:
    outcome = f" ({record.outcome})" if record.outcome else ""
    return f"{record.attempt} {record.state}{outcome}"


def _timed(record: r.StartTimed) -> str:
    slowest = [
        f"{name} {p.seconds:g} s rank {p.rank} {p.node}" for name, p in record.slowest.items()
    ]
    return f"{record.attempt} up: {', '.join(slowest)}"


def _issued(record: r.ActionIssued) -> str:
    action = record.action
    if action.action == "page":
        return f"PAGE {action.args['message']}"
    if action.action == "node_task":
        asked = action.args["args"]
        if action.args["task"] == "verify":
            share, shares = asked["share"] + 1, asked["shares"]
            name = f"{action.id} {action.args['node']}: verify share {share} of {shares}"
            return name if shares > 1 else ""
        what = asked.get("request") or asked.get("fault") or action.args["task"]
        level = " (passive)" if asked.get("level") == "passive" else ""
        return f"{action.id} {action.args['node']}: {what}{level}"
    if action.action in ("probe_node", "start_agent", "stop_agent"):
        return f"{action.id} {action.action} {action.args['node']}"
    if action.action == "prune_checkpoints":
        return f"prune {' '.join(action.args['paths'])}"
    return ""


def _checkpoint(record: r.CheckpointRecorded) -> str:
    kept = record.checkpoint
    return f"checkpoint {kept.step} refused" if kept.trust is Trust.REFUSED else ""


def _share(record: r.ShareEnded) -> str:
    return "" if record.verified else f"share {record.share + 1} again: {record.reason}"


def _opened(record: r.IncidentOpened) -> str:
    rank = f" rank {record.rank}" if record.rank is not None else ""
    where = f" {record.node}{rank}" if record.node else ""
    return f"{record.incident} {record.fault}{where} at step {record.step}"


def _amended(record: r.IncidentAmended) -> str:
    parts = [record.fault, record.node, record.condition]
    about = " ".join(part for part in parts if part)
    return f"{record.incident} + {about}" if about else f"{record.incident} + evidence"


def _trial(record: TrialStarted) -> str:
    until = "until back" if record.trial.is_last else f"for {record.trial.steps} steps"
    return f"{record.incident} watched past step {record.trial.after_step} {until}"


def _domain(record: r.DomainStateRecorded) -> str:
    name = f"{record.domain} {record.name}"
    if not record.nodes:
        return f"{name} over"
    return f"{name} comes back" if record.back else f"{name} silent: {' '.join(record.nodes)}"


def _request_recorded(record: r.RequestRecorded) -> str:
    return f"{record.id} {record.state}: {record.message}"


def _leaving(record: r.NodeDraining) -> str:
    if record.to is None:
        return f"{record.node} stays"
    until = f" by {record.by_time:.2f}" if record.by_time is not None else ""
    spare = f", {record.spare} for it" if record.spare else ""
    return f"{record.node} draining to {record.to}{until}{spare}"


def _judged(record: r.HardwareJudged) -> str:
    return f"{record.hardware} {record.verdict or 'readmitted'}"


_DECIDED: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys(
        (
            *(p.RunHeld, p.HoldEnded, p.NoteAdded, p.IncidentAcknowledged, p.LadderSuspended),
            *(p.ActionProposed, p.ProposalDecided),
        ),
        record_phrase,
    ),
    r.NodeChanged: _node,
    r.NodeDraining: _leaving,
    r.JoinRefused: lambda x: f"{x.node} refused to {x.hardware}",
    r.HardwareFaultRecorded: lambda x: f"hardware fault of {x.hardware}: {x.fault}",
    r.HardwareJudged: _judged,
    CheckDeferred: lambda x: (
        f"{x.node} asked again after {x.task}, or at {x.until:.0f}" if x.task else f"{x.node} free"
    ),
    CheckPostponed: lambda x: f"{x.node} checked again at {x.until:.0f}",
    CheckWanted: lambda x: f"{x.node} to be checked: {x.reason[:60]}",
    HardwareChecked: lambda x: f"{x.hardware} behind" if x.behind else "",
    TargetedCheckWanted: lambda x: f"{x.node} to be checked for {x.cause}",
    TargetedCheckBegun: lambda x: f"{x.node} checked beside {x.control or 'none'}",
    TargetedCheckResult: lambda x: f"{x.checked} {x.outcome}",
    TargetedCheckJudged: lambda x: f"{x.node} {x.verdict}",
    i.IsolationWanted: lambda x: f"{x.isolation} wanted",
    i.IsolationBegun: lambda x: f"{x.isolation} begun on {' '.join(x.nodes)}",
    i.IsolationRoundBegun: lambda x: f"{x.isolation} round {x.measure.round}",
    i.IsolationMeasured: lambda x: "",
    i.IsolationJudged: lambda x: f"{x.isolation} judged",
    r.NodeKeptInService: lambda x: f"{x.node} kept",
    r.NodeCleared: lambda x: (
        f"{x.node} clear" + (" (seen by probe)" if x.confirmed_by == "probe" else "")
    ),
    r.NodeLaunched: lambda x: (
        f"{x.node} fresh: {x.not_forked_reason}" if x.not_forked_reason else ""
    ),
    r.RunAdmitted: lambda x: f"run {x.run} admitted",
    r.RunChanged: lambda x: f"run {x.run} {x.state}: {x.reason}",
    r.AttemptPlanned: lambda x: f"plan {x.attempt} on {' '.join(x.nodes)}",
    r.AttemptChanged: _attempt,
    r.StartTimed: _timed,
    r.RemedyAdded: lambda x: f"remedy {x.id} {x.remedy} {value_text(x.value)}",
    r.MetricNoteAdded: lambda x: f"noted {x.fault} from step {x.step} on",
    r.RateRead: lambda x: f"rate {x.lr:g} of {x.launched:g}",
    r.RemedyReverted: lambda x: f"remedy {x.id} reverted",
    r.RemedyChecked: lambda x: f"remedy {x.id} {x.state}",
    r.CheckpointRecorded: _checkpoint,
    r.IncidentOpened: _opened,
    r.IncidentAmended: _amended,
    r.IncidentDiagnosed: lambda x: f"{x.incident} was {x.cause.fault} on {x.cause.node}",
    r.AnswerAwaited: lambda x: f"{x.incident} waits for lines of {x.node}",
    r.RetryPlanned: lambda x: f"run {x.run} {x.reason}",
    r.RestartWanted: lambda x: f"run {x.run} to start again: {x.reason}",
    r.RungTaken: lambda x: f"{x.incident} rung {x.do} ({x.try_number})",
    r.IncidentChanged: lambda x: f"{x.incident} {x.state}",
    TrialStarted: _trial,
    TrialEnded: lambda x: f"{x.incident} {x.verdict}: {x.evidence}",
    r.ActionIssued: _issued,
    r.ActionEnded: lambda x: "" if x.outcome == "done" else f"{x.id} {x.outcome}",
    r.ShareEnded: _share,
    r.RequestRecorded: _request_recorded,
    r.ClusterClosing: lambda _: "closing",
    r.DomainStateRecorded: _domain,
    r.CorrelatedSilenceRecorded: lambda x: f"silent together: {' '.join(x.nodes) or 'none'}",
    r.DecisionFailed: lambda x: f"DECISION FAILED {x.error.splitlines()[-1]}",
}
