"""A decision in the making: reads the state, collects records, hands out ids. It never changes the state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from runner.decide.incidents.conditions import sure_cause
from runner.decide.state.apply_incidents import amend, diagnose, opened_incident
from runner.decide.state.cluster_state import GONE, Attempt, Incident, Node, Run, State
from runner.facts.actions import Action, ActionArgs, NodeTask, PageOperator
from runner.facts.causes import Failure
from runner.facts.faults import Finding, fault_kind
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.runbook import Runbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What decisions follow, fixed as long as a controller runs: the cluster's limits and the runbooks."""

    cluster: ClusterSpec
    runbooks: tuple[Runbook, ...] = ()

    def runbook_for(self, fault: str) -> Runbook | None:
        """Return the page that this fault opens."""
        return next((book for book in self.runbooks if fault in book.faults), None)

    def page_for(self, incident: Incident) -> Runbook | None:
        """Return the page that answers an incident: its cause's, if one is known well enough, else its own fault's.

        A fault that says more than how ranks ended outranks what lines say of it: a probe found it, or the rank itself told by
        its exit code. A page that would leave a gang lying that is down already answers nothing.
        """
        cause = sure_cause(incident) if fault_kind(incident.fault).is_symptom else ""
        for fault in (cause, incident.fault):
            book = self.runbook_for(fault)
            if book is not None and (incident.non_fatal or book.ends_gang):
                return book
        return self.runbook_for(incident.fault)


class Reply(NamedTuple):
    """The first answer to a request; `run` or `node`: what it is about, if that is known."""

    state: r.RequestStateName
    message: str
    run: int | None = None
    node: str = ""


def refused(message: str) -> Reply:
    """Return the answer to a request that asks for what cannot be."""
    return Reply("refused", message)


def _copy(incident: Incident) -> Incident:
    """Copy an incident, with the lists that evidence is added to."""
    lists = (incident.evidence[:], incident.matches[:], incident.failures[:])
    evidence, matches, failures = lists
    return replace(incident, evidence=evidence, matches=matches, failures=failures)


@dataclass(slots=True, kw_only=True)
class Decision:
    """The records of one decision so far, and the counters it has drawn from."""

    state: State
    policy: Policy
    now: float
    records: list[object] = field(default_factory=list)
    # The incident whose next rung a person has approved, and who that is.
    approved: str = ""
    approver: str = ""
    _actions: int = 0
    _incidents: int = 0
    _generations: int = 0
    _leaving: list[Node] | None = None

    def add(self, *records: object) -> None:
        """Put records into the decision, in order."""
        self.records.extend(records)

    def move_node(self, node: str, state: r.NodeStateName, reason: str, **more: Any) -> None:
        """Move a node in its life cycle; `more`: other fields of NodeChanged."""
        self.add(r.NodeChanged(node=node, state=state, reason=reason, **more))

    def move_attempt(
        self, attempt: Attempt, state: r.AttemptStateName, reason: str = "", **more: Any
    ) -> None:
        """Move an attempt in its life cycle; `more`: other fields of AttemptChanged."""
        self.add(r.AttemptChanged(attempt=attempt.attempt, state=state, reason=reason, **more))

    def move_incident(self, incident: Incident, state: str, reason: str) -> None:
        """Move an incident in its life cycle."""
        self.add(r.IncidentChanged(incident=incident.incident, state=state, reason=reason))

    def amend(self, incident: Incident, evidence: str, **more: Any) -> Incident:
        """Add evidence to an incident; return how it will look. `more`: what it corrects, fields of IncidentAmended."""
        record = r.IncidentAmended(incident=incident.incident, evidence=evidence, **more)
        self.add(record)
        amended = _copy(incident)
        amend(amended, record)
        return amended

    def diagnose(self, incident: Incident, record: r.IncidentDiagnosed) -> Incident:
        """Record the cause of an incident; return how it will look."""
        self.add(record)
        diagnosed = _copy(incident)
        diagnose(diagnosed, record)
        return diagnosed

    def generation(self) -> int:
        """Draw the next generation."""
        self._generations += 1
        return self.state.next_generation + self._generations - 1

    def issue(
        self,
        args: ActionArgs,
        reason: str,
        *,
        run: int | None = None,
        incident: str | None = None,
        deadline_seconds: float | None = None,
    ) -> None:
        """Decide an action. Without a deadline it has the cluster's."""
        limit = self.policy.cluster.action_deadline_seconds
        action = Action(
            id=f"a{self.state.next_action + self._actions}",
            action=args.kind,
            reason=reason,
            args=args.plain(),
            run=run,
            incident=incident,
            deadline_seconds=limit if deadline_seconds is None else deadline_seconds,
        )
        self._actions += 1
        self.add(r.ActionIssued(action=action))

    def propose(self, incident: Incident, run: int, **fields: Any) -> str:
        """Propose a rung; `fields`: of ActionProposed. Return the action's id."""
        name = f"a{self.state.next_action + self._actions}"
        self._actions += 1
        self.add(p.ActionProposed(action=name, run=run, incident=incident.incident, **fields))
        return name

    def page(
        self,
        message: str,
        *,
        run: int | None = None,
        incident: str | None = None,
        is_new: bool = False,
        is_urgent: bool = False,
        to: str = "",
    ) -> None:
        """Page an operator; about an incident that one looks at already, only what is new. `to`: a person or team.

        What is new waits for a person, so it is urgent; `is_urgent`: other things are, too.
        """
        known = self.state.incidents.get(incident or "")
        if known is not None and known.acknowledged_at is not None and not is_new:
            return
        book = self.policy.page_for(known) if known is not None and not to else None
        work = PageOperator(
            message=message,
            to=to or (book.pages if book else "") or None,
            urgent=is_new or is_urgent or None,
        )
        self.issue(work, message, run=run, incident=incident)

    def ask_ranks(
        self,
        attempt: Attempt,
        args: Mapping[str, Any],
        reason: str,
        *,
        deadline_seconds: float | None = None,
    ) -> None:
        """Pass a request to the ranks of an attempt, through each of its nodes."""
        generation, run = attempt.generation, attempt.attempt.run
        for name in attempt.nodes:
            work = NodeTask(node=name, task="ask_ranks", generation=generation, args=args)
            self.issue(work, reason, run=run, deadline_seconds=deadline_seconds)

    def clear_node(self, node: Node, *, by_probe: bool = False) -> None:
        """Record that the ranks which may run on a node do not, if any may."""
        if node.ranks_may_run is not None:
            confirmed_by: Literal["agent", "probe"] = "probe" if by_probe else "agent"
            attempt = node.ranks_may_run
            self.add(r.NodeCleared(node=node.node, attempt=attempt, confirmed_by=confirmed_by))

    def answer(self, asked: r.RequestRecorded, state: r.RequestStateName, message: str) -> None:
        """Record the outcome of an open request."""
        self.add(replace(asked, state=state, message=message))

    def open_incident(  # noqa: PLR0913 - what is known of it
        self,
        finding: Finding,
        *,
        run: int | None = None,
        fingerprint: str = "",
        step: int | None = None,
        non_fatal: bool = False,
        answer_at: float | None = None,
        failure: Failure | None = None,
    ) -> Incident:
        """Open an incident; return how it will look once applied, for the ladder to work on."""
        on_trial = non_fatal and fault_kind(finding.fault).on_trial
        record = r.IncidentOpened(
            incident=f"i{self.state.next_incident + self._incidents}",
            fault=finding.fault,
            evidence=finding.evidence,
            run=run,
            attempt=finding.attempt,
            node=finding.node,
            rank=finding.rank,
            fingerprint=fingerprint,
            step=step,
            detected_after_seconds=finding.silent_seconds,
            non_fatal=non_fatal,
            onset=finding.step if non_fatal else None,
            on_trial=on_trial,
            before=finding.before if on_trial else None,
            answer_at=answer_at,
            failure=failure,
            suspects=finding.suspects,
        )
        self._incidents += 1
        self.add(record)
        return opened_incident(record, self.now)

    @property
    def leaving(self) -> list[Node]:
        """Return the nodes on their way out: nearly always none, and asked for each run after each input."""
        if self._leaving is None:
            self._leaving = [n for n in self.state.nodes.values() if n.pending_drain is not None]
        return self._leaving

    def is_live(self, incident: Incident) -> bool:
        """Whether an incident still asks for something, after the records of this decision so far."""
        moved = [x for x in self.records if isinstance(x, r.IncidentChanged)]
        closed = [x.incident for x in moved if x.state in ("resolved", "gave_up")]
        return incident.is_live and incident.incident not in closed

    def is_in_service(self, node: Node) -> bool:
        """Whether a node is neither lost nor out, after the records of this decision so far."""
        moved = [x for x in self.records if isinstance(x, r.NodeChanged) and x.node == node.node]
        return (moved[-1] if moved else node).state not in GONE

    def run_of(self, attempt: AttemptId) -> Run:
        """Return the run an attempt belongs to."""
        return self.state.runs[attempt.run]
