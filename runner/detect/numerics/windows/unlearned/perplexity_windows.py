"""Perplexities beside the losses of a log that is over: they show that a loss is one of words, of which chance is known."""

import math
from statistics import fmean

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Samples

# How near a perplexity's logarithm is to its loss, as both are rounded; chosen.
NEAR_PERPLEXITY = 0.02
# Words of the largest vocabularies, samples at the end that are above it, and how much of the first of them the last one still is.
# Chosen: weights of an odd size begin above it, and fall.
LARGEST_VOCABULARY, MIN_WORSE, WORSE_SHARE = 1e6, 6, 0.95
# Of a language model that only knows how often words are; samples of it, the step from which on they are late, the loss's range,
# and how much lower its later half may be. All chosen: models of words, or of parts of them, are below it after some hundred steps.
PERPLEXITY_OF_FREQUENCIES, MIN_OF_FREQUENCIES, LATE_FREQUENCIES = 1000.0, 8, 10_000
FLAT_FREQUENCIES, FALL_OF_FREQUENCIES = 1.03, 0.003


def worse_than_guesses(samples: Samples) -> NumericFinding | None:
    """Find perplexities with which a log ends that are beyond any vocabulary: worse than a guess among all words."""
    rows = samples.scores("perplexity")
    guess, num = math.log(LARGEST_VOCABULARY), 0
    while num < len(rows) and _is_beyond(*rows[-1 - num][1:], guess):
        num += 1
    end = rows[len(rows) - num :]
    if num < MIN_WORSE or end[-1][1] < WORSE_SHARE * end[0][1]:
        return None
    least = min(perplexity for *_, perplexity in end)
    evidence = (
        f"the perplexity is {number(least)} and more in the last {num} of {len(rows)} samples, and does not fall: worse than a "
        f"guess among a million words, which has a loss of {guess:.1f}"
    )
    return incident("divergence", end[0][0], end[-1][0], evidence)


def frequencies_only(samples: Samples) -> NumericFinding | None:
    """Find a language model that is late in its training, knows no more than how often words are, and learns nothing more."""
    rows = samples.scores("perplexity")
    if len(rows) < MIN_OF_FREQUENCIES or rows[0][0] < LATE_FREQUENCIES:
        return None
    losses, half = [loss for _, loss, _ in rows], len(rows) // 2
    if not all(_belong_together(loss, perplexity) for _, loss, perplexity in rows):
        return None
    least = min(perplexity for *_, perplexity in rows)
    has_fallen = fmean(losses[-half:]) < (1 - FALL_OF_FREQUENCIES) * fmean(losses[:half])
    if (
        least < PERPLEXITY_OF_FREQUENCIES
        or max(losses) > FLAT_FREQUENCIES * min(losses)
        or has_fallen
    ):
        return None
    evidence = (
        f"the perplexity is {number(least)} and more in all {len(rows)} samples from step {rows[0][0]} to step {rows[-1][0]}, and "
        "does not fall: that of a model which only knows how often words are"
    )
    return incident("plateau", rows[0][0], rows[-1][0], evidence)


def _is_beyond(loss: float, perplexity: float, guess: float) -> bool:
    """Whether a loss is the logarithm of this perplexity, and above that of a guess."""
    return guess < loss < math.inf and _belong_together(loss, perplexity)


def _belong_together(loss: float, perplexity: float) -> bool:
    """Whether a loss is the logarithm of a perplexity."""
    is_size = 0 < perplexity < math.inf
    return is_size and abs(math.log(perplexity) - loss) <= NEAR_PERPLEXITY
