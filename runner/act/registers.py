"""Registers that the supervisor writes: each node's assignment, and answers to requests.

A register holds its state in full. A node's preloaded run may change while its assignment stays, when a run is admitted,
planned or over; so the preloaded run last written is remembered, and only nodes for which it changed are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from runner.decide.placement.launch_plans import Plans, Preloads, assignment_of
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.messages.requests import Answer
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import answer_register, assignment_register
from runner.signer import UNSIGNED, Signer

# After these any node may have another preloaded run; after the others, their own node only.
_CHANGE_ALL_NODES = (r.RunAdmitted, r.RunChanged, r.AttemptPlanned)
_CHANGE_ONE_NODE = (r.NodeChanged,)
# Registers of one write, about 1 MB, so that agents' own writes need not wait long; chosen.
MAX_BATCH = 512


class Registers:
    """Pending writes of a cluster's registers; a newer value replaces an older one."""

    def __init__(self, cluster: ClusterSpec, signer: Signer = UNSIGNED) -> None:
        """`signer` signs assignments, since agents refuse unsigned ones. Answers are for people, and are not signed."""
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
        assignments = _Assignments(self._cluster, state)
        for name in state.nodes:
            self._queue(name, assignments)

    def queue_changes(self, records: Iterable[object], state: State) -> None:
        """Queue the registers that these records changed; `state` is as after them."""
        assignments: _Assignments | None = None
        # nodes whose preloaded run may have changed
        affected = dict[str, None]()
        for record in records:
            if isinstance(record, r.RequestRecorded):
                self._queue_answer(record)
            elif isinstance(record, r.Assigned | r.NodeRegistered):
                # An assignment names the agent that must obey it.
                assignments = assignments or _Assignments(self._cluster, state)
                self._queue(record.node, assignments)
            elif isinstance(record, _CHANGE_ALL_NODES):
                affected |= dict.fromkeys(state.nodes)
            elif isinstance(record, _CHANGE_ONE_NODE):
                affected[record.node] = None
        for name in affected:
            assignments = assignments or _Assignments(self._cluster, state)
            if assignments.preloaded_run(name) != self._preloaded.get(name, 0):
                self._queue(name, assignments)

    def write(self, put_many: Callable[[Mapping[str, bytes]], object]) -> None:
        """Write pending registers, many in one commit, for a gang to read together; a failed write stays pending."""
        while self._pending:
            batch = dict(islice(self._pending.items(), MAX_BATCH))
            put_many(batch)
            for name in batch:
                del self._pending[name]

    def _queue(self, name: str, assignments: _Assignments) -> None:
        register = assignment_register(name)
        self._pending[register] = self._signer.sign(register, assignments.encoded(name))
        self._preloaded[name] = assignments.preloaded_run(name)

    def _queue_answer(self, record: r.RequestRecorded) -> None:
        answer = Answer(id=record.id, state=record.state, message=record.message, run=record.run)
        self._pending[answer_register(record.id)] = wire.encode(answer)


class _Assignments:
    """The assignments of one state. A gang's common plan is made once."""

    def __init__(self, cluster: ClusterSpec, state: State) -> None:
        self._cluster, self._state = cluster, state
        self._preloads, self._plans = Preloads(state), Plans(cluster)

    def preloaded_run(self, name: str) -> int:
        """Return the run that a node preloads; 0: none."""
        run = self._preloads.run_for(self._state.nodes[name])
        return run.run if run is not None else 0

    def encoded(self, name: str) -> bytes:
        """Return the payload of a node's register, unsigned."""
        return wire.encode(
            assignment_of(
                self._state,
                self._cluster,
                self._state.nodes[name],
                preloads=self._preloads,
                plans=self._plans,
            )
        )
