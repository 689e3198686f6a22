"""Pending evidence: log lines of a running gang.

A later failure is diagnosed by them (`diagnosis.explain`). Lines of hardware and operating system open an incident of their own a
moment later, unless ranks die of them first: then they are the cause of that incident.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents import diagnosis
from runner.decide.incidents.non_fatal import open_non_fatal
from runner.decide.state.cluster_state import LAUNCHED, Attempt, Run
from runner.facts.causes import Verdict
from runner.facts.faults import Finding
from runner.facts.matches import Match
from runner.facts.messages import records as r
from runner.facts.messages.signals import LinesMatched

# How long ranks may take to die of what a line reports. Chosen.
WAIT_SECONDS = 3.0
# From so many nodes with the same lines on, the cause is something they share. Chosen.
MANY_NODES = 3
SHARED = ("storage", "fabric")


def on_pending_lines(decision: Decision, lines_read: LinesMatched) -> None:
    """Keep lines of a running gang; those of hardware are judged a moment later, unless the gang dies before."""
    attempt = decision.state.attempt_of(lines_read.attempt)
    if attempt is None or attempt.state not in LAUNCHED:
        return
    if attempt.generation != lines_read.generation:
        return
    known = {diagnosis.place_of(kept.match) for kept in attempt.pending_evidence}
    new = tuple(
        match
        for match in (replace(match, node=lines_read.node) for match in lines_read.matches)
        if diagnosis.place_of(match) not in known
    )
    if not new:
        return
    warrants_incident = any(match.warrants_incident for match in new)
    judge_at = decision.now + WAIT_SECONDS if warrants_incident else None
    decision.add(
        r.EvidenceRecorded(
            attempt=lines_read.attempt, matches=new, step=lines_read.last_step, judge_at=judge_at
        )
    )


def due_at(attempt: Attempt) -> float | None:
    """Return when lines of a gang are to be judged; None: there are none."""
    return attempt.judge_at if attempt.state in LAUNCHED else None


def settle(decision: Decision, run: Run, attempt: Attempt) -> None:
    """Judge lines of a gang that has not died of them."""
    due = due_at(attempt)
    if due is None or decision.now < due:
        return
    decision.add(r.EvidenceJudged(attempt=attempt.attempt))
    found: dict[tuple[str, str], list[tuple[str, Verdict, list[Match]]]] = {}
    lines_of: dict[str, list[Match]] = {}
    for match in (kept.match for kept in attempt.pending_evidence if kept.match.warrants_incident):
        lines_of.setdefault(match.node, []).append(match)
    for node, lines in lines_of.items():
        if (verdict := diagnosis.verdict_on(lines)) is not None:
            kind = verdict.cause.fault, verdict.cause.scope
            found.setdefault(kind, []).append((node, verdict, lines))
    for (_, scope), alike in found.items():
        # What many nodes have at once, and what they share, is the fault of none of them.
        if len(alike) >= MANY_NODES or scope in SHARED:
            node, verdict, lines = alike[0]
            _judge(decision, run, attempt, None, verdict, lines)
            continue
        for node, verdict, lines in alike:
            _judge(decision, run, attempt, node, verdict, lines)
            if any(isinstance(record, r.AttemptChanged) for record in decision.records):
                # Its page ended the attempt.
                return


def _judge(
    decision: Decision,
    run: Run,
    attempt: Attempt,
    node: str | None,
    verdict: Verdict,
    lines: Sequence[Match],
) -> None:
    """Open the incident of one node's lines (None: of many), or say that they mean something else by now."""
    cause, first = verdict.cause, verdict.evidence[0]
    lost = diagnosis.lost_before([first])
    evidence = "; ".join((f"{first.file}: {first.text}"[:300], *lost))
    for known in decision.state.live_incidents(non_fatal=True, run=run.run, node=node):
        if known.cause is None:
            continue
        if known.attempt == attempt.attempt:
            if not diagnosis.is_same(cause, known.cause):
                diagnosis.diagnose(decision, known, cause, lines)
            return
        if known.fault == cause.fault:
            decision.amend(known, evidence, attempt=attempt.attempt)
            return
    finding = Finding(
        fault=cause.fault,
        evidence=evidence,
        attempt=attempt.attempt,
        node=node,
        rank=first.rank if node is not None else None,
    )
    open_non_fatal(decision, run, attempt, finding, cause=cause, matches=lines)
