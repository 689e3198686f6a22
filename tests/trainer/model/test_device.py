"""Which device a rank takes: read from the device files, so that no process talks to a driver before it is a rank."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainer.parallel import device

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU answers here"),
]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend to a machine with these device files, and to a torch built for CUDA or not."""

    def pretend(*files: str, cuda: str | None = "13.0") -> None:
        for name in files:
            (tmp_path / name).touch()
        monkeypatch.setattr(device, "_FILES", tmp_path)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return pretend


def test_device_files_are_counted_as_gpus(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A numbered file is a GPU, unless it is hidden or torch cannot use it; the driver's own files are none."""
    machine("nvidiactl", "nvidia-uvm")
    assert not device.has_gpu()
    machine("nvidia0")
    assert device.has_gpu()
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not device.has_gpu()
    machine(cuda=None)
    assert not device.has_gpu()


def test_without_gpus_it_is_the_cpu(machine: Callable[..., None]) -> None:
    """No variable of torchrun is needed for that."""
    machine()
    assert device.own_device(repeatable=True) == torch.device("cpu")


def test_a_rank_with_a_failed_gpu_does_not_fall_back_to_the_cpu(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank whose GPU has failed crashes, and its error names the missing device and the remedy."""
    machine("nvidia0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(RuntimeError, match=r"local rank 0 .* CUDA finds 0 here: nvidia-smi"):
        device.own_device(repeatable=False)
