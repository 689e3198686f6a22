"""What cluster.yaml says: nodes, spares, store and limits. One journal, lease and fleet per cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from runner.facts.setting import Setting
from runner.facts.wire import message

LONGEST_SECONDS = 366 * 24 * 3600.0  # a year; chosen, not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNodes:
    """Nodes played by processes on this machine, each an agent and a keeper of its own: n1, n2, ... in order."""

    nodes: Annotated[
        int, Setting("Nodes to start with, spares not counted.", unit="nodes", least=1, most=4096)
    ] = 1
    slots: Annotated[
        int,
        Setting("Ranks that each node can hold at once.", unit="ranks", least=1, most=1024),
    ] = 1
    spares: Annotated[
        int,
        Setting(
            "Further nodes that stand by: one takes the place of a node that dies. 0: no node is ever replaced.",
            unit="nodes",
            least=0,
            most=4096,
        ),
    ] = 0


@message("cluster_spec")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster. Times are seconds."""

    name: Annotated[
        str, Setting("What people call the cluster: 1 to 40 of a-z, 0-9 and -.", default="")
    ]
    state: Annotated[
        str,
        Setting(
            "Folder that holds store, journal, node folders, output and checkpoints; relative to the file's folder. It "
            "must be on a local disk that honours fsync.",
            default="`.stoker/<name>` in the folder of the file",
        ),
    ] = ""
    local: Annotated[LocalNodes, Setting("Nodes that are processes of this machine.")] = field(
        default_factory=LocalNodes
    )
    heartbeat_seconds: Annotated[
        float,
        Setting("Time between two heartbeats of an agent.", unit="seconds", least=0.05, most=3600),
    ] = 1.0
    silence_seconds: Annotated[
        float,
        Setting(
            "Time without a heartbeat after which a node counts as silent and is looked at from outside. More than twice "
            "`heartbeat_seconds`, so that one lost heartbeat blames nobody.",
            unit="seconds",
            above=0,
            most=LONGEST_SECONDS,
        ),
    ] = 5.0
    stopped_seconds: Annotated[
        float,
        Setting(
            "Time that a rank may be stopped (state T in /proc) before it is reported as such.",
            unit="seconds",
            least=0,
            most=LONGEST_SECONDS,
        ),
    ] = 1.0
    fence_seconds: Annotated[
        float,
        Setting(
            "An agent that has lost the store ends its ranks when they, too, have made no step for this long. Ranks that "
            "advance are left alone.",
            unit="seconds",
            above=0,
            most=LONGEST_SECONDS,
        ),
    ] = 60.0
    hard_cap_seconds: Annotated[
        float,
        Setting(
            "An agent that has lost the store for this long ends its ranks even if they advance. After it, a new gang may be "
            "launched although nobody has confirmed the end of the old one. At least `fence_seconds`.",
            unit="seconds",
            above=0,
            most=LONGEST_SECONDS,
        ),
    ] = 3600.0
    kill_wait_seconds: Annotated[
        float,
        Setting(
            "Time after SIGKILL after which a process that is still there is left behind and its node is suspect.",
            unit="seconds",
            above=0,
            most=3600,
        ),
    ] = 1.0
    stacks_seconds: Annotated[
        float,
        Setting(
            "Time that writing down the stacks of ranks that hang (`stacks/rank<N>.txt` in the attempt's folder) may take "
            "before they are killed. 0: they are killed at once, and nothing is written down.",
            unit="seconds",
            least=0,
            most=60,
        ),
    ] = 0.5
    preload_seconds: Annotated[
        float,
        Setting(
            "Time that a launch waits for a warm process that still imports what the run preloads, from the start of its "
            "imports; then fresh processes are started, and the next launch forks. 0: it never waits.",
            unit="seconds",
            least=0,
            most=3600,
        ),
    ] = 30.0
    device_release_seconds: Annotated[
        float,
        Setting(
            "Time that a launch on a node with NVIDIA GPUs waits for their memory to be released; then it fails, and the node "
            "is suspect until it is. 0: nothing is looked at.",
            unit="seconds",
            least=0,
            most=3600,
        ),
    ] = 60.0
    lease_seconds: Annotated[
        float,
        Setting(
            "Life of the supervisor's lease: a second supervisor takes over no sooner than this after the last sign of "
            "the first.",
            unit="seconds",
            above=0,
            most=3600,
        ),
    ] = 5.0
    probe_seconds: Annotated[
        float,
        Setting(
            "Time that a look at a silent node from outside may take before the node counts as unreachable.",
            unit="seconds",
            above=0,
            most=3600,
        ),
    ] = 5.0
    action_deadline_seconds: Annotated[
        float,
        Setting(
            "Time after which an action without outcome counts as `unknown`.",
            unit="seconds",
            above=0,
            most=LONGEST_SECONDS,
        ),
    ] = 60.0
    metrics_port: Annotated[
        int,
        Setting(
            "TCP port on which the supervisor serves `/metrics` for Prometheus. 0: it serves none.",
            least=0,
            most=65535,
        ),
    ] = 0
