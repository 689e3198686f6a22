"""One transformer block: attention and a feed-forward layer, each behind a norm, each added back.

Options: rotary or learned positions (learned ones live in the embedding), RMSNorm or LayerNorm,
SwiGLU or GELU, biases or none.
"""

# ruff: noqa: N803, N806  shapes are part of the names
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainer.config.settings import Model
from trainer.model.tensor_parallel import ColumnParallelLinear, RowParallelLinear, sum_gradient
from trainer.parallel.collectives import TensorAxis


def make_norm(model: Model) -> nn.Module:
    """Return the norm the settings ask for, over the last dim (width)."""
    if model.norm == "rmsnorm":
        return nn.RMSNorm(model.width, eps=model.norm_eps)
    return nn.LayerNorm(model.width, eps=model.norm_eps)


@lru_cache(maxsize=8)
def rotary_table(
    positions: int, head_width: int, base: float, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine, each (T, K), fp32, of the angle of every position and dim.

    Pair k of a head turns by base^(-2k/K) a position (Su et al., 2021).

    Kept outside the modules on purpose: a buffer would be cast to the training precision, and a
    bf16 angle is wrong by whole radians at long positions.
    """
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32) / head_width
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), base**-exponents)
    angles_TK = torch.cat((angles, angles), dim=1)
    return angles_TK.cos().to(device), angles_TK.sin().to(device)


def rotate(x_BTHPK: torch.Tensor, cos_TK: torch.Tensor, sin_TK: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (k, k + K/2) of queries and keys by the angle of their position.

    x: (B, T, H, P, K) with P = 2 (query, key); the same shape and dtype comes back.
    """
    first, second = x_BTHPK.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    shape = (cos_TK.shape[0], 1, 1, cos_TK.shape[1])
    return (x_BTHPK * cos_TK.view(shape) + turned * sin_TK.view(shape)).to(x_BTHPK.dtype)


class Attention(nn.Module):
    """Causal self-attention over this rank's heads."""

    def __init__(self, model: Model, axis: TensorAxis) -> None:
        super().__init__()
        self._axis = axis
        self._head_width = model.head_width
        self._rotary = model.positions == "rotary"
        self._rotary_base = model.rotary_base
        self.qkv = ColumnParallelLinear(model.width, 3 * model.width, axis=axis, bias=model.bias)
        self.output = RowParallelLinear(model.width, model.width, axis=axis, bias=model.bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        b, t, _ = x_BTD.shape
        qkv_BTH3K = self.qkv(sum_gradient(x_BTD, self._axis)).view(b, t, -1, 3, self._head_width)
        q_BTHK, k_BTHK, v_BTHK = qkv_BTH3K.unbind(3)
        if self._rotary:
            cos_TK, sin_TK = rotary_table(t, self._head_width, self._rotary_base, x_BTD.device)
            q_BTHK, k_BTHK = rotate(qkv_BTH3K[:, :, :, :2], cos_TK, sin_TK).unbind(3)
        mixed_BHTK = F.scaled_dot_product_attention(
            q_BTHK.transpose(1, 2), k_BTHK.transpose(1, 2), v_BTHK.transpose(1, 2), is_causal=True
        )
        y: torch.Tensor = self.output(mixed_BHTK.transpose(1, 2).reshape(b, t, -1))
        return y


class FeedForward(nn.Module):
    """SwiGLU, silu(x G) * (x U), or GELU, gelu(x U); then down to the model's width."""

    def __init__(self, model: Model, axis: TensorAxis) -> None:
        super().__init__()
        self._axis = axis
        width, inner = model.width, model.ffn_width
        gated = model.mlp == "swiglu"
        self.gate = (
            ColumnParallelLinear(width, inner, axis=axis, bias=model.bias) if gated else None
        )
        self.up = ColumnParallelLinear(width, inner, axis=axis, bias=model.bias)
        self.down = RowParallelLinear(inner, width, axis=axis, bias=model.bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        x_BTD = sum_gradient(x_BTD, self._axis)
        up_BTF = self.up(x_BTD)
        h_BTF = F.gelu(up_BTF) if self.gate is None else F.silu(self.gate(x_BTD)) * up_BTF
        y: torch.Tensor = self.down(h_BTF)
        return y


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, model: Model, axis: TensorAxis, *, recompute: bool) -> None:
        super().__init__()
        self._recompute = recompute
        self.attention_norm = make_norm(model)
        self.attention = Attention(model, axis)
        self.mlp_norm = make_norm(model)
        self.mlp = FeedForward(model, axis)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D). With `recompute`, backward runs the block's forward again."""
        if self._recompute and torch.is_grad_enabled():
            y: torch.Tensor = checkpoint(
                self._compute, x_BTD, use_reentrant=False, preserve_rng_state=False
            )
            return y
        return self._compute(x_BTD)

    def _compute(self, x_BTD: torch.Tensor) -> torch.Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        y: torch.Tensor = x_BTD + self.mlp(self.mlp_norm(x_BTD))
        return y
