"""Words for numbers that are not finite: what a line says of a loss, a gradient or weights, and what only sounds like it."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of


@pytest.mark.parametrize(
    "line",
    [
        "AFTER UPDATE: NaN in decoder.block_3.weight",
        "weights contain NaN",
        "parameter fc1.weight is NaN",
        "tensor has inf values: encoder.layer.0",
        "model has NaN weights",
        "loss went to nan at iteration 300",
        "Non-finite loss, ending training",
        "nan in weight of encoder",
        "All gradients are nan, exiting",
    ],
)
def test_a_line_that_says_so_is_found(line: str) -> None:
    """Whatever the trainer calls the quantity, and whichever stands first."""
    assert [one.cause.fault for one in verdicts_of(f"{line}\n")] == ["nan_loss"]


@pytest.mark.parametrize(
    "line",
    [
        "check_for_nan_in_loss_and_grad .................. True",
        "NaN checks are enabled for every tensor",
        "detect_nan in weights: False",
        "number of nan iterations:   0 |",
        "the loss is finite again",
        "weights have informative names",
        "parameters have been frozen",
        "tensor is in float32",
    ],
)
def test_a_line_that_only_sounds_like_it_is_not(line: str) -> None:
    """Settings, counts of 0 and words that begin alike."""
    assert verdicts_of(f"{line}\n") == []


def test_memory_of_a_node_over_two_lines_is_read() -> None:
    """As Ray wraps it."""
    text = "Memory on the node (IP: 10.0.0.7) was 121.66GB / 128.00GB (0.95),\n"
    text += "which exceeds the memory usage threshold of 0.95.\n"
    assert [one.cause.fault for one in verdicts_of(text)] == ["host_oom"]
