"""The registry of actions: each kind of action and the handler that carries it out."""

from collections.abc import Callable
from functools import partial

from runner.act.checkpoints import inspect_checkpoint, prepare_attempt, prune_checkpoints
from runner.act.pages import Pager
from runner.facts import wire
from runner.facts.actions import Action, Outcome, ProbeNode, StartAgent, StopAgent
from runner.facts.messages.assignments import task_of
from runner.facts.store_names import task_stream
from runner.providers.protocol import NodeProvider
from runner.signer import Signer
from runner.store.protocol import Lease, Store

# Returns the outcome; None when an agent will report it.
ActionHandler = Callable[[Action], Outcome | None]


def action_handlers(
    provider: NodeProvider,
    store: Store,
    lease: Lease,
    signer: Signer,
    *,
    cluster: str,
    pager: Pager | None = None,
) -> dict[str, ActionHandler]:
    """Return the handler of each kind of `facts.actions.ActionKind`. `cluster`: its name. `pager`: None: pages are only logged."""
    seal_keys = partial(signer.seal_keys, cluster)

    def send_task(action: Action) -> None:
        task = task_of(action)
        stream = task_stream(task.node)
        store.append(stream, signer.sign(stream, wire.encode(task)), fence=lease)

    return {
        "prepare_attempt": partial(prepare_attempt, seal_keys=seal_keys),
        "inspect_checkpoint": partial(inspect_checkpoint, seal_keys=seal_keys),
        "verify_checkpoint": partial(inspect_checkpoint, seal_keys=seal_keys),
        "prune_checkpoints": prune_checkpoints,
        "start_agent": lambda action: provider.start_agent(action.read(StartAgent).node),
        "stop_agent": lambda action: provider.stop_agent(action.read(StopAgent).node),
        "probe_node": lambda action: provider.probe_node(action.read(ProbeNode).node),
        "node_task": send_task,
        "page": (pager or Pager()).page,
    }
