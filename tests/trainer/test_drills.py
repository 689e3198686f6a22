"""Drills that a rank is asked for over the channel are real faults: each one's effect shows in what ranks report or save."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.errors import CheckpointRefused
from runner.facts.drills import RANK_DRILLS
from tests.small_disk import small_disk
from tests.trainer.gangs import SMALL, Ended, Gangs, Layout
from tests.trainer.test_injection import NAMES, output_of
from trainer.faults.drills import read_drill
from trainer.faults.left_behind import BALLAST, MAX_BALLAST_BYTES, POISONED, fill, free_disk

pytestmark = pytest.mark.trainer
PAIR = Layout(data=2)
SETTINGS: dict[str, Any] = {**SMALL, "steps": 24, "data": {"source": "stdlib"}}


def ordered(
    gangs: Gangs,
    fault: str,
    *,
    settings: dict[str, Any] | None = None,
    layout: Layout = PAIR,
    folder: Path | None = None,
    after_step: int = 8,
    expect: int | None = 0,
    patience_seconds: float = 0.0,
    **fields: Any,
) -> Ended:
    """Run a gang that is asked for a drill; its ranks get the request in different steps, the one that is to break first."""
    request = {"id": "q7", "request": "drill", "fault": fault, "rank": 1, **fields}
    late = {rank: rank != request["rank"] >= 0 for rank in range(layout.world_size)}
    asked = [
        {"rank": rank, "after_step": after_step + late[rank], "request": request}
        for rank in range(layout.world_size)
    ]
    environment = {"STOKER_CHECKPOINTS": str(folder)} if folder is not None else {}
    return gangs.run(
        {**SETTINGS, **(settings or {})},
        layout=layout,
        environment=environment,
        requests=asked,
        expect=expect,
        patience_seconds=patience_seconds,
    )


def start_of(ended: Ended) -> int:
    """Return the step after which the ranks agreed to begin, the same on all."""
    (step,) = {report["step"] for rank in range(2) for report in ended.of_kind("taken", rank)}
    return int(step)


def test_drills_of_numbers(gangs: Gangs) -> None:
    """The loss jumps; gradients grow; a NaN is in one rank's gradient; none of it is reported as what it is."""
    sound = gangs.run(SETTINGS, layout=PAIR)
    before = sound.values("loss")
    assert set(sound.of_kind("hello")[0]["drills"]) == set(RANK_DRILLS)

    spike = ordered(gangs, "loss-spike", rank=-1, steps=1, strength=3.0)
    first = start_of(spike) + 1
    assert spike.values("loss")[:first] == before[:first]
    assert max(spike.values("loss")[first:]) > before[first] + 0.2
    assert not spike.of_kind("replicas")

    drift = ordered(gangs, "grad-drift", rank=-1, steps=10, strength=1.5)
    first = start_of(drift) + 1
    grown = [
        a / b for a, b in zip(drift.values("grad_norm"), sound.values("grad_norm"), strict=True)
    ]
    assert grown[first - 2] == 1.0
    # In its first step a rank may not know of it yet.
    assert grown[first] == pytest.approx(1.5**2, rel=0.05)
    assert grown[first + 3] > 3

    sick = ordered(gangs, "nan", steps=3)
    first = start_of(sick) + 1
    for rank, step in ((0, first), (1, first), (1, first + 2), (1, first + 3)):
        is_nan = rank == 1 and step < first + 3
        assert math.isnan(sick.values("local_grad_norm", rank)[step - 1]) == is_nan
    assert [step for step, done in sick.steps().items() if done["skipped"]] == [
        first,
        first + 1,
        first + 2,
    ]
    for ended in (spike, drift, sick):
        assert not NAMES.search(output_of(ended))
        assert "drill" not in "".join(path.read_text() for path in ended.output.glob("rank*"))


def test_the_loss_scale_falls_to_its_floor(gangs: Gangs) -> None:
    """One rank's gradient overflows in every step: all are skipped, and the scale ends at its least."""
    settings = {"precision": {"dtype": "fp16", "initial_scale_power": 6, "hysteresis": 1}}
    ended = ordered(gangs, "loss-scale", settings=settings, steps=100)
    first = start_of(ended)
    assert ended.values("loss_scale")[first - 1] == 64
    assert ended.values("loss_scale")[-1] == 1
    assert all(step["skipped"] for number, step in ended.steps().items() if number > first)


def test_a_slow_rank_and_one_whose_weight_flips(gangs: Gangs) -> None:
    """A slow rank's computing takes longer by the factor; a weight that differs between replicas is found on its rank."""
    slow = ordered(gangs, "slow-rank", steps=100, strength=20.0)
    first = start_of(slow) + 1
    own, other = (slow.values("compute_seconds", rank) for rank in (1, 0))
    assert statistics.median(own[first:]) > 5 * statistics.median(own[1:first])
    assert statistics.median(own[first:]) > 5 * statistics.median(other[first:])
    flipped = ordered(gangs, "sdc", settings={"sdc_every": 5}, steps=15)
    assert {report["what"] for report in flipped.of_kind("replicas")} == {"weight"}
    assert {tuple(report["ranks"]) for report in flipped.of_kind("replicas")} == {(1,)}


def test_a_rank_that_hangs(gangs: Gangs) -> None:
    """It stays where it is, until the others give up waiting."""
    ended = ordered(gangs, "hang", settings={"group_timeout_seconds": 3}, expect=None)
    assert ended.exit_codes == [1, -9]


def test_poisoned_positions_stay_bad_until_they_are_skipped(gangs: Gangs, tmp_path: Path) -> None:
    """All ranks read noise there, and so does a later attempt, unless it leaves these positions out."""
    sound = gangs.run(SETTINGS, layout=PAIR)
    sick = ordered(gangs, "bad-data", rank=-1, first=17, steps=3, folder=tmp_path)
    losses, before = sick.values("loss"), sound.values("loss")
    assert losses[:16] == before[:16]
    assert losses[16] > before[16] + 0.05
    assert json.loads((tmp_path / POISONED).read_text())[0][:2] == [17, 19]
    again = {"STOKER_CHECKPOINTS": str(tmp_path), "STOKER_ATTEMPT": "1.0.1"}
    assert gangs.run(SETTINGS, layout=PAIR, environment=again).values("loss") == losses
    skips = {"STOKER_REMEDIES": '{"skip_steps": [[17, 19]]}'}
    clean = gangs.run(SETTINGS, layout=PAIR, environment=skips)
    avoided = gangs.run(SETTINGS, layout=PAIR, environment={**again, **skips})
    assert avoided.values("loss") == clean.values("loss")


@pytest.mark.parametrize("damage", ["byte", "nan"])
def test_a_corrupt_checkpoint(gangs: Gangs, tmp_path: Path, damage: str) -> None:
    """A flipped byte is refused by its hash; a NaN is sealed with a manifest that is right, and spoils what resumes from it."""
    settings = {"checkpoint_every": 6, "steps": 14 if damage == "nan" else 11}
    ended = ordered(
        gangs, "corrupt-checkpoint", settings=settings, folder=tmp_path, damage=damage, rank=0
    )
    newest = checkpoints.list_sealed(tmp_path)
    damaged = next(path for path in newest if path.name.endswith("12" if damage == "nan" else "06"))
    assert all(map(math.isfinite, ended.values("loss")))
    if damage == "byte":
        with pytest.raises(CheckpointRefused):
            checkpoints.verify(damaged)
        return
    checkpoints.verify(damaged)
    resumed = gangs.run(
        {**SETTINGS, "steps": 14}, layout=PAIR, environment={"STOKER_RESUME": str(damaged)}
    )
    assert not any(map(math.isfinite, resumed.values("loss")))


def test_a_disk_that_is_full_or_beyond_the_quota(gangs: Gangs, tmp_path: Path) -> None:
    """The next save fails on the file system's own error; the first start after a while finds room again."""
    ended = ordered(
        gangs,
        "disk-full",
        settings={"checkpoint_every": 12},
        folder=tmp_path / "large",
        rank=0,
        expect=None,
        # The other rank may end first, on the connection that rank 0 closes while it unwinds.
        patience_seconds=60.0,
    )
    assert ended.exit_codes[0] == 1
    assert "[Errno 27]" in ended.errors() or "[Errno 28]" in ended.errors()
    assert not checkpoints.list_sealed(tmp_path / "large")
    assert MAX_BALLAST_BYTES < 1 << 31
    with small_disk(tmp_path / "small", size_bytes=1 << 20) as disk:
        fill(disk / BALLAST)
        with pytest.raises(OSError, match="No space"):
            (disk / "more").write_bytes(bytes(4096))
        free_disk(disk)
        assert (disk / BALLAST).exists()
        old = (disk / BALLAST).stat().st_mtime - 60
        __import__("os").utime(disk / BALLAST, (old, old))
        free_disk(disk)
        assert not (disk / BALLAST).exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"fault": "set-fire"},
        {"fault": "nan", "steps": 0},
        {"fault": "loss-spike", "strength": 1e9},
        {"fault": "hang", "first": 4},
        {"fault": "raise", "point": "lunch"},
        {"fault": "corrupt-checkpoint", "damage": "fire"},
    ],
)
def test_an_order_that_cannot_be_read_is_refused(fields: dict[str, Any]) -> None:
    """What is out of bounds or unknown is an error, not a default."""
    with pytest.raises(ValueError, match=r"\w"):
        read_drill({"id": "q1", "rank": 0, **fields})
