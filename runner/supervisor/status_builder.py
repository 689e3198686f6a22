"""The cluster's status, built from the durable state, the ledger and the last heartbeats."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from runner.decide.nodes import spares
from runner.decide.nodes.hardware import recent_hardware_faults
from runner.decide.placement.launch_plans import Preloads, checkpoint_folder, run_folder
from runner.decide.runs.checkpoint_trust import TRUSTED
from runner.decide.state.cluster_state import Incident, Node, PendingDrain, Run, State
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    DrainStatus,
    IncidentStatus,
    NodeStatus,
    RunStatus,
    SparesStatus,
)
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.specs.cluster import ClusterSpec
from runner.history.ledger import Ledger

MAX_INCIDENTS_SHOWN = 100
MAX_LOSSES_SHOWN = 120


@dataclass(slots=True, kw_only=True)
class LastHeartbeats:
    """The last heartbeat of each node: soft, for display only."""

    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    last: dict[AttemptId, StepRecord] = field(default_factory=dict)
    last_at: dict[AttemptId, float] = field(default_factory=dict)
    # Run -> of its steps, newest last, bounded.
    losses: dict[int, deque[float]] = field(default_factory=dict)

    def record(self, heartbeat: Heartbeat, now: float) -> None:
        """Record a heartbeat and the steps in it."""
        self.heartbeats[heartbeat.node], self.at[heartbeat.node] = heartbeat, now
        if heartbeat.attempt is None:
            return
        is_new = heartbeat.attempt not in self.last
        for step in heartbeat.steps or heartbeat.logged_steps:
            last = self.last.get(heartbeat.attempt)
            if (
                last is None
                or step.step > last.step
                or (step.step == last.step and last.loss is None)
            ):
                self.last[heartbeat.attempt], self.last_at[heartbeat.attempt] = step, now
                if step.loss is not None:
                    self._record_loss(heartbeat.attempt.run, step.loss)
        if is_new and heartbeat.attempt in self.last:
            self._drop_before(heartbeat.attempt)

    def _record_loss(self, run: int, loss: float) -> None:
        """Keep the first loss of each step: all nodes of a gang report the same."""
        if run not in self.losses:
            self.losses[run] = deque(maxlen=MAX_LOSSES_SHOWN)
        self.losses[run].append(loss)

    def _drop_before(self, attempt: AttemptId) -> None:
        for old in [name for name in self.last if name.run == attempt.run and name < attempt]:
            del self.last[old], self.last_at[old]


class StatusBuilder:
    """Builds the status of one node or run at a time, so that thousands of them delay no decision."""

    def __init__(
        self,
        state: State,
        cluster: ClusterSpec,
        ledger: Ledger,
        heartbeats: LastHeartbeats,
        now: float,
    ) -> None:
        self._state, self._cluster, self._ledger, self._heartbeats = (
            state,
            cluster,
            ledger,
            heartbeats,
        )
        self._now = now
        self._nodes: list[NodeStatus] = []
        self._runs: list[RunStatus] = []
        self._steps = self._build()

    def build_next(self) -> bool:
        """Build one more node or run; return whether there may be more."""
        return next(self._steps, False)

    def status(self, now: float, about: Mapping[str, object]) -> ClusterStatus:
        """Return what was built so far. `about`: the supervisor's own fields (holder, wall, ...).

        It shares nothing with the state that changes later: another thread encodes it.
        """
        state, cluster = self._state, self._cluster
        incidents = sorted(
            state.incidents.values(), key=lambda incident: -int(incident.incident[1:])
        )
        return ClusterStatus(
            cluster=cluster.name,
            now=now,
            journal_sequence=state.sequence,
            closing=state.closing,
            nodes=tuple(self._nodes),
            runs=tuple(self._runs),
            incidents=tuple(
                _incident(incident, self._ledger) for incident in incidents[:MAX_INCIDENTS_SHOWN]
            ),
            open_actions=tuple(
                f"{name} {item.action.action}: {item.action.reason}"
                for name, item in state.actions.items()
            ),
            pool=_spares(state, cluster),
            domains_down={name: tuple(nodes) for name, nodes in state.domains_down.items()},
            hardware_refused=dict(
                Counter(known.verdict for known in state.hardware.values() if known.verdict)
            ),
            hardware_faults=sum(counting_faults(state, cluster, now).values()),
            store_note=f"silent together: {', '.join(state.correlated_silence)}"
            if state.correlated_silence
            else "",
            metrics_port=cluster.metrics_port,
            decision_failures=state.decision_failures,
            counters=dict(state.counters),
            **about,  # type: ignore[arg-type]  # checked by the dataclass's own construction
        )

    def _build(self) -> Iterator[bool]:
        """Build a node or a run between any two yields."""
        state, heartbeats, now = self._state, self._heartbeats, self._now
        hardware_faults = counting_faults(state, self._cluster, now)
        domains = nearest_domains(self._cluster)
        preloads = Preloads(state)
        warm_for: dict[int, dict[str, Mapping[str, str]]] = {}
        for node in list(state.nodes.values()):
            yield True
            status = _node(
                node,
                heartbeats,
                now,
                hardware_faults=hardware_faults.get(node.hardware, 0),
                domain=domains.get(node.node, ""),
            )
            self._nodes.append(status)
            heartbeat, run = heartbeats.heartbeats.get(node.node), preloads.run_for(node)
            # What its nodes, spares too, have imported.
            if heartbeat is not None and run is not None:
                warm_for.setdefault(run.run, {})[node.node] = heartbeat.warm_versions
        for run in list(state.runs.values()):
            yield True
            apart = _versions_apart(warm_for.get(run.run, {}))
            built = _run(run, self._cluster, self._ledger, heartbeats, now, versions_apart=apart)
            self._runs.append(built)


def build_status(
    state: State,
    cluster: ClusterSpec,
    ledger: Ledger,
    heartbeats: LastHeartbeats,
    *,
    now: float,
    about: Mapping[str, object],
) -> ClusterStatus:
    """Return the whole status; see `StatusBuilder.status`."""
    builder = StatusBuilder(state, cluster, ledger, heartbeats, now)
    while builder.build_next():
        pass
    return builder.status(now, about)


def counting_faults(state: State, cluster: ClusterSpec, now: float) -> dict[str, int]:
    """Return hardware -> its hardware faults that still count, where there are any."""
    counted = {
        name: recent_hardware_faults(known, cluster, now)
        for name, known in state.hardware.items()
        if known.faults
    }
    return {name: num for name, num in counted.items() if num}


def nearest_domains(cluster: ClusterSpec) -> dict[str, str]:
    """Return node -> the nearest failure domain it is in, as "switch s1"."""
    found: dict[str, str] = {}
    for kind, domains in cluster.domains.items():
        for name, nodes in domains.items():
            for node in nodes:
                found.setdefault(node, f"{kind} {name}")
    return found


def _spares(state: State, cluster: ClusterSpec) -> SparesStatus:
    serving = spares.serving(state)
    return SparesStatus(
        spares=spares.num_spares(state),
        low_mark=cluster.spares_low,
        recommended=spares.recommended_spares(cluster, serving) if serving else None,
        low=state.spares_low,
    )


def _drain(leaving: PendingDrain) -> DrainStatus:
    return DrainStatus(
        to=leaving.to,
        since=leaving.since,
        reason=leaving.reason,
        spare=leaving.spare or "",
        by_time=leaving.by_time,
    )


def _node(
    node: Node, heartbeats: LastHeartbeats, now: float, *, hardware_faults: int, domain: str
) -> NodeStatus:
    heartbeat = heartbeats.heartbeats.get(node.node)
    warm = (
        heartbeat if heartbeat and node.state not in ("absent", "lost", "left", "retired") else None
    )
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
        ranks_alive=heartbeat.ranks_alive
        if heartbeat and node.state in ("active", "suspect")
        else (),
        last_heartbeat_seconds_ago=now - heartbeats.at[node.node]
        if node.node in heartbeats.at
        else None,
        reason=node.reason,
        agent_pid=node.pid,
        agent_resident_bytes=heartbeat.agent_resident_bytes if heartbeat else 0,
        warm=warm.warm if warm else "",
        warm_resident_bytes=warm.warm_resident_bytes if warm else 0,
        warm_versions=dict(warm.warm_versions) if warm else {},
        log_bytes_skipped=heartbeat.log_bytes_skipped if heartbeat else 0,
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


def _run(
    run: Run,
    cluster: ClusterSpec,
    ledger: Ledger,
    heartbeats: LastHeartbeats,
    now: float,
    *,
    versions_apart: tuple[str, ...],
) -> RunStatus:
    attempt = run.attempt
    last = heartbeats.last.get(attempt.attempt) if attempt else None
    summary = ledger.summary(run.run, now)
    trusted = run.newest(*TRUSTED)
    steps = (attempt.settings.get("steps") if attempt else None) or run.spec.trainer.get("steps")
    reached = max(
        last.step if last else 0, (attempt.last_step or attempt.resume_step) if attempt else 0
    )
    phases = Counter(
        phase
        for name in (attempt.nodes if attempt else ())
        for phase in _phases(heartbeats, name, run.run)
    )
    return RunStatus(
        run=run.run,
        name=run.spec.name,
        state=run.state,
        reason=run.reason,
        attempt=attempt.attempt if attempt else None,
        attempt_state=attempt.state if attempt else "",
        num_attempts=run.num_attempts,
        nodes=tuple(attempt.nodes) if attempt else (),
        step=reached,
        best_step=max(run.best_step, reached),
        total_steps=steps if isinstance(steps, int) else None,
        phase=max(phases, key=lambda phase: (phases[phase], phase)) if phases else "",
        phase_seconds=now - heartbeats.last_at[attempt.attempt]
        if attempt and attempt.attempt in heartbeats.last_at
        else None,
        last=last,
        recent_losses=tuple(heartbeats.losses.get(run.run, ())),
        first_loss=run.first_loss,
        settings=attempt.settings if attempt else {},
        remedies=run.remedies,
        start_phases=dict(attempt.start) if attempt else {},
        checkpoint_step=trusted.step if trusted else None,
        ettr_ratio=summary.ettr_ratio,
        lost_seconds=dict(summary.lost_seconds),
        folder=run_folder(cluster, run),
        checkpoints=checkpoint_folder(cluster, run),
        preload=run.spec.preload,
        version_mismatches=versions_apart,
        not_forked_reason=attempt.not_forked_reason if attempt else "",
    )


def _phases(heartbeats: LastHeartbeats, node: str, run: int) -> Collection[str]:
    heartbeat = heartbeats.heartbeats.get(node)
    return (
        heartbeat.phases.values()
        if heartbeat and heartbeat.attempt and heartbeat.attempt.run == run
        else ()
    )


def _incident(incident: Incident, ledger: Ledger) -> IncidentStatus:
    account = ledger.incident(incident.incident)
    return IncidentStatus(
        incident=incident.incident,
        state=incident.state,
        fault=incident.fault,
        run=incident.run,
        attempt=incident.attempt,
        node=incident.node,
        rank=incident.rank,
        opened_at=incident.opened_at,
        detected_after_seconds=account.detected_after_seconds
        if account
        else incident.detected_after_seconds,
        recovered_after_seconds=account.recovered_after_seconds if account else None,
        closed_at=incident.closed_at,
        step=incident.step,
        steps_lost=account.steps_lost if account else None,
        cause=incident.cause,
        non_fatal=incident.non_fatal,
        rungs=tuple(incident.rungs_taken),
        evidence=tuple(incident.evidence[-20:]),
        reason=incident.reason,
    )
