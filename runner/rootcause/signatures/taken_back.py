"""Lines by which a cloud or a cluster takes a node back, or has none to give: what ran there ended, and nothing is broken."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_taken = partial(
    Signature, fault="preemption", layer="scheduler", scope="scheduler", role="node-taken-back"
)

TAKEN_BACK = (
    _taken(
        "no-capacity",
        r"\b(?:InsufficientInstanceCapacity|InsufficientHostCapacity|InsufficientReservedInstanceCapacity"
        r"|LimitedInstanceCapacity|InsufficientCapacityOnHost|UnfulfillableCapacity|MaxSpotInstanceCountExceeded"
        r"|SpotMaxPriceTooLow|ZONE_RESOURCE_POOL_EXHAUSTED\w*|AllocationFailed|ZonalAllocationFailed"
        r"|Overconstrained(?:Zonal)?AllocationRequest)\b"
        r"|\bOut of host capacity\b|does not have enough resources available to fulfill"
        r"|\bdo not have sufficient .{1,60}\bcapacity\b|\bno more capacity in the zone\b|\blimited EC2 capacity\b",
        source="error codes of AWS EC2 and ParallelCluster, Google Compute Engine, Azure and OCI",
        sample="update_node: node gpu-spot-dy-1 reason set to: (Code:InsufficientInstanceCapacity)Failure when resuming nodes",
        near="update_node: node gpu-spot-dy-1 reason set to: (Code:RequestLimitExceeded)Failure when resuming nodes",
    ),
    _taken(
        "no-room-for-pod",
        r"(?:\bpod/(?P<subject>\S+) +)?\b0/\d+ nodes are available: (?:.{0,400}, )?\d+ Insufficient \S"
        r"|\bpod didn't trigger scale-up\b",
        layer="launcher",
        role="interrupted",
        source="Kubernetes, its scheduler: the pod waits until nodes have room",
        sample="Warning  FailedScheduling  pod/train-3  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.",
        near="Warning  FailedScheduling  pod/train-3  0/12 nodes are available: 12 node(s) didn't match Pod's node affinity.",
    ),
    _taken(
        "room-for-pod",
        # Of a list of events, and of a description of one pod.
        r"\bpod/(?P<subject>\S+) +Successfully assigned \S|\bdefault-scheduler,? +(?:.{0,40} )?Successfully assigned \S",
        layer="launcher",
        role="cleared",
        weight="supporting",
        source="Kubernetes, its scheduler",
        sample="Normal  Scheduled  pod/train-3  Successfully assigned train/train-3 to gpu-7",
        near="Normal  Pulled  pod/train-3  the image was successfully pulled",
    ),
    _taken(
        "node-preempted",
        r"(?i)\b(?:actor'?s|worker'?s|its|the|this|head) (?:node|host|instance|machine|vm) (?:was|has been|is being) preempted\b"
        r"|\bnode .{0,80}\b(?:drained|terminated) (?:due to|because of|by) (?:a )?(?:preemption|spot)"
        r"|\"action\": ?\"(?:terminate|stop|hibernate)\", ?\"time\": ?\"\d",
        source="Ray, autoscalers; the metadata of AWS EC2, spot/instance-action",
        sample="\tthe actor's node was preempted: the instance is needed elsewhere",
        near="\tthe actor's node was idle: the instance is needed elsewhere",
    ),
    _taken(
        "node-shut-down-gracefully",
        r"\bShutdown manager (?:killing pod|finished (?:killing|processing)|detected shutdown event)"
        r"|\bisNodeShuttingDownNow\b.{0,40}\bevent=\W?shutdown\b|\b[Nn]ode is shutting down, evicting pods"
        r"|\b[Nn]ode is in progress of shutting down\b|\bimminent node shutdown\b|\breason: NodeShutdown\b",
        source="Kubernetes, kubelet, nodeshutdown: it ends pods while their node is shut down on request",
        sample='nodeshutdown_manager_linux.go:375] "Shutdown manager killing pod with gracePeriod" pod="ml/rank-7" gracePeriod=30',
        near='nodeshutdown_manager_linux.go:137] "Creating node shutdown manager" shutdownGracePeriodRequested="30s"',
    ),
    _taken(
        "node-scaled-down",
        r"\bScale-down: removing node \S+.{0,200}pods to reschedule: \S|\bdeleting pod for node scale down\b"
        r"|\b(?:initiating delete|deleting node\S*) from interruption message\b|^evicting pod \S+/\S+"
        r"|\bDisrupt(?:ed|ing)\b.{0,60}\b(?:node|NodeClaim)\b.{0,40}\b(?:Underutilized|Drifted|Expired|Interruption)\b",
        source="Kubernetes, cluster-autoscaler, Karpenter and kubectl drain: pods leave a node that is wanted elsewhere",
        sample="scale_down.go:713] Scale-down: removing node gpu-17, utilization: {0.1 0.2}, pods to reschedule: ml/rank-7",
        near="scale_down.go:713] Scale-down: removing empty node gpu-17",
    ),
    _taken(
        "allocation-revoked",
        r"\bJob allocation \d+ has been revoked\b",
        # A node that failed revokes it, too.
        role="",
        source="Slurm, salloc",
        sample="salloc: Job allocation 4021 has been revoked.",
        near="salloc: Granted job allocation 4021",
    ),
)
