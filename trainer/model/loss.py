"""Cross-entropy over a vocabulary that is spread over the tensor axis.

No rank ever holds the logits of the whole vocabulary: three numbers per token cross the axis.
"""

# ruff: noqa: N803, N806  shapes are part of the names
from typing import Any

import torch

from trainer.parallel.collectives import TensorAxis


class _VocabularyParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_NV: torch.Tensor, targets_N: torch.Tensor, axis: TensorAxis
    ) -> torch.Tensor:
        scores_NV = logits_NV.float()
        local_N = targets_N - axis.rank * scores_NV.shape[1]
        mine_N = (local_N >= 0) & (local_N < scores_NV.shape[1])
        index_N1 = local_N.masked_fill(~mine_N, 0).unsqueeze(1)

        highest_N = scores_NV.amax(dim=1)
        weights_NV = (scores_NV - highest_N.unsqueeze(1)).exp_()
        target_N = scores_NV.gather(1, index_N1).squeeze(1).masked_fill(~mine_N, 0.0)
        # One exchange of three numbers per token, instead of a maximum and two sums in turn.
        parts_R3N = axis.gather(torch.stack((highest_N, weights_NV.sum(dim=1), target_N)))
        top_N = parts_R3N[:, 0].amax(dim=0)
        total_N = (parts_R3N[:, 1] * (parts_R3N[:, 0] - top_N).exp()).sum(dim=0)

        softmax_NV = weights_NV.mul_(((highest_N - top_N).exp() / total_N).unsqueeze(1))
        ctx.save_for_backward(softmax_NV, index_N1, mine_N)
        ctx.dtype = logits_NV.dtype
        return (total_N.log() + top_N - parts_R3N[:, 2].sum(dim=0)).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        softmax_NV, index_N1, mine_N = ctx.saved_tensors
        ones_N1 = mine_N.unsqueeze(1).to(softmax_NV.dtype)
        gradient_NV = softmax_NV.scatter_add(1, index_N1, -ones_N1)
        gradient_NV.mul_(gradients[0] / softmax_NV.shape[0])
        return gradient_NV.to(ctx.dtype), None, None


class CrossEntropy:
    """Mean negative log-likelihood in nats, fp32, the same on every rank of the axis.

    Called with this rank's logits (B, T, V) and the targets (B, T), as words of the whole vocabulary.
    """

    def __init__(self, axis: TensorAxis) -> None:
        self._axis = axis

    def __call__(self, logits_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        """Return the mean over the micro-batch, a scalar."""
        loss: torch.Tensor = _VocabularyParallelCrossEntropy.apply(  # type: ignore[no-untyped-call]
            logits_BTV.reshape(-1, logits_BTV.shape[-1]), targets_BT.reshape(-1), self._axis
        )
        return loss
