"""Files of tensors that torch itself wrote: where their numbers lie is known without torch."""

import math
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.distributed.checkpoint.state_dict_saver import save  # noqa: E402

from runner.checkpoints.finite.distributed_names import distributed_names  # noqa: E402
from runner.checkpoints.finite.file_scan import ScanResult  # noqa: E402
from tests.checkpoints.test_finite import scan  # noqa: E402

pytestmark = pytest.mark.trainer


def state() -> dict[str, Any]:
    """Return a model and its optimizer after a step, a mask, and what else checkpoints have."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 4).to(torch.bfloat16))
    optimizer = torch.optim.AdamW(model[0].parameters())
    model[0](torch.ones(2, 16)).sum().backward()
    optimizer.step()
    mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
    return {
        "model": {**model.state_dict(), "attn.mask": mask, "half": torch.ones(7).half()},
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "step": 3,
        "parameter": torch.nn.Parameter(torch.ones(3, dtype=torch.float64)),
    }


def test_a_state_as_trainers_save_it(tmp_path: Path) -> None:
    """All tensors are covered, views of one storage among them; a mask of -inf is legal."""
    saved = state()
    table = torch.arange(20, dtype=torch.float32)
    saved["views"] = [table[3:7], table[5:], table[::4]]
    torch.save(saved, tmp_path / "file")
    found = scan(tmp_path / "file")
    assert (found.uncovered, found.not_finite) == ("", "")
    assert found.num_tensors == 6 + 6 + 2 + 3


@pytest.mark.parametrize(
    ("path", "bad", "words"),
    [
        (("model", "0.weight"), math.nan, "model.0.weight has NaN (number 5 of 128, float32)"),
        (
            ("model", "1.weight"),
            -math.inf,
            "model.1.weight has an infinity (number 5 of 32, bfloat16)",
        ),
        (("model", "half"), math.inf, "model.half has an infinity (number 5 of 7, float16)"),
        (("model", "attn.mask"), math.nan, "model.attn.mask has NaN (number 5 of 25, float32)"),
        (
            ("optimizer", "state", 0, "exp_avg_sq"),
            math.inf,
            "optimizer.state.0.exp_avg_sq has an infinity (number 5 of 128, float32)",
        ),
    ],
)
def test_what_is_not_finite_is_named(
    tmp_path: Path, path: tuple[Any, ...], bad: float, words: str
) -> None:
    """By its path in the state, and by its place."""
    saved = state()
    tensor: Any = saved
    for key in path:
        tensor = tensor[key]
    tensor.view(-1)[5] = bad
    if path[-1] == "half":
        # Not of two values alone: no mask.
        tensor[0] = 2.0
    torch.save(saved, tmp_path / "file")
    assert scan(tmp_path / "file").not_finite == words


def test_a_storage_that_only_a_view_uses_is_judged_by_the_view(tmp_path: Path) -> None:
    """What lies beside it in the storage is loaded and never used."""
    table = torch.full((10,), math.nan)
    table[2:6] = 1.0
    torch.save({"w": table[2:6]}, tmp_path / "file")
    assert scan(tmp_path / "file") == ScanResult(num_tensors=1)


def test_files_of_distributed_checkpoints_get_their_names_from_the_metadata(tmp_path: Path) -> None:
    """Each tensor is an archive of its own in the same file."""
    tensors = {"weight": torch.ones(8), "mask": torch.tensor([0.0, -math.inf])}
    for number, is_sick in enumerate((False, True)):
        tensors["weight"][3] = math.nan if is_sick else 1.0
        folder = tmp_path / str(number)
        save({"model": dict(tensors), "step": 3}, checkpoint_id=folder)
        names = distributed_names((folder / ".metadata").read_bytes())
        found = scan(folder / "__0_0.distcp", names=names["__0_0.distcp"])
        bad = "model.weight has NaN (number 3 of 8, float32)" if is_sick else ""
        assert found == ScanResult(num_tensors=2, not_finite=bad)
        assert scan(folder / ".metadata") == ScanResult()


def test_the_format_before_1_6_is_not_covered(tmp_path: Path) -> None:
    """It is neither finite nor refused."""
    legacy = {"_use_new_zipfile_serialization": False}
    torch.save({"w": torch.tensor([math.nan])}, tmp_path / "file", **legacy)
    found = scan(tmp_path / "file")
    assert found.uncovered
    assert found.not_finite == ""
