"""The device a rank computes on, and what is known of it before CUDA is asked.

A process that has talked to the driver, even to count its GPUs, has its files open and a thread of it, and cannot fork ranks. So
whether there is a GPU is read from the device files. (DeepSpeed 0.19.8 talks to the driver while it is imported all the same, so on
GPUs the trainer's ranks are fresh processes: `bench/results/gpu.txt`.)
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

_FILES = Path("/dev")


def has_gpu() -> bool:
    """Whether ranks here are to compute on a GPU. A driver is asked only where no NVIDIA device file tells (ROCm, WSL)."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if torch.version.cuda and any(_FILES.glob("nvidia[0-9]*")):
        return True
    return torch.cuda.is_available()


def own_device(*, repeatable: bool) -> torch.device:
    """Return the device of this rank, which takes the GPU with its local rank; `repeatable`: with kernels that repeat bit for bit.

    Raises RuntimeError when CUDA does not find it: a rank must not go on at a CPU's pace unnoticed, and since a GPU or its driver
    may have failed, that is a crash of this node, not a setting to refuse.
    """
    if not has_gpu():
        return torch.device("cpu")
    local_rank, found = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local_rank >= found:
        raise RuntimeError(
            f"local rank {local_rank} needs a GPU of its own and CUDA finds {found} here: nvidia-smi tells which; "
            "or start fewer ranks on a node, or set CUDA_VISIBLE_DEVICES to nothing to train on the CPU"
        )
    torch.cuda.set_device(local_rank)
    if repeatable:
        _repeat_bit_for_bit()
    return torch.device("cuda", local_rank)


def _repeat_bit_for_bit() -> None:
    """Have kernels chosen that add up in the same order each time; torch raises RuntimeError where it has none.

    https://pytorch.org/docs/stable/notes/randomness.html
    """
    # read by cuBLAS when it is first used
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
