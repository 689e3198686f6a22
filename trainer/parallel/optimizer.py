"""The optimizer: AdamW, or for a stretch of steps plain SGD on the same parameters, while AdamW's state stays as it is."""

from typing import Any

import torch


class SwitchableAdamW(torch.optim.AdamW):
    """AdamW that makes steps of plain SGD, without momentum, while `uses_sgd`; weights decay as in AdamW."""

    uses_sgd = False

    def step(self, closure: Any = None) -> Any:
        """Make one step. Raises ValueError for a closure with SGD, which no caller gives."""
        if not self.uses_sgd:
            return super().step(closure)
        if closure is not None:
            raise ValueError("closure: steps of SGD take none")
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                        parameter.add_(parameter.grad, alpha=-group["lr"])
        return None
