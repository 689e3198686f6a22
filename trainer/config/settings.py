"""Settings of a training run: what can be set, what it means, and what cannot work together.

Settings come from a recipe (a TOML file in `trainer/recipes`), changed by a mapping such as run.yaml's `trainer:` and then by
`--set optimizer.lr=1e-4`. One SpecError reports all problems: field, value and way out.
Standard library only: a supervisor without torch checks settings too.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from runner.errors import SpecError
from trainer.config.fields import about, build, merged, nearest, read_override

RECIPES = Path(__file__).parents[1] / "recipes"
# Token ids of text, which is read as bytes.
NUM_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Shape of the GPT. Embedding and head have weights of their own (untied)."""

    layers: int = field(default=4, metadata=about("transformer blocks", at_least=1))
    width: int = field(default=128, metadata=about("size of the residual stream", at_least=1))
    heads: int = field(default=4, metadata=about("attention heads", at_least=1))
    ffn_width: int = field(
        default=344,
        metadata=about(
            "inner size of the MLP; 8/3 width is usual for swiglu, 4 width for gelu", at_least=1
        ),
    )
    vocabulary: int = field(default=256, metadata=about("token ids, padding included", at_least=2))
    sequence: int = field(
        default=64, metadata=about("length of a training window", "tokens", at_least=1)
    )
    positions: Literal["rotary", "learned"] = field(
        default="rotary", metadata=about("how a block knows the position of a token")
    )
    rotary_base: float = field(
        default=10_000.0,
        metadata=about(
            "of rotary positions: pair k of a head's K dims turns by base^(-2k/K) radians a token",
            more_than=1,
        ),
    )
    norm: Literal["rmsnorm", "layernorm"] = field(
        default="rmsnorm", metadata=about("normalisation before attention, MLP and head")
    )
    norm_eps: float = field(
        default=1e-5, metadata=about("added to the variance in a norm", more_than=0)
    )
    mlp: Literal["swiglu", "gelu"] = field(
        default="swiglu", metadata=about("swiglu has three matrices, gelu two")
    )
    bias: bool = field(
        default=False, metadata=about("biases in linear layers; a layernorm always has its own")
    )
    init_std: float = field(
        default=0.02,
        metadata=about(
            "of initial weights; output projections use it / sqrt(2 layers)", more_than=0
        ),
    )

    @property
    def head_width(self) -> int:
        """Size of one attention head."""
        return self.width // self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How ranks share the work. Rank = (pipeline index x data + data index) x tensor + tensor index."""

    tensor: int = field(
        default=1, metadata=about("ranks that split each matrix; keep within a node", at_least=1)
    )
    pipeline: int = field(
        default=1, metadata=about("stages; each gets the same number of blocks", at_least=1)
    )
    data: int = field(
        default=1, metadata=about("replicas; the optimizer is sharded over them", at_least=1)
    )

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How many windows make a step."""

    global_batch: int = field(
        default=16, metadata=about("per step, all replicas", "windows", at_least=1)
    )
    micro_batch: int = field(
        default=2, metadata=about("per forward pass and replica", "windows", at_least=1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """AdamW, and a learning rate that warms up linearly and then follows half a cosine."""

    lr: float = field(default=1e-3, metadata=about("learning rate at its peak", more_than=0))
    min_lr_ratio: float = field(
        default=0.1,
        metadata=about("where the cosine ends, as a part of lr", at_least=0, at_most=1),
    )
    betas: tuple[float, float] = field(
        default=(0.9, 0.95), metadata=about("decay of the two moments", at_least=0, less_than=1)
    )
    eps: float = field(
        default=1e-8, metadata=about("added to the root of the second moment", more_than=0)
    )
    weight_decay: float = field(
        default=0.1, metadata=about("decoupled, on every matrix", at_least=0)
    )
    clip: float = field(
        default=1.0,
        metadata=about("largest norm of the whole gradient; 0: no clipping", at_least=0),
    )
    warmup_steps: int = field(default=20, metadata=about("0: none", "steps", at_least=0))
    decay_steps: int = field(
        default=0,
        metadata=about("step at which the cosine ends; 0: at the run's last", "steps", at_least=0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Number format of weights and activations; the optimizer always keeps fp32 copies. The scale is for fp16 alone."""

    dtype: Literal["fp32", "bf16", "fp16"] = field(
        default="fp32", metadata=about("of forward and backward")
    )
    initial_scale_power: int = field(
        default=16,
        metadata=about("the loss scale starts at 2 to this power", at_least=0, at_most=32),
    )
    scale_window: int = field(
        default=1000,
        metadata=about("good steps after which the scale doubles", "steps", at_least=1),
    )
    hysteresis: int = field(
        default=2, metadata=about("overflows before the scale is halved", at_least=1)
    )
    min_scale: float = field(
        default=1.0, metadata=about("the scale never falls below", more_than=0)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """What is read. Every source is a pure function of (seed, step, skipped ranges)."""

    source: Literal["stdlib", "text", "tokens"] = field(
        default="stdlib",
        metadata=about(
            "stdlib: Python's own sources; text: a file or folder, as bytes; tokens: a flat file of ids"
        ),
    )
    path: str = field(default="", metadata=about("file or folder; empty for stdlib"))
    token_dtype: Literal["uint16", "uint32"] = field(
        default="uint16", metadata=about("little-endian, of a token file")
    )
    validation_ratio: float = field(
        default=0.05,
        metadata=about("part of the text, its end, held out; 0: none", at_least=0, less_than=1),
    )
    record_samples: str = field(
        default="",
        metadata=about(
            "folder in which each rank records which windows of the text its steps have read, a file for each attempt; empty: none"
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training run, as the trainer sees it."""

    recipe: str = field(
        default="", metadata=about("recipe these settings started from; empty: none")
    )
    model: Model = field(default_factory=Model)
    layout: Layout = field(default_factory=Layout)
    batch: Batch = field(default_factory=Batch)
    optimizer: Optimizer = field(default_factory=Optimizer)
    precision: Precision = field(default_factory=Precision)
    data: DataSource = field(default_factory=DataSource)
    steps: int = field(
        default=200, metadata=about("the goal: the run ends after this step", "steps", at_least=1)
    )
    seed: int = field(
        default=1234, metadata=about("of initial weights and of the order of data", at_least=0)
    )
    checkpoint_every: int = field(
        default=50, metadata=about("0: only when asked", "steps", at_least=0)
    )
    validate_every: int = field(default=50, metadata=about("0: never", "steps", at_least=0))
    validation_batches: int = field(
        default=2, metadata=about("global batches per validation", "batches", at_least=1)
    )
    activation_checkpointing: bool = field(
        default=False,
        metadata=about("keep only the input of each block and compute it again in backward"),
    )
    repeatable: bool = field(
        default=False,
        metadata=about(
            "on GPUs: kernels that give the same bits each time, so that a run that was interrupted equals one that "
            "was not; somewhat slower. A CPU does so anyway"
        ),
    )
    group_timeout_seconds: float = field(
        default=600.0, metadata=about("longest wait in a collective", "seconds", more_than=0)
    )
    peak_tflops: float = field(
        default=0.0,
        metadata=about(
            "dense peak of one rank's device, for MFU; 0: unknown, no MFU", "TFLOP/s", at_least=0
        ),
    )
    device_memory_bytes: int = field(
        default=0,
        metadata=about(
            "memory of one rank's device, which `--check` compares with what a rank needs; 0: as found on this machine",
            "bytes",
            at_least=0,
        ),
    )
    # Ten is chosen. It costs 0.2 to 0.3 % of a step of tiny_cpu and 0.7 % of one of tiny_3d, which has replicas; measured on two
    # cores that had other work too. What it finds: docs/replicas.md.
    sdc_every: int = field(
        default=10,
        metadata=about(
            "compare the replicas' weights with each other and with the optimizer's fp32 copies, and every tenth time "
            "gradients of the same data, to find silent data corruption; 0: never",
            "steps",
            at_least=0,
        ),
    )
    log_every: int = field(
        default=10, metadata=about("a line on rank 0's output; 0: none", "steps", at_least=0)
    )

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of one replica in one step."""
        return self.batch.global_batch // (self.batch.micro_batch * self.layout.data)

    @property
    def decay_end(self) -> int:
        """Step at which the learning rate reaches its minimum; not before the warm-up ends."""
        return self.optimizer.decay_steps or max(self.steps, self.optimizer.warmup_steps)


def recipe_names() -> list[str]:
    """Names of the recipes that come with the trainer."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_settings(
    source: Mapping[str, Any] | str, overrides: Sequence[str] = (), *, world_size: int | None = None
) -> Settings:
    """Build settings from a recipe's name or a mapping, then `key=value` overrides; check them as a whole.

    A mapping may name its `recipe` and change single fields of it: {"recipe": "tiny_cpu", "layout": {"tensor": 1}}.
    `world_size`, where known, must be what the layout needs. Raises SpecError with every problem, one per line.
    """
    changes: Mapping[str, Any] = {"recipe": source} if isinstance(source, str) else source
    problems: dict[str, str] = {}
    for override in overrides:
        changes = merged(changes, read_override(override, problems))
    name = changes.get("recipe") or ""
    values = merged(_read_recipe(name, problems) if name else {}, changes)
    settings = build(Settings, values, problems)
    # A wrong setting was left at its default, which may conflict with others: such conflicts are not reported.
    wrong = {path.rpartition(".")[0] for path in problems}
    lines = list(problems.values())
    if "recipe" not in problems:
        lines += [
            conflict.text
            for conflict in conflicts(settings, world_size=world_size)
            if not wrong & {path.rpartition(".")[0] for path in conflict.paths}
        ]
    if lines:
        raise SpecError("\n".join(lines))
    return settings


def _read_recipe(name: Any, problems: dict[str, str]) -> dict[str, Any]:
    if name not in recipe_names():
        problems["recipe"] = f"recipe = {name!r} is unknown{nearest(str(name), recipe_names())}"
        return {}
    with (RECIPES / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


class Conflict(NamedTuple):
    """Settings, each valid in itself, that cannot work together."""

    paths: tuple[str, ...]
    text: str


def conflicts(settings: Settings, *, world_size: int | None = None) -> list[Conflict]:
    """Return what does not divide, does not fit together, or needs a world of another size."""
    return [
        *_layout_conflicts(settings.model, settings.layout, world_size),
        *_batch_conflicts(settings.batch, settings.layout),
        *_data_conflicts(settings),
        *_schedule_conflicts(settings),
    ]


def _layout_conflicts(model: Model, layout: Layout, world_size: int | None) -> Iterator[Conflict]:
    yield from _indivisible("model.width", model.width, by="model.heads", parts=model.heads)
    for name in ("heads", "ffn_width", "vocabulary"):
        value = getattr(model, name)
        yield from _indivisible(f"model.{name}", value, by="layout.tensor", parts=layout.tensor)
    yield from _indivisible(
        "model.layers", model.layers, by="layout.pipeline", parts=layout.pipeline
    )
    if model.positions == "rotary" and model.width % model.heads == 0 and model.head_width % 2:
        yield Conflict(
            ("model.width", "model.heads"),
            f"model.width / model.heads = {model.head_width} is odd, but rotary positions turn pairs: "
            "choose heads of an even size, or model.positions = learned",
        )
    if world_size is not None and world_size != layout.world_size:
        yield Conflict(
            ("layout.tensor",),
            f"layout.tensor x layout.pipeline x layout.data = {layout.tensor} x {layout.pipeline} x "
            f"{layout.data} = {layout.world_size} ranks, but {world_size} are started: "
            "change the layout, or the number of nodes or of ranks per node",
        )


def _batch_conflicts(batch: Batch, layout: Layout) -> Iterator[Conflict]:
    share = batch.micro_batch * layout.data
    if batch.global_batch % share:
        below = batch.global_batch // share * share
        choices = " or ".join(str(size) for size in (below, below + share) if size)
        yield Conflict(
            ("batch.global_batch", "layout.data"),
            f"batch.global_batch = {batch.global_batch} does not divide by batch.micro_batch x "
            f"layout.data = {batch.micro_batch} x {layout.data} = {share}: choose {choices}",
        )


def _data_conflicts(settings: Settings) -> Iterator[Conflict]:
    data, vocabulary = settings.data, settings.model.vocabulary
    if data.source == "stdlib" and data.path:
        yield Conflict(
            ("data.path",),
            f"data.path = {data.path!r} is not read with data.source = stdlib: "
            "leave it out, or choose data.source = text or tokens",
        )
    if data.source != "stdlib" and not data.path:
        yield Conflict(
            ("data.path",),
            f"data.path is empty, but data.source = {data.source} reads a file: name it",
        )
    if data.source != "tokens" and vocabulary < NUM_BYTES:
        yield Conflict(
            ("model.vocabulary", "data.source"),
            f"model.vocabulary = {vocabulary} is too small: text is read as bytes, "
            f"choose {NUM_BYTES} or more",
        )
    if settings.validate_every and not data.validation_ratio:
        yield Conflict(
            ("validate_every", "data.validation_ratio"),
            f"validate_every = {settings.validate_every} with data.validation_ratio = 0: nothing is "
            "held out to validate on; raise the ratio, or set validate_every = 0",
        )


def _schedule_conflicts(settings: Settings) -> Iterator[Conflict]:
    warmup, end = settings.optimizer.warmup_steps, settings.optimizer.decay_steps
    if end and warmup >= end:
        yield Conflict(
            ("optimizer.warmup_steps", "optimizer.decay_steps"),
            f"optimizer.warmup_steps = {warmup} is not before optimizer.decay_steps = {end}: "
            "warm up for fewer steps, or decay later",
        )


def _indivisible(name: str, value: int, *, by: str, parts: int) -> Iterator[Conflict]:
    """Yield a conflict when `value` does not divide by `parts`, with the nearest numbers that would."""
    if value % parts:
        fitting = [size for size in range(1, value + 1) if value % size == 0]
        near = sorted(sorted(fitting, key=lambda size: abs(size - parts))[:3])
        choices = ", ".join(str(size) for size in near)
        text = f"choose {by} among {choices}, or change {name}"
        yield Conflict((name, by), f"{name} = {value} does not divide by {by} = {parts}: {text}")
