"""Small saves made by hand, without torch, in the forms that `test_adapters` finds in what the libraries write."""

import argparse
import io
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path


def saved(state: object) -> bytes:
    """Return what `torch.save` writes for a state without tensors."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
    return file.getvalue()


def lightning_file(path: Path, step: int) -> None:
    """Write a checkpoint of Lightning."""
    path.write_bytes(saved({"global_step": step, "pytorch-lightning_version": "2.6.6"}))


def megatron_folder(path: Path, iteration: int) -> None:
    """Write a checkpoint of Megatron-LM's format `torch`, of one rank."""
    arguments = argparse.Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1)
    (path / "mp_rank_00").mkdir(parents=True)
    state = saved({"args": arguments, "iteration": iteration})
    (path / "mp_rank_00/model_optim_rng.pt").write_bytes(state)


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


@dataclass(frozen=True)
class MetadataIndex:
    """What `.metadata` calls a tensor by: torch's class of that name has more fields."""

    fqn: str


def titan_folder(path: Path) -> None:
    """Write a folder of torch.distributed.checkpoint with one file, and its `.metadata` last."""
    path.mkdir(exist_ok=True)
    piece = saved({"weights": 1})
    (path / "__0_0.distcp").write_bytes(piece)
    place = _StorageInfo("__0_0.distcp", 0, len(piece))
    (path / ".metadata").write_bytes(
        pickle.dumps({"storage_data": {MetadataIndex("optimizer.weights"): place}})
    )
