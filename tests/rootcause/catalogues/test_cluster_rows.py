"""What the catalogues of schedulers and launchers say of single messages."""

import pytest

from tests.rootcause.catalogues.rows_of import levels, row


@pytest.mark.parametrize(
    ("name", "errors", "harmless"),
    [
        ("slurm", 3000, 800),
        ("open_mpi", 1800, 300),
        ("systemd", 1500, 150),
        ("kubernetes", 1000, 500),
        ("containerd", 900, 60),
        ("docker", 800, 20),
        ("ray", 1000, 150),
        ("ipmi_events", 150, 30),
        ("lustre", 50, 3),
        ("gpfs", 20, 4),
        ("beegfs", 10, 2),
        ("kubernetes_events", 60, 4),
        ("cloud_notices", 30, 2),
        ("neuron", 70, 1),
        ("habana", 50, 1),
        ("ascend", 90, 0),
        ("intel_gpu", 60, 0),
        ("linux_gaudi", 500, 40),
        ("linux_xe", 150, 50),
        ("linux_i915", 150, 70),
        ("open_mpi_4", 12, 0),
        ("nvidia_containers", 60, 0),
        ("job_operators", 110, 20),
        ("mpich", 45, 0),
        ("hpc_containers", 50, 0),
        ("storage_tools", 80, 0),
        ("fabric_tools", 15, 0),
        ("openssh", 12, 0),
        ("linux_older", 12, 0),
    ],
)
def test_a_catalogue_has_errors_and_what_is_harmless(name: str, errors: int, harmless: int) -> None:
    """The rows by level are about those that the sources have."""
    counts = levels(name)
    assert counts["error"] + counts["warning"] >= errors
    assert counts["info"] >= harmless


@pytest.mark.parametrize(
    ("name", "text", "level", "fault"),
    [
        ("slurm", "Nodes %s not responding, setting DOWN", "error", "node_failure"),
        ("slurm", "DUE TO NODE FAILURE", "error", "node_failure"),
        ("slurm", "DUE TO JOB NOT ENDING WITH SIGNALS", "error", "node_failure"),
        ("slurm", "Job killed due node failure", "error", "node_failure"),
        ("slurm", "DUE TO TIME LIMIT", "error", "preemption"),
        ("slurm", "DUE TO PREEMPTION", "error", "preemption"),
        ("slurm", "Some of the step tasks have been OOM Killed", "error", "host_oom"),
        ("slurm", "Cannot read step's oom_kill counter", "warning", ""),
        ("slurm", "Requested node configuration is not available", "error", "config_error"),
        ("slurm", "Job credential expired", "error", "config_error"),
        ("slurm", "Node %s now responding", "info", ""),
        ("open_mpi", "PRTE has lost communication with a remote daemon.", "error", "node_failure"),
        ("open_mpi", "process is unreachable", "error", "nccl_network"),
        ("open_mpi", "There are not enough slots available in the system", "error", "config_error"),
        ("systemd", "Killed %s due to memory pressure", "info", "host_oom"),
        (
            "systemd",
            "A process of this unit has been killed by the OOM killer.",
            "info",
            "host_oom",
        ),
        ("kubernetes", "Container runtime not ready", "error", "node_failure"),
        ("kubernetes", "Unable to attach or mount volumes: %v", "warning", "filesystem"),
        ("ray", "The actor died because its node has died", "error", "node_failure"),
        ("ray", "were killed due to the node running low on memory", "error", "host_oom"),
        ("ray", "Node was forcibly preempted", "error", "preemption"),
        ("ipmi_events", "| Memory %s | Uncorrectable ECC%s | Asserted", "error", "host_hardware"),
        ("ipmi_events", "| Memory %s | Correctable ECC%s | Asserted", "info", ""),
        (
            "ipmi_events",
            "| Power Supply %s | Failure detected%s | Asserted",
            "error",
            "host_hardware",
        ),
        ("ipmi_events", "| Processor %s | Thermal Trip%s | Asserted", "error", "thermal_power"),
        ("lustre", "This client was evicted by", "error", "filesystem"),
        ("lustre", "Connection restored to", "info", ""),
        (
            "lustre",
            "was unreachable: the network or that node may be down",
            "error",
            "nccl_network",
        ),
        ("gpfs", "is being expelled due to expired lease", "error", "node_failure"),
        ("gpfs", "was {} forced to unmount", "error", "filesystem"),
        ("beegfs", "Communication error: Node: %s", "error", "filesystem"),
        ("kubernetes_events", "low on resource: memory", "error", "host_oom"),
        ("kubernetes_events", "low on resource: ephemeral-storage", "error", "filesystem"),
        ("kubernetes_events", "Kubelet stopped posting node status", "error", "node_failure"),
        ("kubernetes_events", "ImagePullBackOff", "error", "config_error"),
        ("kubernetes_events", "Successfully pulled image", "info", ""),
        ("cloud_notices", "compute.instances.preempted", "error", "preemption"),
        ("cloud_notices", "compute.instances.hostError", "error", "host_hardware"),
        ("neuron", "NRT_EXEC_HW_ERR_HBM_UE", "error", "gpu_ecc"),
        ("neuron", "NEURON_HW_ERR=DMA_ERROR", "error", "gpu_xid_other"),
        ("neuron", "Timeout waiting for RX", "warning", ""),
        ("habana", "PT_DEVMEM Allocation failed", "error", "cuda_oom"),
        ("habana", "synDeviceReset", "error", "gpu_lost"),
        ("ascend", "error code is 507054", "error", "gpu_ecc"),
        ("ascend", "Getting socket times out", "error", "nccl_timeout"),
        ("intel_gpu", "UR_RESULT_ERROR_DEVICE_LOST", "error", "gpu_lost"),
        ("intel_gpu", "PI_ERROR_OUT_OF_RESOURCES", "error", "cuda_oom"),
        ("linux_gaudi", "Failed to communicate with Device CPU", "error", "gpu_lost"),
        ("linux_xe", "has declared device %s as wedged", "error", "gpu_lost"),
        ("open_mpi_4", "ORTE has lost communication", "error", "node_failure"),
        ("xla", "!!!! FATAL ERROR !!!!", "error", "gpu_xid_other"),
        ("xla", "The program continuator has halted", "error", "gpu_xid_other"),
        ("containerd", "cleaning up after shim disconnected", "warning", "node_failure"),
        ("nvidia_containers", "driver rpc error: timed out", "error", "gpu_lost"),
        ("nvidia_containers", "unsatisfied condition", "error", "config_error"),
        ("job_operators", "PyTorchJob %s is running.", "info", ""),
        ("job_operators", "workers are evicted", "error", "preemption"),
        ("mpich", "OFI poll failed", "error", "nccl_network"),
        ("mpich", "process manager error waiting", "error", "node_failure"),
        ("hpc_containers", "pyxis: container start failed", "error", "config_error"),
        ("storage_tools", "has been suspended", "error", "filesystem"),
        ("fabric_tools", "Unexpected actual link speed", "error", "nccl_network"),
        ("openssh", "Host key verification failed.", "error", "config_error"),
        ("linux_older", "INVALID_DEVICE_REQUEST", "error", "host_hardware"),
        ("ascend", "reason=[driver error:device not exist]", "error", "gpu_lost"),
        ("ascend", "Stream synchronize timeout. %s", "error", "nccl_timeout"),
        ("habana", "critical error that requires a restart", "error", "gpu_lost"),
        ("kubernetes_events", "must evict pod(s) to reclaim nodefs", "error", "filesystem"),
        ("kubernetes_events", "kubelet has no disk pressure", "info", ""),
        ("ascend", "hcclCommInitRootInfoConfig(%s), error code", "error", "rendezvous"),
        ("ascend", "HcclAllGather, error code is 9", "error", "nccl_timeout"),
        ("gpfs", "GPFS is not ready to handle", "error", "filesystem"),
    ],
)
def test_a_message_has_the_class_that_its_document_gives(
    name: str, text: str, level: str, fault: str
) -> None:
    """Class and level of messages that the manuals explain."""
    found = row(name, text)
    assert (found["level"], found["fault"]) == (level, fault)
