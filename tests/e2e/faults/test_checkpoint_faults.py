"""Real faults in runs of the built-in trainer, in the middle of a save too: the end is that of an undisturbed run, bit for bit.

No resume ever uses an incomplete checkpoint, or one whose bytes changed. All in one file, so that the undisturbed run is made once.
"""

import os
import random
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.checkpoints import list_sealed, read_folder_name
from runner.facts.messages.requests import Drill
from tests.e2e.cluster_harness import (
    ClusterHarness,
    Training,
    incidents_of,
    kill,
    node_of,
    run_of,
)
from tests.e2e.reference import Reference, assert_equal, prepare
from tests.suite.share import current

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
    harness: ClusterHarness, undisturbed: Reference
) -> None:
    """Ten deaths inside ten saves, or a commit's share of them: each resume uses the newest sealed checkpoint.

    The end equals the undisturbed one.
    """
    deaths = current().of(plan(SEED))
    prepare(harness)
    run = harness.start("run", "run.yaml")
    now = harness.training(past_step=1)
    for death in deaths:
        die_in_save(harness, now, death)
        harness.until(lambda: harness.observer.is_gone(now.attempt), "the gang's end")  # noqa: B023 - called at once
        sealed, rests = folders(harness)
        print(
            f"{now.attempt}: rank {death.rank} died {death.point}; sealed {sealed}, rests {rests}"
        )
        # The status may be older than the step of the save that was cut off: no death may follow in the same one.
        past = max(furthest(harness), *map(step_of, [*sealed, *rests]))
        before, now = now, harness.training(past_step=past, after=now.attempt)
        resumed = harness.observer.resumes()[str(before.attempt.restarted())]
        assert resumed == (sealed[0] if sealed else "")
    code, output = harness.finish(run, seconds=300)
    assert code == 0, output

    assert_equal(harness, undisturbed)
    assert list(harness.observer.starts().values()) == [4] * (len(deaths) + 1)
    assert {i.fault for i in incidents_of(harness.view())} == {"rank_crash"}
    sealed, rests = folders(harness)
    # The newest that is verified stays beside the newest three.
    assert 3 <= len(sealed) <= 4
    # An incomplete save is removed soon.
    assert rests == []


def test_the_run_resumes_from_the_checkpoint_before_a_flipped_bit(
    harness: ClusterHarness, undisturbed: Reference
) -> None:
    """One bit of the newest checkpoint flips, a rank dies: the run goes on from the one before, and the supervisor pages.

    A gang may have been given the damaged one, if no node had verified it: its ranks refuse it as they load.
    """
    prepare(harness, keep_checkpoints=0)
    run = harness.start("run", "run.yaml")
    now = harness.training(past_step=9)
    root = checkpoints(harness)
    # Nothing is sealed between the flip and the death.
    for pid in now.pids.values():
        kill(pid, signal.SIGSTOP)
    newest = flip_a_bit_of_the_newest(root, harness)
    kill(now.pids[1])
    after = harness.training(past_step=now.step, after=now.attempt)
    resumed = harness.observer.resumes()[str(after.attempt)]
    sealed = [path.name for path in list_sealed(root)]
    older = [name for name in sealed if step_of(name) < step_of(newest)]
    print(f"flipped {newest}, resumed from {resumed}; sealed are {sealed}")
    assert resumed == older[0]
    unsealed = harness.observer.unsealed_resumes
    given = [text for text in unsealed if newest in text]
    unsealed[:] = [text for text in unsealed if newest not in text]
    faults = {incident.fault for incident in incidents_of(harness.view())}
    assert not given or "checkpoint_refused" in faults
    assert newest in (harness.state / "supervisor.log").read_text()
    assert "PAGE" in (harness.state / "supervisor.log").read_text()
    code, output = harness.finish(run, seconds=300)
    assert code == 0, output
    assert_equal(harness, undisturbed)


def test_a_run_that_loses_each_rank_a_stopped_rank_and_a_node_ends_like_an_undisturbed_one(
    harness: ClusterHarness, undisturbed: Reference
) -> None:
    """SIGKILL to each rank of a commit's share in turn, SIGSTOP to one, a node killed: the same last step, loss and weights."""
    killed = current().of(range(4))
    num_attempts = len(killed) + 3
    prepare(harness, spares=1)
    run = harness.start("run", "run.yaml")
    now = harness.training(past_step=5)
    for rank in killed:
        print(f"step {now.step}: SIGKILL to rank {rank} (pid {now.pids[rank]}) of {now.attempt}")
        kill(now.pids[rank])
        now = harness.training(past_step=now.step + 1, after=now.attempt)
    print(f"step {now.step}: SIGSTOP to rank 2 of {now.attempt}")
    kill(now.pids[2], signal.SIGSTOP)
    now = harness.training(past_step=now.step + 1, after=now.attempt)
    print(f"step {now.step}: kill-node n2 of {now.attempt}")
    drilled = harness.stoker("drill", "kill-node", "--node", "n2")
    assert drilled.returncode == 0, drilled
    code, output = harness.finish(run, seconds=300)
    assert code == 0, output

    assert_equal(harness, undisturbed)
    assert list(harness.observer.starts().values()) == [4] * num_attempts
    assert [str(attempt) for attempt in harness.observer.attempts()] == [
        f"1.1.{restart}" for restart in range(num_attempts)
    ]
    found = [(i.fault, i.state, i.rungs) for i in incidents_of(harness.view())]
    *crashes, stopped, silent = found
    assert crashes == [("rank_crash", "resolved", ("restart",))] * len(killed)
    assert stopped == ("rank_stopped", "resolved", ("restart",))
    assert silent[:2] == ("node_silent", "resolved")
    assert [i.rank for i in incidents_of(harness.view())][:-1] == [*killed, 2]
    assert node_of(harness.view(), "n2").attempt is None
    print(f"longest pause between two looks: {harness.observer.longest_pause_seconds * 1e3:.0f} ms")


def die_in_save(harness: ClusterHarness, now: Training, death: Death) -> None:
    """Let a rank die in the next save."""
    if death.point != SOME_TIME:
        drill = Drill(
            id=f"e2e-{uuid.uuid4().hex[:12]}",
            run=harness.name,
            fault="ask-ranks",
            rank=death.rank,
            point=death.point,
        )
        answer = harness.ask(drill)
        assert answer.state == "done", answer
        return
    root = checkpoints(harness)
    known = {path.name for path in root.iterdir()}
    deadline = time.monotonic() + 60.0
    while {path.name for path in root.iterdir()} <= known:
        assert time.monotonic() < deadline, f"no save began\n{harness.report()}"
        time.sleep(0.001)
    time.sleep(death.delay_seconds)
    kill(now.pids[death.rank])


def flip_a_bit_of_the_newest(root: Path, harness: ClusterHarness) -> str:
    """Change one bit in the middle of the newest sealed checkpoint's largest file, its times as before; return its name."""
    harness.until(lambda: len(list_sealed(root)) >= 2 or None, "two checkpoints")
    newest = list_sealed(root)[0]
    largest = max(newest.iterdir(), key=lambda path: path.stat().st_size)
    was = largest.stat()
    with largest.open("r+b") as file:
        file.seek(largest.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    os.utime(largest, ns=(was.st_atime_ns, was.st_mtime_ns))
    return newest.name


def checkpoints(harness: ClusterHarness) -> Path:
    """Return the folder that holds the run's checkpoints."""
    return Path(run_of(harness.view()).checkpoints)


def folders(harness: ClusterHarness) -> tuple[list[str], list[str]]:
    """Name the sealed checkpoints, newest first, and what was never sealed."""
    root = checkpoints(harness)
    sealed = [path.name for path in list_sealed(root)]
    rests = [path.name for path in root.iterdir() if path.is_dir() and path.name not in sealed]
    return sealed, sorted(rests)


def furthest(harness: ClusterHarness) -> int:
    """Return the furthest step the run has reached."""
    return run_of(harness.view()).best_step


def step_of(name: str) -> int:
    """Return the step in a checkpoint's name."""
    read = read_folder_name(name)
    assert read is not None
    return read[1]
