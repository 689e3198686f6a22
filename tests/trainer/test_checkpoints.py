"""A checkpoint counts when every rank is done and no newer attempt has begun, and only then."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.facts.ids import AttemptId
from tests.small_disk import small_disk
from tests.trainer.gangs import Ended, Gangs, Layout
from tests.trainer.test_resume import SETTINGS
from trainer.resume import refuse_unwritable

pytestmark = pytest.mark.trainer

LAYOUT = Layout(tensor=2, pipeline=2)
DRILLED: dict[str, Any] = {**SETTINGS, "steps": 200, "checkpoint_every": 3}


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the variables of an attempt that saves."""
    return {"STOKER_CHECKPOINTS": str(folder), "STOKER_ATTEMPT": "1.0.0", **more}


def drill(gangs: Gangs, folder: Path, *, fault: str, rank: int, point: str) -> Ended:
    """Run until the drill has ended the gang."""
    request = {"id": "a1", "request": "drill", "fault": fault, "rank": rank, "point": point}
    asked = [
        {"rank": number, "after_step": 1, "request": request} for number in range(LAYOUT.world_size)
    ]
    # An error while shards are written reaches every rank, and each ends by itself, in whatever order.
    patience_seconds = 60.0 if (fault, point) == ("raise", "between_shards") else 0.0
    return gangs.run(
        DRILLED,
        layout=LAYOUT,
        environment=environment(folder),
        requests=asked,
        expect=None,
        patience_seconds=patience_seconds,
    )


def test_manifest_describes_its_checkpoint(gangs: Gangs, tmp_path: Path) -> None:
    """A sealed checkpoint verifies, and its manifest has run, attempt, generation, data and recent steps."""
    ended = gangs.run(
        SETTINGS,
        layout=LAYOUT,
        environment=environment(tmp_path, STOKER_GENERATION="7", STOKER_RUN="r"),
    )
    saved = [Path(report["path"]) for report in ended.of_kind("checkpoint")]
    assert saved == sorted(checkpoints.list_sealed(tmp_path))
    manifest = checkpoints.verify(saved[-1])
    assert (manifest.run, str(manifest.attempt), manifest.generation, manifest.step) == (
        "r",
        "1.0.0",
        7,
        8,
    )
    assert manifest.data["position"] == 8
    assert manifest.settings["model"]["width"] == 64
    assert [item["loss"] for item in manifest.metrics] == ended.values("loss")
    assert set(manifest.files) == {".metadata", *(f"__{rank}_0.distcp" for rank in range(4))}


def test_an_unsealed_rest_of_the_same_attempt_is_removed(gangs: Gangs, tmp_path: Path) -> None:
    """Rank 0 removes what an earlier process of this attempt left unsealed at a step before any rank writes there."""
    rest = checkpoints.checkpoint_folder(tmp_path, AttemptId(1, 0, 0), 3)
    rest.mkdir()
    (rest / "__9_0.distcp").write_bytes(b"torn")
    settings = {**SETTINGS, "steps": 3, "checkpoint_every": 3}
    gangs.run(settings, layout=LAYOUT, environment=environment(tmp_path))
    checkpoints.verify(rest)
    assert not (rest / "__9_0.distcp").exists()


def test_old_generation_cannot_seal(gangs: Gangs, tmp_path: Path) -> None:
    """Once a newer generation has begun, an old gang's checkpoint is refused, and the gang ends."""
    checkpoints.raise_generation(tmp_path, 5)
    ended = gangs.run(
        SETTINGS,
        layout=LAYOUT,
        environment=environment(tmp_path, STOKER_GENERATION="4"),
        expect=1,
        patience_seconds=60.0,
    )
    assert "generation 5 has begun" in ended.errors()
    assert list(ended.steps()) == [1, 2, 3, 4]
    assert checkpoints.list_sealed(tmp_path) == []
    assert not list(tmp_path.rglob("manifest.json*"))


def test_unwritable_folder_is_refused_at_once(gangs: Gangs, tmp_path: Path) -> None:
    """A folder for checkpoints that cannot be written ends the run with code 78 before any step."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "checkpoints"
    ended = gangs.run(SETTINGS, layout=Layout(data=2), environment=environment(folder), expect=78)
    assert "cannot be written" in ended.errors()
    assert ended.steps() == {}


def test_a_disk_without_room_is_a_crash_not_a_wrong_setting(tmp_path: Path) -> None:
    """It may have room again: the run must not be stopped for good."""
    with small_disk(tmp_path / "disk", size_bytes=1 << 16, num_inodes=2) as disk:
        (disk / "last").write_text("")
        with pytest.raises(OSError, match="No space left on device"):
            refuse_unwritable(disk / "checkpoints", 0)
        (disk / "last").unlink()
        refuse_unwritable(disk, 0)


def test_sealed_checkpoint_is_left_alone(gangs: Gangs, tmp_path: Path) -> None:
    """An attempt started twice by hand does not overwrite its sealed checkpoint."""
    for _ in range(2):
        gangs.run(SETTINGS, layout=Layout(), environment=environment(tmp_path))
        sealed = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.distcp")}
    for folder in checkpoints.list_sealed(tmp_path):
        checkpoints.verify(folder)
    assert len(sealed) == 2


@pytest.mark.parametrize(
    ("point", "rank", "fault"),
    [
        ("before_shards", 3, "die"),
        ("between_shards", 2, "die"),
        ("before_seal", 0, "die"),
        ("after_seal", 0, "die"),
        ("between_shards", 0, "raise"),
    ],
)
def test_failing_inside_a_save(
    gangs: Gangs, tmp_path: Path, point: str, rank: int, fault: str
) -> None:
    """A rank that fails inside a save leaves a checkpoint that counts wholly, or not at all."""
    ended = drill(gangs, tmp_path, fault=fault, rank=rank, point=point)
    assert ended.exit_codes[rank] == (-9 if fault == "die" else 1), ended.errors()
    sealed = checkpoints.list_sealed(tmp_path)
    newest = tmp_path / f"1.0.0-{max(ended.steps()):08d}"
    assert (newest in sealed) == (point == "after_seal")
    if point == "between_shards":
        shards = {path.name for path in newest.glob("*.distcp")}
        assert shards
        assert f"__{rank}_0.distcp" not in shards
    for folder in sealed:
        checkpoints.verify(folder)


def test_drill_at_a_step(gangs: Gangs, tmp_path: Path) -> None:
    """A drill at a step fails the named rank right after the step that all ranks agreed on."""
    ended = drill(gangs, tmp_path, fault="raise", rank=1, point="step")
    assert ended.exit_codes[1] == 1
    assert "fails at step" in ended.errors()
    (taken,) = ended.of_kind("taken")
    # One step later, if it received the request after the others had agreed.
    assert max(ended.steps(1)) - taken["step"] in (0, 1)


def test_requests_take_effect_on_one_step(gangs: Gangs, tmp_path: Path) -> None:
    """Requests that reach ranks at different steps take effect once, after the same step everywhere."""
    save = {"id": "a7", "request": "checkpoint"}
    stop = {"id": "a9", "request": "stop", "checkpoint": True}
    requests = [
        {"rank": 2, "after_step": 2, "request": save},
        {"rank": 0, "after_step": 6, "request": save},
        {"rank": 3, "after_step": 9, "request": stop},
        {"rank": 1, "after_step": 9, "request": stop},
    ]
    settings = {**SETTINGS, "steps": 200, "checkpoint_every": 0}
    ended = gangs.run(
        settings, layout=LAYOUT, environment=environment(tmp_path), requests=requests, expect=75
    )
    taken = [(r["request"], r["step"]) for rank in range(4) for r in ended.of_kind("taken", rank)]
    by_request = {
        request: {step for name, step in taken if name == request} for request, _ in taken
    }
    (saved_at,) = by_request["a7"]
    (stopped_at,) = by_request["a9"]
    assert [r["step"] for r in ended.of_kind("checkpoint")] == [saved_at, stopped_at]
    assert saved_at < stopped_at
    assert {max(ended.steps(rank)) for rank in range(4)} == {stopped_at}
    assert json.loads((tmp_path / f"1.0.0-{stopped_at:08d}" / "manifest.json").read_text())


def test_stop_without_a_checkpoint(gangs: Gangs, tmp_path: Path) -> None:
    """A stop without a checkpoint leaves none."""
    request = {"id": "a1", "request": "stop", "checkpoint": False}
    ended = gangs.run(
        {**SETTINGS, "steps": 200, "checkpoint_every": 0},
        layout=Layout(),
        environment=environment(tmp_path),
        requests=[{"rank": 0, "after_step": 2, "request": request}],
        expect=75,
    )
    assert ended.of_kind("checkpoint") == []
    assert checkpoints.list_sealed(tmp_path) == []
