"""Kubernetes: the kubelet, the scheduler and the controllers that watch nodes, pods and jobs; events and logs."""

from tools.catalogues.clusters.emitter import Emitter
from tools.catalogues.rows import Level
from tools.catalogues.rules import Rule

GO_LEVELS: dict[str, Level] = {
    **dict.fromkeys(
        ("Error", "Errorf", "ErrorS", "Fatal", "Fatalf", "Panicf", "HandleError"), "error"
    ),
    **dict.fromkeys(("Warning", "Warningf", "Warn", "Warnf"), "warning"),
    **dict.fromkeys(("Info", "Infof", "InfoS"), "info"),
    **dict.fromkeys(("Debug", "Debugf", "Trace", "Tracef"), "debug"),
}
# Errors that are wrapped and shown as the message of an event, or of a command.
_ERRORS = (
    "fmt.Errorf",
    "errors.New",
    "errors.Wrap",
    "errors.Wrapf",
    "errors.Errorf",
    "field.Invalid",
)
_EVENTS = (
    "Eventf",
    "Event",
    "AnnotatedEventf",
    "recordContainerEvent",
    "recordToNode",
    "RecordNodeEvent",
)

RULES = (
    Rule(
        r"low on resource: memory|OOMKill|system OOM|out of memory|MemoryPressure|node (?:has )?insufficient memory",
        "host_oom",
        "the kubelet evicts, or the kernel kills, for want of memory",
        levels=("error", "warning", "info"),
        layer="machine",
        scope="node",
    ),
    Rule(
        r"low on resource|evicted successfully|must evict pod|Killing pod|deleting pods? from",
        "preemption",
        "the pod leaves since its place is needed",
        paths=("pkg/kubelet/eviction", "pkg/controller/nodelifecycle/scheduler"),
        levels=("error", "warning"),
    ),
    Rule(
        r"disk ?pressure|no space|image ?fs|free(?:d)? (?:disk|bytes)|garbage collect|disk usage|inode",
        "filesystem",
        "the disk of the node is full",
        paths=("pkg/kubelet",),
        scope="storage",
    ),
    Rule(
        r"PLEG is not healthy|NodeNotReady|node .*(?:is unhealthy|not ready|is gone|became unreachable|unresponsive"
        r"|has been (?:deleted|removed))|is NotReady as of|hasn't been updated for|Kubelet stopped posting|never posted|heartbeat"
        r"|container runtime (?:is down|not ready)|Unable to update node status|error updating node status"
        r"|Error getting node|lost contact|runtime network not ready|rebooted|deleting orphaned|"
        r"node status update|status is unknown",
        "node_failure",
        "the control plane lost the node, or its kubelet cannot work",
        paths=(
            "pkg/kubelet",
            "pkg/controller/nodelifecycle",
            "pkg/controller/podgc",
            "pkg/controller/cloud",
        ),
        levels=("error", "warning", "info"),
        scope="node",
        is_understated=True,
    ),
    Rule(
        r"^preempted|^Preempt(?:ed|ing) (?:by|in order|pod)|preempting pod",
        "preemption",
        "a pod of higher priority needs the place",
        paths=("pkg/scheduler", "pkg/kubelet/preemption"),
        levels=("error", "warning", "info"),
    ),
    Rule(
        r"(?:unable|failed|fail|cannot|couldn't|error) .*(?:mount|attach|volume)|MountVolume|AttachVolume|FailedMount",
        "filesystem",
        "a volume is not mounted",
        paths=("pkg/kubelet", "pkg/volume", "pkg/controller/volume"),
        scope="storage",
    ),
    Rule(
        r"pull(?:ing)? .*image|image .*(?:pull|inspect|invalid|parse|not present)|ErrImage|ImagePull|manifest"
        r"|registry|back-off(?! (?:%s )?restarting)|couldn't find (?:key|configmap|secret)|is forbidden|exceeded quota|node\(s\)"
        r"|insufficient|unschedulable|(?:don't|didn't|doesn't) (?:match|satisfy)|configmap|secret",
        "config_error",
        "the pod asks for what it cannot have",
        levels=("error", "warning"),
        scope="user",
    ),
)


def level_of_go(name: str, arguments: list[str]) -> Level | None:
    """Return the level of a call in Go: a logger, an error that is made, or an event by its type."""
    if name in _ERRORS:
        return "error"
    plain = name.rpartition(".")[2]
    if plain in _EVENTS:
        is_warning = not arguments or any("Warning" in one for one in arguments)
        return "warning" if is_warning else "info"
    return GO_LEVELS.get(plain)


KUBERNETES = Emitter(
    "kubernetes",
    "Kubernetes",
    "kubernetes",
    "1.20.5+really1.20.2",
    (
        "pkg/kubelet",
        "pkg/scheduler",
        "pkg/controller/nodelifecycle",
        "pkg/controller/podgc",
        "pkg/controller/job",
        "pkg/volume/util/operationexecutor",
        "pkg/util/oom",
    ),
    level_of=level_of_go,
    layer="scheduler",
    scope="scheduler",
    rules=RULES,
    suffixes=(".go",),
    daemons=("",),
    left_out=("test", "fake", "windows", "/apis/", "zz_generated", "dockershim/network", "server/"),
)
