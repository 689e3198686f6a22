"""The bytes that `--check` counts for a rank, against the memory that a real rank takes."""

from typing import Any

import pytest

from tests.trainer.gangs import Gangs, Layout
from trainer.config import estimate
from trainer.config.settings import load_settings

pytestmark = pytest.mark.trainer

# Measured growth / estimate. The rest is what the estimate leaves out: buckets of gradients, buffers of the libraries and of the
# allocator, and numbers that exist only within a step.
LEAST_FACTOR, MOST_FACTOR = 0.7, 2.0
SMALL: dict[str, Any] = {
    "recipe": "tiny_cpu",
    "model": {"layers": 2, "width": 64, "ffn_width": 176, "sequence": 64},
    "batch": {"global_batch": 1, "micro_batch": 1},
    "steps": 1,
    "checkpoint_every": 0,
    "validate_every": 0,
}
STATES = {**SMALL, "model": {"layers": 4, "width": 640, "ffn_width": 1720, "sequence": 64}}
ACTIVATIONS = {
    **SMALL,
    "model": {"layers": 8, "width": 192, "ffn_width": 512, "sequence": 512},
    "batch": {"global_batch": 4, "micro_batch": 4},
}


def needed(settings: dict[str, Any]) -> estimate.RankBytes:
    """Return what one rank alone is estimated to need."""
    return estimate.rank_bytes(load_settings({**settings, "layout": Layout().settings}), 0)


@pytest.fixture(scope="module")
def small(gangs: Gangs) -> int:
    """Peak of a rank's resident memory with a model that needs next to nothing: interpreter and libraries."""
    return peak(gangs, SMALL)


def peak(gangs: Gangs, settings: dict[str, Any]) -> int:
    """Train one step; return the peak of the rank's resident memory in bytes."""
    (size,) = gangs.run(settings, layout=Layout()).values("peak_memory_bytes")
    return int(size)


@pytest.mark.parametrize("settings", [STATES, ACTIVATIONS], ids=["states", "activations"])
def test_estimate_is_near_what_a_rank_takes(
    gangs: Gangs, small: int, settings: dict[str, Any]
) -> None:
    """A model of weights, and one of activations, each makes a rank grow by what is estimated, within the stated factors."""
    more, least = needed(settings), needed(SMALL)
    main = more.activations if settings is ACTIVATIONS else more.total - more.activations
    assert main > 0.75 * more.total
    growth = peak(gangs, settings) - small
    estimated = more.total - least.total
    print(f"grew by {growth / 1e6:.0f} MB, estimated {estimated / 1e6:.0f} MB")
    assert LEAST_FACTOR * estimated < growth < MOST_FACTOR * estimated
