"""Frameworks that run workers on nodes: Ray, Dask, Spark and YARN, Mesos, Nomad, DLRover."""

from runner.rootcause.signatures.jobs.rows import ended, failed, memory, node_gone, refused, storage

FRAMEWORKS = (
    node_gone(
        "node-of-worker-died",
        r"\bNodeDiedError(?:: [A-Z]|\(|[ \t\r]*$)|\bnode (?:dying|has died)\b|\bbecause (?:the|its|their) node (?:died|was lost)\b"
        r"|\bContainer released on a \*?lost\*? node\b|\bExit status: -100\b|\bexit status: -100\b"
        r"|\b[Ll]ost executor \S+ on \S+: (?:Executor heartbeat timed out|Slave lost|[Ww]orker lost|Remote RPC client disassociated"
        r"|Container released on)|\bReason: (?:Executor heartbeat timed out|Slave lost|Worker lost|REASON_(?:SLAVE|AGENT)_\w+)"
        r"|\bREASON_(?:SLAVE|AGENT)_(?:REMOVED|DISCONNECTED|RESTARTED|UNKNOWN)\w*|\bTASK_(?:LOST|GONE|UNREACHABLE"
        r"|GONE_BY_OPERATOR)\b"
        r"|\balloc(?:ation)? is lost since its node is down\b|\bnode TTL expired\b|\bAlloc Status: +lost\b"
        r"|\bnode heartbeat missed\b",
        source="Ray; Spark and YARN, whose status -100 means so; Mesos; Nomad",
        sample="ray.exceptions.NodeDiedError: Task was killed due to the node dying.",
        near="ray: the task ran on node 3",
    ),
    node_gone(
        "state-of-node-changes",
        r"\b(?:[Rr]unning|RUNNING|[Ii]dle|IDLE|[Rr]eady|READY|[Aa]live|ALIVE|[Aa]ctive|ACTIVE|[Hh]ealthy|HEALTHY|[Oo]nline"
        r"|ONLINE|UP)"
        r"['\"]? ?(?:->|=>) ?['\"]?(?:unusable|startTaskFailed|LOST|[Ll]ost|DEAD|[Dd]ead|UNREACHABLE|[Uu]nreachable"
        r"|NotReady|NOT_READY|OFFLINE"
        r"|UNHEALTHY|[Uu]nhealthy|DOWN)\b|\b[Nn]ode entered the unusable state\b",
        source="Azure Batch, and the words of other masters that log each change of a node's state",
        sample="node tvm-1_1 state changed: running -> unusable",
        near="node tvm-1_1 state changed: starting -> idle",
    ),
    failed(
        "state-of-job-changes",
        r"\b(?:RUNNING|[Rr]unning|ACTIVE|[Aa]ctive) ?(?:->|=>) ?(?:FAILED|[Ff]ailed|ERROR|CRASHED|[Cc]rashed"
        r"|FATAL|BACKOFF)\b",
        source="the words of masters that log each change of a job's state",
        sample="job 12: state RUNNING -> FAILED",
        near="job 12: state RUNNING -> SUCCEEDED",
    ),
    ended(
        "state-of-job-changes-on-request",
        r"\b(?:RUNNING|[Rr]unning|ACTIVE|[Aa]ctive) ?(?:->|=>) ?(?:PREEMPT\w*|[Pp]reempt\w*|EVICTED|[Ee]victed"
        r"|CANCELL?\w*"
        r"|[Cc]ancell?ed|TIMEOUT|TIMED_OUT|REVOKED|KILLED)\b",
        source="the words of masters that log each change of a job's state",
        sample="job 12: state RUNNING -> PREEMPTED",
        near="job 12: state RUNNING -> COMPLETED",
    ),
    node_gone(
        "agent-of-node-silent",
        r"\bhas not (?:sent a )?heartbeat\w* (?:for|in|since) \d|\b(?:exit\w* (?:with )?reason|relaunch reason"
        r"|reason)\W{1,3}no_heartbeat\b"
        r"|\b[Nn]o heartbeats? (?:was |were )?(?:received )?from (?:node|worker|agent|host|pod|instance)\b.{0,60}\b(?:for|in"
        r"|since) \d",
        source="DLRover, and the words of other masters that count heartbeats of their nodes",
        sample="The node worker-3 has not heartbeat for 600 seconds, and job manager will relaunch it",
        near="The node worker-3 has sent a heartbeat",
    ),
    memory(
        "worker-over-its-memory",
        r"\bkilled by YARN for exceeding (?:physical |virtual )?memory limits\b"
        r"|\bis running (?:\d+B )?beyond (?:the )?'?(?:physical|virtual|PHYSICAL|VIRTUAL)'? memory limits?\b"
        r"|\bexceeded 95% memory budget\. Restarting\b|\bexit status: -10[34]\b|\bExit status: -10[34]\b"
        r"|\bNODE_OUT_OF_MEMORY\b|\bExit code: 52\b.{0,80}\bexecutor\b|\bOOM Killed\b",
        source="YARN and Spark; Dask, its nanny; Ray, the type of a worker's exit; Nomad",
        sample="Container killed by YARN for exceeding memory limits. 24.3 GB of 24 GB physical memory used.",
        near="Container of YARN uses 20.1 GB of 24 GB physical memory",
    ),
    ended(
        "worker-taken-by-scheduler",
        r"\b[Ee]xit status: -10[26]\b|\bREASON_CONTAINER_PREEMPTED\b|\bApplication \S+ (?:was|is) killed by user\b"
        r"|\bApplication killed by user\b|\bPreempted by alloc ID\b|\bfinal status: KILLED\b"
        r"|\b[Pp]lacement ?[Gg]roup(?: \S{1,40})? (?:creation )?timed out\b|\bPlacement group creation timed out\b"
        r"|\bResources exhausted on \d+ nodes\b",
        source="YARN, whose status -102 means so; Mesos; Nomad; Ray: its cluster had no room",
        sample="Completed container container_e17_001 on host: dn2 (state: COMPLETE, exit status: -102)",
        near="Completed container container_e17_001 on host: dn2 (state: COMPLETE, exit status: 0)",
    ),
    storage(
        "disk-of-worker",
        r"\b[Ee]xit status: -101\b|\bREASON_CONTAINER_LIMITATION_DISK\b|\blocal-dirs (?:are|have) bad\b|\blog-dirs (?:are"
        r"|have) bad\b",
        source="YARN, whose status -101 means that its disks failed; Mesos",
        sample="Container marked as failed: container_1 on host: dn44. Exit status: -101. Diagnostics: disks failed",
        near="Container finished: container_1 on host: dn44. Exit status: 0.",
    ),
    refused(
        "no-kind-of-node-fits",
        r"\bNo available node types can fulfill resource request\b|\bcannot be scheduled (?:because|since) (?:no node"
        r"|it is infeasible)"
        r"|\bdevices\\?\": \d+ nodes? excluded by filter\b|\bConstraint .{1,120} filtered \d+ nodes?\b"
        r"|\bREASON_CONTAINER_LAUNCH_FAILED\b|\bREASON_(?:TASK|TASK_GROUP)_INVALID\b|\bInvalidResourceRequestException\b",
        layer="launcher",
        source="Ray, its autoscaler; Nomad; Mesos; YARN",
        sample="Error: No available node types can fulfill resource request {'GPU': 16.0, 'CPU': 1.0}.",
        near="Adding 2 node(s) that fulfill resource request {'GPU': 16.0, 'CPU': 1.0}.",
    ),
    failed(
        "workers-died",
        r"\bKilledWorker(?:: (?:Attempted|\()|\()|\bExecutorLostFailure\b|\b[Jj]ob aborted due to stage failure\b"
        r"|\bfinal status: FAILED\b"
        r"|\bexit_type=(?:SYSTEM_ERROR|USER_ERROR)\b|\b[Jj]ob supervisor actor (?:died|could not be scheduled)\b",
        source="Dask, Spark, YARN, Ray",
        sample="distributed.scheduler.KilledWorker: Attempted to run task 'train-7c' on 4 different workers",
        near="distributed.scheduler: task 'train-7c' ran on 4 different workers",
    ),
)
