"""Trust in checkpoints: which are believed, which are taken for a resume, which are kept.

A sealed folder is committed; only what nodes have read whole is intact, for as long as its files keep their times; one that failed
once is never taken again. The truth is the controller's state; the sealed manifest is the evidence; only the supervisor prunes, and
never the newest intact one. How checkpoints are verified is in `verification`, what is more than intact in `trust_levels`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from runner.decide.decision import Decision, Reply, refused
from runner.decide.placement.launch_plans import checkpoint_folder
from runner.decide.state.cluster_state import Run
from runner.facts.actions import Action, ActionResult, PruneCheckpoints
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.records_checkpoints import CheckpointJudged
from runner.facts.messages.requests import PinCheckpoint
from runner.facts.messages.signals import CheckpointSealed

# Of a request to pin that names no one.
UNKNOWN_PERSON = "an unknown user"
TRUSTED = (Trust.INTACT, Trust.FINITE, Trust.HEALTHY, Trust.PROVEN)


def on_checkpoint_sealed(decision: Decision, sealed: CheckpointSealed) -> None:
    """Note it as committed; `verification` has it read."""
    run = decision.state.runs.get(sealed.attempt.run)
    if run is None or find(run, sealed.path) is not None:
        return
    checkpoint = Checkpoint(
        step=sealed.step,
        attempt=sealed.attempt,
        path=sealed.path,
        needs_code=sealed.needs_code,
        loss_scale=sealed.loss_scale,
        activation_norm=sealed.activation_norm,
    )
    decision.add(r.CheckpointRecorded(run=run.run, checkpoint=checkpoint))
    _prune(decision, run, changed=checkpoint)


def find(run: Run, path: str) -> Checkpoint | None:
    """Return the run's checkpoint in this folder; None if it is not known."""
    return next((known for known in run.checkpoints if known.path == path), None)


def trust(
    decision: Decision,
    run: Run,
    checkpoint: Checkpoint,
    *,
    stamp: str,
    level: Trust,
    uncovered: str = "",
) -> None:
    """Trust a checkpoint whose every byte agreed with its manifest, when its files were as the stamp says.

    `uncovered`: why nothing is known of the numbers in it; "": all its tensors were looked at, and are finite.
    """
    known = replace(
        checkpoint,
        trust=level,
        reason=uncovered,
        stamp=stamp,
        unverifiable=False,
        scan="not covered" if uncovered else "finite",
    )
    decision.add(r.CheckpointRecorded(run=run.run, checkpoint=known))
    _prune(decision, run, changed=known)


def refuse(decision: Decision, run: Run, path: str, reason: str, **found: Any) -> None:
    """Never take a checkpoint again, and page. One that is not known, or refused already, is left alone.

    `found`: fields of the checkpoint that say more.
    """
    known = find(run, path)
    if known is None or known.trust is Trust.REFUSED:
        return
    refused = replace(known, trust=Trust.REFUSED, reason=reason, **found)
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
    if not chosen:
        return
    # In journals of releases that verified before each launch, it is always verified.
    found = _found(chosen, Trust.COMMITTED if chosen.get("unverified") else Trust.INTACT)
    known = find(run, found.path)
    if known is None:
        decision.add(r.CheckpointRecorded(run=run.run, checkpoint=found))
    elif known.needs_code < found.needs_code:
        coded = replace(known, trust=found.trust, needs_code=True, stamp="", scan="", reason="")
        decision.add(r.CheckpointRecorded(run=run.run, checkpoint=coded))
    elif known.stamp and found.trust is Trust.COMMITTED:
        # It is to be verified again.
        changed = replace(known, trust=Trust.COMMITTED, stamp="", scan="", reason="")
        decision.add(r.CheckpointRecorded(run=run.run, checkpoint=changed))
        text = f"checkpoint at step {found.step} has changed since it was verified"
        decision.page(f"{text}; it is verified again", run=run.run)


def _found(item: Mapping[str, Any], trust: Trust) -> Checkpoint:
    return Checkpoint(
        step=int(item["step"]),
        attempt=AttemptId.parse(str(item["attempt"])),
        path=str(item["path"]),
        trust=trust,
        reason=str(item.get("reason", "")),
        needs_code=bool(item.get("needs_code")),
    )


def verified_stamps(decision: Decision, run: Run) -> dict[str, str]:
    """Return the stamps of what was verified in the run's folder, also for earlier runs, by the names of the folders."""
    return {
        checkpoint.path.rpartition("/")[2]: checkpoint.stamp
        for checkpoint in _of_folder(decision, run)
        if checkpoint.trust in TRUSTED and checkpoint.stamp
    }


def takes_newest(run: Run) -> bool:
    """Whether the newest checkpoint is taken although it may not be verified yet, not the newest verified.

    It is where ranks check what they load: if it is damaged they say so, and the one before it is taken. Until a run has sealed a
    checkpoint itself it is, too: what another left at its orderly end may not have been read.
    """
    has_sealed = any(checkpoint.attempt.run == run.run for checkpoint in run.checkpoints)
    are_checked = run.attempt is not None and run.attempt.checks_checkpoints
    return are_checked or not has_sealed


def set_aside(decision: Decision, run: Run) -> list[list[Any]]:
    """Return what a run went back on, and earlier runs of the same folder: for its surveys, which see more than is known."""
    folder = folder_of(decision, run)
    runs = (each for each in decision.state.runs.values() if folder_of(decision, each) == folder)
    return [rewind.plain() for each in runs for rewind in each.rewinds]


def refused_paths(decision: Decision, run: Run) -> list[str]:
    """Return the folders that failed once: they are not taken again.

    For another run of the folder a person may have mended what could not be read. What is not finite stays so.
    """
    refused = [c.path for c in run.checkpoints if c.trust is Trust.REFUSED]
    others = (c for c in _of_folder(decision, run) if c.scan == "not finite")
    return [*refused, *(c.path for c in others if c.path not in refused)]


def uncoded_names(decision: Decision, run: Run) -> list[str]:
    """Return the names of checkpoints in a run's folder that count without a code: their ranks had no key."""
    same = _of_folder(decision, run)
    uncoded = (c for c in same if c.trust is not Trust.REFUSED and not c.needs_code)
    return [c.path.rpartition("/")[2] for c in uncoded]


def _of_folder(decision: Decision, run: Run) -> Iterator[Checkpoint]:
    """Yield the checkpoints of all runs that share the folder of this run."""
    folder = folder_of(decision, run)
    for each in decision.state.runs.values():
        if folder_of(decision, each) == folder:
            yield from each.checkpoints


def _prune(decision: Decision, run: Run, *, changed: Checkpoint) -> None:
    """Delete what is older than the newest `keep_checkpoints`, verified or not.

    What stays: the newest that is intact, the newest `keep_proven` that are proven, and what is pinned; while an incident in the
    weights is live also what is older than its onset, since its ladder may go back there. What is set aside counts for none of
    them; it goes when the run has something intact again at that step.
    """
    others = [c for c in run.checkpoints if c.path != changed.path and c.trust is not Trust.REFUSED]
    known = sorted([*others, changed], key=lambda c: c.age)
    kept = [c for c in known if not run.is_set_aside(c)]
    intact = [c.path for c in kept if c.trust in TRUSTED][-1:]
    proven = [c.path for c in kept if c.trust is Trust.PROVEN][-run.spec.keep_proven :]
    onset = _earliest_onset(decision, run)
    before = [c.path for c in kept if onset is not None and c.step < onset]
    busy = [run.verification.path] if run.verification and changed.trust not in TRUSTED else []
    passed = max((c.step for c in kept if c.trust in TRUSTED), default=-1)
    left = [c for c in known if run.is_set_aside(c) and c.step <= passed]
    paths = [
        c.path
        for c in (*kept[: -run.spec.keep_checkpoints], *left)
        if not c.pinned and c.path not in (*intact, *proven, *before, *busy)
    ]
    folder = folder_of(decision, run)
    if paths and run.spec.keep_checkpoints and not _prunings(decision, run):
        reason = f"policy keeps {run.spec.keep_checkpoints}"
        prune = PruneCheckpoints(paths=paths, folder=folder, run_name=run.spec.name)
        decision.issue(prune, reason, run=run.run)


def _earliest_onset(decision: Decision, run: Run) -> int | None:
    """Return the first bad step of the run's live incidents that are in the weights; None without one."""
    live = [one for one in decision.state.live_incidents(run=run.run) if decision.is_live(one)]
    onsets = [one.onset for one in live if one.is_in_weights and one.onset is not None]
    return min(onsets, default=None)


def folder_of(decision: Decision, run: Run) -> str:
    """Return the folder of the run's checkpoints; "" if it has none."""
    return checkpoint_folder(decision.policy.cluster, run)


def on_pruned(decision: Decision, action: Action, result: ActionResult) -> None:
    """Forget the checkpoints that were deleted."""
    if result.outcome == "done" and action.run is not None:
        for path in action.read(PruneCheckpoints).paths:
            decision.add(r.CheckpointRemoved(run=action.run, path=path))


def on_pin(decision: Decision, request: PinCheckpoint, run: Run) -> Reply:
    """Keep a checkpoint for good, or no longer."""
    at_step = [c for c in run.checkpoints if c.step == request.step]
    usable = [c for c in at_step if c.trust is not Trust.REFUSED and not run.is_set_aside(c)]
    problem = "" if usable else _no_such_checkpoint(run, request.step, at_step)
    known = usable[-1] if usable else None
    if known is None:
        return refused(problem)
    if any(known.path in prune.read(PruneCheckpoints).paths for prune in _prunings(decision, run)):
        return refused(f"the checkpoint of step {known.step} is being deleted; pin another one")
    if bool(known.pinned) is not request.remove:
        how = f"pinned already, by {known.pinned}" if known.pinned else "not pinned"
        return Reply("done", f"the checkpoint of step {known.step} is {how}")
    pinned = "" if request.remove else request.by or UNKNOWN_PERSON
    decision.add(CheckpointJudged(run=run.run, path=known.path, step=known.step, pinned=pinned))
    policy = f"policy (keep_checkpoints {run.spec.keep_checkpoints}) may delete it"
    kept = policy if request.remove else "it is kept until it is unpinned"
    return Reply("done", f"{known.name} ({known.trust.value}): {kept}")


def _no_such_checkpoint(run: Run, step: int, at_step: list[Checkpoint]) -> str:
    if at_step:
        known = at_step[-1]
        how = f"refused: {known.reason}" if known.trust is Trust.REFUSED else "set aside"
        return f"the checkpoint of step {step} is {how}; it is never resumed from, so it cannot be pinned"
    steps = ", ".join(str(step) for step in dict.fromkeys(c.step for c in run.checkpoints))
    there = f"there are those of steps {steps}" if steps else "there is none yet"
    return f"run {run.spec.name!r} has no checkpoint of step {step}; {there}"


def _prunings(decision: Decision, run: Run) -> list[Action]:
    folder = folder_of(decision, run)
    return decision.state.open_actions("prune_checkpoints", folder=folder)
