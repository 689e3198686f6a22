"""What cluster.yaml says: nodes, spares, store and limits. One journal, lease and fleet per cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from runner.facts.wire import message


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNodes:
    """Nodes played by processes on this machine, each an agent and a keeper of its own: n1, n2, ... in order."""

    nodes: int = 1
    slots: int = 1
    spares: int = 0


@message("cluster_spec")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster. Times are seconds."""

    name: str
    state: str = ""
    local: LocalNodes = field(default_factory=LocalNodes)
    heartbeat_seconds: float = 1.0
    silence_seconds: float = 5.0
    stopped_seconds: float = 1.0
    fence_seconds: float = 60.0
    hard_cap_seconds: float = 600.0
    kill_wait_seconds: float = 1.0
    lease_seconds: float = 5.0
    action_deadline_seconds: float = 60.0
    metrics_port: int = 0
