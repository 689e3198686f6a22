"""Verification: a sealed checkpoint is read once, in the background, by the nodes of its run, each a share of its files.

Level-triggered like the rest: `settle` looks at what is to be verified and issues what is missing. One checkpoint of a run at a
time, the newest first: where sealing is faster than reading, older ones are never read, and go by policy. The supervisor inspects
it (`InspectCheckpoint`), then nodes read it (the task `verify`).
"""

import math

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents.attribution import report_failure
from runner.decide.runs import checkpoint_trust, trust_levels
from runner.decide.state.cluster_state import GONE, RUNNING, OpenAction, Run, Verification
from runner.facts.actions import Action, ActionResult, InspectCheckpoint, NodeTask
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.faults import Finding
from runner.facts.messages import records as r
from runner.facts.messages.signals import TaskProgressed

# A share of this size is worth a node of its own. Chosen, not measured.
SHARE_BYTES = 4 * 1024**3
MAX_SHARES = 16
# A share may take so long, and more by its size; both begin again with each report of progress. Agents send three a minute.
# Chosen, not measured.
SILENT_SECONDS = 60.0
SLOWEST_BYTES_PER_SECOND = 20 * 1024**2
# The result for files that an agent of an earlier release has read.
UNSCANNED = "the agent of {node} is of a release that does not look for NaN"
# Of a share, on one node after the other. Chosen, not measured.
MAX_TRIES = 3


def settle(decision: Decision) -> None:
    """Decide the next thing to do for each run that has something to verify."""
    if decision.state.closing:
        _settle_closing(decision)
        return
    for run in decision.state.runs.values():
        if run.verification is not None:
            _settle_shares(decision, run, run.verification)
        elif (checkpoint := candidate(run)) is not None and not _is_inspected(decision, run):
            _inspect(decision, run, checkpoint)


def candidate(run: Run) -> Checkpoint | None:
    """Return the newest checkpoint if it is to be verified, or the newest that is and is newer than what was verified.

    What is set aside is never read.

    A run that is over has what it sealed at its end verified, and nothing of earlier releases read again.
    """
    for checkpoint in reversed(run.checkpoints):
        if run.is_set_aside(checkpoint):
            continue
        is_verified = checkpoint.trust in checkpoint_trust.TRUSTED
        is_read = bool(checkpoint.stamp and checkpoint.scan)
        if is_verified and (is_read or not run.is_alive):
            return None
        if checkpoint.trust is not Trust.REFUSED and not checkpoint.unverifiable:
            return checkpoint
    return None


def _is_inspected(decision: Decision, run: Run) -> bool:
    actions = decision.state.open_actions
    kinds = ("inspect_checkpoint", "verify_checkpoint")
    return any(action.run == run.run for kind in kinds for action in actions(kind))


def _inspect(decision: Decision, run: Run, checkpoint: Checkpoint) -> None:
    work = InspectCheckpoint(
        path=checkpoint.path,
        folder=checkpoint_trust.folder_of(decision, run),
        run_name=run.spec.name,
        uncoded=() if checkpoint.needs_code else None,
    )
    decision.issue(work, f"sealed at step {checkpoint.step}", run=run.run)


def on_inspected(decision: Decision, action: Action, result: ActionResult) -> None:
    """Have the checkpoint read; refuse one that is not as its manifest has it, and forget one whose folder is gone."""
    run, path = decision.state.runs.get(action.run or 0), str(action.args["path"])
    known = checkpoint_trust.find(run, path) if run is not None else None
    if run is None or known is None or known.trust is Trust.REFUSED:
        return
    detail = result.detail
    if result.outcome == "done" and "stamp" in detail:
        needs_code = bool(detail.get("needs_code"))
        if needs_code != known.needs_code:
            known = replace(known, needs_code=needs_code)
            decision.add(r.CheckpointRecorded(run=run.run, checkpoint=known))
        _begin(decision, run, path, result)
    elif result.outcome == "failed" and detail.get("missing") and not run.is_alive:
        decision.add(r.CheckpointRemoved(run=run.run, path=path))
    elif result.outcome == "failed" and (detail.get("refused") or detail.get("missing")):
        checkpoint_trust.refuse(decision, run, path, result.message)
    else:
        _end_without_verdict(decision, run, known, result.message)


def _begin(decision: Decision, run: Run, path: str, result: ActionResult) -> None:
    detail = result.detail
    size_bytes = int(detail.get("size_bytes", 0))
    wanted = min(math.ceil(size_bytes / SHARE_BYTES), len(_readers(decision, run)), MAX_SHARES)
    begun = r.VerificationBegun(
        run=run.run,
        path=path,
        manifest=str(detail["manifest"]),
        stamp=str(detail["stamp"]),
        shares=max(1, wanted),
        size_bytes=size_bytes,
    )
    decision.add(begun)


def _readers(decision: Decision, run: Run) -> list[str]:
    """Return the nodes that read the run's checkpoints: those of its gang, which wrote them; without one, any in service."""
    nodes, attempt = decision.state.nodes, run.attempt
    serving = [
        name
        for name, node in nodes.items()
        if node.state in ("active", "spare") and node.pending_drain is None
    ]
    own = [name for name in (attempt.nodes if attempt is not None else ()) if name in serving]
    return own or serving


def _settle_shares(decision: Decision, run: Run, verification: Verification) -> None:
    """Have each share read that no node reads now; do not wait for a node that is out of service."""
    read = {
        int(action.args["args"]["share"]): action
        for action in decision.state.open_tasks("verify")
        if action.run == run.run and action.args["args"]["path"] == verification.path
    }
    readers: list[str] | None = None
    for share, tries in verification.tries.items():
        action = read.get(share)
        if action is not None:
            if _end_on_lost_node(decision, action):
                return
            continue
        readers = _readers(decision, run) if readers is None else readers
        if readers:
            _read(decision, run, verification, share, node=readers[(share + tries) % len(readers)])


def _settle_closing(decision: Decision) -> None:
    """Wait for no node that is gone: the cluster has shut down once no action is open."""
    for action in decision.state.open_tasks("verify"):
        if _end_on_lost_node(decision, action):
            return


def _end_on_lost_node(decision: Decision, action: Action) -> bool:
    """End the task of a node that is out of service, and return True. One at a time: what follows is asked once this is applied."""
    node = decision.state.nodes.get(action.read(NodeTask).node)
    if node is not None and node.state not in GONE:
        return False
    message = f"the node is {node.state}" if node is not None else "no such node"
    decision.add(r.ActionEnded(id=action.id, outcome="unknown", message=message))
    result = ActionResult(id=action.id, outcome="unknown", message=message)
    on_share_ended(decision, action, result)
    return True


def _read(
    decision: Decision, run: Run, verification: Verification, share: int, *, node: str
) -> None:
    args = {
        "path": verification.path,
        "manifest": verification.manifest,
        "share": share,
        "shares": verification.shares,
    }
    name = verification.path.rpartition("/")[2]
    part = f", share {share + 1} of {verification.shares}" if verification.shares > 1 else ""
    silent_seconds = max(SILENT_SECONDS, decision.policy.cluster.action_deadline_seconds)
    read_seconds = verification.size_bytes / verification.shares / SLOWEST_BYTES_PER_SECOND
    decision.issue(
        NodeTask(node=node, task="verify", args=args),
        f"verify {name}{part}",
        run=run.run,
        deadline_seconds=silent_seconds + read_seconds,
    )


def on_progress(decision: Decision, progress: TaskProgressed) -> None:
    """A node has read more of its share: its deadline counts from now."""
    item: OpenAction | None = decision.state.actions.get(progress.id)
    if item is not None and item.action.args.get("node") == progress.node:
        decision.add(r.ActionRenewed(id=progress.id))


def on_share_ended(decision: Decision, action: Action, result: ActionResult) -> None:
    """Trust the checkpoint once all shares agree; refuse it if one does not; without a verdict another node reads the share."""
    run, args = decision.state.runs.get(action.run or 0), action.read(NodeTask).args
    verification = run.verification if run is not None else None
    if run is None or verification is None or verification.path != args["path"]:
        return
    share, known = int(args["share"]), checkpoint_trust.find(run, verification.path)
    if share not in verification.tries or known is None:
        return
    node = action.read(NodeTask).node
    detail = result.detail
    if result.outcome == "done" and detail.get("not_finite"):
        _refuse_not_finite(decision, run, known, str(detail["not_finite"]))
    elif result.outcome == "done":
        tensors = int(detail.get("tensors", 0))
        uncovered = str(detail.get("uncovered", UNSCANNED.format(node=node)))
        ended = r.ShareEnded(
            run=run.run, share=share, verified=True, tensors=tensors, uncovered=uncovered
        )
        decision.add(ended)
        if len(verification.tries) == 1:
            uncovered = verification.uncovered or uncovered
            if not uncovered and not verification.tensors + tensors:
                uncovered = "no tensors were found"
            finite = trust_levels.level_when_finite(decision, run, known)
            checkpoint_trust.trust(
                decision,
                run,
                known,
                stamp=verification.stamp,
                level=Trust.INTACT if uncovered else finite,
                uncovered=uncovered,
            )
    elif result.outcome == "failed" and result.detail.get("damaged"):
        checkpoint_trust.refuse(decision, run, known.path, result.message)
    elif verification.tries[share] + 1 < MAX_TRIES:
        reason = f"{node}: {result.message}"
        decision.add(r.ShareEnded(run=run.run, share=share, reason=reason))
    else:
        _end_without_verdict(decision, run, known, f"{node}: {result.message}")


def _refuse_not_finite(decision: Decision, run: Run, known: Checkpoint, what: str) -> None:
    """Refuse a checkpoint for the numbers in it. A gang that resumed from it unverified ends, unless it has sealed a finite one."""
    reason, attempt = f"not finite: {what}", run.attempt
    checkpoint_trust.refuse(decision, run, known.path, reason, scan="not finite")
    if attempt is None or attempt.resume != known.path or attempt.state not in RUNNING:
        return
    newer = run.newest(Trust.FINITE, Trust.HEALTHY, Trust.PROVEN)
    if newer is None or newer.age < known.age:
        evidence = f"{attempt.attempt} resumed from step {known.step}, which is {reason}"
        finding = Finding(fault="checkpoint_refused", evidence=evidence, attempt=attempt.attempt)
        report_failure(decision, finding, mark=f"checkpoint_refused:{known.name}")


def _end_without_verdict(decision: Decision, run: Run, checkpoint: Checkpoint, reason: str) -> None:
    """Unknown is not intact: it stays as it was. Where no node sees the folder, only the first share pages."""
    is_first = not any(known.unverifiable for known in run.checkpoints)
    left = replace(checkpoint, unverifiable=True, reason=reason)
    decision.add(r.CheckpointRecorded(run=run.run, checkpoint=left))
    if is_first:
        text = f"checkpoint at step {checkpoint.step} could not be verified: {reason}"
        decision.page(f"{text}; it is resumed from where no verified one is left", run=run.run)
