"""The client: what a script's rank reports, when it stops, and which checkpoints count."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from runner import checkpoints
from stoker.agreement import MARGIN_STEPS, Agreement
from stoker.run import EXIT_STOPPED, Run
from tests.stoker.agent import Agent

ROOT = Path(__file__).parents[2]


def test_steps_are_reported_with_their_numbers(supervised: tuple[Run, Agent]) -> None:
    """The first report says which requests the rank understands."""
    run, agent = supervised
    run.step(1, loss=2.5, grad_norm=float("nan"))
    run.validation(1, 2.25)
    hello, step, validation = agent.reports()
    assert hello == {
        "kind": "hello",
        "requests": ["checkpoint", "stop"],
        "remedies": [],
        "checks_checkpoints": True,
    }
    assert step == {"kind": "step", "step": 1, "loss": 2.5, "grad_norm": "NaN"}
    assert validation == {"kind": "validation", "step": 1, "loss": 2.25}


def test_a_request_to_stop_takes_effect_after_the_step_that_reads_it(
    supervised: tuple[Run, Agent],
) -> None:
    """The rank acknowledges it with that step; where a checkpoint was asked for, it is to save one."""
    run, agent = supervised
    run.step(4)
    assert not run.should_stop
    agent.request(id="a7", request="stop", checkpoint=True)
    run.step(5)
    assert (run.should_stop, run.should_checkpoint) == (True, True)
    assert {"kind": "taken", "request": "a7", "step": 5} in agent.reports()


def test_a_checkpoint_on_request_is_for_one_step(supervised: tuple[Run, Agent]) -> None:
    """The next step asks for none."""
    run, agent = supervised
    agent.request(id="a8", request="checkpoint")
    run.step(5)
    assert (run.should_stop, run.should_checkpoint) == (False, True)
    run.step(6)
    assert not run.should_checkpoint


def test_requests_that_are_none_are_passed_over(supervised: tuple[Run, Agent]) -> None:
    """Of a later contract, or hostile."""
    run, agent = supervised
    agent.request(id="a9", request="dance")
    agent.request(id=["a10"], request="stop")
    agent.request(request="stop")
    run.step(5)
    assert not run.should_stop


def test_a_checkpoint_is_sealed_at_the_end_of_its_block(supervised: tuple[Run, Agent]) -> None:
    """The supervisor's own survey verifies it, and the report names it."""
    run, agent = supervised
    with run.checkpoint(120) as folder:
        (folder / "model.pt").write_bytes(b"weights" * 100)
        (folder / "shards").mkdir()
        (folder / "shards" / "0.pt").write_bytes(b"part")
    manifest = checkpoints.verify(folder)
    assert (manifest.step, sorted(manifest.files)) == (120, ["model.pt", "shards/0.pt"])
    assert manifest.generation == 3
    assert {"kind": "checkpoint", "step": 120, "path": str(folder)} in agent.reports()


def save_and_fail(run: Run) -> None:
    """Write a part of a checkpoint."""
    with run.checkpoint(7) as folder:
        (folder / "model.pt").write_bytes(b"half")
        raise ValueError("disk")


def test_a_block_that_raises_leaves_no_checkpoint(supervised: tuple[Run, Agent]) -> None:
    """Nor does one that a rank died in keep the next from being written."""
    run, agent = supervised
    with pytest.raises(ValueError, match="disk"):
        save_and_fail(run)
    folder = run.checkpoint_folder(7)
    assert not folder.exists()
    assert not [one for one in agent.reports() if one["kind"] == "checkpoint"]
    folder.mkdir()
    (folder / "torn.pt").write_bytes(b"torn")
    with run.checkpoint(7) as folder:
        (folder / "model.pt").write_bytes(b"whole")
    assert sorted(checkpoints.verify(folder).files) == ["model.pt"]


def test_a_newer_attempt_ends_the_rank_at_its_seal(supervised: tuple[Run, Agent]) -> None:
    """Its checkpoint does not count."""
    run, _ = supervised
    folder = run.checkpoint_folder(9)
    checkpoints.raise_generation(folder.parent, 4)
    with pytest.raises(SystemExit, match="generation"), run.checkpoint(9):
        (folder / "model.pt").write_bytes(b"late")
    assert not (folder / checkpoints.MANIFEST).exists()


SCRIPT = """
import stoker, sys
run = stoker.attach(checkpoints=sys.argv[1])
assert run is stoker.attach()
done = run.resume_step
for step in range(done + 1, done + 4):
    run.step(step, loss=1.0)
    assert not run.should_stop
with run.checkpoint(step) as folder:
    (folder / "model").write_text(str(step))
print(done, step, run.resume_step, sorted(sys.modules.keys() & {"runner", "torch", "msgspec", "json"}))
"""


def test_without_stoker_the_same_script_runs_and_resumes(tmp_path: Path) -> None:
    """It imports nothing of the control plane, and its checkpoints are plain folders."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STOKER_")
    }
    environment["PYTHONPATH"] = str(ROOT)
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "saved")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs[0][:3] == ["0", "3", "3"]
    assert outputs[1][:3] == ["3", "6", "6"]
    assert "'runner'" not in outputs[0]
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "step-00000003",
        "step-00000006",
    ]


CHILD = """
import os, subprocess, sys, stoker
if len(sys.argv) == 1:
    assert stoker.attach().resume_folder.name == "1.1.0-00000002"
    sys.exit(subprocess.run([sys.executable, *sys.orig_argv[1:], "child"]).returncode)
run = stoker.attach()
run.step(1, loss=0.5)
with run.checkpoint(9) as folder:
    (folder / "state").write_text("of an evaluation")
print(run.is_supervised, run.should_stop, run.resume_folder)
"""


def test_a_process_that_a_rank_starts_is_no_rank(tmp_path: Path) -> None:
    """An evaluation with a client of its own seals nothing among the run's checkpoints; the rank itself need have no channel."""
    root = tmp_path / "run"
    root.mkdir()
    variables = {"RESUME": str(root / "1.1.0-00000002"), "CHECKPOINTS": str(root)}
    variables |= {"ATTEMPT": "1.1.1", "GENERATION": "1", "RUN": "tiny", "CHANNEL": ""}
    environment = {f"STOKER_{name}": value for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False", "checkpoints/step-00000009"]
    assert list(root.iterdir()) == []


ENDING = """
import socket, sys, json, os
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.environ["STOKER_CHANNEL"] = str(ours.detach())
import stoker
run = stoker.attach()
theirs.send(json.dumps({"kind": "request", "id": "a1", "request": "stop"}).encode() + b"\\n")
run.step(1)
assert run.should_stop
if sys.argv[1] == "raise":
    raise ValueError("after all")
print("last words")
"""


@pytest.mark.parametrize(("how", "code"), [("end", EXIT_STOPPED), ("raise", 1)])
def test_a_script_that_stops_as_asked_ends_with_the_code_for_it(how: str, code: int) -> None:
    """Falling off its end is enough; one that raises has failed all the same."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING, how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert ("last words" in ended.stdout) == (how == "end")


RESUMING = """
import os, socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.environ["STOKER_CHANNEL"] = str(ours.detach())
import stoker
run = stoker.attach()
if sys.argv[1] == "load":
    # The form of a damaged file raises anything.
    raise EOFError("ran out of input")
run.step(8)
print(theirs.recv(65536).decode(), theirs.recv(65536).decode())
"""


def resume(folder: Path, how: str, *, rank: int = 0) -> "subprocess.CompletedProcess[str]":
    """Start a rank of two that resumes from a folder."""
    variables = {"STOKER_RESUME": str(folder), "RANK": str(rank), "WORLD_SIZE": "2"}
    return subprocess.run(
        [sys.executable, "-c", RESUMING, how],
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("how", ["step", "load"])
def test_no_step_is_made_with_a_damaged_checkpoint(how: str, supervised: tuple[Run, Agent]) -> None:
    """Ranks share its files out: the one whose share is damaged ends with the code for it, whatever the loading raises."""
    run, _ = supervised
    with run.checkpoint(7) as folder:
        (folder / "large.pt").write_bytes(b"weights" * 1000)
        (folder / "small.pt").write_bytes(b"rest")
    whole = resume(folder, "step")
    assert whole.returncode == 0, whole.stderr
    assert '"step":8' in whole.stdout
    # Of the same size, so that only its bytes show it.
    (folder / "small.pt").write_bytes(b"tses")
    ended = [resume(folder, how, rank=rank) for rank in (0, 1)]
    codes = [one.returncode for one in ended]
    assert codes == [1 if how == "load" else 0, checkpoints.EXIT_CHECKPOINT_REFUSED], ended
    assert "checkpoint refused" in ended[1].stderr.splitlines()[-1]
    assert "small.pt" in ended[1].stderr.splitlines()[-1]
    assert "step" not in ended[1].stdout


class Counters:
    """A store of counters, as torch.distributed has one."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def add(self, key: str, amount: int, /) -> int:
        """Add, and return the sum."""
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]


@pytest.mark.parametrize("received_at", [(5, 5, 5), (5, 6, 6), (9, 5, 7), (6, 5, 5)])
def test_ranks_agree_on_the_step_after_which_they_stop(
    received_at: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the request reaches each of them."""
    store = Counters()
    monkeypatch.setattr("stoker.agreement.default_store", lambda: store)
    ranks = [Agreement(len(received_at), "1.1.0", rank=rank) for rank in range(len(received_at))]
    stopped: dict[int, int] = {}
    for step in range(1, 30):
        for rank, agreement in enumerate(ranks):
            is_known = step >= received_at[rank] and rank not in stopped
            if is_known and agreement.takes_effect("a1", step):
                stopped[rank] = step
    assert len(set(stopped.values())) == 1
    assert len(stopped) == len(ranks)
    assert max(received_at) < next(iter(stopped.values())) <= max(received_at) + MARGIN_STEPS + 1


class SlowCounters(Counters):
    """A store whose answers arrive so late that the ranks' calls overlap."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self, key: str, amount: int, /) -> int:
        """Add, and return the sum a little later."""
        with self._lock:
            total = super().add(key, amount)
        time.sleep(0.002)
        return total


def test_ranks_that_get_a_request_at_once_stop_a_few_steps_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ranks in one step get it in one moment: far from the first step, no count of theirs may add up to another step."""
    store, received_at, num_ranks = SlowCounters(), 5000, 4
    monkeypatch.setattr("stoker.agreement.default_store", lambda: store)
    barrier, stopped = threading.Barrier(num_ranks), dict[int, int]()

    def train(rank: int) -> None:
        agreement = Agreement(num_ranks, "1.1.0", rank=rank)
        for step in range(received_at, received_at + 50):
            barrier.wait(timeout=30)
            if agreement.takes_effect("a1", step):
                stopped[rank] = step
                return

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(stopped) == num_ranks
    assert len(set(stopped.values())) == 1
    assert stopped[0] <= received_at + MARGIN_STEPS + 1
