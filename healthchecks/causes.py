"""Which checks can confirm or clear a cause: what runs after a failure, on the node that is suspected and on one beside it."""

from collections.abc import Mapping

from healthchecks.check import NodeFacts
from healthchecks.coverage import suits
from healthchecks.registry import all_checks

_GPU = ("gpu", "amd_gpu", "kernel_log")
_NUMBERS = ("compute_exact", "training_step", "memory_patterns")
_HOST = ("machine", "memory", "memory_patterns", "kernel_log", "disk_space", "interconnect")
_NETWORK = ("interconnect", "loopback", "collectives")
# Of faults that hardware can have caused (`runner/facts/faults.py`); of others no check says more than their lines do.
CHECKS_OF_CAUSE: Mapping[str, tuple[str, ...]] = {
    "gpu_ecc": (*_GPU, "memory_patterns"),
    "gpu_lost": _GPU,
    "gpu_xid_other": (*_GPU, "compute_exact"),
    "nvlink_error": ("gpu_links", "amd_gpu", "kernel_log", "pair_copies", "collectives"),
    "thermal_power": (*_GPU, "compute_rate"),
    "cuda_illegal_access": (*_GPU, "compute_exact", "memory_patterns"),
    "nan_loss": _NUMBERS,
    "skipped_steps": _NUMBERS,
    "loss_scale_floor": _NUMBERS,
    "replicas_disagree": _NUMBERS,
    "nccl_network": _NETWORK,
    "nccl_timeout": _NETWORK,
    "rendezvous": _NETWORK,
    "straggler": ("gpu", "amd_gpu", "compute_rate", "memory_bandwidth"),
    # It may return with another driver, too.
    "node_failure": (*_HOST, "compute_exact", "versions"),
    "host_hardware": (*_HOST, "gpu_links", "compute_exact"),
    "device_vanished": (*_GPU, "gpu_links", "machine", "disk_space", "interconnect"),
    "host_oom": ("memory", "kernel_log"),
    "filesystem": ("disk_space", "kernel_log"),
    "checkpoint_io": ("disk_space", "kernel_log"),
}


def checks_of_cause(cause: str, node: NodeFacts) -> tuple[str, ...]:
    """Return the names of the checks of a node that can confirm or clear a cause; none where no check can."""
    checks = all_checks()
    wanted = CHECKS_OF_CAUSE.get(cause, ())
    return tuple(name for name, check in checks.items() if name in wanted and suits(check, node))
