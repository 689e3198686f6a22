"""The learning rate of a step: a pure function of settings, remedies and the step's number."""

import math

from trainer.config.settings import Settings


def learning_rate(settings: Settings, step: int, *, peak: float, factor: float) -> float:
    """Return the learning rate of a step, counted from 1.

    It rises linearly to `peak` over the warm-up, follows half a cosine to `min_lr_ratio` of the
    peak at the end of the decay, and stays there. `factor` multiplies the whole schedule.
    """
    options = settings.optimizer
    if step <= options.warmup_steps:
        return factor * peak * step / options.warmup_steps
    progress = (step - options.warmup_steps) / (settings.decay_end - options.warmup_steps)
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return factor * peak * (options.min_lr_ratio + (1.0 - options.min_lr_ratio) * cosine)
