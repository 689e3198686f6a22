"""A resumed run goes on as if nothing had happened, on any layout."""

import os
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from tests.trainer.gangs import LAYOUTS, THREE_D, Ended, Gangs, Layout

pytestmark = pytest.mark.trainer

STEPS, SAVED = 8, 4
SETTINGS: dict[str, Any] = {
    "recipe": "tiny_cpu",
    "model": {"width": 64, "ffn_width": 176, "sequence": 32},
    "optimizer": {"warmup_steps": 2, "decay_steps": 100},
    "steps": STEPS,
    "checkpoint_every": SAVED,
    "validate_every": 0,
}


def first_run(
    gangs: Gangs, folder: Path, layout: Layout, settings: dict[str, Any] = SETTINGS
) -> tuple[Ended, Path]:
    """Run to the goal; return the gang and the checkpoint made halfway."""
    environment = {"STOKER_CHECKPOINTS": str(folder), "STOKER_ATTEMPT": "1.0.0"}
    ended = gangs.run(settings, layout=layout, environment=environment)
    return ended, checkpoints.checkpoint_folder(folder, "1.0.0", SAVED)


def resumed(
    gangs: Gangs,
    saved: Path,
    layout: Layout,
    settings: dict[str, Any] = SETTINGS,
    **environment: str,
) -> Ended:
    """Resume and run to the goal."""
    return gangs.run(
        settings, layout=layout, environment={"STOKER_RESUME": str(saved), **environment}
    )


@pytest.fixture(scope="module")
def three_d(gangs: Gangs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """A run on every axis at once, and its checkpoint."""
    return first_run(gangs, tmp_path_factory.mktemp("three_d"), THREE_D)


@pytest.mark.shared
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_from_three_axes_to_each_layout(
    gangs: Gangs, three_d: tuple[Ended, Path], layout: Layout
) -> None:
    """A checkpoint of a 2x2x2 run resumes on each layout: bit for bit on its own, within 5e-6 on others."""
    whole, saved = three_d
    ended = resumed(gangs, saved, layout)
    losses, norms = ended.values("loss"), ended.values("grad_norm")
    assert list(ended.steps()) == list(range(SAVED + 1, STEPS + 1))
    if layout == THREE_D:
        assert losses == whole.values("loss")[SAVED:]
        assert norms == whole.values("grad_norm")[SAVED:]
    assert losses == pytest.approx(whole.values("loss")[SAVED:], abs=5e-6)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        (Layout(), "fp32"),
        (Layout(tensor=2, pipeline=2), "fp32"),
        (Layout(tensor=2, data=2), "bf16"),
        (Layout(tensor=2, data=2), "fp16"),
    ],
    ids=str,
)
def test_same_layout_is_bit_exact(gangs: Gangs, tmp_path: Path, layout: Layout, dtype: str) -> None:
    """On the same layout, what follows a resume equals what would have followed, in every precision."""
    settings = {**SETTINGS, "precision": {"dtype": dtype}}
    whole, saved = first_run(gangs, tmp_path, layout, settings)
    ended = resumed(gangs, saved, layout, settings)
    for name in ("loss", "grad_norm", "loss_scale", "lr"):
        assert ended.values(name) == whole.values(name)[SAVED:]


def test_settings_win_over_saved_ones(gangs: Gangs, three_d: tuple[Ended, Path]) -> None:
    """A lower learning rate and other betas are in effect after a resume, as read back from the optimizer."""
    whole, saved = three_d
    settings = {
        **SETTINGS,
        "optimizer": {**SETTINGS["optimizer"], "betas": [0.8, 0.99], "weight_decay": 0.0},
    }
    remedies = '{"lr_factor": 0.5}'
    ended = resumed(gangs, saved, THREE_D, settings, STOKER_REMEDIES=remedies)
    (report,) = ended.of_kind("settings")
    assert report["step"] == SAVED
    assert report["values"]["betas"] == [0.8, 0.99]
    assert report["values"]["weight_decay"] == 0.0
    assert report["values"]["lr_factor"] == 0.5
    assert report["values"]["lr"] == whole.values("lr")[SAVED] / 2
    assert ended.values("lr") == [lr / 2 for lr in whole.values("lr")[SAVED:]]
    losses, before = ended.values("loss"), whole.values("loss")[SAVED:]
    # the weights are the saved ones
    assert losses[0] == before[0]
    assert all(abs(a - b) > 1e-4 for a, b in zip(losses[1:], before[1:], strict=True))


def test_new_peak_replaces_the_old_one(gangs: Gangs, three_d: tuple[Ended, Path]) -> None:
    """The remedy lr_peak sets the schedule's peak whatever the settings are."""
    whole, saved = three_d
    peak = '{"lr_peak": 1e-4}'
    ended = resumed(gangs, saved, Layout(), STOKER_REMEDIES=peak)
    assert ended.values("lr") == pytest.approx([lr / 10 for lr in whole.values("lr")[SAVED:]])
    assert ended.of_kind("settings")[0]["values"]["lr_peak"] == 1e-4


def test_skipped_steps_read_later_data(gangs: Gangs, three_d: tuple[Ended, Path]) -> None:
    """Data steps left out by a remedy are not read: the run goes on with those after them."""
    whole, saved = three_d
    ended = resumed(gangs, saved, THREE_D, STOKER_REMEDIES='{"skip_steps": [[5, 6]]}')
    assert ended.values("loss")[0] != whole.values("loss")[SAVED]
    assert list(ended.steps()) == list(range(SAVED + 1, STEPS + 1))


def test_other_data_is_refused(gangs: Gangs, three_d: tuple[Ended, Path], tmp_path: Path) -> None:
    """A resume on other data ends with code 78 and a message that names both, after the report; once approved it goes on."""
    text = tmp_path / "text.txt"
    text.write_text("To stoke a fire is to feed it. " * 2000)
    settings = {**SETTINGS, "data": {"source": "text", "path": str(text)}}
    environment = {"STOKER_RESUME": str(three_d[1]), "STOKER_DATA": "sha256:another"}
    ended = gangs.run(settings, layout=Layout(), environment=environment, expect=78)
    assert "was trained on data" in ended.errors()
    (reported,) = [report["fingerprint"] for report in ended.of_kind("data")]
    assert reported in ended.errors()
    approved = resumed(gangs, three_d[1], Layout(), settings, STOKER_DATA=reported)
    assert list(approved.steps()) == list(range(SAVED + 1, STEPS + 1))


def test_a_byte_that_changed_after_verification_starts_no_rank(
    gangs: Gangs, tmp_path: Path
) -> None:
    """One byte of one rank's shard, size and times as before: both ranks end with code 79 and the reason, and none made a step."""
    layout = Layout(pipeline=2)
    _, saved = first_run(gangs, tmp_path, layout)
    checkpoints.verify(saved)
    shard = saved / "__1_0.distcp"
    was, content = shard.stat(), bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    os.utime(shard, ns=(was.st_atime_ns, was.st_mtime_ns))
    environment = {"STOKER_RESUME": str(saved)}
    ended = gangs.run(
        SETTINGS, layout=layout, environment=environment, expect=79, patience_seconds=60.0
    )
    assert [ended.steps(rank) for rank in (0, 1)] == [{}, {}]
    for rank in (0, 1):
        errors = (ended.output / f"rank{rank}.err").read_text()
        last = errors.strip().splitlines()[-1]
        assert last.startswith(f"checkpoint refused: {shard} is damaged: sha256 ")
        assert ("(rank 1 read it)" in last) == (rank == 0)


def test_a_checkpoint_that_is_out_of_sight_is_no_damaged_one(gangs: Gangs, tmp_path: Path) -> None:
    """A node may lack the folder that all others see: the rank fails, and does not speak against the checkpoint."""
    environment = {"STOKER_RESUME": str(tmp_path / "1.0.0-00000004")}
    ended = gangs.run(SETTINGS, layout=Layout(), environment=environment, expect=1)
    assert "manifest.json cannot be read: No such file" in ended.errors()


def test_other_model_is_refused(gangs: Gangs, three_d: tuple[Ended, Path]) -> None:
    """A resume with another shape of model ends with code 78 and names the field."""
    settings = {**SETTINGS, "model": {**SETTINGS["model"], "layers": 2}}
    environment = {"STOKER_RESUME": str(three_d[1])}
    ended = gangs.run(settings, layout=Layout(), environment=environment, expect=78)
    assert "model.layers = 2" in ended.errors()
