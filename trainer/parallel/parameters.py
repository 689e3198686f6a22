"""The one table of parameters: how each is sharded over the tensor axis, how it is initialised, whether it decays.

Initial values, the gradient norm's flag and the placements in a checkpoint all come from here.
A parameter's name says its layer first (`blocks.3.attention.qkv.weight`) and does not depend on
the layout; neither do its initial values, for each is drawn in full from a seed of its own and
then sharded.
"""

import hashlib
import math
from dataclasses import dataclass
from enum import Enum

import torch

from trainer.config.settings import Model


class Sharding(Enum):
    """How a parameter is sharded over the tensor axis."""

    # Along dim 0: each rank computes a part of the outputs.
    COLUMN = "column"
    # Along dim 1: each rank takes a part of the inputs.
    ROW = "row"
    REPLICATED = "replicated"

    @property
    def dim(self) -> int | None:
        """The dim that is sharded; None when every rank holds the whole."""
        return {Sharding.COLUMN: 0, Sharding.ROW: 1, Sharding.REPLICATED: None}[self]


class Init(Enum):
    """How a parameter is initialised before the first step."""

    NORMAL = "normal"
    NORMAL_BY_DEPTH = "normal, its deviation divided by sqrt(2 x blocks)"
    ONES = "ones"
    ZEROS = "zeros"


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table. `decays`: weight decay applies."""

    sharding: Sharding
    init: Init
    decays: bool


_MATRIX = Kind(Sharding.COLUMN, Init.NORMAL, True)
_INTO_RESIDUAL = Kind(Sharding.ROW, Init.NORMAL_BY_DEPTH, True)
_SPLIT_BIAS = Kind(Sharding.COLUMN, Init.ZEROS, False)
_BIAS = Kind(Sharding.REPLICATED, Init.ZEROS, False)
_GAIN = Kind(Sharding.REPLICATED, Init.ONES, False)

# A name without its layer -> its kind. The rows of `qkv` are ordered head by head (query, key,
# value of head 0, then of head 1, ...), so that sharding them gives every rank whole heads and a
# checkpoint fits any number of tensor ranks.
TABLE: dict[str, Kind] = {
    # Of the embedding and of the head: rows are token ids.
    "tokens.weight": _MATRIX,
    "positions.weight": Kind(Sharding.REPLICATED, Init.NORMAL, True),
    "attention_norm.weight": _GAIN,
    "attention_norm.bias": _BIAS,
    "attention.qkv.weight": _MATRIX,
    "attention.qkv.bias": _SPLIT_BIAS,
    "attention.output.weight": _INTO_RESIDUAL,
    "attention.output.bias": _BIAS,
    "mlp_norm.weight": _GAIN,
    "mlp_norm.bias": _BIAS,
    "mlp.gate.weight": _MATRIX,
    "mlp.gate.bias": _SPLIT_BIAS,
    "mlp.up.weight": _MATRIX,
    "mlp.up.bias": _SPLIT_BIAS,
    "mlp.down.weight": _INTO_RESIDUAL,
    "mlp.down.bias": _BIAS,
    "norm.weight": _GAIN,
    "norm.bias": _BIAS,
}


def kind_of(name: str) -> Kind:
    """Return the row of a parameter; raises KeyError that lists the table for a name not in it."""
    layer, _, rest = name.partition(".")
    key = rest.partition(".")[2] if layer == "blocks" else rest
    if key not in TABLE:
        raise KeyError(
            f"no row for parameter {name!r} ({key!r}); the table knows: {', '.join(TABLE)}"
        )
    return TABLE[key]


def local_part(full: torch.Tensor, sharding: Sharding, *, rank: int, size: int) -> torch.Tensor:
    """Return the part of a full tensor that one of `size` tensor ranks holds (a view)."""
    if sharding.dim is None or size == 1:
        return full
    return full.chunk(size, sharding.dim)[rank]


def full_shape(local: torch.Size, sharding: Sharding, *, size: int) -> torch.Size:
    """Return the shape of the whole parameter, given one rank's part."""
    shape = list(local)
    if sharding.dim is not None:
        shape[sharding.dim] *= size
    return torch.Size(shape)


def initial_values(name: str, shape: torch.Size, *, model: Model, seed: int) -> torch.Tensor:
    """Return the whole parameter's initial values (fp32, CPU): a function of seed, name and shape."""
    init = kind_of(name).init
    if init is Init.ONES:
        return torch.ones(shape)
    if init is Init.ZEROS:
        return torch.zeros(shape)
    deviation = model.init_std
    if init is Init.NORMAL_BY_DEPTH:
        deviation /= math.sqrt(2 * model.layers)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.empty(shape).normal_(0.0, deviation, generator=generator)
