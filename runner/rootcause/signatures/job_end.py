"""Lines of schedulers and launchers about the end of a job, on purpose or because a rank ended."""

from __future__ import annotations

from functools import partial

from runner.rootcause.signatures.signature import Signature, any_of

_launcher_rank = partial(Signature, layer="launcher", scope="rank")

_SLURM = "Slurm, slurmstepd and srun"

ENDING = (
    Signature(
        name="time-limit",
        pattern=any_of(
            r"DUE TO TIME LIMIT",
            r"DUE TO TIMEOUT",
            r"exceeded its time limit",
            r"walltime \S+ exceeded limit",
            r"PBS: job killed: walltime",
            r"TERM_RUNLIMIT",
            r"CANCELLED .*TIMEOUT",
        ),
        fault="preemption",
        layer="scheduler",
        scope="scheduler",
        source=_SLURM + "; PBS",
        sample="slurmstepd: error: *** STEP 77.0 ON gpu3 CANCELLED AT 2026-02-03T04:05:06 DUE TO TIME LIMIT ***",
        near="time limit of the step: 1190 minutes",
    ),
    Signature(
        name="preempted",
        pattern=any_of(
            r"DUE TO PREEMPTION",
            r"(?:job|node|instance|pod|vm|spot)\b.{0,60}\b(?:was |is |been |being |will be )?(?:pr"
            r"eempted|evicted|reclaimed)\b",
            r"received (?:a )?(?:preemption|termination|interruption) (?:notice|signal|warning)",
            r"preemption (?:notice|signal|warning) received",
            r"(?:spot|instance) (?:interruption|termination) (?:notice|warning)",
            r"maintenance event.{0,40}TERMINATE",
            r"TERM_PREEMPT",
            r"SIGTERM .*preempt|preempt\w* .*SIGTERM",
            r"\bPreempted by ",
            r"\bEvicted\b.{0,80}pod/",
            ignore_case=True,
        ),
        fault="preemption",
        layer="scheduler",
        scope="scheduler",
        source=_SLURM + "; notices of clouds",
        sample="slurmstepd: error: *** JOB 4021 ON a17 CANCELLED AT 2026-02-03T04:05:06 DUE TO PREEMPTION ***",
        near="global_step=7700, preemption_count=0, score=7490.24",
    ),
    Signature(
        name="cancelled",
        pattern=any_of(
            r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT",
            r"scancel(?:led)?: ",
            r"srun: Job step aborted: Waiting up to",
            r"\*\*\* JOB \d+ CANCELLED AT",
        ),
        fault="preemption",
        layer="launcher",
        scope="scheduler",
        source=_SLURM + ": on request, or because a task of the step died",
        sample="slurmstepd: error: *** STEP 1337.1 ON gpu0 CANCELLED AT 2026-02-03T04:05:06 ***",
        near="slurmstepd: task launched for STEP 1337.1 on gpu0",
    ),
    Signature(
        name="told-to-end",
        pattern=any_of(
            r"received SIGTERM",
            r"got signal ?:? ?(?:15|SIGTERM)",
            r"caught (?:signal )?SIGTERM",
            r"SignalException: Process \d+ got signal: 15",
            r"\bSIGTERM received\b",
            r"received signal 15",
            r"Caught signal 15",
            r"signal 15 \(Terminated\)",
            r"exiting program after receiving",
            ignore_case=True,
        ),
        fault="preemption",
        layer="launcher",
        scope="scheduler",
        source="DeepSpeed and torchrun launchers; trainers",
        sample="torch.distributed.elastic.multiprocessing.api.SignalException: Process 51 got signal: 15",
        near="Sending process 44 closing signal SIGTERM",
    ),
    _launcher_rank(
        name="launcher-root-cause",
        role="root-cause",
        pattern=r"Root Cause \(first observed failure\)",
        fault="unknown",
        source="torchrun",
        sample="Root Cause (first observed failure):",
        near="the first observed failure was no root cause",
    ),
    _launcher_rank(
        name="launcher-summary",
        role="death",
        pattern=any_of(
            r"ChildFailedError|terminated normally, but 1 process",
            r"failed \(exitcode: -?\d+\) local_rank: (?P<local_rank>\d+)",
            r"exits with return code = -?[1-9]\d*",
            r"srun: error: .*: task.* (?:Exited with exit code [1-9]\d*|Aborted|Killed|Segmentation fault|Bus "
            r"error)",
            r"exited with (?:non-?zero )?(?:exit )?(?:code|status) -?[1-9]\d*",
        ),
        fault="unknown",
        source="torchrun, DeepSpeed, srun",
        sample=(
            "torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1) local_rank: 3 "
            "(pid: 811) of binary: /usr/bin/python3"
        ),
        near="all 8 processes exited with code 0",
    ),
    _launcher_rank(
        name="summary-names-rank",
        role="names-rank",
        pattern=r"\brank\s+: (?P<rank>\d+) \(local_rank: \d+\)",
        fault="",
        weight="supporting",
        source="torchrun, its summary: the first failure that it saw",
        sample="  rank      : 12 (local_rank: 4)",
        near="  rank of the matrix: 12",
    ),
    _launcher_rank(
        name="died-by-signal",
        pattern=any_of(
            r"Segmentation fault(?: \(core dumped\))?",
            r"Fatal Python error: ",
            r"terminate called after throwing",
            r"\bAborted \(core dumped\)",
            r"Bus error \(core dumped\)",
            r"\*\*\* Process received signal \*\*\*",
            r"Signal \d+ \(SIG(?:SEGV|ABRT|BUS|FPE|ILL)\)",
            r"exitcode\s*: -(?:4|6|7|8|11)\b",
        ),
        fault="unknown",
        source="glibc, CPython, Open MPI: how it ended, not why",
        sample="Fatal Python error: Segmentation fault",
        near="fault handler is enabled for segmentation faults",
    ),
    Signature(
        name="killed-by-kernel",
        role="death",
        pattern=any_of(
            r"exitcode\s*: -9\b",
            r"\(exitcode: -9\)",
            r"Exited with exit code 137",
            r"exit code 137",
            r"return code = -9\b",
            r"Signal 9 \(SIGKILL\) received by PID",
        ),
        fault="host_oom",
        layer="launcher",
        scope="node",
        source="torchrun, srun, containers: SIGKILL that no launcher sent is the kernel's, as a rule",
        sample="torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 5 (pid: 1421) of binary: python",
        near="failed (exitcode: 1) local_rank: 5 (pid: 1421) of binary: python",
    ),
    Signature(
        name="looks-like-an-error",
        role="error-of-any-kind",
        pattern=any_of(
            r"(?:^|[\s:\]>\[])(?:FATAL|CRITICAL|PANIC|[Ff]atal error)(?:[:\]]| ?[-|] | the )",
            r"Check failed: ",
            r"^F\d{4} ",
            r"\bUnrecoverable error\b",
            r"\bERROR\b.*\b\w+(?:Error|Exception): \S",
            r"ErrorMessage \S",
        ),
        fault="unknown",
        layer="other",
        scope="rank",
        source="habits of loggers",
        sample="[monitor] FATAL the store is gone, nothing can be done",
        near="0 fatal problems in 12 checks",
    ),
    Signature(
        name="exception-of-any-kind",
        role="exception",
        pattern=r"[\w.]+(?:Error|Exception): \S",
        fault="unknown",
        layer="other",
        scope="rank",
        source="Python: exceptions that libraries define",
        sample="mylib.errors.StageError: the schedule has no stage called 'cooldown'",
        near="the number of errors: 3",
    ),
)
