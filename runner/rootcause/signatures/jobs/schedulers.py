"""Batch systems: Slurm, PBS and Torque, LSF and jsrun, Grid Engine, HTCondor, Flux."""

from runner.rootcause.signatures.jobs.rows import ended, failed, memory, node_gone, refused, storage
from runner.rootcause.signatures.signature import Signature

BATCH_SYSTEMS = (
    # ---- Slurm
    node_gone(
        "slurm-node-of-job",
        r"\brequeue job JobId=\S+ due to failure of node\b|\b[Kk]illing JobId=\S+ on failed node\b"
        r"|\bBatch JobId=\S+ missing from (?:batch )?node\b|\bNode \S+ unexpectedly rebooted\b"
        r"|\b(?:Task|Job) launch for \S+ failed on node \S+: (?:Communication connection failure|Socket timed out"
        r"|Unable to contact|Connection (?:refused|timed out)|No route to host|Zero Bytes)"
        # Reasons of nodes: with who set them in brackets, and in the table of sinfo -R.
        r"|\bReason=(?:Not responding|Node unexpectedly rebooted|Kill task failed|Duplicate jobid|batch job complete failure"
        r"|(?:[Pp]rolog|[Ee]pilog) (?:error|failed)|NHC: ) ?[^\[]{0,120}\[\w+@"
        r"|^(?:Not responding|Node unexpectedly rebo\w*|Kill task failed|[Pp]rolog error|[Ee]pilog error|NHC: \S.{0,60}?)"
        r" +\w+(?:\(\d+\))? +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d +\S",
        source="Slurm, slurmctld, srun and sinfo: the node of a job is down, or was taken out by its prolog or epilog",
        sample="requeue job JobId=551209 due to failure of node trn-r04u18",
        near="requeue job JobId=551209 on request of its owner",
    ),
    node_gone(
        "slurm-cloud-nodes-unhealthy",
        r"\bFound the following unhealthy (?:static|dynamic) nodes: \(x[1-9]",
        source="AWS ParallelCluster, clustermgtd",
        sample="clustermgtd - WARNING - Found the following unhealthy static nodes: (x1) ['gpu-st-p5-3']",
        near="clustermgtd - INFO - Found the following unhealthy static nodes: (x0) []",
    ),
    ended(
        "slurm-interrupted-by-person",
        r"\bsrun: (?:sending Ctrl-C to |interrupt \(one more|forcing job termination)|\bsrun: (?:error: )?aborting job\b"
        r"|\b(?:CANCELLED|KILLED) by (?:uid |UID )?\d+\b|\bJobState=CANCELLED\b|\bRun time \S+, CANCELLED\b"
        r"|\bState: CANCELLED \(exit code"
        r"|\"current\": ?\[? ?\"CANCELLED\"|\bCANCELLED\+? +-?\d{1,3}:\d{1,3}\b"
        r"|_slurm_rpc_kill_job\w*: REQUEST_KILL_JOB JobId=\S+ uid \d",
        layer="launcher",
        source="Slurm, srun, sacct and slurmctld",
        sample="srun: sending Ctrl-C to StepId=771.0",
        near="srun: launching StepId=771.0 on host n1, 8 tasks: [0-7]",
    ),
    refused(
        "slurm-job-cannot-start",
        r"\b[Rr]eason[=:] ?(?:BadConstraints|InvalidAccount|InvalidQOS|DependencyNeverSatisfied|PartitionNodeLimit"
        r"|PartitionTimeLimit|AssocMaxWallDurationPerJobLimit|QOSMaxWallDurationPerJobLimit|PartitionInactive)\b"
        r"|\((?:BadConstraints|InvalidAccount|InvalidQOS|DependencyNeverSatisfied|PartitionNodeLimit"
        r"|PartitionTimeLimit)\)[ \t\r]*$",
        source="Slurm, squeue and scontrol: a job that waits for what will not come",
        sample="   JobState=PENDING Reason=DependencyNeverSatisfied Dependency=afterok:811(failed)",
        near="   JobState=PENDING Reason=Dependency Dependency=afterok:811(unfulfilled)",
    ),
    refused(
        "alps-refused",
        r"\bapsched: (?:claim|request) exceeds\b|\baprun: (?:-\w .{0,60}exceeds|file \S+ not found|requested \S+ .{0,60}exceeds)",
        source="Cray ALPS, aprun",
        sample="apsched: claim exceeds reservation's node-count",
        near="apsched: claim of 4 nodes is confirmed",
    ),
    Signature(
        "processes-do-not-meet-in-pmix",
        r"\bmpi/pmi\w*: .{0,160}(?:\bunexpected contrib\b|\bError handler invoked\b|[Cc]ollective timeout(?: seq| on "
        r"|[ \t\r]*$)|\b_agent_timeout\b"
        r"|\bno progress\b|\bcan ?not (?:send|connect)\b|\bUnable to send\b)",
        fault="rendezvous",
        layer="network",
        scope="fabric",
        source="Slurm, its plug-in mpi/pmix: the exchange of addresses at the start of a step",
        sample="slurmstepd: error:  mpi/pmix_v4: _errhandler: gn4 [1]: pmixp_client_v2.c:211: Error handler invoked: status = -25",
        near="slurmstepd: debug:  mpi/pmix_v4: pmixp_stepd_init: gn4 [1]: initialised",
    ),
    failed(
        "slurm-launch-failed",
        r"\blaunch failed requeued held\b|\b[Rr]eason=(?:JobLaunchFailure|NonZeroExitCode|RaisedSignal:\d+)\b",
        source="Slurm, squeue and scontrol",
        sample="  8123  gpu  llama  ann  PD  0:00  4 (launch failed requeued held)",
        near="  8123  gpu  llama  ann  PD  0:00  4 (job requeued in held state)",
    ),
    node_gone(
        "slurm-node-reason",
        r"\bReason=NodeDown\b|\(NodeDown\)[ \t\r]*$|\bReason=ReqNodeNotAvail\b.{0,40}UnavailableNodes:\w"
        r"|\(ReqNodeNotAvail, ?UnavailableNodes:\w[^)]{0,200}\)",
        layer="launcher",
        source="Slurm, squeue and scontrol: the nodes that a job needs are down",
        sample="  8123  gpu  llama  ann  PD  0:00  4 (ReqNodeNotAvail, UnavailableNodes:dgx-[017-018])",
        near="  8123  gpu  llama  ann  PD  0:00  4 (Resources)",
    ),
    # ---- PBS, Torque
    refused(
        "qsub-refused",
        r"\bqsub: (?:Unknown|unknown|Illegal|illegal|Invalid|invalid|Job (?:exceeds|rejected|violates|submit)|Unauthorized"
        r"|Bad |Access |Maximum |Not allowed|Cannot|cannot|could not|script file|submit error|would exceed|request rejected"
        r"|directive error|No |Queue |Requested |ERROR|Error|error|Budget|Project|project|Account|account)",
        source="OpenPBS and Torque, qsub, of an answer of the server or its hooks",
        sample="qsub: Unknown resource: Resource_List.ngpu",
        near="qsub: waiting for job 7741.head to start",
    ),
    ended(
        "pbs-exit-of-time-or-request",
        r"\b[Ee]xit_status ?= ?(?:-2[89]|271)\b|\bjob deleted (?:via|by) \S|\bqdel(?:eted)?: job \S+ deleted\b",
        source="OpenPBS, JOB_EXEC_KILL_WALLTIME and 256 + the signal of qdel",
        sample="Exit_status=271 resources_used.walltime=11:40:02",
        near="Exit_status=0 resources_used.walltime=11:40:02",
    ),
    memory(
        "pbs-exit-of-memory",
        r"\b[Ee]xit_status ?= ?-2[67]\b",
        source="OpenPBS, JOB_EXEC_KILL_MEM and JOB_EXEC_KILL_VMEM",
        sample="Exit_status=-27 resources_used.mem=512gb",
        near="Exit_status=-29 resources_used.mem=512gb",
    ),
    failed(
        "pbs-exit",
        r"\b[Ee]xit_status ?= ?(?:-[1-9]\b|-1\d\b|[1-9]\d?\b|1\d\d\b|2[0-689]\d?\b|27[02-9]\b|2\b)"
        r"|\b[Jj]ob held, too many failed attempts to run\b",
        source="OpenPBS and Torque, accounting logs and qstat -x",
        sample="    Exit_status = 1",
        near="    Exit_status = 0",
    ),
    # ---- LSF, jsrun
    refused(
        "bsub-refused",
        r"\bJob not submitted\.[ \t\r]*$|\bRequest aborted by esub\b"
        r"|\bIt is only possible to use js commands within a job allocation\b"
        r"|^Error: (?:It is not possible|Could not find enough|Resource sets? .{0,80}not|Illegal).{0,120}",
        source="IBM LSF, bsub; IBM jsrun",
        sample="Queue gpu_x is not known: No such queue. Job not submitted.",
        near="Job <338122> is submitted to queue <batch>.",
    ),
    node_gone(
        "jsm-lost-host",
        r"\bRemote JSM server is not responding on host\b|\bJSM daemon timed out\b|\bLost connection to JSM server\b",
        source="IBM jsrun",
        sample="Error: Remote JSM server is not responding on host h41n04",
        near="JSM server is ready on host h41n04",
    ),
    ended(
        "job-deletion-requested",
        r"\bJob <\S{1,40}> is being (?:terminated|killed)|\bhas (?:registered the job \S+ for deletion|deleted job \d)"
        r"|\bqmaster enforced h_(?:rt|cpu)\b|\bvia condor_(?:hold|rm|vacate\w*)\b",
        source="IBM LSF, bkill; Grid Engine, qdel and qacct; HTCondor",
        sample="ann has registered the job 991204 for deletion",
        near="ann has registered the job 991204",
    ),
    # ---- Grid Engine
    refused(
        "grid-engine-refused",
        r"\bUnable to run job: (?:job rejected|unknown|denied|error|warning: )"
        r"|failed {6,12}(?:8 +: in prolog|7 +: before prolog|1[0-3] +: before pe_?start|26 +: opening input"
        r"|27 +: searching requested"
        r"|28 +: changing into working)|\bfailed (?:opening input/output file|searching requested shell"
        r"|changing into working directory) (?:because|before)|\b[Jj]ob \d+ has failed and was put into error state\b",
        source="Grid Engine, qsub and qacct",
        sample='Unable to run job: unknown resource "ngpu".',
        near="Your job 991204 has been submitted",
    ),
    failed(
        "grid-engine-failed-after-job",
        r"\bassumedly after job\b|\bdied through signal [A-Z]{3,6} \(\d",
        source="Grid Engine, qacct and mails",
        sample="failed       100 : assumedly after job",
        near="failed       0",
    ),
    # ---- HTCondor
    refused(
        "condor-cannot-run-or-send",
        r"\b(?:SHADOW|STARTER) at \S+ failed to (?:send|receive) files?\b.{0,300}\(?errno\W{0,2}(?:2|13)\b"
        r"|\bError from \S+: Failed to execute '|\bFailed to (?:initialize|set up) (?:user log|job environment)\b",
        layer="machine",
        source="HTCondor, user logs: files that are not there, and programs that cannot be started",
        sample="\tError from slot1@e22: SHADOW at 10.1.0.2 failed to send file(s) to <10.1.4.22:9618>: error reading from"
        " /home/u/a.tar: "
        "(errno 2) No such file or directory",
        near="\tSHADOW at 10.1.0.2 sent 3 file(s) to <10.1.4.22:9618>",
    ),
    storage(
        "condor-cannot-store",
        r"\b(?:SHADOW|STARTER) at \S+ failed to (?:send|receive) files?\b.{0,300}\(?errno\W{0,2}(?:5|28|30|116|122)\b",
        source="HTCondor, user logs",
        sample="\tError from slot1@e22: STARTER at 10.1.4.22 failed to receive file(s) from <10.1.0.2:9618>: error writing to "
        "/var/condor/a.tar: (errno 28) No space left on device",
        near="\tSTARTER at 10.1.4.22 received 3 file(s) from <10.1.0.2:9618>",
    ),
    ended(
        "condor-removed-by-policy",
        r"\b(?:PeriodicRemove|SYSTEM_PERIODIC_REMOVE) expression\b.{0,200}\bevaluated to TRUE\b"
        r"|\b009 \(\d+\.\d+\.\d+\) .{0,40}Job was aborted|\bby the PREEMPT(?:ION_REQUIREMENTS)? expression\b"
        r"|\bJob was aborted by the user\b",
        source="HTCondor, user logs",
        sample="\tThe job attribute PeriodicRemove expression 'x > 3' evaluated to TRUE",
        near="\tThe job attribute PeriodicRemove expression 'x > 3' evaluated to FALSE",
    ),
    failed(
        "condor-abnormal-end",
        r"\(0\) Abnormal termination \(signal \d|\(1\) Normal termination \(return value [1-9]"
        r"|\b007 \(\d+\.\d+\.\d+\) .{0,40}Shadow exception",
        source="HTCondor, user logs",
        sample="\t(1) Normal termination (return value 1)",
        near="\t(1) Normal termination (return value 0)",
    ),
    # ---- Flux
    ended(
        "flux-exception-of-time-or-person",
        r"\bjob\.exception\b.{0,80}\btype\W{1,3}(?:timeout|cancel|preempt\w*|scheduler-restart)\b"
        r"|\bname\W{1,4}exception\b.{0,80}\btype\W{1,4}(?:timeout|cancel|preempt\w*)\b|\bexception type=(?:timeout|cancel|preempt)",
        source="Flux, the event log of a job",
        sample="1743.2s: job.exception type=cancel severity=0 userid=5012 canceled for maintenance",
        near="1743.2s: job.exception type=exec severity=0 task 3 failed",
    ),
    refused(
        "flux-exception-of-request",
        r"\bjob\.exception\b.{0,80}\btype\W{1,3}(?:alloc|validate|dependency|frobnicator|feasibility)\b"
        r"|\bunsatisfiable request\b|\balloc denied due to type=",
        source="Flux, the event log of a job and flux submit",
        sample='0.031s: job.exception type=alloc severity=0 alloc denied due to type="unsatisfiable"',
        near="0.031s: job.alloc annotations={}",
    ),
    node_gone(
        "flux-exception-of-node",
        r"\bjob\.exception\b.{0,80}\btype\W{1,3}(?:node-failure|prolog|epilog)\b|\blost contact with broker on\b"
        r"|\bbroker\.err\b.{0,80}\b(?:lost|transitioned to LOST|disconnected)\b",
        source="Flux, the event log of a job and its brokers",
        sample="job.exception type=node-failure severity=0 lost contact with broker on tioga21 (rank 4)",
        near="broker.info[0]: online: tioga[20-21] (ranks 0-1)",
    ),
)
