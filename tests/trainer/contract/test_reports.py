"""What ranks report, and what they leave behind."""

import json
import math
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.gangs import LAYOUTS, ROOT, THREE_D, Gangs, Layout
from tests.trainer.reference import Reference
from tests.trainer.test_resume import SETTINGS
from trainer.config.settings import load_settings

pytestmark = pytest.mark.trainer

STEP_FIELDS = {
    "kind",
    "step",
    "loss",
    "grad_norm",
    "local_grad_norm",
    "compute_seconds",
    "data_wait_seconds",
    "step_seconds",
    "lr",
    "loss_scale",
    "skipped",
    "tokens_per_second",
    "model_tflops_per_second",
    "peak_memory_bytes",
    "stage",
    "data_step",
}


def test_every_rank_reports_every_step(gangs: Gangs) -> None:
    """All ranks report all fields of the contract in its order: hello, phases, timings, then steps."""
    settings = {**SETTINGS, "validate_every": 4, "peak_tflops": 0.01}
    ended = gangs.run(settings, layout=THREE_D)
    for rank, reports in enumerate(ended.reports):
        assert reports[0]["kind"] == "hello"
        assert {"checkpoint", "stop", "drill"} == set(reports[0]["requests"])
        assert reports[0]["checks_checkpoints"] is True
        names = [report["name"] for report in ended.of_kind("timing", rank)]
        assert names == ["import", "connect", "build", "load", "first_step"]
        phases = [report["phase"] for report in ended.of_kind("phase", rank)]
        assert phases == ["start", "step", "evaluate", "step", "evaluate"]
        steps = ended.steps(rank)
        assert list(steps) == list(range(1, 9))
        is_last = steps[1]["stage"] == THREE_D.pipeline - 1
        fields = {*STEP_FIELDS, "mfu_ratio", *(["activation_norm"] if is_last else [])}
        assert all(set(report) == fields for report in steps.values())
        assert [report["loss"] for report in steps.values()] == ended.values("loss")
        for report in steps.values():
            assert 0 < report["compute_seconds"] < report["step_seconds"]
            assert report["stage"] == rank * THREE_D.pipeline // THREE_D.world_size


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        (Layout(), "fp32"),
        (Layout(), "bf16"),
        (Layout(), "fp16"),
        (Layout(pipeline=2), "fp32"),
        (Layout(tensor=2), "bf16"),
    ],
    ids=str,
)
def test_local_norms_make_the_global_one(gangs: Gangs, layout: Layout, dtype: str) -> None:
    """Without replicas, the ranks' own gradient norms add up, in squares, to the norm of the whole model.

    With a tensor axis the replicated parameters are in both, so the sum is a little more.
    """
    settings = {**SETTINGS, "steps": 3, "precision": {"dtype": dtype}}
    ended = gangs.run(settings, layout=layout)
    local = [ended.values("local_grad_norm", rank) for rank in range(layout.world_size)]
    whole = [math.hypot(*norms) for norms in zip(*local, strict=True)]
    expected = pytest.approx(ended.values("grad_norm"), rel=0.1 if layout.tensor > 1 else 2e-3)
    assert whole == expected


def test_replicas_have_norms_of_their_own(gangs: Gangs) -> None:
    """With data parallelism, each replica reports its gradient before it is averaged."""
    ended = gangs.run({**SETTINGS, "steps": 3}, layout=Layout(data=2))
    first, second = ended.values("local_grad_norm", 0), ended.values("local_grad_norm", 1)
    for a, b, whole in zip(first, second, ended.values("grad_norm"), strict=True):
        assert a != b
        # the norm of a mean
        assert whole <= (a + b) / 2


@pytest.mark.parametrize("layout", [Layout(), Layout(tensor=2, pipeline=2)], ids=str)
def test_overflow_halves_the_scale_and_skips(gangs: Gangs, layout: Layout) -> None:
    """A loss scale that is too high skips the step, leaves the weights alone, is halved, and a layer is named."""
    precision = {"dtype": "fp16", "initial_scale_power": 32, "hysteresis": 1}
    settings = {**SETTINGS, "steps": 3, "precision": precision}
    ended = gangs.run(settings, layout=layout)
    assert [report["skipped"] for report in ended.steps().values()] == [True] * 3
    assert ended.values("loss_scale") == [2.0**31, 2.0**30, 2.0**29]
    assert ended.values("grad_norm") == [math.inf] * 3
    assert {r["first_nonfinite_layer"] for r in ended.steps().values()} <= {"head", "blocks.3"}
    oracle = Reference(load_settings({**settings, "layout": Layout().settings}))
    untrained = [oracle.loss_at(step) for step in (1, 2, 3)]
    assert ended.values("loss") == pytest.approx(untrained, abs=5e-4)


def test_layer_that_blows_up_is_named(gangs: Gangs) -> None:
    """When the loss is not finite, the first layer whose output is not is named, the same on all ranks."""
    settings: dict[str, Any] = {**SETTINGS, "steps": 3, "checkpoint_every": 0}
    settings["optimizer"] = {"lr": 1e15, "warmup_steps": 0, "decay_steps": 100}
    ended = gangs.run(settings, layout=Layout(tensor=2, pipeline=2))
    for rank in range(4):
        broken = ended.steps(rank)[2]
        assert not math.isfinite(float(broken["loss"]))
        assert broken["skipped"] is True
        assert broken["first_nonfinite_layer"] == "blocks.0"


def test_validation_disturbs_nothing(gangs: Gangs) -> None:
    """A run that validates has the very losses of one that does not."""
    quiet = gangs.run(SETTINGS, layout=LAYOUTS[4])
    watched = gangs.run({**SETTINGS, "validate_every": 1}, layout=LAYOUTS[4])
    assert watched.values("loss") == quiet.values("loss")
    assert watched.values("grad_norm") == quiet.values("grad_norm")
    assert len(watched.of_kind("validation")) == 8


@pytest.mark.alone
def test_reporting_is_cheap(gangs: Gangs) -> None:
    """A step is one packet, and the run logs what reporting cost; bench.supervision has its limit."""
    ended = gangs.run(SETTINGS, layout=Layout())
    kinds = [report["kind"] for report in ended.reports[0]]
    assert kinds[kinds.index("step") :] == ["step"] * 8
    last = (ended.output / "rank0.out").read_text().splitlines()[-1]
    cost = re.fullmatch(r"supervision took (\d+) us of CPU a step on this rank", last)
    assert cost is not None
    assert int(cost[1]) > 0


@pytest.mark.parametrize("rank", [0, 3])
def test_survivors_of_a_frozen_rank_give_up(gangs: Gangs, rank: int) -> None:
    """When a rank stands still, the others wait no longer than the group's time-out."""
    settings = {**SETTINGS, "steps": 10_000, "checkpoint_every": 0, "group_timeout_seconds": 4}
    layout = Layout(tensor=2, pipeline=2)
    ended = gangs.run(settings, layout=layout, freeze={"rank": rank, "after_step": 3}, expect=None)
    # it could not end by itself
    assert ended.exit_codes[rank] == -9
    assert 1 in ended.exit_codes
    assert 3 < ended.frozen_seconds < 15


@pytest.mark.alone
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Ranks started as any launcher starts them compile nothing and leave no file in shared memory."""
    extensions, home = tmp_path / "extensions", tmp_path / "home"
    home.mkdir()
    before = set(os.listdir("/dev/shm"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    common |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "HOME": str(home)}
    common["TORCH_EXTENSIONS_DIR"] = str(extensions)
    settings = {**SETTINGS, "steps": 2, "layout": {"tensor": 2, "pipeline": 1}}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "trainer", "--settings-json", json.dumps(settings)],
            cwd=ROOT,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    assert set(os.listdir("/dev/shm")) == before
    assert not extensions.exists()
    assert not list(home.rglob("torch_extensions"))
