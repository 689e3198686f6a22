"""A decision in the making: reads the state, collects records, hands out ids. It never changes the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.decide.state.cluster_state import Incident, Node, RequestStatus, Run, State
from runner.facts.actions import Action, ActionKind
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.runbook import Runbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What decisions go by, fixed for the life of a controller: the cluster's limits and the runbooks."""

    cluster: ClusterSpec
    runbooks: tuple[Runbook, ...] = ()

    def runbook_for(self, fault: str) -> Runbook | None:
        """Return the page that this fault opens."""
        return next((book for book in self.runbooks if fault in book.faults), None)


@dataclass(slots=True, kw_only=True)
class Decision:
    """The records of one decision so far, and the counters it has drawn from."""

    state: State
    policy: Policy
    now: float
    records: list[object] = field(default_factory=list)
    _actions: int = 0
    _incidents: int = 0
    _epochs: int = 0
    _leaving: list[Node] | None = None

    def add(self, *records: object) -> None:
        """Put records into the decision, in order."""
        self.records.extend(records)

    def epoch(self) -> int:
        """Draw the next epoch."""
        self._epochs += 1
        return self.state.next_epoch + self._epochs - 1

    def issue(
        self,
        kind: ActionKind,
        reason: str,
        *,
        args: Mapping[str, Any] | None = None,
        run: int | None = None,
        incident: str | None = None,
        deadline_seconds: float | None = None,
    ) -> str:
        """Decide an action; return its id."""
        action_id = f"a{self.state.next_action + self._actions}"
        self._actions += 1
        limit = (
            self.policy.cluster.action_deadline_seconds
            if deadline_seconds is None
            else deadline_seconds
        )
        self.add(
            r.ActionIssued(
                action=Action(
                    id=action_id,
                    action=kind,
                    reason=reason,
                    args=dict(args or {}),
                    run=run,
                    incident=incident,
                    deadline_seconds=limit,
                )
            )
        )
        return action_id

    def page(self, message: str, *, run: int | None = None, incident: str | None = None) -> None:
        """Tell a person."""
        self.issue("page", message, args={"message": message}, run=run, incident=incident)

    def answer(self, asked: RequestStatus, state: r.RequestStateName, message: str) -> None:
        """Say what became of a request that stands open."""
        self.add(
            r.RequestRecorded(
                id=asked.id,
                request=asked.request,
                by=asked.by,
                state=state,
                message=message,
                run=asked.run,
                node=asked.node,
            )
        )

    def open_incident(self, fault: str, evidence: str, **about: Any) -> Incident:
        """Open an incident; return how it will look once applied, for the ladder to work on."""
        name = f"i{self.state.next_incident + self._incidents}"
        self._incidents += 1
        self.add(r.IncidentOpened(incident=name, fault=fault, evidence=evidence, **about))
        return Incident(
            incident=name,
            fault=fault,
            opened_at=self.now,
            run=about.get("run"),
            attempt=about.get("attempt"),
            node=about.get("node"),
            rank=about.get("rank"),
            fingerprint=about.get("fingerprint", ""),
            step=about.get("step"),
        )

    @property
    def leaving(self) -> list[Node]:
        """Return the nodes on their way out: nearly always none, and asked for each run after each input."""
        if self._leaving is None:
            self._leaving = [n for n in self.state.nodes.values() if n.leaving is not None]
        return self._leaving

    def is_live(self, incident: Incident) -> bool:
        """Whether an incident still asks for something, after what this decision has said of it so far."""
        closed = any(
            isinstance(record, r.IncidentChanged)
            and record.incident == incident.incident
            and record.state in ("resolved", "gave_up")
            for record in self.records
        )
        return incident.is_live and not closed

    def run_of(self, attempt: AttemptId) -> Run:
        """Return the run an attempt belongs to."""
        return self.state.runs[attempt.run]
