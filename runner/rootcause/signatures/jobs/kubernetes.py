"""Kubernetes and the operators that queue jobs in it: what cannot be placed, pulled, mounted or admitted, and what was ended."""

from runner.rootcause.signatures.jobs.rows import ended, failed, memory, node_gone, refused, storage

# Reasons in descriptions, in JSON and YAML.
_REASON = r"\b[Rr]eason\b\\?[\"']?[:=]\s*\\?[\"']?(?:{0})\b"
# Of a table of pods: which are ready, then the state and how often it started again.
_POD = r"\b\d+/\d+ +(?:{0}) +\d"

KUBERNETES = (
    # ---- placing
    refused(
        "pod-fits-no-node",
        # Only reasons that the pod's own request causes; no room is another matter.
        r"\b0/\d+ nodes are available: (?:\d+ (?:node\(s\)|nodes?) (?:didn't match [\w' /()\-]+|were unschedulable"
        r"|had (?:untolerated )?taints? \{(?:[^n}]|n[^o}]|node-role)[^}]*\}(?:, that the pod didn't tolerate)?)(?:, |\.))+"
        r"(?: preemption|[\s\"'\\]|$)"
        r"|\bpersistentvolumeclaim \\?\"[^\"]{1,100}\" not found|\bno PriorityClass with name \S+ was found",
        layer="launcher",
        role="interrupted",
        source="Kubernetes, its scheduler: selectors, affinities and taints leave no node",
        sample="0/12 nodes are available: 12 node(s) didn't match Pod's node affinity/selector. preemption: 0/12 nodes are"
        " available",
        near="0/12 nodes are available: 4 node(s) didn't match Pod's node affinity/selector, 8 Insufficient nvidia.com/gpu.",
    ),
    refused(
        "pod-found-a-node",
        r"\bSuccessfully assigned \S+ to \S",
        layer="launcher",
        role="cleared",
        weight="supporting",
        source="Kubernetes, its scheduler",
        sample="Successfully assigned train/llama-0 to gpu-3",
        near="could not be assigned to gpu-3",
    ),
    ended(
        "gang-waits-for-room",
        r"\b\d+/\d+ tasks in gang unschedulable\b|\bpod group is not ready, \d+ Pending\b"
        r"|\bcouldn't assign flavors to pod set \S+: .{0,200}insufficient (?:unused )?quota"
        r"|\bFailed to scale up\b|\bFailedToScaleUpGroup\b|\bScaleUpTimedOut\b|\bin backoff after failed scale-up\b"
        r"|\bscale\.up\.error\.(?:out\.of\.resources|waiting\.for\.instances\.timeout|ip\.space\.exhausted)\b"
        r"|\bGCE_STOCKOUT\b|\bFailedScaleUp\b"
        r"|\bScale-up timed out for node group\b|\bCould not launch (?:On-Demand|Spot) Instances\b",
        layer="launcher",
        role="interrupted",
        source="Volcano, Kueue, cluster-autoscaler of Kubernetes and of GKE",
        sample="3/8 tasks in gang unschedulable: pod group is not ready, 5 Pending, 8 minAvailable",
        near="8/8 tasks in gang are running: pod group is ready",
    ),
    ended(
        "gang-has-room",
        r"\bAdmitted by ClusterQueue \S|\bQuota reserved in ClusterQueue \S|\bTriggeredScaleUp\b|\bpod group is ready\b",
        layer="launcher",
        role="cleared",
        weight="supporting",
        source="Kueue, Volcano, cluster-autoscaler",
        sample="Admitted by ClusterQueue team, wait time since reservation was 0s",
        near="Not admitted by any ClusterQueue",
    ),
    refused(
        "network-has-no-addresses",
        r"\bfailed to assign an IP address to container\b|\bno IP addresses available in range set\b|\bIP_SPACE_EXHAUSTED\b"
        r"|\bInsufficientFreeAddressesInSubnet\b",
        layer="launcher",
        role="interrupted",
        source="Kubernetes, the network plug-in of AWS and host-local: the range of addresses is used up",
        sample='plugin type="aws-cni" failed (add): add cmd: failed to assign an IP address to container',
        near='plugin type="aws-cni" assigned an IP address to the container',
    ),
    node_gone(
        "pod-has-no-sandbox",
        r"\b[Ff]ailed to create pod sandbox\b|\bFailedCreatePodSandBox\b",
        layer="launcher",
        role="interrupted",
        source="Kubernetes, kubelet: the runtime or the network of the node does not work",
        sample="Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox",
        near="Pod sandbox changed, it will be killed and re-created.",
    ),
    node_gone(
        "pod-has-its-container",
        r"\bStarted container \S",
        layer="launcher",
        role="cleared",
        weight="supporting",
        source="Kubernetes, kubelet",
        sample="  Normal   Started  9m  kubelet  Started container trainer",
        near="  Normal   Created  9m  kubelet  Created container trainer",
    ),
    refused(
        "queue-of-jobs-is-not-there",
        r"\bLocalQueue \S+ (?:doesn't exist|is inactive)\b|\bClusterQueue \S+ (?:doesn't exist|is inactive)\b"
        r"|\bqueue \S+ (?:does not exist|is not open|status is not open)\b|\bscale\.up\.error\.quota\.exceeded\b"
        r"|\bflavor \S+ doesn't (?:exist|match)\b|\bstorageclass\.storage\.k8s\.io \\?\"[^\"]{1,80}\" not found"
        r"|\bInvalidStorageClass\b",
        layer="launcher",
        source="Kueue, Volcano, the autoscaler of GKE, the controller of volumes, the network plug-in of AWS: what is used up"
        " or not there",
        sample="LocalQueue nlp-queue doesn't exist",
        near="LocalQueue nlp-queue has 3 pending workloads",
    ),
    # ---- what is refused
    refused(
        "admission-refused",
        r"\bis forbidden: (?:exceeded quota|failed quota|maximum \w+|minimum \w+|User \\?\"|violates PodSecurity"
        r"|unable to validate against|error looking up service account|no PriorityClass|\[)"
        r"|\badmission webhook \\?\"[^\"\\]{1,120}\\?\" denied the request\b|\bfailed calling webhook \\?\""
        r"|\bcannot (?:get|list|watch|create|update|patch|delete) resource \\?\"[^\"\\]{1,60}\\?\" in API group\b"
        r"|\bFailedCreate\b.{0,80}\bError creating: \S",
        layer="launcher",
        role="interrupted",
        source="Kubernetes, its API server and its controllers",
        sample='Error creating: pods "llama-0-x" is forbidden: exceeded quota: team-nlp, requested: requests.nvidia.com/gpu=8',
        near="Resource quota team-nlp: requests.nvidia.com/gpu 8 of 64",
    ),
    refused(
        "spec-is-not-valid",
        r"(?:Job|Cluster|Service|Workflow|Set|Pod|Workload) (?:\S{1,80} )?(?:spec(?:ification)? |manifest )is (?:invalid|not"
        r" valid)\b|\bunknown field \\?\"spec\.|\bno matches for kind \\?\"|\bis invalid: (?:spec|metadata)\.\w",
        layer="launcher",
        source="KubeRay, Kubeflow, the API server of Kubernetes",
        sample='"msg":"The RayJob spec is invalid","error":"ttlSecondsAfterFinished is only supported when it shuts down"',
        near='"msg":"The RayJob spec is valid"',
    ),
    # ---- volumes
    storage(
        "volume-not-attached",
        r"\bMulti-Attach error for volume\b|\bAttachVolume\.Attach failed for volume\b"
        r"|\b[Uu]nable to attach or mount volumes\b|\b[Ff]ailed to provision volume with StorageClass\b"
        r"|\bdriver name \S+ not found in the list of registered CSI drivers\b|\bVolumeResizeFailed\b"
        r"|\bVolumeConditionAbnormal\b|\bhas unbound immediate PersistentVolumeClaims\b|\bhad volume node affinity conflict\b",
        layer="launcher",
        role="interrupted",
        source="Kubernetes, kubelet, attach-detach and volume controllers",
        sample='Multi-Attach error for volume "pvc-77ad" Volume is already exclusively attached to one node',
        near='AttachVolume.Attach succeeded for volume "pvc-77ad"',
    ),
    storage(
        "volume-attached",
        r"\bAttachVolume\.Attach succeeded for volume\b|\bMountVolume\.SetUp succeeded for volume\b|\bStarted container \S",
        layer="launcher",
        role="cleared",
        weight="supporting",
        source="Kubernetes, kubelet",
        sample="  Normal   Started  9m  kubelet  Started container trainer",
        near="  Normal   Created  9m  kubelet  Created container trainer",
    ),
    refused(
        "volume-of-what-is-not-there",
        r"\bMountVolume\.SetUp failed for volume\b.{0,200}: (?:configmap|secret) \\?\"[^\"\\]{1,120}\\?\" not found"
        r"|\bMountVolume\.SetUp failed for volume\b.{0,200}(?:references non-existent|hostPath type check failed)",
        layer="machine",
        source="Kubernetes, kubelet: the settings that a volume holds do not exist",
        sample='MountVolume.SetUp failed for volume "cfg" : configmap "llm-config" not found',
        near='MountVolume.SetUp succeeded for volume "cfg"',
    ),
    # ---- states of containers and pods
    refused(
        "reason-image-or-settings",
        _REASON.format(
            "ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|ImageInspectError|RegistryUnavailable"
            "|CreateContainer(?:Config)?Error|RunContainerError|ContainerCannotRun|StartError"
        )
        + "|"
        + _POD.format(
            "Init:(?:ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|CreateContainer(?:Config)?Error"
            "|RunContainerError|StartError)|StartError|ImageInspectError|PostStartHookError|NodeAffinity"
        ),
        layer="launcher",
        source="Kubernetes, kubelet: states of containers that never ran",
        sample="      Reason:       ImagePullBackOff",
        near="      Reason:       ContainerCreating",
    ),
    memory(
        "reason-memory",
        _REASON.format("OOMKilled|OOMKilling|SystemOOM") + "|" + _POD.format("(?:Init:)?OOMKilled"),
        source="Kubernetes, kubelet",
        sample='{"terminated":{"exitCode":137,"reason":"OOMKilled"}}',
        near='{"terminated":{"exitCode":0,"reason":"Completed"}}',
    ),
    node_gone(
        "reason-node",
        _REASON.format(
            "NodeLost|NodeNotReady|NodeStatusUnknown|ContainerStatusUnknown|NodeFailure|NodeFault|NodeHardwareFault|NodeDown"
            r"|NodeUnreachable|NodeHardwareError|NodeCrash(?:ed)?|KubeletNotReady|DeletionByPodGC"
        )
        + "|"
        + _POD.format("ContainerStatusUnknown|NodeLost|Unknown")
        + r"|\bNode condition (?:K|G|X|C|Nv|NV|Fr|Net|Hard|Hw|HW|Ib|IB|R[^e])\w* is now: True\b"
        r"|\b(?:NotReady|Unknown)(?:,SchedulingDisabled)? +(?:<none>|[\w\-,]{3,40}) +\d+[dhms]\w* +v1\.\d"
        r"|\bPLEG is not healthy\b|\bKubelet stopped posting node status\b"
        r"|\b(?:restarted|failed|relaunched|evicted|ended|terminated|killed|migrated)\b.{0,60}[:=(] ?(?:NodeFailure|NodeFault"
        r"|NodeHardwareFault|NodeLost|NodeDown)\b"
        r"|\bNode \S+ status is now: Node(?:NotReady|Unreachable)\b|\bNode \S+ has been rebooted, boot id\b",
        layer="launcher",
        source="Kubernetes, the node controller and kubelet; services of clouds that name a node's fault as a reason",
        sample="reason: NodeStatusUnknown",
        near="reason: KubeletReady",
    ),
    failed(
        "pod-states-of-failure",
        _POD.format(
            r"Init:(?:CrashLoopBackOff|Error|ExitCode:\d+|Signal:\d+)|StartupProbeFailed|ContainerCannotRun"
            r"|UnexpectedAdmissionError|OutOf\w[\w./\-]*"
        )
        + r"|\bExit Code: {1,8}(?:[1-9]\d?|1[0-24-9]\d|13[0-689]|2\d\d)\b|\bFailed {2,20}\d+[smhd](?:\d+[smhd])?[ \t\r]*$"
        r"|\bfailed (?:liveness|startup) probe, will be (?:restarted|killed)\b"
        r"|\b(?:containers?|pods?) \S+ (?:is |are )?in (?:CrashLoopBackOff|Error) state\b|"
        + _REASON.format("CrashLoopBackOff|BackoffLimitExceeded|ProgressDeadlineExceeded"),
        source="Kubernetes, kubectl get pods; kubelet",
        sample="llama-worker-0   0/1   Init:CrashLoopBackOff   6 (2m ago)   9m",
        near="llama-worker-0   0/1   Init:0/1   0   9s",
    ),
    ended(
        "reason-taken",
        _REASON.format(
            "TaintManagerEviction|DeletionByTaintManager|PreemptionByScheduler|EvictionByEvictionAPI|TerminationByKubelet"
            "|NodeShutdown|Terminated by user|PreemptContainer|SpotInterruption|TaskRunTimeout|PipelineRunTimeout"
            "|TaskRunCancelled|PipelineRunCancelled"
            "|ActiveDeadlineExceeded"
        )
        + r"|\bMarking for deletion Pod\b|\bpod deleted(?: during operation)?[ \t\r\"']*$"
        r"|\bPod was active on the node longer than the specified deadline\b",
        source="Kubernetes, conditions of pods and events; Argo",
        sample="reason: PreemptionByScheduler",
        near="reason: PodCompleted",
    ),
)
