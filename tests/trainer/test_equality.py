"""Every layout trains what one process without DeepSpeed trains."""

from typing import Any

import pytest

from tests.trainer.gangs import LAYOUTS, THREE_D, Gangs, Layout
from tests.trainer.reference import Reference, ReferenceStep
from trainer.config.settings import load_settings

pytestmark = pytest.mark.trainer

STEPS = 7
LOSS_TOLERANCE = {"fp32": 5e-6, "bf16": 2e-3, "fp16": 5e-4}
# Relative. Measured: 1.3e-6, 1.3e-3, 1.4e-4.
NORM_TOLERANCE = {"fp32": 5e-5, "bf16": 5e-3, "fp16": 6e-4}
# Rounding of half precision shows at least so much, relative to the norm; fp32 stays far below.
HALF_SHOWS = 6e-5
MODERN: dict[str, Any] = {"recipe": "tiny_cpu", "steps": STEPS, "checkpoint_every": 0}
MODERN |= {"validate_every": STEPS, "optimizer": {"warmup_steps": 2, "decay_steps": 100}}
# The recipe's own warm-up: Adam's first steps follow the sign of each gradient, so that at full speed
# they turn a rounding error into a step the other way.
GENTLE: dict[str, Any] = {**MODERN, "optimizer": {"warmup_steps": 20, "decay_steps": 200}}
GENTLE |= {
    "model": {"width": 64, "ffn_width": 176, "sequence": 32}
    # half precision is slow on a CPU
}
GPT_2 = {
    **MODERN,
    "model": {"positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True},
}


def reference(settings: dict[str, Any]) -> tuple[list[ReferenceStep], float]:
    """Train the oracle; return its steps and its validation loss at the end."""
    oracle = Reference(load_settings({**settings, "layout": Layout().settings}))
    return [oracle.step(step) for step in range(1, STEPS + 1)], oracle.validation_loss()


@pytest.fixture(scope="module")
def modern() -> tuple[list[ReferenceStep], float]:
    """The oracle's run with rotary positions, RMSNorm and SwiGLU."""
    return reference(MODERN)


@pytest.fixture(scope="module")
def gentle() -> tuple[list[ReferenceStep], float]:
    """The oracle's run, in fp32, with the recipe's warm-up."""
    return reference(GENTLE)


def differences(
    gangs: Gangs,
    settings: dict[str, Any],
    layout: Layout,
    expected: tuple[list[ReferenceStep], float],
) -> tuple[float, float]:
    """Run a gang; return the largest difference in loss and the largest relative one in norm."""
    steps, validation = expected
    ended = gangs.run(settings, layout=layout)
    losses, norms = ended.values("loss"), ended.values("grad_norm")
    assert len(losses) == STEPS
    (validated,) = ended.of_kind("validation")
    loss_gaps = [abs(a - b.loss) for a, b in zip(losses, steps, strict=True)]
    norm_gaps = [abs(a / b.grad_norm - 1) for a, b in zip(norms, steps, strict=True)]
    loss_gaps.append(abs(validated["loss"] - validation))
    print(f"{layout}: loss {max(loss_gaps):.1e}, norm {max(norm_gaps):.1e}")
    return max(loss_gaps), max(norm_gaps)


@pytest.mark.shared
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_fp32(gangs: Gangs, modern: tuple[list[ReferenceStep], float], layout: Layout) -> None:
    """In fp32 with clipping, losses, validation and gradient norms equal the oracle's on each layout."""
    loss, norm = differences(gangs, MODERN, layout, modern)
    assert loss <= LOSS_TOLERANCE["fp32"]
    assert norm <= NORM_TOLERANCE["fp32"]


@pytest.mark.shared
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_half_precision(
    gangs: Gangs, gentle: tuple[list[ReferenceStep], float], layout: Layout, dtype: str
) -> None:
    """In bf16 and fp16, losses and norms stay close to the fp32 oracle's on each layout, and their rounding shows."""
    loss, norm = differences(gangs, {**GENTLE, "precision": {"dtype": dtype}}, layout, gentle)
    assert loss <= LOSS_TOLERANCE[dtype]
    assert HALF_SHOWS < norm <= NORM_TOLERANCE[dtype]


def test_the_loss_of_few_steps_shows_whether_they_trained(
    gentle: tuple[list[ReferenceStep], float],
) -> None:
    """From the second step on, training has moved the oracle's loss by more than any tolerance allows."""
    oracle = Reference(load_settings({**GENTLE, "layout": Layout().settings}))
    untrained = [oracle.loss_at(step) for step in range(2, STEPS + 1)]
    moved = [abs(a - b.loss) for a, b in zip(untrained, gentle[0][1:], strict=True)]
    assert min(moved) > 5 * max(LOSS_TOLERANCE.values())


@pytest.mark.parametrize("layout", [LAYOUTS[0], THREE_D], ids=str)
def test_gpt_2_options(gangs: Gangs, layout: Layout) -> None:
    """Learned positions, LayerNorm, GELU and biases equal the oracle's too."""
    loss, norm = differences(gangs, GPT_2, layout, reference(GPT_2))
    assert loss <= LOSS_TOLERANCE["fp32"]
    assert norm <= NORM_TOLERANCE["fp32"]


def test_activation_checkpointing(gangs: Gangs, modern: tuple[list[ReferenceStep], float]) -> None:
    """Computing blocks again in backward changes no number."""
    settings = {**MODERN, "activation_checkpointing": True}
    loss, norm = differences(gangs, settings, LAYOUTS[4], modern)
    assert loss <= LOSS_TOLERANCE["fp32"]
    assert norm <= NORM_TOLERANCE["fp32"]
