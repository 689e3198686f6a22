"""What a warm process imports for the trainer can be forked from, and leaves a rank nothing to import."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.trainer

PRELOAD = """
import json, os, sys
import torch
from torch.utils._python_dispatch import TorchDispatchMode

operations = []

class Noting(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        operations.append(str(func))
        return func(*args, **(kwargs or {}))

with Noting():
    import trainer.preload
threads = os.listdir("/proc/self/task")
is_cuda_up = torch.cuda.is_initialized()
before = set(sys.modules)
from trainer.cli import main
code = main(sys.argv[1:])
later = [name for name in sys.modules if name not in before]
print(json.dumps([operations, len(threads), is_cuda_up, code, later]))
"""
ONE_RANK = ("layout.tensor=1", "layout.pipeline=1", "steps=3", "checkpoint_every=2")


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Import what is preloaded, then train three steps in the same process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("preload")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_PORT": str(port),
        "STOKER_CHECKPOINTS": str(folder),
    }
    settings = [word for setting in ONE_RANK for word in ("--set", setting)]
    command = [sys.executable, "-P", "-c", PRELOAD, "--recipe", "tiny_cpu", *settings]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_preload_can_be_forked_from(preloaded: list[Any]) -> None:
    """Importing runs no tensor operation, starts no thread and does not touch CUDA."""
    operations, num_threads, is_cuda_up, code, _ = preloaded
    assert operations == []
    assert (num_threads, is_cuda_up, code) == (1, False, 0)


def test_the_preload_leaves_nothing_to_import(preloaded: list[Any]) -> None:
    """Three steps and a checkpoint import nothing further from the libraries that take long."""
    later = [
        name for name in preloaded[-1] if name.partition(".")[0] in ("deepspeed", "numpy", "torch")
    ]
    assert later == []
