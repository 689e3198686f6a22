"""Registers: what each node is to run and have warm, and the answers to people, written as the state wants them.

Level-triggered: a register holds the state in full. What a node has warm may change while its assignment stays, when a run is
admitted, planned or over; so what each was told last is remembered, and only nodes for which that changed are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from runner.decide.placement import Preloads, assignment_of
from runner.decide.state import State
from runner.facts import records as r
from runner.facts import wire
from runner.facts.cluster_spec import ClusterSpec
from runner.facts.requests import Answer
from runner.signing import UNSIGNED, Signer

# After these any node may be wanted warm for another run than before; after the others, their own node only.
_CONCERN_ALL = (r.RunAdmitted, r.RunChanged, r.AttemptPlanned)
MAX_AT_ONCE = (
    512  # registers in one step: about 1 MB, so that agents' own writes need not wait long; chosen
)
_CONCERN_ONE = (r.NodeChanged,)


class Registers:
    """The registers of a cluster that are to be written: their newest value, whatever waited before is overtaken."""

    def __init__(self, cluster: ClusterSpec, signer: Signer = UNSIGNED) -> None:
        """`signer` signs assignments: an agent obeys no other. Answers are for people, and are not signed."""
        self._cluster, self._signer = cluster, signer
        self._due: dict[str, bytes] = {}
        self._warm_for: dict[str, int] = {}  # node -> run it was last told to be warm for; 0: none

    @property
    def is_due(self) -> bool:
        """Whether something is to be written."""
        return bool(self._due)

    def want_all(self, state: State) -> None:
        """Want every node's assignment written: whoever takes over does not know what was."""
        preloads = Preloads(state)
        for name in state.nodes:
            self._want(name, state, preloads)

    def follow(self, records: Iterable[object], state: State) -> None:
        """Want written what these records changed; `state` is as after them."""
        preloads: Preloads | None = None
        asked = dict[str, None]()  # nodes whose warm process may be another now
        for record in records:
            if isinstance(record, r.RequestNoted):
                self._want_answer(record)
            elif isinstance(
                record, r.Assigned | r.NodeRegistered
            ):  # the register names who is to obey
                preloads = preloads or Preloads(state)
                self._want(record.node, state, preloads)
            elif isinstance(record, _CONCERN_ALL):
                asked |= dict.fromkeys(state.nodes)
            elif isinstance(record, _CONCERN_ONE):
                asked[record.node] = None
        for name in asked:
            preloads = preloads or Preloads(state)
            if _number(preloads, state, name) != self._warm_for.get(name, 0):
                self._want(name, state, preloads)

    def write(self, put_many: Callable[[Mapping[str, bytes]], object]) -> None:
        """Write what is due, many registers in one step of the store; what fails, and what comes after it, stays due.

        A gang of any size thus costs one commit, and its nodes learn of it together.
        """
        while self._due:
            some = dict(islice(self._due.items(), MAX_AT_ONCE))
            put_many(some)
            for name in some:
                del self._due[name]

    def _want(self, name: str, state: State, preloads: Preloads) -> None:
        assignment = assignment_of(state, self._cluster, state.nodes[name], preloads=preloads)
        register = f"assignment/{name}"
        self._due[register] = self._signer.sign(register, wire.encode(assignment))
        self._warm_for[name] = _number(preloads, state, name)

    def _want_answer(self, noted: r.RequestNoted) -> None:
        answer = Answer(id=noted.id, state=noted.state, message=noted.message, run=noted.run)
        self._due[f"answer/{noted.id}"] = wire.encode(answer)


def _number(preloads: Preloads, state: State, name: str) -> int:
    run = preloads.run_for(state.nodes[name])
    return run.run if run is not None else 0
