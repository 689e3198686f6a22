"""Clouds and services that lend machines: no room, a quota, an interruption, a machine that is replaced."""

from runner.rootcause.signatures.jobs.rows import ended, failed, memory, node_gone, refused

CLOUDS = (
    ended(
        "no-machines-to-lend",
        r"\bCapacityError: |\bUnable to provision requested ML compute capacity\b|\bResources are insufficient in region\b"
        r"|\binsufficient-capacity\b|\b[Nn]ot enough capacity to fulfill\b|\bOperationDenied\.NoStock\b|\bInsufficientStock\b"
        r"|\bResourcesSoldOut\b|\bResourceInsufficient\.\w|\bout_of_stock\b|\bNotEnoughResources\b|\bSkuNotAvailable\b"
        r"|\bno longer any instances available\b|\b(?:GCE_|TPU_)?STOCKOUT\b|\bCAPACITY:INSUFFICIENT_INSTANCE_CAPACITY\b"
        r"|\bCapacity-?(?:Oversubscribed|NotAvailable)\b|\bcapacity-(?:not-available|oversubscribed)\b"
        r"|\b(?:no|insufficient|not enough|lack of) (?:(?:spot |gpu |GPU |compute |reserved |free )?capacity|(?:spot|gpu|GPU"
        r"|EC2|on-demand)"
        r" instances)"
        r" (?:is |are |was )?(?:currently )?(?:available|in (?:the )?(?:region|zone|availability))\b"
        r"|NO_CAPACITY\b|\bNO_OFFERS\b|\bcannot currently connect to a GPU due to usage limits\b"
        r"|\bout of resources in (?:the )?(?:zone|region)\b|\bBookingExpired=True\b|\bCapacityRevoked\b"
        r"|\b(?:[Ii]nstances?|[Ff]lavor|types?|GPUs?|[Rr]esources?|SKU|[Mm]achines?) \S{0,60} ?(?:is|are) sold out\b"
        r"|\bAWS_INSUFFICIENT_\w+|\bThere is no Spot capacity available\b",
        role="node-taken-back",
        source="error codes of SageMaker, AWS Batch, EC2, Vertex AI, Google Compute Engine, Azure, Lambda, RunPod, Alibaba"
        " Cloud, Tencent "
        "Cloud, Volcano Engine",
        sample='{"code":"instance-operations/launch/insufficient-capacity","message":"Not enough capacity to fulfill it."}',
        near='{"data":{"code":"instance-operations/launch/ok","message":"The capacity is reserved."}}',
    ),
    ended(
        "machine-interrupted",
        r"\b(?:been|was|were|got) outbid\b|\boutbid by\b|\bServer\.(?:SpotInstance(?:Termination|Shutdown)|ScheduledStop)\b"
        r"|\bClient\.(?:UserInitiatedShutdown|InstanceInitiatedShutdown|UserInitiatedHibernate)\b"
        r"|\binstance-(?:terminated|stopped)-(?:by-price|no-capacity|capacity-oversubscribed|by-user|by-schedule|by-service"
        r"|by-experiment|launch-group-constraint)\b|\bmarked-for-(?:termination|stop)(?:-by-\w+)?\b"
        r"|\bnotebook was stopped because it exceeded the max\w*(?: allowed)? (?:execution |run )?(?:duration|time)\b"
        r"|\bNotebook Exceeded Timeout\b"
        r"|\binput hit its timeout of \d|\bPreemptibleInstanceInterruption\b|\bSpotInstanceInterruption\b"
        r"|\bSPOT_INSTANCE_TERMINATION\b"
        r"|\bCLOUD_PROVIDER_SHUTDOWN\b|\b(?:stopped|terminated|paused|shut down|suspended) (?:due to"
        r"|because of) (?:insufficient|low"
        r"|negative|no) (?:\w+ )?(?:credits?|funds|balance)\b"
        r"|\bYour Spot (?:Task|Instance) was interrupted\b|\bSpotInterruption\b"
        r"|\b[Hh]ost EC2 \(instance i-\w+\) terminated\b|\b[Jj]ob attempt duration exceeded timeout\b"
        r"|\binstance was (?:de-?allocated|stopped|terminated|shut down) (?:by|due to) (?:the )?(?:user|owner|admin\w*"
        r"|platform|provider"
        r"|cloud|host|price|low balance|insufficient (?:funds|credit|balance))",
        role="node-taken-back",
        source="AWS EC2 (state reasons, states of spot requests), ECS and Batch; Vast.ai, RunPod",
        sample="Instance 8123 stopped: outbid by another user",
        near="Instance 8123 is running at a bid of 0.4",
    ),
    refused(
        "quota-of-cloud",
        r"\bQuota '[\w\-]{1,80}' exceeded\b|\bQUOTA_EXCEEDED\b|\bQuotaExceeded\b|\b(?:Vcpu|Instance|Resource|Account|VolumeSize)"
        r"LimitExceeded\b|\bMaxSpotInstanceCountExceeded\b|\bexceeding approved .{1,80} quota\b|\baccount-level service limit\b"
        r"|\bservice limits? (?:were|was|is|are) exceeded\b|\bServiceQuotaExceeded\w*|\bQuotaFailure\b"
        r"|\bquota metrics exceed quota limits\b|\brequested more (?:vCPU|vcpu) capacity than your current\b"
        r"|\b[Ll]imitExceeded: (?:The following|You have|Account)",
        source="error codes of AWS, Google Cloud, Azure, OCI: the account may have no more of it",
        sample="Quota 'NVIDIA_H100_GPUS' exceeded.  Limit: 8.0 in region us-central1.",
        near="Quota 'NVIDIA_H100_GPUS' has 8.0 of 64.0 in use in region us-central1.",
    ),
    refused(
        "refused-by-cloud",
        r"\b(?:UnauthorizedOperation|OptInRequired|PendingVerification|InvalidAMIID\.\w+|InvalidSubnetID\.\w+"
        r"|InvalidKeyPair\.NotFound"
        r"|InvalidInstanceType|InstanceTypeNotSupported|MISCONFIGURATION:\w+|AuthorizationFailed|LinkedAuthorizationFailed"
        r"|ResourceInitializationError|CannotPullContainerError|CannotStartContainerError|CannotPullECRContainerError)\b"
        r"|\brequested instance type \(\S+\) is not supported in your requested\b|\bFAILED_PULL\b"
        r"|\bRequired '[\w.]+' permission for '|\bPermission '[\w.]+' denied on resource\b"
        r"|\bContainer(?:InvalidImage|InvalidRegistry\w*|PoolNotSupported)\b|\b(?:container|docker|Docker|runtime) image\b.{0,200}"
        r"\b(?:not found|does not exist|could not be (?:pulled|found)|cannot be pulled)(?:[.)\"']|[ \t\r]*$)"
        r"|\bImageBuildFailure\b|\bNoCloudAccessError\b|\bInvalidCloudConfigs\b|\bInvalidSkyPilotConfigError\b"
        r"|\((?:AccessDenied(?:Exception)?|UnauthorizedAccess|ExpiredToken(?:Exception)?|InvalidClientTokenId|AuthFailure"
        r"|UnrecognizedClientException|SignatureDoesNotMatch)\) when calling the (?:Create|Run|Start|Submit|Describe|Register"
        r"|Request)\w+"
        r" operation\b"
        r"|\bINIT_SCRIPT_FAILURE\b|\bINVALID_SPARK_IMAGE\b|\bFAILED: (?:Task failed to start|Container image)",
        source="error codes of AWS EC2, ECS and Batch, Google Cloud, Azure; the runs of MosaicML",
        sample="An error occurred (InvalidAMIID.NotFound) when calling the RunInstances operation: The image id does not exist",
        near="The image id ami-01 was found",
    ),
    memory(
        "container-of-service-memory",
        r"\bOutOfMemoryError: Container killed due to memory usage\b|\breturn code Negsignal\.SIGKILL\b"
        r"|\bsession crashed after using all available RAM\b|\btried to allocate more memory than is available\b"
        r"|\bcontainer oom [0-9a-f]{4,64}\b|\bsending SIG(?:TERM|KILL) to process \d+ .{0,120}\bbadness\b"
        r"|\bREASON_CONTAINER_LIMITATION_MEMORY\b|\bSIGKILL, possible container OOM\b",
        source="AWS ECS and Batch; Airflow, which names signals so; Mesos; Spark on Kubernetes; Colab, Kaggle; docker events;"
        " earlyoom",
        sample="statusReason: OutOfMemoryError: Container killed due to memory usage",
        near="statusReason: Essential container in task exited",
    ),
    failed(
        "container-of-service",
        r"\bEssential container in task exited\b|\b(?:AppState|RunStatus|JobStatus|RunState|TaskState|JobState)\.FAILED\b"
        r"|\bLast Error: (?:USER|SYSTEM|UNKNOWN)::",
        source="AWS ECS and Batch; TorchX, MosaicML, Ray and other clients in Python that print an enumeration; Flyte",
        sample="statusReason: Essential container in task exited",
        near="lastStatus: RUNNING of the essential container in the task",
    ),
    ended(
        "states-of-clients",
        r"\b(?:AppState|RunStatus|JobStatus|RunState|TaskState|JobState)\.(?:CANCELL?ED|PREEMPTED|STOPPED|TERMINATED|TIMEOUT"
        r"|EVICTED)\b",
        layer="launcher",
        source="TorchX, MosaicML, Ray and other clients in Python that print an enumeration",
        sample="torchx: job ended with AppState.CANCELLED",
        near="torchx: job ended with AppState.SUCCEEDED",
    ),
    node_gone(
        "machine-replaced",
        r"\bAction:(?:Replace|Reboot)\b|\bNvidia(?:GPUUnhealthy|ErrorReboot|ErrorTerminate|GpuCountMismatch|GPUCountMismatch)\b"
        r"|\b(?:instance-retirement|instance-reboot|system-reboot|system-maintenance)\b.{0,300}\b[Ss]tate\W{1,4}active\b"
        r"|\bDRIVER_UNREACHABLE\b|\bINSTANCE_UNREACHABLE\b|\bCOMMUNICATION_LOST\b"
        r"|\bServer\.InternalError\b|\bcompute\.instances\.hostError\b|\bEventType\W{1,5}Redeploy\b"
        r"|\bUNHEALTHY_(?:TENSORFLOW|MAINTENANCE|TPU|HARDWARE|NODE)\b"
        r"|\blifecycle\b.{0,60}(?:->|=>) ?(?:triage|rma|RMA)\b|\bnode(?:s)? \S+ (?:is|was|will be|being|has been) (?:replaced"
        r"|remediated|auto-?repaired)\b",
        source="AWS SageMaker HyperPod and EC2, Google Compute Engine, Azure, GKE and AKS",
        sample="[HyperPod] Node i-0abc marked Action:Replace",
        near="[HyperPod] Node i-0abc marked Action:None",
    ),
)
