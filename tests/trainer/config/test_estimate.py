"""`--check`: estimates against counts made in other ways, and the answer to a program."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.config import device_memory as memory
from trainer.config import estimate
from trainer.config.settings import Settings, load_settings, recipe_names

SHAPES = [
    *recipe_names(),
    {"recipe": "tiny_3d", "model": {"norm": "layernorm", "mlp": "gelu", "positions": "learned"}},
    {"recipe": "tiny_3d", "model": {"bias": True, "ffn_width": 512}, "layout": {"pipeline": 4}},
    {"recipe": "tiny_cpu", "layout": {"tensor": 4, "pipeline": 1}, "model": {"bias": True}},
]


def named_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """List every parameter of a model with its shape, written out by hand as a checkpoint would name them."""
    width, inner, words = model.width, model.ffn_width, model.vocabulary
    shapes: dict[str, tuple[int, ...]] = {"embedding": (words, width), "head": (words, width)}
    if model.positions == "learned":
        shapes["positions"] = (model.sequence, width)
    linears = {"q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width)}
    linears |= {"up": (inner, width), "down": (width, inner)}
    if model.mlp == "swiglu":
        linears["gate"] = (inner, width)
    norms = ["norm"]
    for block in range(model.layers):
        shapes |= {f"{block}.{name}": shape for name, shape in linears.items()}
        if model.bias:
            shapes |= {f"{block}.{name}.bias": shape[:1] for name, shape in linears.items()}
        norms += [f"{block}.norm1", f"{block}.norm2"]
    shapes |= dict.fromkeys(norms, (width,))
    if model.norm == "layernorm":
        shapes |= {f"{name}.bias": (width,) for name in norms}
    return shapes


def elements(shape: tuple[int, ...]) -> int:
    """Multiply out."""
    return shape[0] if len(shape) == 1 else shape[0] * elements(shape[1:])


@pytest.mark.parametrize("source", SHAPES, ids=str)
def test_parameters(source: Any) -> None:
    """The count equals the sum over a list of all parameters written out one by one."""
    model = load_settings(source).model
    count = estimate.parameters(model)
    assert count["total"] == sum(elements(shape) for shape in named_shapes(model).values())
    parts = ("embedding", "positions", "blocks", "final_norm", "head")
    assert count["total"] == sum(count[part] for part in parts)
    assert count["blocks"] == model.layers * count["block"]


@pytest.mark.trainer
@pytest.mark.parametrize("source", SHAPES, ids=str)
def test_against_real_layers(source: Any) -> None:
    """Whole model and each pipeline stage have the parameters of the layers that are really built, on no device."""
    torch = pytest.importorskip("torch")
    from trainer.model.gpt import layers
    from trainer.parallel.collectives import Meter, TensorAxis
    from trainer.parallel.layout import stage_bounds

    def count(settings: Settings, tensor: int) -> list[int]:
        axis = TensorAxis(None, rank=0, size=tensor, meter=Meter(torch.device("cpu")))
        recipes = layers(settings.model, axis, recompute=False)
        with torch.device("meta"):
            built = [recipe.kind(*recipe.arguments, **recipe.options) for recipe in recipes]
        return [sum(p.numel() for p in layer.parameters()) for layer in built]

    settings = load_settings(source)
    assert estimate.parameters(settings.model)["total"] == sum(count(settings, 1))
    parts = count(settings, settings.layout.tensor)
    bounds = stage_bounds(settings.model.layers, settings.layout.pipeline)
    for stage in range(settings.layout.pipeline):
        held = sum(parts[bounds[stage] : bounds[stage + 1]])
        assert estimate.rank_parameters(settings, stage) == held


@pytest.mark.parametrize("source", SHAPES, ids=str)
def test_no_parameter_is_lost(source: Any) -> None:
    """The parts of all ranks of one replica hold the model, and only what every rank needs more than once."""
    settings = load_settings(source)
    model, layout = settings.model, settings.layout
    held = layout.tensor * sum(
        estimate.rank_parameters(settings, stage) for stage in range(layout.pipeline)
    )
    vectors = [
        elements(shape)
        for name, shape in named_shapes(model).items()
        if "norm" in name or name == "positions" or name.endswith(("o.bias", "down.bias"))
    ]
    assert held == estimate.parameters(model)["total"] + (layout.tensor - 1) * sum(vectors)


def test_frontier_figures() -> None:
    """175B on Frontier: the published parameters, bytes per parameter and pipeline bubble."""
    settings = load_settings("gpt_175b_frontier")
    answer = estimate.estimate(settings)
    assert answer["world_size"] == 64
    assert answer["parameters"]["blocks"] == pytest.approx(12 * 96 * 12288**2, rel=1e-3)
    assert answer["parameters"]["total"] == pytest.approx(173.9e9, rel=0.01)
    held = answer["bytes_per_rank"]
    states = held["parameters"] + held["gradients"] + held["optimizer"]
    assert states == 20 * answer["parameters"]["largest_rank"]
    assert 20 * answer["parameters"]["blocks"] == pytest.approx(3.5e12, rel=0.01)
    assert round(100 * answer["bubble"]["of_ideal_ratio"], 2) == 2.34
    assert round(100 * answer["bubble"]["of_total_ratio"], 2) == 2.29
    # 6 FLOPs per parameter and token, and attention's share: sequence / (6 width) of the blocks' (Narayanan et al. 2021).
    matrices = answer["parameters"]["blocks"] + answer["parameters"]["head"]
    attention = answer["parameters"]["blocks"] * 2048 / (6 * 12288)
    per_token = answer["model_flops_per_step"] / (640 * 2048)
    assert per_token == pytest.approx(6 * (matrices + attention), rel=1e-3)


def test_zero_shards_the_optimizer_alone() -> None:
    """More replicas divide the optimizer's bytes and leave parameters, gradients and activations as they are."""
    one, four = (
        estimate.rank_bytes(load_settings("tiny_cpu", [f"layout.data={data}"]), 0)
        for data in (1, 4)
    )
    assert one.optimizer == 4 * four.optimizer
    assert (one.parameters, one.gradients) == (four.parameters, four.gradients)
    assert one.activations == four.activations


@pytest.mark.parametrize(("dtype", "states"), [("fp32", 20), ("bf16", 20), ("fp16", 20)])
def test_bytes_per_parameter(dtype: str, states: int) -> None:
    """Weights, gradients with their fp32 sum, and Adam's three numbers make 20 bytes in each precision."""
    settings = load_settings("tiny_cpu", [f"precision.dtype={dtype}"])
    held = estimate.rank_bytes(settings, 1)
    total = held.parameters + held.gradients + held.optimizer
    assert total == states * estimate.rank_parameters(settings, 1)


def test_activation_formula() -> None:
    """Activations of a GELU block follow Korthikanti et al. 2022 (table 2) without dropout: sbh (8 + 24/t) bytes."""
    settings = load_settings(
        "gpt_175b_frontier", ["layout.pipeline=1", "layout.tensor=8", "batch.global_batch=1"]
    )
    model = settings.model
    bytes_kept = estimate.rank_bytes(settings, 0).activations_if_kept
    head = 2 * 2 * model.width + model.vocabulary // 8 * (2 + 8)
    per_token = bytes_kept / model.sequence - head
    # Two copies of attention's output are kept here where the paper counts one: 2/t more.
    assert per_token / model.layers == model.width * (8 + 26 / 8)


def test_checkpointing_saves() -> None:
    """Checkpointing costs fewer bytes than it keeps; the answer gives both and uses the one in effect."""
    kept = estimate.rank_bytes(load_settings("tiny_cpu"), 0)
    saved = estimate.rank_bytes(load_settings("tiny_cpu", ["activation_checkpointing=true"]), 0)
    assert kept.activations == kept.activations_if_kept == saved.activations_if_kept
    assert saved.activations == saved.activations_if_checkpointed < kept.activations


def test_worst_stage_is_reported() -> None:
    """The bytes are those of the stage that holds most: the first by activations, the last by a huge vocabulary."""
    first = estimate.estimate(load_settings("gpt_175b_frontier"))["bytes_per_rank"]
    last = estimate.estimate(load_settings("tiny_cpu", ["model.vocabulary=65536"]))[
        "bytes_per_rank"
    ]
    assert (first["stage"], last["stage"]) == (0, 1)
    parts = ("parameters", "gradients", "optimizer", "activations")
    assert first["total"] == sum(first[part] for part in parts)


def check(*arguments: str, folder: Path | None = None) -> tuple[int, dict[str, Any], str]:
    """Run `python -m trainer --check` where torch and numpy cannot be imported; return code, answer and errors."""
    program = (
        "import sys; sys.modules.update(torch=None, numpy=None, deepspeed=None); "
        "from trainer.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--check", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("name", recipe_names())
def test_check_without_torch(name: str) -> None:
    """Every recipe is judged in an interpreter without torch and numpy: exit 0, an answer in JSON, nothing else."""
    code, answer, errors = check("--recipe", name, "--ranks-here", "0")
    assert (code, errors) == (0, "")
    assert answer["ok"] is True
    assert answer["errors"] == []


def test_check_refuses_with_all_errors() -> None:
    """Settings that cannot work give exit code 78 and every error, still as JSON."""
    code, answer, _ = check(
        "--recipe", "tiny_cpu", "--set", "layout.tensor=3", "--set", "stepz=1", "--world-size", "5"
    )
    assert (code, answer["ok"]) == (78, False)
    starts = [error.split()[0] for error in answer["errors"]]
    assert starts == [
        "stepz",
        "model.heads",
        "model.ffn_width",
        "model.vocabulary",
        "layout.tensor",
    ]


def test_check_reads_files(tmp_path: Path) -> None:
    """Settings come from TOML, JSON, or the command line; what is none of them is refused by name."""
    (tmp_path / "a.toml").write_text('recipe = "tiny_cpu"\n[layout]\ndata = 2\n')
    (tmp_path / "a.json").write_text('{"recipe": "tiny_cpu", "layout": {"data": 2}}')
    for arguments in (
        ("--settings", "a.toml"),
        ("--settings", "a.json"),
        ("--settings-json", (tmp_path / "a.json").read_text()),
        ("--recipe", "tiny_3d"),
    ):
        code, answer, _ = check(*arguments, "--world-size", "8", folder=tmp_path)
        assert (code, answer["world_size"]) == (0, 8)
    (tmp_path / "bad.toml").write_text("a = = 1")
    for arguments, words in (
        (("--settings", "bad.toml"), "bad.toml is no TOML"),
        (("--settings", "none.json"), "none.json cannot be read: No such file"),
        (("--settings-json", "{"), "--settings-json is no JSON"),
        (("--settings-json", "[1]"), "--settings-json holds no object"),
    ):
        code, answer, _ = check(*arguments, folder=tmp_path)
        assert code == 78
        assert words in answer["errors"][0]


def test_check_reads_the_source(tmp_path: Path) -> None:
    """A data source that cannot be read, or is too short for a step, is refused before anything starts."""
    (tmp_path / "short").write_text("too short")
    for name, words in (("none", "cannot be read"), ("short", "fewer than batch.global_batch")):
        code, answer, _ = check(
            "--recipe",
            "tiny_cpu",
            "--set",
            "data.source=text",
            "--set",
            f"data.path={name}",
            folder=tmp_path,
        )
        assert code == 78
        assert words in answer["errors"][0]


FITS = ("--recipe", "tiny_cpu", "--set", "layout.pipeline=1", "--set", "layout.tensor=1")


def test_check_refuses_what_the_device_cannot_hold() -> None:
    """A model of terabytes on one rank of this machine is refused with the numbers of both, exit code 78; a small one is not."""
    grown = ("model.width=65536", "model.ffn_width=262144", "model.layers=2")
    code, answer, _ = check(*FITS, *(part for change in grown for part in ("--set", change)))
    (error,) = answer["errors"]
    needed, size_bytes = answer["bytes_per_rank"]["total"], answer["device_memory"]["size_bytes"]
    assert (code, answer["ok"]) == (78, False)
    assert needed > 2e12 > size_bytes > 0
    assert f"needs {needed} bytes" in error
    assert f"its device has {size_bytes} (" in error
    code, answer, _ = check(*FITS)
    assert (code, answer["ok"], answer["errors"]) == (0, True, [])


def test_check_compares_with_the_stated_memory() -> None:
    """One byte less than needed is refused, exactly as much is not; unknown memory is shown as such and refuses nothing."""
    total = check(*FITS)[1]["bytes_per_rank"]["total"]
    for stated, expected in ((total - 1, 78), (total, 0)):
        code, answer, _ = check(*FITS, "--set", f"device_memory_bytes={stated}")
        assert (code, answer["device_memory"]["size_bytes"]) == (expected, stated)
    code, answer, _ = check(*FITS, "--ranks-here", "0")
    unknown = {"size_bytes": None, "source": "the ranks run on other machines"}
    assert (code, answer["device_memory"]) == (0, unknown)


def test_ranks_of_a_machine_share_its_memory_and_the_group_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least of the machine's memory and all limits above this process, divided by the ranks; a GPU's own where there is one."""
    inner = tmp_path / "groups" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "meminfo").write_text("MemFree: 5 kB\nMemTotal: 4096 kB\n")
    (tmp_path / "own").write_text("0::/a/b\n")
    (inner / "memory.max").write_text("max\n")
    for name, path in (("MEMORY", "meminfo"), ("OWN_GROUPS", "own"), ("GROUPS", "groups")):
        monkeypatch.setattr(memory, name, tmp_path / path)
    monkeypatch.setattr(memory, "DEVICES", tmp_path)
    assert memory.device_memory(0, 4).size_bytes == 4096 * 1024 // 4
    (inner.parent / "memory.max").write_text("1000\n")
    assert memory.device_memory(0, 4).size_bytes == 250
    (tmp_path / "nvidia0").touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for shown, size_bytes in (("81559\\n40960", 40960 << 20), ("[N/A]", None)):
        monkeypatch.setattr(memory, "QUERY", ("printf", shown))
        assert memory.device_memory(0, 4).size_bytes == size_bytes
