"""Activation watch: how large the vectors are that the head gets. They grow for thousands of steps before some runs diverge.

OPT-175B's team watched this number: it fell again when a lower learning rate helped, and went on growing when none did.
"""

from typing import Any

import torch

from trainer.model.gpt import Head


class ActivationWatch:
    """The root mean square of the last hidden states of a step: the largest of this rank's micro-batches.

    One pass over memory that was written just before. Ranks without the head see nothing.
    """

    def __init__(self, module: Any) -> None:
        """Watch the head of a DeepSpeed pipeline, if this stage has it."""
        self._largest: torch.Tensor | None = None
        for layer in module.forward_funcs:
            if isinstance(layer, Head):
                layer.register_forward_pre_hook(self._on_input)

    def begin_step(self) -> None:
        """Forget the step before."""
        self._largest = None

    def norm(self) -> float | None:
        """Return the step's number; None where there is no head."""
        return None if self._largest is None else float(self._largest)

    def _on_input(self, head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        """Measure what the head gets in training, (B, T, D); NaN and infinities stay what they are."""
        if not head.training:
            return
        values = inputs[0].detach()
        norm = torch.linalg.vector_norm(values, dtype=torch.float32) / values.numel() ** 0.5
        self._largest = norm if self._largest is None else torch.maximum(self._largest, norm)
