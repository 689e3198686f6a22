"""Registers that the supervisor writes: each node's assignment, and answers to requests.

A register holds its state in full. A node's preloaded run may change while its assignment stays, when a run is admitted,
planned or over; so the preloaded run last written is remembered, and only nodes for which it changed are written again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from runner.decide.placement.launch_plans import Plans, Preloads, assignment_of
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.messages.requests import Answer
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import answer_register, assignment_register
from runner.signer import UNSIGNED, Signer

# Registers of one write, about 1 MB, so that agents' own writes need not wait long; chosen.
MAX_BATCH = 512


class Registers:
    """Pending writes of a cluster's registers; a newer value replaces an older one."""

    def __init__(self, cluster: ClusterSpec, signer: Signer = UNSIGNED) -> None:
        """`signer` signs assignments and answers."""
        self._cluster, self._signer = cluster, signer
        self._pending: dict[str, bytes] = {}
        # node -> run that its last assignment preloads; 0: none
        self._preloaded: dict[str, int] = {}

    @property
    def is_due(self) -> bool:
        """Whether a write is pending."""
        return bool(self._pending)

    def queue_all(self, state: State) -> None:
        """Queue every node's assignment: a new supervisor does not know what the last one wrote."""
        self._queue(state.nodes, state)

    def queue_changes(self, records: Iterable[object], state: State) -> None:
        """Queue the registers that these records changed; `state` is as after them."""
        assigned, affected = dict[str, None](), dict[str, None]()
        for record in records:
            match record:
                case r.RequestRecorded(id=id, state=answered, message=message, run=run):
                    self._answer(Answer(id=id, state=answered, message=message, run=run))
                case r.JoinRefused(instance_id=id, reason=reason) if id:
                    self._answer(Answer(id=id, state="refused", message=reason))
                # An assignment names the agent that must obey it.
                case r.Assigned(node=node) | r.NodeRegistered(node=node):
                    assigned[node] = None
                # Any node may have another preloaded run.
                case r.RunAdmitted() | r.RunChanged() | r.AttemptPlanned():
                    affected |= dict.fromkeys(state.nodes)
                case r.NodeChanged(node=node):
                    affected[node] = None
        if assigned or affected:
            self._queue(assigned, state, affected)

    def _answer(self, answer: Answer) -> None:
        register = answer_register(answer.id)
        self._pending[register] = self._signer.sign(register, wire.encode(answer))

    def write(self, put_many: Callable[[Mapping[str, bytes]], object]) -> None:
        """Write pending registers, many in one commit, for a gang to read together; a failed write stays pending."""
        while self._pending:
            batch = dict(islice(self._pending.items(), MAX_BATCH))
            put_many(batch)
            for name in batch:
                del self._pending[name]

    def _queue(self, assigned: Collection[str], state: State, affected: Iterable[str] = ()) -> None:
        """Queue the assignments of nodes; of those only `affected`, where another run is preloaded now."""
        preloads, plans = Preloads(state), Plans(self._cluster)
        for name in dict.fromkeys((*assigned, *affected)):
            node = state.nodes[name]
            run = preloads.run_for(node)
            preloaded = run.run if run is not None else 0
            if name not in assigned and preloaded == self._preloaded.get(name, 0):
                continue
            register = assignment_register(name)
            made = assignment_of(state, self._cluster, node, preloads=preloads, plans=plans)
            self._pending[register] = self._signer.sign(register, wire.encode(made))
            self._preloaded[name] = preloaded
