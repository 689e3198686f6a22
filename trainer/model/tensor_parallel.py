"""Layers whose matrices are spread over the tensor axis, after Megatron-LM (Shoeybi et al., 2019).

A column-parallel layer makes a part of the outputs, a row-parallel one takes that part and sums.
So a pair of them needs one sum forwards (at the row layer's end) and one backwards (at the column
layer's beginning).
"""

# ruff: noqa: N803, N806  shapes are part of the names
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn

from trainer.parallel.collectives import TensorAxis


class _SumGradient(torch.autograd.Function):
    """Identity forwards; backwards, the sum of the gradients over the tensor axis."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.axis.sum_(gradients[0]), None


class _Sum(torch.autograd.Function):
    """The sum over the tensor axis forwards; identity backwards."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.mark_dirty(x)
        return axis.sum_(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


def sum_gradient(x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
    """Return x; its gradient will be summed over the axis. Goes before column-parallel layers."""
    return x if axis.size == 1 else _apply(_SumGradient, x, axis)


def sum_over(x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
    """Return the sum of x over the axis; x must be contiguous and of no further use to the caller."""
    return x if axis.size == 1 else _apply(_Sum, x, axis)


def _apply(
    function: type[torch.autograd.Function], x: torch.Tensor, axis: TensorAxis
) -> torch.Tensor:
    result: torch.Tensor = function.apply(x, axis)  # type: ignore[no-untyped-call]
    return result


class ColumnParallelLinear(nn.Module):
    """x @ W.T + b, of which this rank makes `outputs / axis.size` outputs. W: (outputs, inputs).

    The caller applies `sum_gradient` to x, once for all column layers that share it.
    """

    def __init__(self, inputs: int, outputs: int, *, axis: TensorAxis, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs // axis.size, inputs))
        self.bias = nn.Parameter(torch.empty(outputs // axis.size)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs) -> (..., outputs / axis.size)."""
        return F.linear(x, self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """x @ W.T + b, of which this rank holds the columns for its `inputs / axis.size` inputs.

    The bias is whole on every rank and added once, after the sum.
    """

    def __init__(self, inputs: int, outputs: int, *, axis: TensorAxis, bias: bool) -> None:
        super().__init__()
        self._axis = axis
        self.weight = nn.Parameter(torch.empty(outputs, inputs // axis.size))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., inputs / axis.size) -> (..., outputs)."""
        y = sum_over(F.linear(x, self.weight), self._axis)
        return y if self.bias is None else y + self.bias


class VocabularyParallelEmbedding(nn.Module):
    """A table of words of which this rank holds `words / axis.size` consecutive rows."""

    def __init__(self, words: int, width: int, *, axis: TensorAxis) -> None:
        super().__init__()
        self._axis = axis
        self._first = axis.rank * (words // axis.size)
        self.weight = nn.Parameter(torch.empty(words // axis.size, width))

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """(B, T) int64 -> (B, T, D); words of other ranks give zeros, then ranks are summed."""
        if self._axis.size == 1:
            return F.embedding(tokens_BT, self.weight)
        local_BT = tokens_BT - self._first
        foreign_BT = (local_BT < 0) | (local_BT >= self.weight.shape[0])
        x_BTD = F.embedding(local_BT.masked_fill(foreign_BT, 0), self.weight)
        return sum_over(x_BTD.masked_fill(foreign_BT.unsqueeze(-1), 0.0), self._axis)
