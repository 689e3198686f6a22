"""Model FLOPs: what the mathematics of a step needs, whatever the machine does to get there.

Counted as in PaLM (Chowdhery et al., 2022, appendix B): 6 per weight of a matrix and token, and 12
per layer, width, sequence position and token for attention, without credit for the causal mask.
Work done again under activation checkpointing is not counted; the embedding is a look-up.
"""

from trainer.config.settings import Model, Settings


def matrix_parameters(model: Model) -> int:
    """Return the number of weights that take part in a matrix product, head included."""
    matrices = 3 if model.mlp == "swiglu" else 2
    per_block = 4 * model.width**2 + matrices * model.width * model.ffn_width
    return model.layers * per_block + model.vocabulary * model.width


def model_flops_per_token(model: Model) -> int:
    """Return FLOPs of forward and backward for one token of a full-length window."""
    attention = 12 * model.layers * model.width * model.sequence
    return 6 * matrix_parameters(model) + attention


def tokens_per_step(settings: Settings) -> int:
    """Return the tokens of one global batch."""
    return settings.batch.global_batch * settings.model.sequence
