"""The device of a rank, and whether there is a GPU, without a call of CUDA.

A process that has called the driver, even to count GPUs, has its files open and a thread of it, and cannot fork ranks. So
`has_gpu` reads the device files. DeepSpeed 0.19.8 calls the driver while it is imported all the same, so on GPUs the
trainer's ranks are fresh processes (`bench/results/gpu.txt`).
"""

import os
from pathlib import Path

import torch

_FILES = Path("/dev")


def has_gpu() -> bool:
    """Whether ranks compute on a GPU here. Calls a driver only where there is no NVIDIA device file (ROCm, WSL)."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if torch.version.cuda and any(_FILES.glob("nvidia[0-9]*")):
        return True
    return torch.cuda.is_available()


def own_device(*, repeatable: bool) -> torch.device:
    """Return the device of this rank: the GPU with its local rank, or the CPU. `repeatable`: kernels repeat bit for bit.

    Raises RuntimeError when CUDA does not find the GPU. A rank must not continue unnoticed at a CPU's speed; and since a GPU or
    its driver may have failed, that is a crash on this node, not a refused setting.
    """
    if not has_gpu():
        return torch.device("cpu")
    local_rank, num_gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local_rank >= num_gpus:
        raise RuntimeError(
            f"local rank {local_rank} needs a GPU of its own and CUDA finds {num_gpus} here: nvidia-smi lists them; "
            "or start fewer ranks on a node, or set CUDA_VISIBLE_DEVICES to nothing to train on the CPU"
        )
    torch.cuda.set_device(local_rank)
    if repeatable:
        _use_deterministic_kernels()
    return torch.device("cuda", local_rank)


def _use_deterministic_kernels() -> None:
    """Choose kernels that add in the same order each time; torch raises RuntimeError where it has none.

    https://pytorch.org/docs/stable/notes/randomness.html
    """
    # cuBLAS reads it when it is first used.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
