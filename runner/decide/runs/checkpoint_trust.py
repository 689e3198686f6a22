"""Trust in checkpoints: which are believed, which are taken for a resume, which are kept.

A sealed folder is committed; only what verified is intact; one that failed once is never taken again. The truth is the
controller's state; the sealed manifest is the evidence; only the supervisor prunes, and never the newest trusted one.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.placement.launch_plans import checkpoint_folder
from runner.decide.state.cluster_state import Run
from runner.facts.actions import Action, ActionResult, PruneCheckpoints, VerifyCheckpoint
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.signals import CheckpointSealed

TRUSTED = (Trust.INTACT, Trust.FINITE, Trust.HEALTHY, Trust.PROVEN)


def on_checkpoint_sealed(decision: Decision, sealed: CheckpointSealed) -> None:
    """Note it as committed and have it verified."""
    run = decision.state.runs.get(sealed.attempt.run)
    if run is None or any(known.path == sealed.path for known in run.checkpoints):
        return
    checkpoint = Checkpoint(
        step=sealed.step, attempt=sealed.attempt, path=sealed.path, needs_code=sealed.needs_code
    )
    decision.add(r.CheckpointRecorded(run=run.run, checkpoint=checkpoint))
    folder, uncoded = _folder(decision, run), () if sealed.needs_code else None
    verify = VerifyCheckpoint(
        path=sealed.path, folder=folder, run_name=run.spec.name, uncoded=uncoded
    )
    decision.issue(verify, f"sealed at step {sealed.step}", run=run.run)


def on_verified(decision: Decision, action: Action, result: ActionResult) -> None:
    """Raise or end the trust in a checkpoint; unknown leaves it committed (unknown is not intact)."""
    run, path = decision.state.runs.get(action.run or 0), action.read(VerifyCheckpoint).path
    known = next((c for c in run.checkpoints if c.path == path), None) if run else None
    if run is None or known is None or result.outcome == "unknown":
        return
    if result.outcome == "done":
        needs_code = bool(result.detail.get("needs_code"))
        intact = replace(known, trust=Trust.INTACT, needs_code=needs_code)
        decision.add(r.CheckpointRecorded(run=run.run, checkpoint=intact))
        _prune(decision, run, newest=known)
        return
    refused = replace(known, trust=Trust.REFUSED, reason=result.message)
    decision.add(r.CheckpointRecorded(run=run.run, checkpoint=refused))
    decision.page(f"checkpoint at step {known.step} refused: {result.message}", run=run.run)


def find(run: Run, path: str) -> Checkpoint | None:
    """Return the run's checkpoint in this folder; None if it is not known."""
    return next((known for known in run.checkpoints if known.path == path), None)


def refuse(decision: Decision, run: Run, path: str, reason: str) -> None:
    """Never take a checkpoint again, and page. One that is not known, or refused already, is left alone."""
    known = find(run, path)
    if known is None or known.trust is Trust.REFUSED:
        return
    refused = replace(known, trust=Trust.REFUSED, reason=reason)
    decision.add(r.CheckpointRecorded(run=run.run, checkpoint=refused))
    decision.page(f"checkpoint at step {known.step} refused: {reason}", run=run.run)


def record_survey(decision: Decision, run: Run, detail: Mapping[str, Any]) -> None:
    """Record what the survey of the checkpoint folder before a launch found."""
    for item in detail.get("refused", ()):
        checkpoint = _found(item, Trust.REFUSED)
        decision.add(r.CheckpointRecorded(run=run.run, checkpoint=checkpoint))
        decision.page(
            f"checkpoint at step {checkpoint.step} passed over: {checkpoint.reason}", run=run.run
        )
    chosen = detail.get("chosen")
    if chosen:
        found = _found(chosen, Trust.INTACT)
        known = next((c for c in run.checkpoints if c.path == found.path), None)
        if known is None or known.trust is Trust.COMMITTED or known.needs_code < found.needs_code:
            decision.add(r.CheckpointRecorded(run=run.run, checkpoint=found))


def _found(item: Mapping[str, Any], trust: Trust) -> Checkpoint:
    return Checkpoint(
        step=int(item["step"]),
        attempt=AttemptId.parse(str(item["attempt"])),
        path=str(item["path"]),
        trust=trust,
        reason=str(item.get("reason", "")),
        needs_code=bool(item.get("needs_code")),
    )


def refused_paths(run: Run) -> list[str]:
    """Return the folders that failed once: they are not taken again."""
    return [checkpoint.path for checkpoint in run.checkpoints if checkpoint.trust is Trust.REFUSED]


def uncoded_names(decision: Decision, run: Run) -> list[str]:
    """Return the names of checkpoints in a run's folder that count without a code: their ranks had no key."""
    runs, folder = decision.state.runs.values(), _folder(decision, run)
    same = (c for each in runs if _folder(decision, each) == folder for c in each.checkpoints)
    uncoded = (c for c in same if c.trust is not Trust.REFUSED and not c.needs_code)
    return [c.path.rpartition("/")[2] for c in uncoded]


def _prune(decision: Decision, run: Run, *, newest: Checkpoint) -> None:
    trusted = [c for c in run.checkpoints if c.trust in TRUSTED and c.path != newest.path] + [
        newest
    ]
    surplus = sorted(trusted, key=lambda c: (c.step, c.attempt))[: -run.spec.keep_checkpoints]
    paths = [c.path for c in surplus if c.trust is not Trust.PROVEN]
    if paths and not decision.state.open_actions("prune_checkpoints"):
        reason = f"policy keeps {run.spec.keep_checkpoints}"
        prune = PruneCheckpoints(paths=paths, folder=_folder(decision, run), run_name=run.spec.name)
        decision.issue(prune, reason, run=run.run)


def _folder(decision: Decision, run: Run) -> str:
    return checkpoint_folder(decision.policy.cluster, run)


def on_pruned(decision: Decision, action: Action, result: ActionResult) -> None:
    """Forget the checkpoints that were deleted."""
    if result.outcome == "done" and action.run is not None:
        for path in action.read(PruneCheckpoints).paths:
            decision.add(r.CheckpointRemoved(run=action.run, path=path))
