"""Numbers whose step or kind other words of the line give: validation losses on lines of their own, dictionaries behind a step."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEEP = [1.385, 1.198, 1.132, 1.046, 1.024, 1.021]
RISE = [1.066, 1.099, 1.122, 1.182]


def faults(text: str) -> list[str]:
    """Return the faults of a log."""
    return [verdict.cause.fault for verdict in verdicts_of(text)]


def log_of(validation: list[float]) -> str:
    """Return a log with a line of the training and one of the validation for each epoch."""
    return "".join(
        f"Epoch {n}, Training loss: {2 * 0.9**n:.4f}\n"
        f"Epoch {n}, Validation Loss: {loss}, Validation Accuracy: {40 + n}.25%\n"
        for n, loss in enumerate(validation, 1)
    )


def test_a_validation_loss_beside_an_accuracy_is_read() -> None:
    """Both are of the validation, and the loss says so itself."""
    assert faults(log_of(STEEP + RISE)) == ["validation_divergence"]
    assert faults(log_of(STEEP + STEEP[-1:] * 4)) == []


def test_a_plain_loss_beside_a_validation_accuracy_is_of_the_validation() -> None:
    """A level above the training loss is no spike of it."""
    text = "".join(
        f"epoch {n} train loss: {0.5 - 0.01 * n:.4f}\nValidation accuracy: 0.8{n}, loss: {4.5 + 0.001 * n:.4f}\n"
        for n in range(1, 10)
    )
    assert faults(text) == []


def test_the_step_before_a_dictionary_is_its_step() -> None:
    """Norms that stay infinite for 40 steps are no search for a loss scale; for as many lines of one step each they may be."""
    line = (
        "Step: {0:6} {{'loss': 2.43{1}, 'grad_norm': inf, 'learning_rate': 8e-06, 'epoch': 0.01}}\n"
    )
    assert faults("".join(line.format(3 + 4 * n, n) for n in range(14))) == ["nan_loss"]
    assert faults("".join(line.format(3 + n, n) for n in range(14))) == []


@pytest.mark.parametrize(
    "line", ["  validation loss:\t\t{:.6f}", "Val Loss: {:.4f}", "valid_loss = {:.5f}"]
)
@pytest.mark.parametrize(
    "step",
    [
        "Epoch {} of 500: training loss: {:.6f}",
        "Epoch {} of 500 took 494.3s\n  training loss:\t\t{:.6f}",
    ],
)
def test_a_validation_loss_on_a_line_of_its_own_is_that_of_the_step_before(
    step: str, line: str
) -> None:
    """Below lines with a step, and below lines that only their order counts; many such lines may be of single batches."""
    log, of_batches = "", ""
    for n, held_out in enumerate((2.0, 2.01, 1.99, 2.0, 2.02, 6.7), 1):
        training = step.format(n, 2.5 - 0.2 * n)
        log += f"{training}\n{line.format(held_out)}\n"
        of_batches += f"{training}\n{line.format(held_out + 0.1)}\n{line.format(held_out)}\n"
    (verdict,) = verdicts_of(log)
    assert (verdict.cause.fault, verdict.evidence[0].line) == ("loss_spike", log.count("\n"))
    assert faults(of_batches) == []


def test_an_evaluation_before_the_first_step_is_none_of_a_step() -> None:
    """It is one of the weights as they began; those behind each step count."""
    overfit = "".join(
        f"train loss {2.0 / 2**n:.4f}\nvalidation loss {2.1 + 0.3 * n * n:.4f}\n" for n in range(6)
    )
    assert faults(overfit) == faults(f"validation loss 9.9\n{overfit}") == ["validation_divergence"]


def test_rates_hide_no_losses() -> None:
    """Lines that only say how fast something is come before those of the training."""
    rates = "".join(f"loaded shard {n} at {1234.5 + n} samples/s\n" for n in range(3))
    losses = "".join(
        f"train loss {loss}\n" for loss in (2.1, 2.0, 1.9, 1.95, "nan", "nan", "nan", "nan")
    )
    assert faults(rates + losses) == ["nan_loss"]


def test_a_perplexity_of_0_is_no_perplexity() -> None:
    """Some trainers print 0 for what they do not measure."""
    assert faults("".join(f"step {10_000 + n} | loss 7.1{n} | ppl 0.00\n" for n in range(9))) == []
    assert faults("".join(f"step {10_000 + n} | loss 17.1{n} | ppl 0.00\n" for n in range(9))) == []
