"""Launch plans: whether a node can run ranks of a run, and what it launches. `allocation` chooses the nodes."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from runner.decide.state.cluster_state import Attempt, Node, Run, State
from runner.facts.contract import ANY_DATA
from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Assignment, LaunchPlan, PreloadPlan, spec_hash
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.programs import module_command
from runner.facts.specs.run import RunSpec


def is_usable(state: State, node: Node, spec: RunSpec) -> bool:
    """Whether a node can run ranks of this run now: in service, idle, confirmed clear, large enough, not leaving."""
    free = node.attempt is None and node.ranks_may_run is None and node.pending_drain is None
    return node.state in ("spare", "active") and free and node.slots >= spec.ranks_per_node


def run_folder(cluster: ClusterSpec, run: Run) -> str:
    """Return the folder that holds a run's attempts and, for the built-in trainer, its checkpoints."""
    return f"{cluster.state}/runs/{run.run}-{run.spec.name}"


def output_folder(cluster: ClusterSpec, run: Run, attempt: AttemptId) -> str:
    """Return the folder of an attempt's output and, if its ranks hung, their stacks."""
    return f"{run_folder(cluster, run)}/attempts/{attempt}"


def checkpoint_folder(cluster: ClusterSpec, run: Run) -> str:
    """Return where a run's checkpoints are, or "" for a command that keeps its own.

    By default the folder goes by the run's name, not its number: a run started again goes on from where it was.
    """
    if run.spec.checkpoints:
        return run.spec.checkpoints
    return f"{cluster.state}/checkpoints/{run.spec.name}" if run.spec.trainer else ""


def saves_folder(cluster: ClusterSpec, run: Run) -> str:
    """Return where a command's own checkpoints are looked for, or "" where none are."""
    if not run.spec.command or run.spec.checkpoint_format == "none":
        return ""
    folder = checkpoint_folder(cluster, run)
    return (run.spec.saves or folder) if folder else ""


def command_of(spec: RunSpec) -> tuple[str, ...]:
    """Return the command of a rank, with its placeholders."""
    if spec.command:
        return spec.command
    plain = json.dumps(_plain(spec.trainer), separators=(",", ":"))
    settings = plain.replace("{", "{{").replace("}", "}}")
    return module_command("trainer", "--settings-json", settings, python="{python}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def assignment_of(
    state: State,
    cluster: ClusterSpec,
    node: Node,
    *,
    preloads: "Preloads",
    plans: "Plans | None" = None,
) -> Assignment:
    """Return the full content of the node's register, so that publishing twice is harmless.

    `preloads` and `plans` are those of `state`, made once for many nodes.
    """
    imports_for = preloads.run_for(node)
    assignment = Assignment(
        node=node.node,
        generation=node.generation,
        warm=_warm_plan(cluster, imports_for) if imports_for is not None else None,
        instance_id=node.instance_id,
    )
    attempt = state.attempt_of(node.attempt)
    if attempt is not None:
        run = state.runs[attempt.attempt.run]
        plan = (plans or Plans(cluster)).plan_of(run, attempt, node.node)
        return replace(assignment, plan=plan)
    return replace(
        assignment,
        attempt=node.ranks_may_run,
        grace_seconds=node.grace_seconds,
        stacks_seconds=node.stacks_seconds,
    )


class Plans:
    """What each node of a gang launches in one state. All except the node's rank is computed once for a gang."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        self._known: dict[AttemptId, tuple[LaunchPlan, dict[str, int]]] = {}

    def plan_of(self, run: Run, attempt: Attempt, node: str) -> LaunchPlan:
        """Return the plan of a node of the run's current attempt."""
        if attempt.attempt not in self._known:
            places = {name: place for place, name in enumerate(attempt.nodes)}
            self._known[attempt.attempt] = (_first_plan(self._cluster, run, attempt), places)
        first, places = self._known[attempt.attempt]
        return replace(first, node_rank=places[node]) if places[node] else first


def _first_plan(cluster: ClusterSpec, run: Run, attempt: Attempt) -> LaunchPlan:
    plan = LaunchPlan(
        attempt=attempt.attempt,
        run=run.spec.name,
        command=command_of(run.spec),
        environment=_environment(cluster, run),
        working_directory=_working_directory(cluster, run),
        python=run.spec.python,
        node_rank=0,
        num_nodes=len(attempt.nodes),
        ranks_per_node=run.spec.ranks_per_node,
        master_address=attempt.master_address,
        master_port=attempt.master_port,
        output_folder=output_folder(cluster, run, attempt.attempt),
        output_limit_bytes=run.spec.output_limit_bytes,
        checkpoints=checkpoint_folder(cluster, run),
        saves=saves_folder(cluster, run),
        checkpoint_format=run.spec.checkpoint_format,
        resume=attempt.resume,
        remedies=attempt.remedies,
        lr=run.spec.lr,
        user=run.user,
        metric_pattern=run.spec.metric_pattern,
        conditions={} if attempt.accepts_drift else _known_digests(attempt),
        data=ANY_DATA if attempt.accepts_drift else attempt.known_data,
    )
    return replace(plan, spec_hash=spec_hash(plan))


def _known_digests(attempt: Attempt) -> dict[str, tuple[str, ...]]:
    return {part: tuple(known) for part, known in attempt.known_conditions.items()}


def _environment(cluster: ClusterSpec, run: Run) -> dict[str, str]:
    return {**run.spec.environment, "STOKER_CLUSTER": cluster.name}


def _working_directory(cluster: ClusterSpec, run: Run) -> str:
    return run.spec.working_directory or run_folder(cluster, run)


class Preloads:
    """Which run's modules each node imports in advance, in one state."""

    def __init__(self, state: State) -> None:
        runs = [run for run in state.runs.values() if run.is_wanted]
        self._runs = state.runs
        self._preloading = [run for run in runs if run.spec.preload]
        # A node belongs to the run it was last planned for, between two attempts too, so that it keeps its preloaded processes.
        self._planned: dict[str, Run] = {}
        for run in sorted(runs, key=lambda run: run.attempt.generation if run.attempt else 0):
            if run.attempt is not None:
                self._planned |= dict.fromkeys(run.attempt.nodes, run)

    def run_for(self, node: Node) -> Run | None:
        """Return the run that the node serves, is planned for, or may be a spare for: in this order; None without preload."""
        if node.state in ("lost", "left"):
            return None
        run = self._runs.get(node.attempt.run) if node.attempt else self._planned.get(node.node)
        if run is not None:
            return run if run.spec.preload else None
        fitting = (run for run in self._preloading if run.spec.ranks_per_node <= node.slots)
        return next(fitting, None)


def _warm_plan(cluster: ClusterSpec, run: Run) -> PreloadPlan:
    return PreloadPlan(
        command=command_of(run.spec),
        preload=run.spec.preload,
        environment=_environment(cluster, run),
        working_directory=_working_directory(cluster, run),
        python=run.spec.python,
        ranks_per_node=run.spec.ranks_per_node,
        user=run.user,
    )
