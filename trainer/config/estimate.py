"""Estimate of what settings cost: parameters, bytes on the fullest rank, pipeline bubble, FLOPs.

The answers of `--check`, without torch. Parameters are exact. Bytes are what the model itself needs; fragmentation,
communication buffers and the libraries' own memory come on top (some GB on a GPU). On a CPU a rank grew by 1.2 and by 1.4 times the
estimate, with a model of activations and one of weights (`tests/trainer/test_memory.py`).
"""

from dataclasses import asdict, dataclass
from typing import Any

from trainer.config.device_memory import DeviceMemory
from trainer.config.flops import model_flops_per_token, tokens_per_step
from trainer.config.settings import Model, Settings
from trainer.data.sources import find_source, split

WEIGHT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
FP32_BYTES = 4
# Adam keeps three fp32 numbers per parameter, its copy of the weight and two moments, spread over the replicas (ZeRO-1).
OPTIMIZER_BYTES = 3 * FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """Bytes on each rank of one pipeline stage. `activations` are those under the settings in effect."""

    stage: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    activations_if_kept: int
    activations_if_checkpointed: int

    @property
    def total(self) -> int:
        """Bytes at the fullest moment of a step."""
        return self.parameters + self.gradients + self.optimizer + self.activations


def estimate(settings: Settings) -> dict[str, Any]:
    """Return the answer for valid settings. Raises SpecError when their data cannot be read.

    Bytes are integers, ratios parts of 1, FLOPs those of the model's mathematics, for one step of the whole run.
    """
    layout, micro_batches = settings.layout, settings.num_micro_batches
    source = find_source(settings.data)
    windows = split(source, settings)
    ranks = [rank_bytes(settings, stage) for stage in range(layout.pipeline)]
    worst = max(ranks, key=lambda rank: rank.total)
    idle = layout.pipeline - 1
    return {
        "ok": True,
        "errors": [],
        "recipe": settings.recipe,
        "world_size": layout.world_size,
        "layout": asdict(layout),
        "num_micro_batches": micro_batches,
        "parameters": {**parameters(settings.model), "largest_rank": worst_rank(settings)},
        "bytes_per_rank": {**asdict(worst), "total": worst.total},
        "bubble": {
            "of_ideal_ratio": idle / micro_batches,
            "of_total_ratio": idle / (micro_batches + idle),
        },
        "model_flops_per_step": model_flops_per_token(settings.model) * tokens_per_step(settings),
        "tokens_per_step": tokens_per_step(settings),
        "data": {
            "source": settings.data.source,
            "num_tokens": source.num_tokens,
            "training_windows": windows.training,
            "validation_windows": windows.validation,
            "epochs": settings.steps * settings.batch.global_batch / windows.training,
        },
    }


def refuse_too_large(answer: dict[str, Any], memory: DeviceMemory) -> dict[str, Any]:
    """Return the answer with the device's memory, and with `ok` false when the fullest rank needs more than that."""
    held = answer["bytes_per_rank"]
    compared = {**answer, "device_memory": asdict(memory)}
    if memory.size_bytes is None or held["total"] <= memory.size_bytes:
        return compared
    names = ("parameters", "gradients", "optimizer", "activations")
    parts = ", ".join(f"{name} {held[name]}" for name in names)
    error = (
        f"a rank of stage {held['stage']} needs {held['total']} bytes ({parts}), but its device has {memory.size_bytes} "
        f"({memory.source}): raise layout.tensor, layout.pipeline or, for the optimizer, layout.data, lower "
        "batch.micro_batch, set activation_checkpointing = true, or state another device_memory_bytes"
    )
    return {**compared, "ok": False, "errors": [error]}


def refusal(reason: str) -> dict[str, Any]:
    """Return the answer for settings that cannot work; each line of the reason is one error."""
    return {"ok": False, "errors": reason.splitlines()}


def parameters(model: Model) -> dict[str, int]:
    """Count the parameters of a model, whole and by part; `block` is one of those in `blocks`."""
    block = sum(_block_parameters(model, tensor=1))
    parts = {
        "embedding": model.vocabulary * model.width,
        "positions": _position_parameters(model),
        "blocks": model.layers * block,
        "final_norm": _norm_parameters(model),
        "head": model.vocabulary * model.width,
    }
    return {"total": sum(parts.values()), **parts, "block": block}


def rank_parameters(settings: Settings, stage: int) -> int:
    """Count the parameters that each rank of a pipeline stage holds."""
    model, layout = settings.model, settings.layout
    count = model.layers // layout.pipeline * sum(_block_parameters(model, tensor=layout.tensor))
    words = model.vocabulary // layout.tensor * model.width
    if stage == 0:
        count += words + _position_parameters(model)
    if stage == layout.pipeline - 1:
        count += words + _norm_parameters(model)
    return count


def worst_rank(settings: Settings) -> int:
    """Count the parameters of the rank that holds the most."""
    return max(rank_parameters(settings, stage) for stage in range(settings.layout.pipeline))


def rank_bytes(settings: Settings, stage: int) -> RankBytes:
    """Estimate the bytes of each rank of one stage, counted from 0."""
    count = rank_parameters(settings, stage)
    width = WEIGHT_BYTES[settings.precision.dtype]
    # Half-precision gradients of one micro-batch are added up in fp32; fp32 ones are added in place.
    gradient = width if width == FP32_BYTES else width + FP32_BYTES
    kept = _activation_bytes(settings, stage, checkpointed=False)
    checkpointed = _activation_bytes(settings, stage, checkpointed=True)
    return RankBytes(
        stage=stage,
        parameters=count * width,
        gradients=count * gradient,
        optimizer=-(-count * OPTIMIZER_BYTES // settings.layout.data),
        activations=checkpointed if settings.activation_checkpointing else kept,
        activations_if_kept=kept,
        activations_if_checkpointed=checkpointed,
    )


def _norm_parameters(model: Model) -> int:
    return model.width if model.norm == "rmsnorm" else 2 * model.width


def _position_parameters(model: Model) -> int:
    return model.sequence * model.width if model.positions == "learned" else 0


def _block_parameters(model: Model, *, tensor: int) -> tuple[int, int]:
    """Count the parameters of one block on each tensor rank: those sharded over the ranks, and those each holds whole."""
    width, inner = model.width, model.ffn_width
    inward = 2 if model.mlp == "swiglu" else 1
    matrices = 4 * width**2 + (inward + 1) * width * inner
    split_biases = 3 * width + inward * inner
    whole_biases = 2 * width
    sharded = matrices + (split_biases if model.bias else 0)
    whole = 2 * _norm_parameters(model) + (whole_biases if model.bias else 0)
    return sharded // tensor, whole


def _activation_bytes(settings: Settings, stage: int, *, checkpointed: bool) -> int:
    """Bytes kept for backward on one rank, at the moment when most micro-batches are under way.

    Under 1F1B stage s of p holds p - s micro-batches, or all there are. With checkpointing a block keeps its input alone,
    and one block at a time is computed again. Attention is taken as fused: its scores are never stored.
    """
    layout = settings.layout
    tokens = settings.batch.micro_batch * settings.model.sequence
    width = WEIGHT_BYTES[settings.precision.dtype]
    under_way = min(layout.pipeline - stage, settings.num_micro_batches)
    blocks = settings.model.layers // layout.pipeline
    block = tokens * _block_activations(settings.model, layout.tensor) * width
    stream = tokens * settings.model.width * width
    held = under_way * blocks * (stream if checkpointed else block) + (block if checkpointed else 0)
    if layout.pipeline > 1:
        # The output that was sent on stays until its gradient arrives.
        held += under_way * stream
    if stage == layout.pipeline - 1:
        words = settings.model.vocabulary // layout.tensor
        # Input and output of the last norm; logits, and in fp32 their softmax and its gradient.
        held += 2 * stream + tokens * words * (width + 2 * FP32_BYTES)
    return held


def _block_activations(model: Model, tensor: int) -> int:
    """Numbers that one block keeps per token on one rank.

    Whole on every rank: input and output of both norms. Sharded: queries, keys and values (queries and keys once more when
    rotated), attention's output as it came and as the projection reads it, and the MLP's inner vectors.
    """
    attention = (5 if model.positions == "rotary" else 3) + 2
    inner = 4 if model.mlp == "swiglu" else 2
    return 4 * model.width + (attention * model.width + inner * model.ffn_width) // tensor
