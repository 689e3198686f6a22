"""Which edge performs which kind of action."""

from __future__ import annotations

from runner.act.checkpoints import prepare_attempt, prune_checkpoints, verify_checkpoint
from runner.act.executor import Performance
from runner.act.pages import tell
from runner.facts import wire
from runner.facts.actions import Action, Outcome, PageOperator, ProbeNode, StartAgent, StopAgent
from runner.facts.messages.assignments import task_of
from runner.providers.local import NodeProvider
from runner.signer import Signer
from runner.store.protocol import Lease, Store


def performances(
    place: NodeProvider, store: Store, lease: Lease, signer: Signer
) -> dict[str, Performance]:
    """Return what performs each kind of action of `facts.actions.ActionKind`."""

    def send_task(action: Action) -> Outcome | None:
        task = task_of(action)
        stream = f"tasks/{task.node}"
        store.append(stream, signer.sign(stream, wire.encode(task)), fence=lease)
        # the agent answers
        return None

    return {
        "prepare_attempt": prepare_attempt,
        "verify_checkpoint": verify_checkpoint,
        "prune_checkpoints": prune_checkpoints,
        "start_agent": lambda action: place.start_agent(action.read(StartAgent).node),
        "stop_agent": lambda action: place.stop_agent(action.read(StopAgent).node),
        "probe_node": lambda action: place.probe_node(action.read(ProbeNode).node),
        "node_task": send_task,
        "page": _page,
    }


def _page(action: Action) -> Outcome:
    return "done", {}, tell(action.read(PageOperator).message)
