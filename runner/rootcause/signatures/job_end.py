"""Lines of schedulers and launchers about the end of a job, on purpose or because a rank ended."""

from functools import partial

from runner.rootcause.signatures.signature import Signature
from runner.rootcause.tracebacks.single_lines import QUALIFIED_CLASS

_SLURM = "Slurm, slurmstepd and srun"
_STATES = "Slurm, states of jobs: scontrol, sacct and mails"
# In records, in mails, and in tables beside an exit code.
_STATE = (
    r"JobState=(?:{0})|Run time \S+, (?:{0})|\b(?:{0})\+? +-?\d{{1,3}}:\d"
    # Of seff, of sacct with bars and as JSON.
    r"|\bState: (?:{0}) \(exit code|\|(?:{0})\+?\|-?\d{{1,3}}:\d|\"current\": ?\[? ?\"(?:{0})\""
)

_ended = partial(Signature, fault="preemption", layer="scheduler", scope="scheduler")
_launcher = partial(Signature, fault="unknown", layer="launcher", scope="rank")
_other = partial(Signature, fault="unknown", layer="other", scope="rank")

# As DLRover writes it about a node: `reason` is one of its enumerations NodeExitReason and JobExitReason.
_OF_NODE = '{{"from_state": "Running", "to_state": "Failed", "node": "job-worker-3", "exit reason": "{reason}"}}'


def _node_exit(name: str, reasons: str, fault: str = "preemption") -> Signature:
    """Return the signature of nodes that end for these reasons."""
    was_taken = fault == "preemption"
    return Signature(
        name,
        rf"\b[Ee]xit[ _][Rr]eason\W{{1,6}}(?:{reasons})\b",
        fault=fault,
        layer="scheduler" if was_taken else "machine",
        scope="scheduler" if was_taken else "node",
        source="DLRover, its enumerations NodeExitReason and JobExitReason",
        sample=_OF_NODE.format(reason=reasons.partition("|")[0]),
        near=_OF_NODE.format(reason="UnknownError"),
    )


ENDING = (
    _ended(
        "time-limit",
        r"DUE TO TIME LIMIT|DUE TO TIMEOUT|exceeded its time limit|walltime \S+ exceeded limit"
        r"|PBS: job killed: walltime|TERM_RUNLIMIT|CANCELLED .*TIMEOUT|: this job is timed-out"
        r"|\b[Tt]ime limit is near|\b[Rr]eque(?:u?e|u)?ing (?:the )?job\b",
        source=_SLURM + "; PBS",
        sample="slurmstepd: error: *** STEP 77.0 ON gpu3 CANCELLED AT 2026-02-03T04:05:06 DUE TO TIME LIMIT ***",
        near="time limit of the step: 1190 minutes",
    ),
    _ended(
        "preempted",
        r"(?i)DUE TO (?:PREEMPTION|JOB REQUEUE)"
        r"|(?:job|node|instance|pod|vm|spot)s?\b.{0,60}\b(?:was |is |been |being |"
        r"will be )?(?:pre-?empted|evicted|reclaimed)\b|\bPreemptionError\b"
        r"|(?:cluster|worker|task|trial|run|container|machine|workload|replica|allocation|experiment|host|server|tpu"
        r"|capacity)s?\b.{0,60}"
        r"\b(?:was|is|were|are|been|being|due to being) (?:pre-?empted|reclaimed|outbid)\b"
        # Of SkyPilot, dstack, Determined, Vertex, Azure, SageMaker, Google Cloud, Volcano, HTCondor, LSF, PBS, Kueue.
        r"|\bFAILED_NO_RESOURCE\b|\bResourcesUnavailableError: Failed to (?:acquire|provision)"
        r"|\binterrupted_by_no_capacity\b|\b(?:state|status|reason|cause|code|phase|condition"
        r"|type)\b\W{1,4}(?:\w{0,30}_)?(?:pre-?empt(?:ed|ion)|Preempt(?:ed|ion))\b"
        r"|\b(?:exiting|terminat\w+|stopp\w+|shut\w* down|paus\w+|fail\w+|kill\w+|end\w*|abort\w+|drained)\b.{0,40}\b(?:due to"
        r"|because of|by|for|after|on)(?: an?| the)?"
        r"(?: spot| node| vm| cloud)? pre-?empt(?:ion|or)\b|\bpreemptible (?:vm|instance|node) (?:was |has been )?(?:stopped"
        r"|terminated|reclaimed)"
        r"|\bcompute\.instances\.preempted\b|^Interrupted - \b.{0,40}training job\b|\b(?:InsufficientCapacity|SpotInterruption"
        r"|MaxWaitTimeExceeded)\b"
        r"|TERM_(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|REQUEUE_OWNER|REQUEUE_ADMIN|WINDOW|LOAD)\b|\bjob deleted (?:by|at"
        r" request of) "
        r"|\b(?:job|task) was aborted by (?:the )?user\b|\bvia condor_rm\b|\b(?:process|task) terminated by user\b"
        r"|\bexceeded (?:hard )?(?:wall ?clock|run) ?time\b|\bexceeds job hard limit .{1,4}h_rt\b|\bMaxRuntimeExceeded\b"
        r"|\bpreempted (?:job|pod|workload|vm|instance|node|to accommodate|by default|by compute engine)"
        r"|received (?:a )?(?:preemption|termination|interruption) (?:notice|signal|warning)"
        r"|preemption (?:notice|signal|warning) received"
        r"|(?:spot|instance) (?:interruption|termination) (?:notice|warning)"
        r"|maintenance event.{0,40}TERMINATE|TERM_PREEMPT|SIGTERM .*preempt|preempt\w* .*SIGTERM"
        r"|spot (?:instance )?interruption (?:payload|warning|notice|event|signal)? ?(?:was )?received"
        r"|\binstance (?:is going to be|will be|is being) (?:interrupted|stopped|reclaimed)"
        r"|\breason\b.{1,4}\w*(?:Evicted|Preempted)\b"
        r"|\bPreempted +(?:by |pod/)|\bEvicted\b.{0,80}pod/|\b\d+/\d+ +(?:Evicted|Preempting|NodeShutdown) +\d"
        r"|\btermination is imminent|\bimminent (?:termination|preemption)|(?:will be|is being) terminated in \d",
        source=_SLURM + "; notices of clouds",
        sample="slurmstepd: error: *** JOB 4021 ON a17 CANCELLED AT 2026-02-03T04:05:06 DUE TO PREEMPTION ***",
        near="global_step=7700, preemption_count=0, score=7490.24",
    ),
    _ended(
        "state-of-time-or-preemption",
        _STATE.format("TIMEOUT|PREEMPTED|DEADLINE|REVOKED"),
        source=_STATES,
        sample="4021.batch        batch    TIMEOUT     0:15",
        near="4021   TimeLimit=1-00:00:00   RUNNING     0:0",
    ),
    _ended(
        "state-of-node",
        _STATE.format("NODE_FAIL|BOOT_FAIL"),
        fault="node_failure",
        scope="node",
        source=_STATES,
        sample="   JobState=NODE_FAIL Reason=NodeDown Dependency=(null)",
        near="   JobState=RUNNING Reason=None Dependency=(null)",
    ),
    _ended(
        "state-of-memory",
        _STATE.format(r"OUT_OF_ME(?:MORY|\+)"),
        fault="host_oom",
        layer="machine",
        scope="node",
        source=_STATES,
        sample="4021               pre OUT_OF_ME+    0:125",
        near="4021               pre  COMPLETED    0:0",
    ),
    _launcher(
        "state-of-failure",
        r"failed to \\?\"StartContainer\\?\" for .* with CrashLoopBackOff|\bback-off \S+ restarting failed container\b"
        r"|CANCELLED AT \S+ DUE TO TASK FAILURE|\bHold reason: \S|_job_complete: JobId=\S+ (?:WTERMSIG \d|WEXITSTATUS [1-9])"
        r"|\bFAILED_(?:SETUP|PRECHECKS|CONTROLLER|DRIVER)\b|JobState=FAILED\b|\breason\b.{1,4}(?:\w{2,40}JobFailed"
        r"|BackoffLimitExceeded|PodFailurePolicy|FailedJobs?)\b"
        r"|\bFAILED(?: +|\|)[1-9]\d{0,2}:\d|\bState: FAILED \(exit code|\bRun time \S+, FAILED\b|\"current\": ?\[? ?\"FAILED\""
        r"|\b\d+/\d+ +(?:Error|CrashLoopBackOff|DeadlineExceeded) +\d",
        source=_STATES
        + "; Kubernetes, kubectl get pods; the kubelet: a container ends as soon as it starts, for whatever reason",
        sample="rank-7-of-8   0/1     CrashLoopBackOff   5          3m46s",
        near="rank-7-of-8   0/1     Completed   0          3m46s",
    ),
    _launcher(
        "state-of-image-or-container",
        r"\b\d+/\d+ +(?:ImagePullBackOff|ErrImagePull|ErrImageNeverPull|InvalidImageName|CreateContainer(?:Config)?Error"
        r"|RunContainerError|ContainerCannotRun) +\d"
        r"|failed to \\?\"StartContainer\\?\" for .* with (?:ErrImage|ImagePull|InvalidImage|CreateContainer|RunContainer)"
        r"|RuntimeHandler \\?\"[^\"]*\" not supported|no runtime for \\?\"[^\"]*\" is configured",
        fault="config_error",
        scope="user",
        source="Kubernetes, kubectl get pods",
        sample="rank-7-of-8   0/1     ErrImagePull   0          12s",
        near="rank-7-of-8   0/1     ContainerCreating   0          12s",
    ),
    # A pod of a rank was taken away; its agent reports no more, or its check failed.
    _node_exit("node-exit-deleted", "Deleted"),
    _node_exit("node-exit-memory", "OOMKilled|WorkerOOM|PSOOM|EvaluatorOOM", fault="host_oom"),
    _node_exit("node-exit-hardware", "HardwareError", fault="host_hardware"),
    _node_exit("node-exit-silent", "NoHeartBeat|CheckFailure", fault="node_failure"),
    _ended(
        "cancelled",
        r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: \*\*\*| DUE TO (?:[^T]|T[^A])|[ \t\r]*$)|scancel(?:led)?: "
        r"|srun: Job step aborted: Waiting up to|\*\*\* JOB \d+ CANCELLED AT",
        layer="launcher",
        source=_SLURM + ": on request, or because a task of the step died",
        sample="slurmstepd: error: *** STEP 1337.1 ON gpu0 CANCELLED AT 2026-02-03T04:05:06 ***",
        near="slurmstepd: task launched for STEP 1337.1 on gpu0",
    ),
    _ended(
        "told-to-end",
        r"(?i)received (?:(?:1|2|15)|(?:Signals\.)?SIG(?:TERM|HUP|INT)) death signal"
        r"|received (?:signal )?SIG(?:TERM|HUP)|got signal ?:? ?(?:15|SIGTERM)|caught (?:signal )?SIG(?:TERM|HUP)"
        r"|SignalException: Process \d+ got signal: (?:1|2|15)\b|\bSIGTERM received\b|received signal 15"
        r"|Caught signal 15|signal 15 \(Terminated\)|(?:^|[^*]: ?|[\]>] ?)Terminated[ \t\r]*$|exiting program after receiving"
        # A person typed it: the terminal shows it before what the program says.
        r"|^\^C(?:Traceback|Process |\[)",
        layer="launcher",
        source="DeepSpeed and torchrun launchers; trainers: a scheduler or a person, or the end of a session",
        sample="torch.distributed.elastic.multiprocessing.api.SignalException: Process 51 got signal: 15",
        near="Sending process 44 closing signal SIGTERM",
    ),
    _launcher(
        "launcher-root-cause",
        r"Root Cause \(first observed failure\)",
        role="root-cause",
        source="torchrun",
        sample="Root Cause (first observed failure):",
        near="the first observed failure was no root cause",
    ),
    _launcher(
        "launcher-summary",
        r"ChildFailedError|terminated normally, but 1 process|MPI_ABORT was invoked on rank"
        r"|A worker died or was killed while executing a task"
        r"|mpirun (?:noticed that process rank|detected that one or more processes exited)"
        r"|failed \(exitcode: -?\d+\) local_rank: (?P<local_rank>\d+)"
        r"|exits with return code = -?[1-9]\d*"
        r"|srun: error: .*: task.* (?:Exited with exit code [1-9]\d*|Aborted|Killed|"
        r"Segmentation fault|Bus error)"
        r"|exited with (?:non-?zero )?(?:exit )?(?:code|status) -?[1-9]\d*",
        role="death",
        source="torchrun, DeepSpeed, srun",
        sample="torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1) local_rank: 3 "
        "(pid: 811) of binary: /usr/bin/python3",
        near="all 8 processes exited with code 0",
    ),
    _launcher(
        "state-of-service",
        r"\bMain PID: \d+ \(code=(?:exited, status=[1-9]|killed, signal=(?:KILL|SEGV|ABRT|BUS)|dumped)",
        source="systemd, systemctl status: how the process of a service ended",
        sample=" Main PID: 3141 (code=exited, status=1/FAILURE)",
        near=" Main PID: 3141 (code=exited, status=0/SUCCESS)",
    ),
    _launcher(
        "daemon-of-scheduler-gave-up",
        r"\bslurm(?:d|ctld|dbd)(?:\[\d+\])?: (?:slurm\w+: )?fatal: ",
        fault="config_error",
        layer="machine",
        scope="node",
        source="Slurm, fatal(): a daemon ends at its start, since it cannot use its files, its name or its settings",
        sample="slurmd[3141]: slurmd: fatal: Unable to determine this slurmd's NodeName",
        near="slurmd[3141]: slurmd: error: Unable to register with slurm controller",
    ),
    _launcher(
        "summary-names-rank",
        r"\brank\s+: (?P<rank>\d+) \(local_rank: \d+\)",
        role="names-rank",
        fault="",
        weight="supporting",
        source="torchrun, its summary: the first failure that it saw",
        sample="  rank      : 12 (local_rank: 4)",
        near="  rank of the matrix: 12",
    ),
    _launcher(
        "died-by-signal",
        r"Segmentation fault(?: \(core dumped\))?|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*|malloc\(\): memory"
        r" corruption"
        r"|\*\*\* Error in .{1,200}: .{1,120}: 0x[0-9a-f]+ \*\*\*|Fatal Python error: "
        r"|terminate called after throwing|\bAborted \(core dumped\)|Bus error \(core dumped\)"
        r"|\*\*\* Process received signal \*\*\*|Signal \d+ \(SIG(?:SEGV|ABRT|BUS|FPE|ILL)\)"
        r"|exitcode\s*: -(?:4|6|7|8|11)\b",
        source="glibc, CPython, Open MPI: how it ended, not why",
        sample="Fatal Python error: Segmentation fault",
        near="fault handler is enabled for segmentation faults",
    ),
    _launcher(
        "possible-causes",
        r"\bThere are some potential root causes\b|\bSome common causes include\b|^LLVM ERROR: "
        r"|\bThe actor is dead because its worker process has died\b|\bThe actor \w+ is unavailable: The actor is temporarily\b"
        r"|\bBack-off restarting failed container\b",
        source="Ray: a list of what may have been; Kubernetes: it tried again; LLVM: it ends the process, for whatever reason",
        sample="Worker exit detail: Worker unexpectedly exits with a connection error code 2. There are some potential "
        "root causes. (1) The process is killed by SIGKILL by OOM killer",
        near="the potential root causes were looked at",
    ),
    _launcher(
        "killed-by-kernel",
        r"exitcode\s*: -9\b|\(exitcode: -9\)|Exited with exit code 137|exit code 137"
        r"|Exit Code: +137\b|KILLED BY SIGNAL: 9\b|EXIT CODE: (?:9|137)\b"
        r"|return code = -9\b|terminated with signal SIGKILL|died with <Signals\.SIGKILL: 9>|Signal 9 \(SIGKILL\) received by PID",
        role="death",
        fault="host_oom",
        scope="node",
        source="torchrun, srun, containers: SIGKILL that no launcher sent is the kernel's, as a rule",
        sample="torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 5 (pid: 1421) of binary: python",
        near="failed (exitcode: 1) local_rank: 5 (pid: 1421) of binary: python",
    ),
    _other(
        "looks-like-an-error",
        r"(?:^|[\s:\]>\[])(?:FATAL|CRITICAL|PANIC|[Ff]atal error)(?:[:\]]| ?[-|] | the )"
        r"|Check failed: |^F\d{4} |\[F\d{3,4} \d\d:|\bUnrecoverable error\b|\bERROR\b.*\b\w+(?:Error|Exception): \S"
        r"|ErrorMessage \S",
        role="error-of-any-kind",
        source="habits of loggers",
        sample="[monitor] FATAL the store is gone, nothing can be done",
        near="0 fatal problems in 12 checks",
    ),
    _other(
        "exception-of-any-kind",
        rf"[\w.]+(?:Error|Exception): \S|\b(?:{QUALIFIED_CLASS})(?:: \S|:?[ \t\r]*$)",
        role="exception",
        source="Python: exceptions that libraries define",
        sample="mylib.errors.StageError: the schedule has no stage called 'cooldown'",
        near="the number of errors: 3",
    ),
)
