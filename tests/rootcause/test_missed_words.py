"""Words of lines that were missed: numbers that are not finite, deaths without a cause, and what only sounds like them."""

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
        "Validation Loss: nan",
    ],
)
def test_a_line_that_says_so_is_found(line: str) -> None:
    """Whatever the trainer calls the quantity, and in either order."""
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


def test_a_task_that_crashed_is_why_others_of_its_step_were_ended() -> None:
    """Slurm ends the other tasks, and says so after it."""
    crash = "srun: error: n1: task 0: Segmentation fault (core dumped)\nsrun: Terminating StepId=333.0\n"
    ended = "srun: error: n2: task 1: Terminated\nsrun: Force Terminated StepId=333.0\n"
    (verdict,) = verdicts_of(crash + ended)
    assert verdict.cause.fault == "unknown"
    assert "Segmentation fault" in verdict.evidence[0].text
    assert [one.cause.fault for one in verdicts_of(ended)] == ["preemption"]


@pytest.mark.parametrize(
    "line",
    [
        "The actor is dead because its worker process has died. Worker exits with an exit code None.",
        "Warning  BackOff  33s (x70 over 15m)  kubelet, n1  Back-off restarting failed container",
    ],
)
def test_a_death_without_a_cause_is_unknown(line: str) -> None:
    """It is an incident, and no line says why."""
    assert [one.cause.fault for one in verdicts_of(f"{line}\n")] == ["unknown"]


def test_memory_of_a_node_over_two_lines_is_read() -> None:
    """As Ray wraps it."""
    text = "Memory on the node (IP: 10.0.0.7) was 121.66GB / 128.00GB (0.95),\n"
    text += "which exceeds the memory usage threshold of 0.95.\n"
    assert [one.cause.fault for one in verdicts_of(text)] == ["host_oom"]


def test_what_a_program_only_warned_of_is_harmless_once_it_goes_on() -> None:
    """A picture of the model that cannot be drawn; as an error, or in the last line, it counts."""
    wrong = "{} graph was not drawn: Sizes of tensors must match except in dimension 1. Expected size 36 but got 37.\n"
    after = "0/29 19.6G 0.95 107 608: 100%|█████| 36/36 [00:24<00:00,  1.49it/s]\n"
    bar = "0/29 10.4G 1.2 538 608: 0%|     | 0/36 [00:04<?, ?it/s]"
    assert verdicts_of(wrong.format("WARNING") + after) == []
    assert verdicts_of(bar + wrong.format("WARNING") + after) == []
    for text in (wrong.format("ERROR") + after, wrong.format("WARNING")):
        assert [one.cause.fault for one in verdicts_of(text)] == ["config_error"]
