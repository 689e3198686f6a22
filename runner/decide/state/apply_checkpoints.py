"""Apply, the part about checkpoints: which there are, how far each is trusted, and going back to one."""

from collections.abc import Callable
from typing import Any

from runner.decide.state.cluster_state import Run, State, Verification, shared_fields
from runner.facts.checkpoints import LinePart, Rewind, Trust, line_from
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.records_checkpoints import CheckpointJudged, RunRewound
from runner.history.checkpoints import judged


def _checkpoint_recorded(state: State, record: r.CheckpointRecorded) -> None:
    run = state.runs[record.run]
    run.checkpoints = [known for known in run.checkpoints if known.path != record.checkpoint.path]
    run.checkpoints.append(record.checkpoint)
    run.checkpoints.sort(key=lambda checkpoint: (checkpoint.step, checkpoint.attempt))
    _end_verification(run, record.checkpoint.path)
    if record.checkpoint.trust is Trust.REFUSED:
        state.count("checkpoints_refused")


def _verification_begun(state: State, record: r.VerificationBegun) -> None:
    fields = shared_fields(record, Verification)
    state.runs[record.run].verification = Verification(
        **fields, tries=dict.fromkeys(range(record.shares), 0)
    )


def _share_ended(state: State, record: r.ShareEnded) -> None:
    verification = state.runs[record.run].verification
    if verification is None:
        return
    if record.verified:
        verification.tries.pop(record.share, None)
        verification.tensors += record.tensors
        verification.uncovered = verification.uncovered or record.uncovered
    elif record.share in verification.tries:
        verification.tries[record.share] += 1


def _checkpoint_removed(state: State, record: r.CheckpointRemoved) -> None:
    run = state.runs[record.run]
    run.checkpoints = [known for known in run.checkpoints if known.path != record.path]
    _end_verification(run, record.path)


def _end_verification(run: Run, path: str) -> None:
    """Forget the verification of a checkpoint of which more is known now."""
    if run.verification is not None and run.verification.path == path:
        run.verification = None


def _checkpoint_judged(state: State, record: CheckpointJudged) -> None:
    """Change what is known of it; a verification of its bytes goes on."""
    run = state.runs[record.run]
    run.checkpoints = [
        judged(known, record) if known.path == record.path else known for known in run.checkpoints
    ]


def follow_line(run: Run, record: r.AttemptPrepared) -> None:
    """Note what an attempt resumes from; attempts without a checkpoint that is left say nothing more."""
    attempt, _, step = record.resume.rstrip("/").rpartition("/")[2].rpartition("-")
    try:
        before = line_from(run.line, AttemptId.parse(attempt), int(step)) if record.resume else []
    except ValueError:
        # A folder of another name, in a journal of a release that took it.
        before = []
    left = {known.attempt: known for known in run.checkpoints}
    run.line = [part for part in before if part.attempt in left]
    run.line.append(LinePart(attempt=record.attempt))


def _run_rewound(state: State, record: RunRewound) -> None:
    """Take back how far the run is: the steps after the checkpoint count as progress when they are made again."""
    run, rewind = state.runs[record.run], record.rewind
    attempt = run.attempt
    if attempt is not None and (attempt.last_step or 0) > attempt.best_before:
        run.attempts_without_progress = 0
    # One that went as far back, or further, says all that an older one did.
    run.rewinds = [known for known in run.rewinds if (known.step, known.attempt) < _to(rewind)]
    run.rewinds.append(rewind)
    # Not 0: that would say that its ranks report no steps.
    run.best_step = min(run.best_step, max(1, rewind.step))
    run.clean_since = min(run.clean_since, rewind.step)
    # The next attempt has a configuration of its own.
    run.reconfigured = True
    known_paths = [known.path for known in run.checkpoints if run.is_set_aside(known)]
    if run.verification is not None and run.verification.path in known_paths:
        run.verification = None
    state.count("rewinds")


def _to(rewind: Rewind) -> tuple[int, AttemptId]:
    return rewind.step, rewind.attempt


OF_CHECKPOINTS: dict[type, Callable[[State, Any], None]] = {
    r.CheckpointRecorded: _checkpoint_recorded,
    r.CheckpointRemoved: _checkpoint_removed,
    r.VerificationBegun: _verification_begun,
    r.ShareEnded: _share_ended,
    CheckpointJudged: _checkpoint_judged,
    RunRewound: _run_rewound,
}
