"""What watches over programs: systemd, supervisord, workflow engines; and programs that a person ended."""

from runner.rootcause.signatures.jobs.rows import ended, failed, memory, node_gone

# Units of a machine that only serve it fail on healthy ones, too.
_UNIT = (
    r"(?:train|torch|llm|model|finetun|slurmstepd|worker|deepspeed|accelerate|jupyter|raylet)[\w@.\-]{0,30}"
    r"\.(?:service|scope)"
)

SUPERVISORS = (
    failed(
        "unit-of-job-failed",
        rf"{_UNIT}: (?:Failed with result '(?:exit-code|signal|core-dump|timeout|watchdog|protocol|resources|start-limit-hit)'"
        r"|State 'stop-(?:sigterm|watchdog)' timed out|Watchdog timeout|Start request repeated too quickly)",
        source="systemd: units by whose names they run a job",
        sample="systemd[1]: llm-train.service: Failed with result 'timeout'.",
        near="systemd[1]: snapd.service: Failed with result 'timeout'.",
    ),
    memory(
        "unit-out-of-memory",
        r"\.(?:service|scope|slice): (?:Failed with result 'oom-kill'|A process of this unit has been killed by the OOM"
        r" killer)",
        source="systemd",
        sample="systemd[1]: trainer.service: Failed with result 'oom-kill'.",
        near="systemd[1]: trainer.service: Deactivated successfully.",
    ),
    failed(
        "program-of-supervisor-failed",
        r"\bgave up: \S+ entered FATAL state\b|\bexited: \S+ \((?:exit status \d+|terminated by SIG(?:SEGV|ABRT|BUS|ILL|FPE|KILL)"
        r"(?: \(core dumped\))?); not expected\)|\bentered FATAL state, too many start retries\b",
        source="supervisord",
        sample="INFO gave up: trainer entered FATAL state, too many start retries too quickly",
        near="INFO success: trainer entered RUNNING state, process has stayed up for > than 1 seconds (startsecs)",
    ),
    ended(
        "workflow-stopped",
        r"\bexternally set to (?:failed|success|skipped|removed|up_for_retry)\b|\bAirflowTaskTimeout\b|\bworkflow shutdown with"
        r" strategy\b|\b[Tt]he runner has received a shutdown signal\b|\bhas exceeded the maximum execution time of \d"
        r"|\bexecution took longer than \d\w+|^Finished: ABORTED[ \t\r]*$|(?:Error: "
        r"|\[error\])The operation was canceled\.[ \t\r]*$"
        r"|\btimeout: sending signal '?(?:TERM|KILL|INT|HUP|\d+)'? to command\b|\b[Ss]tep exceeded its deadline\b"
        r"|\b[Mm]ax duration limit exceeded\b"
        r"|\b[Ss]topped with strategy '(?:Stop|Terminate)'",
        source="Airflow, Argo Workflows, GitHub Actions, GitLab, Jenkins, the command timeout of GNU",
        sample="WARNING - State of this instance has been externally set to failed. Terminating instance.",
        near="INFO - State of this instance has been set to running.",
    ),
    node_gone(
        "runner-of-workflow-lost",
        r"\blost communication with the server\b|\b(?:hudson|jenkins)\.\S*(?:ChannelClosed"
        r"|RequestAbortedException)\w*"
        r"|\bAgent (?:\S+ )?was (?:deleted|disconnected); cancelling node body\b|\bCannot contact \S+: (?:java|hudson)\.",
        source="GitHub Actions, Jenkins",
        sample="The self-hosted runner: gpu-3 lost communication with the server.",
        near="The self-hosted runner: gpu-3 is connected to the server.",
    ),
    failed(
        "workflow-step-failed",
        r"\b[Dd]etected zombie job\b|\bThis step is in (?:Failed|Error) state with this message\b|^\s*(?:Step failure:"
        r"|Workflow failed\.)"
        r"|\bmarked build as failure\b|\bFinished: (?:FAILURE|UNSTABLE)[ \t\r]*$|KernelRestarter: restarting kernel\b"
        r"|\bDeadKernelError\b"
        r"|\b[Kk]ernel (?:died|appears to have died)\b|\bMarking task as FAILED\b|\bmain: Error \(exit code [1-9]",
        source="Airflow, Kubeflow Pipelines, Metaflow, Argo Workflows, Jenkins, Jupyter and papermill",
        sample="[2025-03-03, 03:03:03 UTC] {taskinstance.py:1398} INFO - Marking task as FAILED. dag_id=train",
        near="[2025-03-03, 03:03:03 UTC] {taskinstance.py:1398} INFO - Marking task as SUCCESS. dag_id=train",
    ),
    ended(
        "job-ended-for-its-machine",
        r"\b(?:was|were|been|got) (?:stopped|ended|killed|evicted|terminated|requeued|cancell?ed|interrupted|suspended)\b.{0,60}"
        r"\b(?:maintenance|drain(?:ed|ing)?|reclaim\w*|spot|higher[- ]priority|more important)\b",
        source="the words of services that end a job since they need its machine",
        sample="Run llm-7b was stopped: node r7z2 drained by admin for maintenance; run will be requeued",
        near="Run llm-7b was started: node r7z2 is back from maintenance",
    ),
    ended(
        "ended-by-a-person",
        r"\b(?:[Rr]eceived|[Dd]etected|[Cc]aught|[Gg]ot)(?: an?)? (?:KeyboardInterrupt|[Kk]eyboard [Ii]nterrupt"
        r"|[Cc]trl[ +\-][Cc])\b"
        r"|\b[Ii]nterrupted by (?:the )?(?:user|operator)\b|^\^C[A-Z]"
        r"|\b(?:was|has been|had been|got|were) (?:cancell?ed|stopped|killed|terminated|aborted|deleted|interrupted)"
        r" by (?:the |an? )?(?:user|admin\w*|operator|root)\b"
        r"|\b(?:[Jj]ob|[Rr]un|[Tt]ask|[Tt]raining|[Ee]xperiment|[Ww]orkflow|[Tt]rial|[Ss]ession|[Pp]od|[Ii]nstance|[Aa]pplication)"
        r" (?:cancell?ed|stopped|killed|terminated|aborted|deleted|interrupted) by (?:user|admin\w*|operator|root)\b",
        layer="launcher",
        source="Python, Lightning, shells; services that name who ended a job",
        sample="Detected KeyboardInterrupt, attempting graceful shutdown ...",
        near="a KeyboardInterrupt is handled like the end of the training",
    ),
)
