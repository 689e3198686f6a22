"""Deaths in the middle of a save, and checkpoints whose bytes changed: no resume ever trusts what is not whole."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.checkpoints import sealed_folder
from runner.facts.messages.requests import Drill
from tests.e2e.reference import Reference, assert_equal, prepare
from tests.e2e.stand import RankStack, Training, incidents_of, kill, run_of

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(900)]

SEED = 20240611
POINTS = ("before_shards", "between_shards", "before_seal", "after_seal")
SOME_TIME = "some time in the save"
NUM_DEATHS = 10


@dataclass(frozen=True, slots=True)
class Death:
    """One rank dies during a save: at a point of the code, or some milliseconds after the folder appeared."""

    point: str
    rank: int
    delay_seconds: float


def plan(seed: int) -> list[Death]:
    """Return ten deaths, each point among them at least once."""
    rng = random.Random(seed)
    points = [*POINTS, *rng.choices(POINTS, k=NUM_DEATHS - len(POINTS) - 3), *[SOME_TIME] * 3]
    rng.shuffle(points)
    return [Death(point, rng.randrange(4), rng.uniform(0.0, 0.05)) for point in points]


def test_a_rank_that_dies_anywhere_in_a_save_costs_steps_but_never_the_result(
    stand: RankStack, undisturbed: Reference
) -> None:
    """Ten deaths inside ten saves: each resume takes the newest sealed checkpoint, and the end is the undisturbed one."""
    prepare(stand)
    run = stand.start("run", "run.yaml")
    now = stand.training(past_step=1)
    for death in plan(SEED):
        strike(stand, now, death)
        stand.until(lambda: stand.observer.is_gone(now.attempt), "the gang's end")  # noqa: B023 - called at once
        sealed, rests = folders(stand)
        print(
            f"{now.attempt}: rank {death.rank} died {death.point}; sealed {sealed}, rests {rests}"
        )
        before, now = now, stand.training(past_step=furthest(stand), after=now.attempt)
        resumed = stand.observer.resumes()[str(before.attempt.restarted())]
        assert resumed == (sealed[0] if sealed else "")
    code, said = stand.finish(run, seconds=300)
    assert code == 0, said

    assert_equal(stand, undisturbed)
    assert list(stand.observer.starts().values()) == [4] * (NUM_DEATHS + 1)
    assert {i.fault for i in incidents_of(stand.view())} == {"rank_crash"}
    sealed, rests = folders(stand)
    assert len(sealed) == 3
    # what was cut short takes up no room for long
    assert rests == []


def test_a_checkpoint_with_a_flipped_byte_is_passed_over_for_the_one_before(
    stand: RankStack, undisturbed: Reference
) -> None:
    """One bit of the newest sealed checkpoint flips, a rank dies: the run resumes from the one before, and a person is told."""
    prepare(stand, keep_checkpoints=0)
    run = stand.start("run", "run.yaml")
    now = stand.training(past_step=9)
    root = checkpoints(stand)
    newest = flip_a_bit_of_the_newest(root, stand)
    kill(now.pids[1])
    after = stand.training(past_step=now.step, after=now.attempt)
    resumed = stand.observer.resumes()[str(after.attempt)]
    sealed = [path.name for path in sealed_folder.list_sealed(root)]
    older = [name for name in sealed if step_of(name) < step_of(newest)]
    print(f"flipped {newest}, resumed from {resumed}; sealed are {sealed}")
    assert resumed == older[0]
    assert newest in (stand.state / "supervisor.log").read_text()
    assert "PAGE" in (stand.state / "supervisor.log").read_text()
    code, said = stand.finish(run, seconds=300)
    assert code == 0, said
    assert_equal(stand, undisturbed)


def strike(stand: RankStack, now: Training, death: Death) -> None:
    """Have a rank die in the next save."""
    if death.point != SOME_TIME:
        drill = Drill(
            id=f"e2e-{uuid.uuid4().hex[:12]}",
            run=stand.name,
            fault="ask-ranks",
            rank=death.rank,
            point=death.point,
        )
        answer = stand.ask(drill)
        assert answer.state == "done", answer
        return
    root = checkpoints(stand)
    known = {path.name for path in root.iterdir()}
    deadline = time.monotonic() + 60.0
    while {path.name for path in root.iterdir()} <= known:
        assert time.monotonic() < deadline, f"no save began\n{stand.report()}"
        time.sleep(0.001)
    time.sleep(death.delay_seconds)
    kill(now.pids[death.rank])


def flip_a_bit_of_the_newest(root: Path, stand: RankStack) -> str:
    """Change one bit in the middle of the newest sealed checkpoint's largest file; return the folder's name."""
    stand.until(lambda: len(sealed_folder.list_sealed(root)) >= 2 or None, "two checkpoints")
    newest = sealed_folder.list_sealed(root)[0]
    largest = max(newest.iterdir(), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(largest.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    return newest.name


def checkpoints(stand: RankStack) -> Path:
    """Return the folder that holds the run's checkpoints."""
    return Path(run_of(stand.view()).checkpoints)


def folders(stand: RankStack) -> tuple[list[str], list[str]]:
    """Name the sealed checkpoints, newest first, and what was never sealed."""
    root = checkpoints(stand)
    sealed = [path.name for path in sealed_folder.list_sealed(root)]
    rests = [path.name for path in root.iterdir() if path.is_dir() and path.name not in sealed]
    return sealed, sorted(rests)


def furthest(stand: RankStack) -> int:
    """Return the furthest step the run has reached."""
    return run_of(stand.view()).best_step


def step_of(name: str) -> int:
    """Return the step in a checkpoint's name."""
    read = sealed_folder.read_folder_name(name)
    assert read is not None
    return read[1]
