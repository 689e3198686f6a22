"""The callback for transformers' Trainer: one rank of a small model, and the agent's end of its channel."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import checkpoints
from runner.act.checkpoints import free_port
from stoker.run import Run
from tests.stoker.agent import Agent

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.trainer

from transformers.trainer import Trainer  # noqa: E402
from transformers.trainer_callback import TrainerCallback  # noqa: E402
from transformers.training_args import TrainingArguments  # noqa: E402

from stoker.integrations.huggingface import Callback  # noqa: E402
from stoker.integrations.optimizer_remedies import gradient_norm  # noqa: E402

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
# Imports what a warm process would, then runs a script until its first step; prints the packages that were imported after that.
FORKED = """
import importlib, json, os, runpy, sys
for name in sys.argv.pop(1).split(","):
    importlib.import_module(name)
preloaded = {name.partition(".")[0] for name in sys.modules}
from transformers.trainer_callback import CallbackHandler

def on_step_end(*_):
    packages = {name.partition(".")[0] for name in sys.modules}
    print(json.dumps(sorted(packages - preloaded)), flush=True)
    os._exit(0)

CallbackHandler.on_step_end = on_step_end
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Model(torch.nn.Module):  # type: ignore[misc]
    """A line through points."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        """Return the loss of a batch."""
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}


class AtStep(TrainerCallback):
    """Does something after a step, before the callback under test sees it."""

    def __init__(self, step: int, action: Any) -> None:
        self._step, self._action = step, action

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Act after the step."""
        if state.global_step == self._step:
            self._action()


def trainer(tmp_path: Path, *callbacks: TrainerCallback, **settings: Any) -> Trainer:
    """Make a trainer of 12 steps on CPU; an epoch has 10."""
    points = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    data = [{"x": x, "labels": x.sum()} for x in points]
    torch.manual_seed(1)
    args = TrainingArguments(
        **{
            "output_dir": str(tmp_path / "out"),
            "max_steps": 12,
            "per_device_train_batch_size": 4,
            "learning_rate": 0.1,
            "logging_steps": 4,
            "save_steps": 5,
            "eval_strategy": "steps",
            "eval_steps": 6,
            "use_cpu": True,
            "report_to": "none",
            "disable_tqdm": True,
            **settings,
        }
    )
    return Trainer(
        model=Model(),
        args=args,
        train_dataset=data,
        eval_dataset=data[:4],
        callbacks=list(callbacks),
    )


def test_remedies_of_clip_and_betas_take_effect_and_are_read_back(
    supervised: tuple[Run, Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer clips at the ordered norm from its first step on; what the callback cannot apply it does not claim."""
    _, agent = supervised
    ordered = {"clip": 1e-3, "betas": [0.8, 0.9], "skip_steps": [[3, 4]]}
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps(ordered))
    norms: list[float] = []

    class Norms(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, *_: Any, **more: Any) -> None:
            norms.append(gradient_norm(more["optimizer"]))

    trainer(tmp_path, Callback(), Norms(), max_steps=3).train()
    assert norms == pytest.approx([1e-3] * 3, rel=1e-2)
    reports = agent.reports()
    (read,) = [report["values"] for report in reports if report["kind"] == "settings"]
    assert (read["clip"], read["betas"]) == (1e-3, [0.8, 0.9])
    assert "skip_steps" not in read
    claimed = [report["remedies"] for report in reports if report["kind"] == "hello"][-1]
    assert claimed == ["lr_factor", "lr_peak", "lr", "betas", "clip"]


def test_steps_numbers_phases_and_seals_are_reported(
    supervised: tuple[Run, Agent], tmp_path: Path
) -> None:
    """Each step once; those that Trainer logs with loss, norm and rate; what it saves is sealed with files that it shares."""
    run, agent = supervised
    trainer(tmp_path, Callback()).train()
    reports = agent.reports()
    steps = [report for report in reports if report["kind"] == "step"]
    assert [report["step"] for report in steps] == list(range(1, 13))
    assert [report["step"] for report in steps if "loss" in report] == [4, 8, 12]
    assert all(report["grad_norm"] > 0 for report in steps if "loss" in report)
    # Linear, from 0.1 to nothing in 12 steps.
    assert [report["lr"] for report in steps] == pytest.approx(
        [0.1 * (1 - n / 12) for n in range(12)]
    )
    assert [report["step"] for report in reports if report["kind"] == "validation"] == [6, 12]
    phases = [report["phase"] for report in reports if report["kind"] == "phase"]
    assert {"evaluate", "checkpoint"} <= set(phases)
    assert phases[-1] == "step"
    assert [report["step"] for report in reports if report["kind"] == "checkpoint"] == [5, 10, 12]
    folder = run.checkpoint_folder(10)
    assert checkpoints.verify(folder).step == 10
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
        assert (folder / name).samefile(tmp_path / "out" / "checkpoint-10" / name)


@pytest.mark.parametrize("logging_steps", [1, 100])
def test_a_request_to_stop_ends_the_training_with_a_checkpoint(
    logging_steps: int, supervised: tuple[Run, Agent], tmp_path: Path
) -> None:
    """After the step at which it came, whether or not that step is logged."""
    run, agent = supervised
    stop = AtStep(7, lambda: agent.request(id="a1", request="stop", checkpoint=True))
    trainer(tmp_path, stop, Callback(), logging_steps=logging_steps).train()
    assert run.should_stop
    assert checkpoints.verify(run.checkpoint_folder(7)).step == 7
    assert [report["step"] for report in agent.reports() if report["kind"] == "step"][-1] == 7


def test_a_resumed_training_takes_the_lower_rate_and_leaves_sealed_files_alone(
    supervised: tuple[Run, Agent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Trainer writes `checkpoint-10` again, whose files the sealed folder of the attempt before has, too."""
    run, agent = supervised
    trainer(tmp_path, Callback()).train()
    sealed = run.checkpoint_folder(10)
    monkeypatch.setenv("STOKER_RESUME", str(run.checkpoint_folder(5)))
    monkeypatch.setenv("STOKER_ATTEMPT", "1.1.1")
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"lr_factor": 0.5}))
    again = Run(run._channel, fallback=tmp_path)
    monkeypatch.setattr("stoker.run._attached", again)
    agent.reports()
    capsys.readouterr()
    callback = Callback()
    resumed = trainer(tmp_path, callback)
    resumed.train(resume_from_checkpoint=callback.resume_from_checkpoint)
    reports = agent.reports()
    steps = [report for report in reports if report["kind"] == "step"]
    assert [report["step"] for report in steps] == list(range(6, 13))
    assert steps[0]["lr"] == pytest.approx(0.05 * (1 - 5 / 12))
    (read,) = (report for report in reports if report["kind"] == "settings")
    assert (read["step"], read["values"]["lr_factor"]) == (5, pytest.approx(0.5))
    # Trainer's own log shows the rate in effect.
    printed = [line for line in capsys.readouterr().out.splitlines() if "'loss'" in line]
    assert "'learning_rate': '0.02083'" in printed[0]
    assert checkpoints.verify(sealed).step == 10
    assert checkpoints.verify(again.checkpoint_folder(10)).step == 10
    written = tmp_path / "out" / "checkpoint-10" / "optimizer.pt"
    assert written.samefile(again.checkpoint_folder(10) / "optimizer.pt")
    assert not written.samefile(sealed / "optimizer.pt")


def test_a_step_at_an_epochs_end_is_saved_once(
    supervised: tuple[Run, Agent], tmp_path: Path
) -> None:
    """A second save would overwrite what is sealed."""
    run, agent = supervised
    ask = AtStep(10, lambda: agent.request(id="a1", request="checkpoint"))
    trainer(tmp_path, ask, Callback(), save_strategy="epoch").train()
    assert [one["step"] for one in agent.reports() if one["kind"] == "checkpoint"] == [10, 12]
    assert checkpoints.verify(run.checkpoint_folder(10)).step == 10


def test_a_nan_is_reported_at_the_step_that_logs_it(
    supervised: tuple[Run, Agent], tmp_path: Path
) -> None:
    """Trainer replaces the loss by earlier ones; the gradient's norm shows it."""
    _, agent = supervised
    made: list[Any] = []

    def spoil() -> None:
        made[0].model.layer.weight.data.fill_(float("nan"))

    made.append(trainer(tmp_path, AtStep(5, spoil), Callback(), logging_steps=1))
    made[0].train()
    steps = {one["step"]: one for one in agent.reports() if one["kind"] == "step"}
    assert steps[5]["grad_norm"] != "NaN"
    assert steps[6]["grad_norm"] == "NaN"


def test_what_cannot_be_resumed_from_is_not_sealed(
    supervised: tuple[Run, Agent], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Weights alone are no checkpoint; the callback says so once."""
    _, agent = supervised
    trainer(tmp_path, Callback(), save_only_model=True).train()
    assert not [one for one in agent.reports() if one["kind"] == "checkpoint"]
    assert capfd.readouterr().err.count("save_only_model leaves out the optimizer") == 1


def test_without_stoker_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint but Trainer's own, no hook on the optimizer, the same loss as without the callback."""
    for name in list(os.environ):
        if name.startswith("STOKER_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("stoker.run._attached", None)
    monkeypatch.chdir(tmp_path)
    callback = Callback()
    assert not callback.run.is_supervised
    assert callback.resume_from_checkpoint is None
    watched, plain = trainer(tmp_path / "a", callback), trainer(tmp_path / "b")
    assert watched.train().training_loss == plain.train().training_loss
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    optimizer: Any = watched.optimizer
    assert not optimizer.optimizer._optimizer_step_pre_hooks


@pytest.mark.slow
def test_what_the_example_preloads_leaves_trainer_no_package_to_import(tmp_path: Path) -> None:
    """A forked rank makes its first step without importing another package, DeepSpeed included where it is installed."""
    example = EXAMPLES / "client_huggingface"
    run = yaml.safe_load((example / "run.yaml").read_text())
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    words = run["command"].removeprefix("{python} train.py").split()
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    ended = subprocess.run(
        [sys.executable, script, ",".join(run["preload"]), example / "train.py", *words],
        cwd=tmp_path,
        env={**os.environ, **rank, **meeting, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == []
