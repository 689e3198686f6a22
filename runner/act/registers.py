"""Registers: what each node is to run and have warm, and the answers to people, written as the state wants them.

Level-triggered: a register holds the state in full. What a node has warm may change while its assignment stays, when a run is
admitted, planned or over; so what each was told last is remembered, and only nodes for which that changed are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from runner.decide.placement.launch_plans import Plans, Preloads, assignment_of
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.requests import Answer
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import answer_register, assignment_register
from runner.signer import UNSIGNED, Signer

# After these any node may be wanted warm for another run than before; after the others, their own node only.
_CONCERN_ALL = (r.RunAdmitted, r.RunChanged, r.AttemptPlanned)
# Registers in one step: about 1 MB, so that agents' own writes need not wait long; chosen.
MAX_AT_ONCE = 512
_CONCERN_ONE = (r.NodeChanged,)


class Registers:
    """The registers of a cluster that are to be written: their newest value, whatever waited before is overtaken."""

    def __init__(self, cluster: ClusterSpec, signer: Signer = UNSIGNED) -> None:
        """`signer` signs assignments: an agent obeys no other. Answers are for people, and are not signed."""
        self._cluster, self._signer = cluster, signer
        self._due: dict[str, bytes] = {}
        # Node -> run that it is to be warm for; 0: none.
        self._warm_for: dict[str, int] = {}

    @property
    def is_due(self) -> bool:
        """Whether something is to be written."""
        return bool(self._due)

    def want_all(self, state: State) -> None:
        """Mark every node's assignment as to be written: a new supervisor does not know what was."""
        drawn = _Drawn(self._cluster, state)
        for name in state.nodes:
            self._want(name, drawn)

    def follow(self, records: Iterable[object], state: State) -> None:
        """Want written what these records changed; `state` is as after them."""
        drawn: _Drawn | None = None
        # Nodes whose warm process may be another now.
        asked = dict[str, None]()
        for record in records:
            if isinstance(record, r.RequestRecorded):
                self._want_answer(record)
            elif isinstance(
                record,
                r.Assigned | r.NodeRegistered,
                # The register names who is to obey.
            ):
                drawn = drawn or _Drawn(self._cluster, state)
                self._want(record.node, drawn)
            elif isinstance(record, _CONCERN_ALL):
                asked |= dict.fromkeys(state.nodes)
            elif isinstance(record, _CONCERN_ONE):
                asked[record.node] = None
        for name in asked:
            drawn = drawn or _Drawn(self._cluster, state)
            if drawn.warm_for(name) != self._warm_for.get(name, 0):
                self._want(name, drawn)

    def write(self, put_many: Callable[[Mapping[str, bytes]], object]) -> None:
        """Write what is due, many registers in one step of the store; what fails, and what comes after it, stays due.

        A gang of any size thus costs one commit, and its nodes learn of it together.
        """
        while self._due:
            some = dict(islice(self._due.items(), MAX_AT_ONCE))
            put_many(some)
            for name in some:
                del self._due[name]

    def _want(self, name: str, drawn: _Drawn) -> None:
        register = assignment_register(name)
        self._due[register] = self._signer.sign(register, drawn.encoded(name))
        self._warm_for[name] = drawn.warm_for(name)

    def _want_answer(self, noted: r.RequestRecorded) -> None:
        answer = Answer(id=noted.id, state=noted.state, message=noted.message, run=noted.run)
        self._due[answer_register(noted.id)] = wire.encode(answer)


class _Drawn:
    """Assignments of one state. What the nodes of a gang have in common is worked out, and turned into JSON, once."""

    def __init__(self, cluster: ClusterSpec, state: State) -> None:
        self._cluster, self._state = cluster, state
        self._preloads, self._plans = Preloads(state), Plans(cluster)
        # Plans as JSON can hold them.
        self._common: dict[AttemptId, dict[str, Any]] = {}

    def warm_for(self, name: str) -> int:
        """Return the run that a node is to be warm for; 0: none."""
        run = self._preloads.run_for(self._state.nodes[name])
        return run.run if run is not None else 0

    def encoded(self, name: str) -> bytes:
        """Return what a node's register is to hold, not signed."""
        assignment = assignment_of(
            self._state,
            self._cluster,
            self._state.nodes[name],
            preloads=self._preloads,
            plans=self._plans,
        )
        plan = assignment.plan
        if plan is None:
            return wire.encode(assignment)
        if plan.attempt not in self._common:
            self._common[plan.attempt] = wire.to_plain(plan)
        message = wire.to_message(replace(assignment, plan=None))
        message["plan"] = {**self._common[plan.attempt], "node_rank": plan.node_rank}
        return wire.encode_message(message)
