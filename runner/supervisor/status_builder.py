"""The cluster's status, built from the durable state, the ledger and the last heartbeats."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from runner.decide.incidents.consent import because, rungs_today, who
from runner.decide.nodes import spares
from runner.decide.nodes.hardware import recent_hardware_faults
from runner.decide.placement.launch_plans import Preloads, checkpoint_folder, run_folder
from runner.decide.runs.checkpoint_trust import TRUSTED
from runner.decide.state.cluster_state import (
    Incident,
    Node,
    PendingDrain,
    Run,
    State,
    shared_fields,
)
from runner.decide.state.people import PendingRequest
from runner.facts.checkpoints import Trust
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import summary as conditions_summary
from runner.facts.messages.cluster_status import (
    MAX_CLOCK_SECONDS,
    CheckStatus,
    ClusterStatus,
    DrainStatus,
    HoldStatus,
    IncidentStatus,
    NodeChecks,
    NodeStatus,
    PhaseSeconds,
    ProposalStatus,
    RunForecast,
    RunSpending,
    RunStatus,
    RunTotals,
    SparesStatus,
)
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.specs.cluster import ClusterSpec
from runner.history.forecast import forecast, spending
from runner.history.ledger import Ledger, RunSummary
from runner.history.run_counters import RunCounters
from runner.load.deadlines import deadline_seconds

# How far a checkpoint may be trusted, the least first.
LEVELS = (Trust.COMMITTED, *TRUSTED)
MAX_INCIDENTS_SHOWN = 100
MAX_LOSSES_SHOWN = 120
MAX_REMEDIES_SHOWN = 50
# Of checks, of all nodes: 10 MB in the store, and as many rows of metrics; chosen.
MAX_VALUES_SHOWN = 50_000


@dataclass(slots=True, kw_only=True)
class LastHeartbeats:
    """The last heartbeat of each node, the last step of each attempt, and the newest losses of each run: soft, for display."""

    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    # Agents send these now and then: what each node's warm process last reported while it was ready.
    warm_versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    # Of its clock before ours.
    ahead_seconds: dict[str, float] = field(default_factory=dict)
    last: dict[AttemptId, StepRecord] = field(default_factory=dict)
    last_at: dict[AttemptId, float] = field(default_factory=dict)
    losses: defaultdict[int, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=MAX_LOSSES_SHOWN))
    )

    def record(self, heartbeat: Heartbeat, now: float) -> None:
        """Record a heartbeat and the steps in it."""
        self._record_warm(heartbeat)
        self.heartbeats[heartbeat.node], self.at[heartbeat.node] = heartbeat, now
        ahead = heartbeat.sent_at - time.time() if heartbeat.sent_at else 0.0
        self.ahead_seconds[heartbeat.node] = ahead if abs(ahead) > MAX_CLOCK_SECONDS else 0.0
        attempt = heartbeat.attempt
        if attempt is None:
            return
        is_new = attempt not in self.last
        furthest = heartbeat.printed_step
        for step in heartbeat.steps or heartbeat.logged_steps:
            if furthest is not None and step.step > furthest:
                # A number that is no step, as far as is known.
                continue
            last = self.last.get(attempt)
            adds_loss = last is not None and step.step == last.step and last.loss is None
            if last is None or step.step > last.step or adds_loss:
                self.last[attempt], self.last_at[attempt] = step, now
                # The first of each step: all nodes of a gang report the same.
                if step.loss is not None:
                    self.losses[attempt.run].append(step.loss)
        if is_new and attempt in self.last:
            for old in [name for name in self.last if name.run == attempt.run and name < attempt]:
                del self.last[old], self.last_at[old]

    def _record_warm(self, heartbeat: Heartbeat) -> None:
        """Keep the versions of a warm process until it reports others, is another agent's, or is not ready."""
        node, before = heartbeat.node, self.heartbeats.get(heartbeat.node)
        if heartbeat.warm_versions:
            self.warm_versions[node] = heartbeat.warm_versions
        elif (
            heartbeat.warm != "ready"
            or before is None
            or before.instance_id != heartbeat.instance_id
        ):
            self.warm_versions.pop(node, None)


class StatusBuilder:
    """Builds the status of one node or run at a time, so that thousands of them delay no decision."""

    def __init__(
        self,
        state: State,
        cluster: ClusterSpec,
        ledger: Ledger,
        heartbeats: LastHeartbeats,
        now: float,
        *,
        rungs_per_day: Mapping[str, int] | None = None,
    ) -> None:
        """`rungs_per_day`: page -> its limit, of pages that have one."""
        self._rungs_per_day = rungs_per_day or {}
        self._state, self._cluster, self._ledger = state, cluster, ledger
        self._heartbeats, self._now = heartbeats, now
        self._nodes: list[NodeStatus] = []
        self._runs: list[RunStatus] = []
        self._checks: list[NodeChecks] = []
        self._num_values = self._num_left_out = 0
        self._steps = self._build()

    def build_next(self) -> bool:
        """Build one more node or run; return whether there may be more."""
        return next(self._steps, False)

    def status(
        self, now: float, about: Mapping[str, object], page_notes: Mapping[str, str] | None = None
    ) -> ClusterStatus:
        """Build what is left and return the whole. `about`: the supervisor's own fields (holder, wall, ...).

        `page_notes`: incident -> how far the newest page about it got.

        It shares nothing with the state that changes later: another thread encodes it.
        """
        while self.build_next():
            pass
        state, cluster = self._state, self._cluster
        incidents = sorted(state.incidents.values(), key=lambda each: -int(each.incident[1:]))
        verdicts = Counter[str](known.verdict for known in state.hardware.values() if known.verdict)
        silent = ", ".join(state.correlated_silence)
        return ClusterStatus(
            cluster=cluster.name,
            now=now,
            journal_sequence=state.sequence,
            closing=state.closing,
            nodes=tuple(self._nodes),
            runs=tuple(self._runs),
            incidents=tuple(
                self._incident(incident, (page_notes or {}).get(incident.incident, ""))
                for incident in incidents[:MAX_INCIDENTS_SHOWN]
            ),
            open_actions=tuple(
                f"{name} {item.action.action}: {item.action.reason}"
                for name, item in state.actions.items()
            ),
            proposals=tuple(
                ProposalStatus(**shared_fields(known, ProposalStatus))
                for known in state.proposals.values()
                if known.state == "proposed"
            ),
            pool=self._spares(),
            domains_down={name: tuple(nodes) for name, nodes in state.domains_down.items()},
            hardware_refused=dict(verdicts),
            hardware_faults=sum(self._faults(now).values()),
            store_note=f"silent together: {silent}" if silent else "",
            metrics_port=cluster.metrics_port,
            decision_failures=state.decision_failures,
            counters=dict(state.counters),
            **about,  # type: ignore[arg-type]  # checked by the dataclass's own construction
        )

    def check_status(self) -> CheckStatus:
        """Return the results of checks, of the nodes that are built so far."""
        return CheckStatus(
            cluster=self._cluster.name, nodes=tuple(self._checks), num_left_out=self._num_left_out
        )

    def _build(self) -> Iterator[bool]:
        """Build a node or a run between any two yields."""
        state = self._state
        hardware_faults = self._faults(self._now)
        domains = _nearest_domains(self._cluster)
        preloads = Preloads(state)
        warm_for: dict[int, dict[str, Mapping[str, str]]] = {}
        for node in list(state.nodes.values()):
            yield True
            num, domain = hardware_faults.get(node.hardware, 0), domains.get(node.node, "")
            self._nodes.append(self._node(node, hardware_faults=num, domain=domain))
            self._add_checks(node)
            heartbeat, run = self._heartbeats.heartbeats.get(node.node), preloads.run_for(node)
            # What its nodes, spares too, have imported.
            if heartbeat is not None and run is not None:
                versions = self._heartbeats.warm_versions.get(node.node, {})
                warm_for.setdefault(run.run, {})[node.node] = versions
        for run in list(state.runs.values()):
            yield True
            self._runs.append(self._run(run, warm_for.get(run.run, {})))

    def _faults(self, now: float) -> dict[str, int]:
        """Return hardware -> its hardware faults that still count."""
        return {
            name: recent_hardware_faults(known, self._cluster, now)
            for name, known in self._state.hardware.items()
            if known.faults
        }

    def _spares(self) -> SparesStatus:
        state, cluster = self._state, self._cluster
        serving = spares.serving(state)
        return SparesStatus(
            spares=spares.num_spares(state),
            low_mark=cluster.spares_low,
            recommended=spares.recommended_spares(cluster, serving) if serving else None,
            low=state.spares_low,
        )

    def _node(self, node: Node, *, hardware_faults: int, domain: str) -> NodeStatus:
        heartbeat = self._heartbeats.heartbeats.get(node.node)
        is_gone = node.state in ("absent", "lost", "left", "retired")
        warm = None if is_gone else heartbeat
        has_ranks = node.state in ("active", "suspect")
        at = self._heartbeats.at.get(node.node)
        return NodeStatus(
            node=node.node,
            state=node.state,
            since=node.since or None,
            hardware=node.hardware,
            hardware_faults=hardware_faults,
            domain=domain,
            domain_down=node.domain_down,
            pending_drain=_drain(node.pending_drain) if node.pending_drain is not None else None,
            slots=node.slots,
            address=node.address,
            attempt=node.attempt,
            ranks_alive=heartbeat.ranks_alive if heartbeat and has_ranks else (),
            last_heartbeat_seconds_ago=None if at is None else self._now - at,
            reason=node.reason,
            shortage=node.checked.shortage if node.checked is not None else "",
            agent_pid=node.pid,
            agent_resident_bytes=heartbeat.agent_resident_bytes if heartbeat else 0,
            warm=warm.warm if warm else "",
            warm_resident_bytes=warm.warm_resident_bytes if warm else 0,
            warm_versions=dict(self._heartbeats.warm_versions.get(node.node, {})) if warm else {},
            log_bytes_skipped=heartbeat.log_bytes_skipped if heartbeat else 0,
            clock_ahead_seconds=self._heartbeats.ahead_seconds.get(node.node, 0.0),
        )

    def _add_checks(self, node: Node) -> None:
        hardware = self._state.hardware.get(node.hardware)
        values = tuple(hardware.values) if hardware is not None else ()
        if not (node.check_outcomes or values):
            return
        if self._num_values + len(values) > MAX_VALUES_SHOWN:
            self._num_left_out += len(values)
            values = ()
        self._num_values += len(values)
        self._checks.append(
            NodeChecks(
                node=node.node,
                outcomes=tuple(node.check_outcomes),
                hardware_class=hardware.hardware_class if hardware is not None else "",
                measured_at=hardware.measured_at if hardware is not None else None,
                num_behind=len(hardware.behind) if hardware is not None else 0,
                num_values=len(values),
                values=values,
            )
        )

    def _run(self, run: Run, versions: Mapping[str, Mapping[str, str]]) -> RunStatus:
        """`versions`: node -> what its warm process imported."""
        attempt, heartbeats = run.attempt, self._heartbeats
        last = heartbeats.last.get(attempt.attempt) if attempt else None
        summary = self._ledger.summary(run.run, self._now)
        trusted = run.newest(*TRUSTED)
        total_steps = _total_steps(run)
        reached = max(
            last.step if last else 0, (attempt.last_step or attempt.resume_step) if attempt else 0
        )
        last_at = heartbeats.last_at.get(attempt.attempt) if attempt else None
        expected, used = self._forecast(run, summary, step=reached, total_steps=total_steps)
        phases: Counter[str] = Counter()
        for name in attempt.nodes if attempt else ():
            heartbeat = heartbeats.heartbeats.get(name)
            if heartbeat and heartbeat.attempt and heartbeat.attempt.run == run.run:
                phases.update(heartbeat.phases.values())
        return RunStatus(
            run=run.run,
            name=run.spec.name,
            state=run.state,
            reason=_reason(run, self._now),
            retry_at=run.retry_at,
            attempt=attempt.attempt if attempt else None,
            attempt_state=attempt.state if attempt else "",
            num_attempts=run.num_attempts,
            nodes=tuple(attempt.nodes) if attempt else (),
            step=reached,
            best_step=max(run.best_step, reached),
            total_steps=total_steps,
            phase=max(phases, key=lambda phase: (phases[phase], phase)) if phases else "",
            phase_seconds=None if last_at is None else self._now - last_at,
            last=last,
            recent_losses=tuple(heartbeats.losses.get(run.run, ())),
            first_loss=run.first_loss,
            settings=attempt.settings if attempt else {},
            remedies=run.remedies,
            metric_notes=tuple(
                f"{note.fault} from step {note.step} on: {note.evidence}"
                for note in run.metric_notes
            ),
            applied_remedies=tuple(run.applied_remedies[-MAX_REMEDIES_SHOWN:]),
            start_phases=dict(attempt.start) if attempt else {},
            checkpoint_step=trusted.step if trusted else None,
            lost_steps=summary.lost_steps,
            ettr_ratio=summary.ettr_ratio,
            ettr_hour_ratio=summary.ettr_hour_ratio,
            ettr_day_ratio=summary.ettr_day_ratio,
            totals=_totals(summary, self._ledger.account(run.run).counters),
            checkpoints_by_trust=_by_trust(
                run, has_folder=bool(checkpoint_folder(self._cluster, run))
            ),
            checkpoint_age_seconds=self._checkpoint_ages(run),
            attempts_left=max(
                0, run.spec.max_attempts_without_progress - run.attempts_without_progress
            ),
            rungs_left={
                page: max(0, limit - len(rungs_today(run, page, self._now)))
                for page, limit in self._rungs_per_day.items()
                if page in run.page_times
            },
            lost_seconds=dict(summary.lost_seconds),
            folder=run_folder(self._cluster, run),
            checkpoints=checkpoint_folder(self._cluster, run),
            preload=run.spec.preload,
            version_mismatches=_versions_apart(versions),
            not_forked_reason=attempt.not_forked_reason if attempt else "",
            hold=HoldStatus(**shared_fields(run.hold, HoldStatus)) if run.hold else None,
            open_requests=tuple(map(_pending, run.pending_requests)),
            mode=run.spec.mode or self._cluster.mode,
            runs_with=conditions_summary(run.conditions) if run.conditions is not None else {},
            forecast=expected,
            spending=used,
        )

    def _forecast(
        self, run: Run, summary: RunSummary, *, step: int, total_steps: int | None
    ) -> tuple[RunForecast, RunSpending]:
        """Say when a run will be done, and what it uses."""
        spec, now = run.spec, self._now
        expected = forecast(
            self._ledger.account(run.run),
            now=now,
            step=step,
            total_steps=total_steps,
            deadline=deadline_seconds(spec.deadline),
        )
        used = spending(
            summary,
            spec.world_size,
            rate=spec.cost_rate or None,
            budget=spec.compute_budget or None,
            seconds_left=None if expected.ends_at is None else expected.ends_at - now,
        )
        return expected, used

    def _checkpoint_ages(self, run: Run) -> dict[str, float]:
        """Return level of trust -> seconds since the seal of the newest checkpoint that is trusted at least so far."""
        if run.ended_at is not None:
            return {}
        times, found = self._ledger.account(run.run).checkpoint_times, dict[str, float]()
        for known in reversed(run.checkpoints):
            sealed_at = times.get(known.path)
            if sealed_at is None or run.is_set_aside(known):
                continue
            for level in LEVELS:
                if level not in found and known.is_at_least(level):
                    found[level.value] = max(0.0, self._now - sealed_at)
        return found

    def _incident(self, incident: Incident, page_note: str) -> IncidentStatus:
        account = self._ledger.incident(incident.incident)
        known = account or incident
        return IncidentStatus(
            incident=incident.incident,
            state=incident.state,
            fault=incident.fault,
            run=incident.run,
            attempt=incident.attempt,
            node=incident.node,
            rank=incident.rank,
            opened_at=incident.opened_at,
            detected_after_seconds=known.detected_after_seconds,
            recovered_after_seconds=account.recovered_after_seconds if account else None,
            closed_at=incident.closed_at,
            step=incident.step,
            steps_lost=account.steps_lost if account else None,
            cause=incident.cause,
            non_fatal=incident.non_fatal,
            on_trial=incident.on_trial,
            rungs=tuple(incident.rungs_taken),
            evidence=tuple(incident.evidence[-20:]),
            reason=incident.reason,
            version=incident.version,
            events=tuple(f"{event.version}: {event.text}" for event in incident.events),
            acknowledged_by=incident.acknowledged_by
            or ("a person" if incident.acknowledged_at is not None else ""),
            page=page_note,
        )


def _totals(summary: RunSummary, counters: RunCounters) -> RunTotals:
    return RunTotals(
        productive_seconds=summary.productive_seconds_total,
        lost_seconds=dict(summary.lost_seconds_total),
        steps=counters.steps,
        tokens=counters.tokens,
        skipped_steps=counters.skipped_steps,
        restarts=dict(counters.restarts),
        recovery={
            phase: PhaseSeconds(counts=tuple(each.counts), total_seconds=each.total_seconds)
            for phase, each in counters.phases.items()
        },
    )


def _by_trust(run: Run, *, has_folder: bool) -> dict[str, int]:
    """Count checkpoints by trust; of a run that has no folder for them and has sealed none, return nothing."""
    left = [known for known in run.checkpoints if not run.is_set_aside(known)]
    if not left and not has_folder:
        return {}
    counts = Counter(known.trust for known in left)
    return {trust.value: counts[trust] for trust in Trust}


def _pending(pending: PendingRequest) -> str:
    return f"{pending.request} {pending.kind.replace('_', ' ')}, by {who(pending.by)}{because(pending.reason)}"


def _nearest_domains(cluster: ClusterSpec) -> dict[str, str]:
    """Return node -> the nearest failure domain it is in, as "switch s1"."""
    found: dict[str, str] = {}
    for kind, domains in cluster.domains.items():
        for name, nodes in domains.items():
            for node in nodes:
                found.setdefault(node, f"{kind} {name}")
    return found


def _drain(leaving: PendingDrain) -> DrainStatus:
    to, since, spare = leaving.to, leaving.since, leaving.spare or ""
    return DrainStatus(
        to=to, since=since, reason=leaving.reason, spare=spare, by_time=leaving.by_time
    )


def _versions_apart(found: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Name the nodes (node -> versions) that would run ranks with another Python or library than most."""
    names = {name: None for versions in found.values() for name in versions}
    apart = []
    for name in names:
        counts = Counter(versions[name] for versions in found.values() if name in versions)
        usual = counts.most_common(1)[0][0]
        apart += [
            f"{node}: {name} {versions[name]}, most have {usual}"
            for node, versions in found.items()
            if versions.get(name, usual) != usual
        ]
    return tuple(apart)


def _total_steps(run: Run) -> int | None:
    """Return the step with which a run is done: what its ranks read back, else what its file says; None if neither does."""
    reported = run.attempt.settings.get("steps") if run.attempt else None
    for steps in (reported, run.spec.total_steps, run.spec.trainer.get("steps")):
        if isinstance(steps, int) and steps > 0:
            return steps
    return None


def _reason(run: Run, now: float) -> str:
    """Return why a run is as it is: what its next attempt waits for, if it does."""
    is_early = run.retry_at is not None and now < run.retry_at
    return run.retry_reason if is_early and run.is_wanted else run.reason
