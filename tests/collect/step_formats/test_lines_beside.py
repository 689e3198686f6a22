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
