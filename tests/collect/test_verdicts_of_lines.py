"""Verdicts on a few lines: which of several faults came first, and what the words of an emitter do not show."""

import pytest

from runner.facts.causes import Verdict
from tests.collect.diagnosed_logs import verdicts_of

EVENT = "n1:714:1221 [1] NCCL WARN NET/IB : {}Got async event : {}"
STUCK = "May 20 02:13:02 n1 kernel: watchdog: BUG: soft lockup - CPU#17 stuck for 22s! [ksoftirqd/17:119]"
TX_TIMEOUT = "May 20 02:11:40 n1 kernel: mlx5_core 0000:0c:00.0 ens3f0np0: TX timeout detected"


def judge(*lines: str) -> list[Verdict]:
    """Diagnose one log."""
    return verdicts_of("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("device", ["", "mlx5_2:1 "])
@pytest.mark.parametrize(
    "event",
    [
        "port error",
        "local catastrophic error",
        "CQ error",
        "SRQ catastrophic error",
        "local work queue catastrophic error",
        "invalid request local work queue error",
        "path migration request error",
    ],
)
def test_errors_that_a_nic_reports_to_nccl(device: str, event: str) -> None:
    """With and without the device's name, as releases of NCCL differ; steps after them show that they did no harm."""
    line = EVENT.format(device, event)
    verdicts = judge(line, line)
    assert [one.cause.fault for one in verdicts] == ["nccl_network"]
    assert not judge(line, *(f"step {n} loss {3 - n / 9:.3f}" for n in range(1, 5)))


@pytest.mark.parametrize(
    "event", ["port active", "LID change", "GID table change", "client reregistration"]
)
def test_other_events_of_a_nic_are_none(event: str) -> None:
    """A port that is active, and tables that the subnet's manager changes."""
    assert not judge(EVENT.format("", event))


def test_a_port_that_is_active_again_did_no_harm() -> None:
    """The same device's, or the same node's where no device is named."""
    for device in ("", "mlx5_2:1 "):
        lost, back = EVENT.format(device, "port error"), EVENT.format(device, "port active")
        assert not judge(lost, back)
        assert judge(lost, back, lost)


def test_a_kernel_that_restarting_for_a_nic_is_no_fault_of_its_processor() -> None:
    """The NIC's timeout came first; without it, or after the lockup, the node failed."""
    assert judge(TX_TIMEOUT, STUCK, STUCK)[0].cause.fault == "nccl_network"
    later = TX_TIMEOUT.replace("02:11:40", "02:14:40")
    other = TX_TIMEOUT.replace(" n1 ", " n2 ")
    for lines in ([STUCK], [STUCK, later], [other, STUCK]):
        assert judge(*lines)[0].cause.fault == "node_failure"


def test_a_container_that_restarts_again_and_again_says_nothing_of_why() -> None:
    """The kubelet's back-off, and an exit by 1, are an unknown fault; with a line that shows the cause that counts."""
    restarting = (
        "Error pod bert-0 container pytorch waiting message: back-off 40s restarting failed container=pytorch "
        'pod=bert-0_train(3f06a4e3) {"reason": "CrashLoopBackOff"}'
    )
    exited = 'level=info msg="Pod: train.bert-0 exited with code 1"'
    (verdict,) = judge(restarting, exited)
    assert verdict.cause.fault == "unknown"
    assert verdict.cause.confidence <= 0.5
    image = "Failed to pull image x:1: ErrImagePull"
    assert judge(f"Reason: Failed  {image}", restarting)[0].cause.fault == "config_error"


@pytest.mark.parametrize(
    "lines",
    [
        ["hca_id:\tmlx5_0", "\t\tport:\t1", "\t\t\tstate:\t\t\tPORT_DOWN (1)"],
        ["CA 'mlx5_0'", "\tPort 1:", "\t\tState: Down", "\t\tPhysical state: Polling"],
    ],
)
def test_tables_of_ports_that_are_down(lines: list[str]) -> None:
    """ibv_devinfo and ibstat, as the only content of a file."""
    assert [one.cause.fault for one in judge(*lines)] == ["nccl_network"]
    up = [
        line.replace("PORT_DOWN (1)", "PORT_ACTIVE (4)").replace("Polling", "LinkUp")
        for line in lines
    ]
    assert not judge(*(line.replace("State: Down", "State: Active") for line in up))


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh: line 1: 33231 Killed: 9               python train.py",
        "make: *** [train] Killed: 9",
        "zsh: killed     python train.py",
        "Memory on the node (IP: 10.0.0.3, ID: 83d) was 60.2GB / 62.9GB (0.957), which is above the memory usage threshold of "
        "0.95.",
        "Memory on the node (IP: 10.0.0.3, ID: 83d) where the task (task ID: ff, name=train, pid=1) was running was 60.2GB / "
        "62.9GB (0.957), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: ab)",
    ],
)
def test_ends_for_want_of_memory(line: str) -> None:
    """A shell's word for SIGKILL on BSD and macOS, and Ray's monitor of memory, behind steps."""
    verdicts = judge(*(f"step {n} loss {3 - n / 9:.3f}" for n in range(1, 5)), line)
    assert [one.cause.fault for one in verdicts] == ["host_oom"]


def litgpt(losses: list[str]) -> list[str]:
    """Print losses as litgpt does, two iterations to a step."""
    return [
        f"iter {n} step {n // 2}: loss {loss}, iter time: {198 + n % 7}.10ms"
        for n, loss in enumerate(losses, 76)
    ]


def test_a_loss_that_never_moves_is_a_plateau() -> None:
    """It is the same to each printed digit, in every sample of the log."""
    (verdict,) = judge(*litgpt(["10.8259"] * 23))
    assert verdict.cause.fault == "plateau"
    assert verdict.cause.action_class == "page"
    assert "10.8259 in each of the 23 samples" in verdict.cause.lines[0]


@pytest.mark.parametrize(
    "losses",
    [
        ["10.8259"] * 19,
        ["10.8259"] * 30 + ["10.8258"],
        ["10.9"] + ["10.8259"] * 30,
        ["0.0000"] * 40,
        ["0.0012"] * 40,
        ["2.31"] * 40,
    ],
)
def test_a_loss_that_moves_or_is_rounded_is_no_plateau(losses: list[str]) -> None:
    """Too few samples, one that differs, and too few digits."""
    assert not judge(*litgpt(losses))


def test_a_mean_of_an_epoch_that_a_bar_repeats_is_no_plateau() -> None:
    """The log ends within the second epoch, in which the bar shows the loss of the first; from the first step on it is one."""
    bar = "Epoch {}: {}%|#   | {}/100 [00:01<00:02, 9.8it/s, v_num=0{}]"
    shown = ", train_loss=2.3456"
    first, second = (
        [bar.format(which, n, n, shown if which else "") for n in range(1, most)]
        for which, most in ((0, 101), (1, 61))
    )
    assert not judge(*first, *second)
    assert not judge("\r".join([*first, *second]))
    assert judge(*(bar.format(0, n, n, shown) for n in range(1, 61)))


def test_ranks_that_print_one_step_are_one_sample() -> None:
    """Eight ranks, three steps."""
    assert not judge(*(f"step {n // 8} loss 2.3456" for n in range(24)))


def steps(*losses: float) -> list[str]:
    """Print losses as TF-Slim does."""
    return [
        f"global step {n}: loss = {loss:.4f} (0.3 sec/step)" for n, loss in enumerate(losses, 400)
    ]


SETTLED = (0.1731, 0.1560, 0.1692, 0.1611, 0.1655)


def test_a_loss_that_rises_by_orders_of_magnitude_and_stays_has_diverged() -> None:
    """One verdict, which goes back to before the first of them; two samples, a way back, and five times as much are a spike."""
    far = (25137.9, 74835.3, 29575.2, 133869.9, 436442.4, 211268.5, 1206893.1)
    (verdict,) = judge(*steps(*SETTLED, *far))
    assert verdict.cause.fault == "divergence"
    assert verdict.evidence[0].named["onset_step"] == "405"
    (verdict,) = judge(*steps(*SETTLED, *far[:5]))
    assert verdict.cause.fault == "divergence"
    for losses in (far[:2], (*far[:3], *SETTLED), (0.9, 0.95, 0.9, 0.92, 0.96, 0.93, 0.94)):
        (verdict,) = judge(*steps(*SETTLED, *losses))
        assert verdict.cause.fault == "loss_spike"


def test_a_loss_with_which_a_log_ends_is_finite() -> None:
    """After one finite one; NaN beside a finite validation loss was only not measured, and what came back is no end."""
    lines = [
        f"epoch:       {n} | lr: 0.100000 | runtime: 00:04:26 | bch(ms): 37.37 | loss: {loss:>10} | train-TER:  2.11"
        for n, loss in enumerate(("0.77993", "0.86373", "inf", "0.85211"), 82)
    ]
    assert [one.cause.fault for one in judge(*lines[:3])] == ["nan_loss"]
    assert [one.cause.fault for one in judge(*lines[1:3])] == ["nan_loss"]
    assert not judge(*(line.replace("inf", "nan") for line in lines))
    assert not judge(*(line.replace("inf", "nan") + " | val_loss: 0.9" for line in lines[:3]))


def test_a_scale_that_a_trainer_calls_small_is_at_its_floor() -> None:
    """It warns while there is some way to go, and ends then."""
    warned = "WARNING [train.py:1057] (2/4) Grad scale is small: 0.0009765625"
    ended = "RuntimeError: grad_scale is too small, exiting: 8.67e-19"
    assert [one.cause.fault for one in judge(warned, ended)] == ["loss_scale_floor"]
    assert [one.cause.fault for one in judge(warned)] == ["loss_scale_floor"]
