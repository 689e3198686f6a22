"""The GPT as the pipeline sees it: embedding, blocks, head, in one list."""

# ruff: noqa: N803, N806  shapes are part of the names
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import nn

from trainer.config.settings import Model
from trainer.model.block import Block, make_norm
from trainer.model.tensor_parallel import VocabularyParallelEmbedding, sum_gradient
from trainer.parallel.collectives import TensorAxis


@dataclass(frozen=True, slots=True)
class LayerRecipe:
    """How to build one layer, without building it: a stage builds only its own."""

    kind: Callable[..., nn.Module]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


class Embedding(nn.Module):
    """Words to vectors, and learned positions where the settings ask for them."""

    def __init__(self, model: Model, axis: TensorAxis) -> None:
        super().__init__()
        self.tokens = VocabularyParallelEmbedding(model.vocabulary, model.width, axis=axis)
        learned = model.positions == "learned"
        self.positions = LearnedPositions(model.sequence, model.width) if learned else None

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        """(B, T) int64 -> (B, T, D)."""
        x_BTD: torch.Tensor = self.tokens(tokens_BT)
        return x_BTD if self.positions is None else x_BTD + self.positions(tokens_BT.shape[1])


class LearnedPositions(nn.Module):
    """One vector per position, whole on every rank."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))

    def forward(self, length: int) -> torch.Tensor:
        """The first `length` of them, (T, D)."""
        return self.weight[:length]


class Head(nn.Module):
    """Vectors to logits of this rank's words. Not tied to the embedding."""

    def __init__(self, model: Model, axis: TensorAxis) -> None:
        super().__init__()
        self._axis = axis
        self.norm = make_norm(model)
        self.tokens = Words(model.vocabulary // axis.size, model.width)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, V)."""
        return F.linear(sum_gradient(self.norm(x_BTD), self._axis), self.tokens.weight)


class Words(nn.Module):
    """The head's rows of words; a module so that its name matches the embedding's."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, width))


def layers(model: Model, axis: TensorAxis, *, recompute: bool) -> list[LayerRecipe]:
    """Return the recipes of all layers in order; `recompute` is activation checkpointing."""
    block = LayerRecipe(Block, (model, axis), {"recompute": recompute})
    ends = LayerRecipe(Embedding, (model, axis)), LayerRecipe(Head, (model, axis))
    return [ends[0], *[block] * model.layers, ends[1]]
