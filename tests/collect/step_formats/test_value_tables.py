"""Tables of a name and a value on each line: their step is known at their end, wherever the log is cut into blocks."""

import pytest

from runner.collect.diagnosis import Diagnosis
from tests.collect.diagnosed_logs import engine_of_all, verdicts_of

ROWS = ("grad_norm", "lg_loss_scale", "loss", "loss_q0", "mse", "step", "vb")


def table(step: int, loss: float, **others: float) -> str:
    """Write a table as improved-diffusion does, names in their order."""
    values = {"grad_norm": 1.5, "lg_loss_scale": 17.9, "loss": loss, "loss_q0": 9.0, "mse": 0.9}
    values |= {"step": step, "vb": 0.1, **others}
    lines = [f"| {name:<13} | {values[name]:<8.3g} |" for name in ROWS]
    return "\n".join(["-" * 28, *lines, "-" * 28, ""])


@pytest.mark.parametrize("piece", [1 << 20, 100])
def test_the_tables_of_a_log_are_its_steps(piece: int) -> None:
    """The plain loss counts, not those of its parts; a NaN is one at the step of its table."""
    losses = [1.0, 0.9, 0.85, 0.8, 0.82, 0.79, float("nan"), float("nan"), float("nan")]
    text = "".join(table(100 * n, loss) for n, loss in enumerate(losses, 1)).encode()
    log = (diagnosis := Diagnosis(engine=engine_of_all())).log("log")
    for at in range(0, len(text), piece):
        log.feed(text[at : at + piece])
    log.finish()
    (verdict,) = diagnosis.verdicts()
    assert verdict.cause.fault == "nan_loss"
    assert "step 700" in verdict.evidence[0].text
    assert log.steps.furthest is not None
    assert log.steps.furthest.step == 900


def test_a_scale_that_is_written_as_a_power_falls_below_one() -> None:
    """Its logarithm is below 0, and falls on with each table."""
    text = "".join(table(n, 2.0, lg_loss_scale=3.0 - n) for n in range(1, 9))
    assert [one.cause.fault for one in verdicts_of(text)] == ["loss_scale_floor"]


def test_tables_of_policies_and_of_results_say_nothing() -> None:
    """Losses of reinforcement learning wander; a table of results is no step."""
    policy = "".join(
        f"| rollout/ep_rew_mean | 10 |\n| train/loss | {2.0**n} |\n| train/policy_loss | 0.1 |\n{'-' * 28}\n"
        for n in range(12)
    )
    results = "| Metric | Value |\n|---|---|\n| train_loss | 0.2 |\n| eval_loss | 9.5 |\n\n"
    assert verdicts_of(policy) == []
    assert verdicts_of(results) == []


def test_tables_of_rewards_and_of_hostile_lengths_are_read_quickly() -> None:
    """Losses beside rewards wander; many tables in one block take no longer than they are long."""
    wandering = "".join(
        f"| ep_rew_mean | {n} |\n| loss | {1e-4 if n < 10 else 0.5} |\n{'-' * 28}\n"
        for n in range(20)
    )
    assert verdicts_of(wandering) == []
    assert verdicts_of("| loss | 1.0 |\nx\n" * 16_000) == []
