"""Remedies of the learning rate: for any schedule, what the optimizer steps with, what checkpoints hold, what is read back."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from stoker.run import Run
from tests.stoker.agent import Agent

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.trainer

from stoker.integrations.optimizer_remedies import (  # noqa: E402
    OF_RATE,
    Clipping,
    OptimizerRemedies,
)

NUM_STEPS = 12
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, step / 4)
    ),
    # Each rate follows from the one before, and the lowest is no part of the peak.
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=NUM_STEPS, eta_min=1e-3
    ),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=NUM_STEPS + 1, cycle_momentum=False
    ),
}


class Loop:
    """A parameter, its optimizer, a schedule, and the rates with which the optimizer stepped."""

    def __init__(self, schedule: str) -> None:
        self.parameter = torch.nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)
        self.scheduler = SCHEDULES[schedule](self.optimizer)
        self.rates: list[float] = []

    def train(self, num_steps: int) -> None:
        """Step with a gradient of 1: the parameter moves by the rate."""
        for _ in range(num_steps):
            before = float(self.parameter[0].detach().double())
            self.parameter.grad = torch.ones(2)
            self.optimizer.step()
            self.scheduler.step()
            self.rates.append(before - float(self.parameter[0].detach().double()))

    def state(self) -> Any:
        """Return what a checkpoint holds."""
        return copy.deepcopy((self.optimizer.state_dict(), self.scheduler.state_dict()))

    def load(self, state: Any) -> None:
        """Load it."""
        self.optimizer.load_state_dict(state[0])
        self.scheduler.load_state_dict(state[1])


def settings(agent: Agent) -> list[dict[str, Any]]:
    """Return the reports of settings."""
    return [report for report in agent.reports() if report["kind"] == "settings"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_factor_scales_the_whole_schedule_once_however_often_it_resumes(
    schedule: str, supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rate is half of the schedule's, and the schedule's own state stays the one without the remedy."""
    run, agent = supervised
    plain, lowered, resumed = Loop(schedule), Loop(schedule), Loop(schedule)
    plain.train(NUM_STEPS)
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"lr_factor": 0.5}))
    OptimizerRemedies(run, [lowered.optimizer], done=0)
    lowered.train(5)
    resumed.load(lowered.state())
    rate = OptimizerRemedies(run, [resumed.optimizer], done=5)
    resumed.train(NUM_STEPS - 5)
    expected = [0.5 * each for each in plain.rates]
    assert lowered.rates + resumed.rates == pytest.approx(expected, abs=2e-7)
    assert rate.in_effect == pytest.approx(expected[-1], abs=2e-7)
    assert resumed.state()[1] == plain.state()[1]
    read = settings(agent)
    assert [(each["step"], each["values"]["lr_factor"]) for each in read] == [
        (0, pytest.approx(0.5)),
        (5, pytest.approx(0.5)),
    ]
    assert read[1]["values"]["lr"] == pytest.approx(expected[5], abs=2e-7)


def test_a_peak_and_a_rate_replace_the_schedules(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peak scales the schedule with the factors after it; a rate is every step's."""
    run, agent = supervised
    plain, higher, flat = Loop("lambda"), Loop("lambda"), Loop("lambda")
    plain.train(6)
    monkeypatch.setenv(
        "STOKER_REMEDIES", json.dumps({"lr_peak": 0.2, "lr_factor": 0.5, "clip": 1.0})
    )
    OptimizerRemedies(run, [higher.optimizer], done=0)
    higher.train(6)
    assert higher.rates == pytest.approx(plain.rates, abs=2e-7)
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"lr": 0.03}))
    OptimizerRemedies(run, [flat.optimizer], done=0)
    flat.train(6)
    assert flat.rates == pytest.approx([0.03] * 6, abs=2e-7)
    first, second = settings(agent)
    assert (first["values"]["lr_peak"], first["values"]["lr_factor"]) == (0.2, 0.5)
    assert second["values"]["lr"] == pytest.approx(0.03)


def test_betas_are_those_of_the_step_alone(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AdamW steps with those that are ordered, and its state keeps the script's own."""
    run, agent = supervised
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"betas": [0.5, 0.75]}))
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    changed = torch.optim.AdamW(parameters[:1], lr=0.1)
    expected = torch.optim.AdamW(parameters[1:], lr=0.1, betas=(0.5, 0.75))
    OptimizerRemedies(run, [changed], done=0)
    for number in range(1, 4):
        for parameter, optimizer in zip(parameters, (changed, expected), strict=True):
            parameter.grad = torch.tensor([1.0, -2.0]) * number
            optimizer.step()
    assert torch.equal(*parameters)
    assert changed.state_dict()["param_groups"][0]["betas"] == (0.9, 0.999)
    (read,) = settings(agent)
    assert read["values"]["betas"] == [0.5, 0.75]


@pytest.mark.parametrize(
    ("factor", "read_back"),
    [(1.0, pytest.approx(0.3)), (10.0, pytest.approx(2**0.5))],
)
def test_a_clip_that_the_trainer_does_not_keep_to_is_read_back_as_it_was(
    factor: float,
    read_back: object,
    supervised: tuple[Run, Agent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The norm of the gradients in the step counts, not the setting: a trainer may ignore it."""
    run, agent = supervised
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"clip": 0.3}))
    setting = {"clip": 1.0}
    clipping = Clipping(read=lambda: setting["clip"], write=lambda norm: setting.update(clip=norm))
    loop = Loop("cosine")
    OptimizerRemedies(run, [loop.optimizer], done=2, clipping=clipping)
    loop.parameter.grad = torch.ones(2)
    # The norm is 1.41 before.
    torch.nn.utils.clip_grad_norm_([loop.parameter], factor * setting["clip"])
    loop.optimizer.step()
    (read,) = settings(agent)
    assert (read["step"], read["values"]["clip"]) == (2, read_back)


def test_remedies_that_nothing_applies_are_named(
    supervised: tuple[Run, Agent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SGD has no betas, and this script has no clip: the rank's output says so, and neither is among what is read back."""
    run, agent = supervised
    ordered = {"lr_factor": 0.5, "betas": [0.9, 0.95], "clip": 0.3}
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps(ordered))
    loop = Loop("cosine")
    OptimizerRemedies(run, [loop.optimizer], done=0)
    loop.train(1)
    assert "not applied, since nothing in this script does: betas, clip" in capsys.readouterr().err
    (read,) = settings(agent)
    assert not {"betas", "clip"} & set(read["values"])


def test_what_is_read_back_is_what_the_step_was_made_with(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code of the script that sets the rate in a hook of its own has the last word, and the report says so."""
    run, agent = supervised
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"lr_factor": 0.5}))
    loop = Loop("cosine")
    OptimizerRemedies(run, [loop.optimizer], done=3)

    def overrule(optimizer: Any, *_: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.1

    loop.optimizer.register_step_pre_hook(overrule)
    loop.train(2)
    (read,) = settings(agent)
    assert (read["step"], read["values"]["lr_factor"]) == (3, pytest.approx(1.0))


def test_the_ranks_say_which_remedies_they_apply(supervised: tuple[Run, Agent]) -> None:
    """The first hello names none, for the script may begin long before its optimizer is there; a later one does."""
    run, agent = supervised
    OptimizerRemedies(run, [Loop("cosine").optimizer], done=0)
    assert [report["remedies"] for report in agent.reports()] == [[], list(OF_RATE)]


def test_a_wrapped_optimizer_is_found_and_another_refused(supervised: tuple[Run, Agent]) -> None:
    """Libraries wrap optimizers in classes whose hooks are never called."""
    run, _ = supervised
    loop = Loop("cosine")

    class Wrapper:
        optimizer, param_groups = loop.optimizer, loop.optimizer.param_groups

    rate = OptimizerRemedies(run, [Wrapper()], done=0)
    loop.train(1)
    assert rate.in_effect == pytest.approx(0.1)
    with pytest.raises(TypeError, match="object has no register_step_pre_hook"):
        OptimizerRemedies(run, [object()], done=0)
