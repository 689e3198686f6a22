"""Derived state: what follows from a state as it is. What to watch, when to wake, and whether there is anything to decide at all.

Worked out when it is asked for, and kept until an entry may have changed it: hundreds of runs mark their progress again and
again, and gangs of thousands of nodes end, and looking at every node and run each time would be most of the work.
"""

import math

from msgspec.structs import replace

from runner.decide.incidents import answers, pending_evidence
from runner.decide.nodes import failure_domains, probes
from runner.decide.nodes.checks import spare_checks
from runner.decide.nodes.predicates import is_suspect
from runner.decide.runs import attempts, resumes
from runner.decide.state.cluster_state import GONE, LAUNCHED, Attempt, Run, State
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.placeholders import remedies_of_command
from runner.facts.trials import Trial
from runner.facts.watch import Resumed, WatchedAttempt, WatchList

# States of nodes that must send heartbeats.
WATCHED = ("joining", "checking", "spare", "active", "suspect")

# What of a gang may change while it is watched: see `WatchedAttempt`.
_Changing = tuple[
    float | None, tuple[bool, bool], bool, bool, bool, tuple[Trial, ...], Resumed | None
]


class DerivedState:
    """Looks at one state, which others change: they say so before they do."""

    def __init__(self, state: State, cluster: ClusterSpec) -> None:
        self._state, self._cluster = state, cluster
        # A `Settle` led to nothing, and so did every input since.
        self.is_settled = False
        # None: to be worked out
        self._watch: WatchList | None = None
        self._watched_before = WatchList()
        self._gangs_before: dict[int, tuple[AttemptId, _Changing, WatchedAttempt]] = {}
        # None: to be worked out
        self._wakes: tuple[float | None] | None = None

    def prepare(self, entry: r.JournalEntry) -> None:
        """Keep what is known only if the entry, which is about to be applied, cannot change it."""
        if not (self.is_settled and self._leads_to_nothing(entry)):
            self._watch = self._wakes = None
            self.is_settled = False

    def wake_at(self) -> float | None:
        """Return the earliest time at which something is due that no signal will announce; it may have passed."""
        if self._wakes is None:
            self._wakes = (self._compute_wake_at(),)
        return self._wakes[0]

    def watch(self) -> WatchList:
        """Return what the detectors are to watch now: the same object for as long as the state is the same.

        Where only runs have changed, its nodes and their instance ids are the same objects as before.
        """
        if self._watch is None:
            watch, before = self._compute_watch(), self._watched_before
            if watch.nodes == before.nodes and watch.instance_ids == before.instance_ids:
                watch = replace(watch, nodes=before.nodes, instance_ids=before.instance_ids)
            self._watch = self._watched_before = watch
        return self._watch

    def _compute_wake_at(self) -> float | None:
        times: list[float] = []
        cluster = self._cluster
        for run in self._state.runs.values():
            attempt = run.attempt
            if attempt is None:
                continue
            times += answers.due_at(self._state, run)
            numeric = self._state.incidents.get(run.trial_incident or "")
            if numeric is not None and numeric.answer_at is not None:
                times.append(numeric.answer_at)
            if (judge_at := pending_evidence.due_at(attempt)) is not None:
                times.append(judge_at)
            if attempt.state == "stopping":
                since = attempt.stopping_at or 0.0
                times.append(since + cluster.hard_cap_seconds)
                for node in (self._state.nodes[name] for name in attempt.nodes):
                    times.append(node.probed_at + cluster.heartbeat_timeout_seconds)
                    delay_seconds = node.grace_seconds + node.stacks_seconds
                    times.append(since + delay_seconds + 2 * cluster.kill_wait_seconds)
            elif attempt.state == "launching":
                limit = attempts.launch_limit(self._state, cluster, run)
                times += [limit] if limit < math.inf else []
            elif attempt.state == "running" and run.incident is not None:
                if attempt.up_since is not None:
                    times.append(attempt.up_since + run.spec.steady_seconds)
            elif attempt.state == "stop_requested":
                times.append((attempt.stop_requested_at or 0.0) + run.spec.stop_grace_seconds)
        for node in self._state.nodes.values():
            if is_suspect(node):
                times.append(probes.next_probe_at(node, cluster))
            if node.check_after and (node.state == "checking" or node.check_awaits):
                times.append(node.check_after)
            if node.pending_drain is not None and node.pending_drain.by_time is not None:
                times.append(node.pending_drain.by_time)
        times += failure_domains.recovery_deadlines(self._state)
        if (check_at := spare_checks.next_due(self._state, cluster)) is not None:
            times.append(check_at)
        # What the state itself leads to was settled when it came to `now`. An overdue action still waits for a Tick.
        due = [time for time in times if time > self._state.now]
        due += [
            item.issued_at + item.action.deadline_seconds for item in self._state.actions.values()
        ]
        return min(due, default=None)

    def _compute_watch(self) -> WatchList:
        nodes, lost, left, instance_ids = [], [], [], {}
        for node in self._state.nodes.values():
            if node.state in WATCHED:
                nodes.append(node.node)
            # A new supervisor's detectors never found the suspects silent; so they, too, are named as worth a word.
            if node.state in ("lost", "suspect"):
                lost.append(node.node)
            elif node.state == "left":
                left.append(node.node)
            if node.instance_id:
                instance_ids[node.node] = node.instance_id
        incidents = resumes.incidents_with_onset(self._state)
        watched = [
            self._watched(
                run, run.attempt, resumes.resumed(run, run.attempt, incidents.get(run.run, ()))
            )
            for run in self._state.runs.values()
            if run.attempt is not None and run.attempt.state in LAUNCHED
        ]
        return WatchList(
            nodes=tuple(nodes),
            lost_nodes=tuple(lost),
            left_nodes=tuple(left),
            instance_ids=instance_ids,
            domains=self._cluster.domains,
            attempts=tuple(watched),
        )

    def _watched(self, run: Run, attempt: Attempt, resumed: Resumed | None) -> WatchedAttempt:
        """Return what there is to watch of a gang: the same as before, if it is."""
        before = self._gangs_before.get(run.run)
        has_stepped, is_ending = attempt.last_step is not None, bool(attempt.exit_codes)
        is_timed, up_since = bool(attempt.start), attempt.up_since
        incident = self._state.incidents.get(run.trial_incident or "")
        trials = (incident.trial,) if incident is not None and incident.trial is not None else ()
        source = (run.reports_steps, run.prints_steps)
        changing = (up_since, source, has_stepped, is_ending, is_timed, trials, resumed)
        if before is not None and before[0] == attempt.attempt and before[1] == changing:
            return before[2]
        watched = WatchedAttempt(
            attempt=attempt.attempt,
            nodes=tuple(attempt.nodes),
            since=up_since,
            start_seconds=run.spec.start_seconds,
            progress_seconds=run.spec.progress_seconds,
            reports_steps=run.reports_steps,
            prints_steps=run.prints_steps,
            has_stepped=has_stepped,
            reads_rate="lr_factor" in remedies_of_command(run.spec.command),
            is_ending=is_ending,
            is_timed=is_timed,
            pipeline=run.spec.pipeline,
            num_ranks=run.spec.world_size,
            planned=run.spec.planned,
            trials=trials,
            resumed=resumed,
        )
        self._gangs_before[run.run] = (attempt.attempt, changing, watched)
        return watched

    def _leads_to_nothing(self, entry: r.JournalEntry) -> bool:
        """Whether an entry shows, before anything falls due, only that gangs go on: no process waits for that.

        Gangs that step have made more steps; a gang that starts or ends has one node less to wait for, and others still.
        """
        if type(entry.input) not in (s.Progress, s.RanksStarted, s.RanksTerminated):
            return False
        for record in entry.records:
            if type(record) is r.StepsAdvanced:
                attempt = self._state.attempt_of(record.attempt)
                if attempt is None or attempt.last_step is None:
                    return False
            elif type(record) is r.NodeLaunched:
                if not self._are_others_starting(record):
                    return False
            elif type(record) is not r.NodeCleared or not self._are_others_pending(record):
                return False
        wake_at = self.wake_at()
        return wake_at is None or entry.now < wake_at

    def _are_others_starting(self, launched: r.NodeLaunched) -> bool:
        """Whether a launched attempt has to wait for other nodes."""
        attempt = self._state.attempt_of(launched.attempt)
        if attempt is None or attempt.state != "launching":
            return False
        is_new = launched.node not in attempt.launched
        return len(attempt.launched) + is_new < len(attempt.nodes)

    def _are_others_pending(self, cleared: r.NodeCleared) -> bool:
        """Whether an ending attempt has to wait for other nodes, and no run wants this one."""
        attempt, nodes = self._state.attempt_of(cleared.attempt), self._state.nodes
        node = nodes[cleared.node]
        if attempt is None or attempt.state != "stopping":
            return False
        others = (run for run in self._state.runs.values() if run.run != attempt.attempt.run)
        if node.pending_drain or node.state != "active" or any(map(_wants_nodes, others)):
            return False
        return any(
            name != cleared.node
            and nodes[name].ranks_may_run == cleared.attempt
            and nodes[name].state not in GONE
            for name in reversed(attempt.nodes)
        )


def _wants_nodes(run: Run) -> bool:
    """Whether a run is between two attempts, so that a node which comes free may be what it waits for."""
    has_them = run.attempt is not None and run.attempt.state in (*LAUNCHED, "stopping")
    return run.is_wanted and not has_them
