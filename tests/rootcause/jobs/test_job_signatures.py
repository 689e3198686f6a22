"""What batch systems, Kubernetes, clouds, frameworks and supervisors write about jobs, and the same words in healthy logs."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of


@pytest.mark.parametrize(
    ("fault", "log"),
    [
        # ---- batch systems
        ("node_failure", "requeue job JobId=551209 due to failure of node trn-r04u18"),
        ("node_failure", "Not responding       slurm     2025-03-01T01:01:01 gn[04-05]"),
        (
            "node_failure",
            "   8123  gpu  llama  ann  PD  0:00  4 (ReqNodeNotAvail, UnavailableNodes:gn7)",
        ),
        ("host_oom", "State: OUT_OF_MEMORY (exit code 0)"),
        ("preemption", "8123|llama|gpu|TIMEOUT|0:0|"),
        ("unknown", "8123|llama|gpu|FAILED|1:0|"),
        ("config_error", "qsub: Unknown resource: Resource_List.ngpu"),
        ("config_error", "Queue gpu_x is not known: No such queue. Job not submitted."),
        ("preemption", "failed       37  : qmaster enforced h_rt limit"),
        ("config_error", "failed       26  : opening input/output file"),
        (
            "preemption",
            "1743.2s: job.exception type=timeout severity=0 resource allocation expired",
        ),
        (
            "config_error",
            'job.exception type=alloc severity=0 alloc denied due to type="unsatisfiable"',
        ),
        ("unknown", "\t(1) Normal termination (return value 1)"),
        # ---- Kubernetes
        (
            "config_error",
            "Warning  FailedScheduling  4s  default-scheduler  0/3 nodes are available: 1 node(s) had untolerated taint"
            " {node-role.kubernetes.io/control-plane: }, 2 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            "config_error",
            'MountVolume.SetUp failed for volume "cfg" : configmap "llm-config" not found',
        ),
        (
            "filesystem",
            'Multi-Attach error for volume "pvc-77ad" Volume is already exclusively attached to one node',
        ),
        (
            "config_error",
            '"message":"Error creating: pods \\"llama-0\\" is forbidden: exceeded quota: gpu-quota"',
        ),
        ("unknown", "llama-worker-0   0/1   Init:Error   0   9m"),
        ("config_error", "llama-worker-0   0/1   Init:ImagePullBackOff   0   9m"),
        ("host_oom", '{"terminated":{"exitCode":137,"reason":"OOMKilled"}}'),
        ("node_failure", "gpu-3   NotReady   <none>   41d   v1.29.3"),
        ("preemption", "  reason: PreemptionByScheduler"),
        ("unknown", "Killing  Container trainer failed liveness probe, will be restarted"),
        # ---- clouds
        (
            "preemption",
            "Resources are insufficient in region: us-central1. Please try a different region.",
        ),
        ("preemption", "Your spot pod abc123 has been outbid and will be stopped in 5 seconds"),
        ("preemption", "Instance 8123 has been stopped due to insufficient credit"),
        ("config_error", "Quota 'NVIDIA_H100_GPUS' exceeded.  Limit: 8.0 in region us-central1."),
        (
            "config_error",
            "CannotPullContainerError: pull image manifest has been retried 1 time(s)",
        ),
        ("preemption", "statusReason: Host EC2 (instance i-0abf) terminated."),
        (
            "preemption",
            "Failed. Reason: CapacityError: Unable to provision requested ML compute capacity.",
        ),
        # ---- frameworks
        ("node_failure", "ray.exceptions.NodeDiedError: Task was killed due to the node dying."),
        (
            "host_oom",
            "WARNING - Worker tcp://10.0.0.7:33011 (pid=812) exceeded 95% memory budget. Restarting...",
        ),
        (
            "host_oom",
            "Lost executor 7 on dn31: Container killed by YARN for exceeding memory limits. 24.3 GB of 24 GB used",
        ),
        ("node_failure", "TASK_LOST: Reason: REASON_SLAVE_REMOVED, Message: 'Slave dn41 removed'"),
        ("node_failure", "node tvm-1_1 state changed: running -> unusable"),
        ("preemption", "job 12: state RUNNING -> PREEMPTED"),
        # ---- supervisors and people
        ("host_oom", "systemd[1]: trainer.service: Failed with result 'oom-kill'."),
        ("unknown", "WARN exited: trainer (terminated by SIGABRT (core dumped); not expected)"),
        ("preemption", "^CReceived KeyboardInterrupt, shutting down"),
        ("preemption", "Job 812 was cancelled by user ann"),
        ("preemption", "timeout: sending signal TERM to command 'python'"),
        ("node_failure", "The self-hosted runner: gpu-3 lost communication with the server."),
        ("host_oom", "Your session crashed after using all available RAM."),
    ],
)
def test_what_ended_a_job_is_named(fault: str, log: str) -> None:
    """By itself, at any level."""
    (verdict, *_) = verdicts_of(f"{log}\n")
    assert verdict.cause.fault == fault


@pytest.mark.parametrize(
    "log",
    [
        "8123|llama|gpu|COMPLETED|0:0|",
        "State: COMPLETED (exit code 0)",
        "qsub: waiting for job 7741.head to start\nqsub: job 7741.head ready",
        "\t(1) Normal termination (return value 0)",
        "   8124  gpu  llama  ann  PD  0:00  4 (Resources)",
        "node.kubernetes.io/unreachable:NoExecute op=Exists for 300s",
        "gpu-3   Ready   <none>   41d   v1.29.3",
        "  reason: KubeletReady",
        "      Exit Code:    0",
        '"State": {"Status": "running", "OOMKilled": false, "ExitCode": 0}',
        "node gpu-3 state changed: Provisioning -> Ready\njob llama: state RUNNING -> SUCCEEDED",
        "The run can be cancelled by the user at any time; jobs stopped by the user keep their checkpoints.",
        "Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
        "preempted: FALSE",
        "Exit codes: 0 success, 1 user error, 75 preempted (requeue), 137 killed",
        "dgx-017: 8/8 GPUs healthy, 0 failed checks, no node failures",
        "epilog will drain node on failure",
        "8 of 8 instances available; InsufficientInstanceCapacity count in last 24h: 0",
        "  --max-restarts N  restarts after a node failure\n  --kill-timeout S  time between SIGTERM and SIGKILL",
        "systemd[1]: fwupd-refresh.service: Failed with result 'exit-code'.",
        "retry_on: [NodeFailure, SpotInterruption], max_retries: 3",
        "WARNING: no instances available for class 31 in val split",
        "slurmstepd: debug:  mpi/pmix_v4: pmixp_coll_ring_init: collective timeout is set to 300",
        "# A job that was cancelled by the user exits with 130; see docs.",
        "handlers: {NodeDiedError: restart, OutOfMemoryError: fail, KilledWorker: retry}",
        "QuotaExceeded alerts in last 24h: 0",
        "HF hub: instance set to offline mode",
        "node_failures=0 preemptions=0 oom_kills=0 evictions=0",
    ],
)
def test_the_same_words_of_a_healthy_job_are_no_fault(log: str) -> None:
    """Options, counts of nothing, states that are well."""
    assert not verdicts_of(f"{log}\n")


@pytest.mark.parametrize(
    "log",
    [
        'Multi-Attach error for volume "pvc-77ad" Volume is already attached\n'
        'AttachVolume.Attach succeeded for volume "pvc-77ad"\n',
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100\n"
        "Admitted by ClusterQueue team\n",
        "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.\n"
        "Successfully assigned train/llama-0 to gpu-3\n",
        "Failed to create pod sandbox: rpc error: code = Unknown\nNormal  Started  4m  kubelet  Started container trainer\n",
    ],
)
def test_what_a_pod_waited_for_and_got_is_no_fault(log: str) -> None:
    """Kubernetes tries again until it can."""
    assert not verdicts_of(log)
