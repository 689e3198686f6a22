"""The task `verify`: a child reads, shares wait in line, and neither a kill nor a file system that hangs loses or blocks any."""

import json
import mmap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from runner.agent import tasks
from runner.agent.event_loop import EventLoop
from runner.agent.transport.session import SignalEmitter
from runner.agent.verification.open_tasks import load_tasks, save_tasks
from runner.agent.verification.share_child import RECORD_NAME
from runner.agent.verification.verify_task import MAX_OPEN, STATE_NAME, VerifyRunner
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task
from runner.facts.messages.signals import TaskProgressed
from runner.facts.wire import encode
from tests.agent.node import WAIT_SECONDS, Node, is_alive, state_of, wait_until
from tests.checkpoints.samples import sealed_checkpoint
from tests.healthchecks.slow_folder import SlowFolder, slow_folder

FILE_BYTES = 200_000
SIZES = {f"file{number}": FILE_BYTES for number in range(8)}
GOOD = {"path": "/c/1.1.0-00000005", "manifest": "0" * 64, "share": 0, "shares": 1}


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowFolder]:
    """Give a mounted folder with a rate."""
    with slow_folder(tmp_path / "mount") as mounted:
        yield mounted
        mounted.set()


class Bench:
    """A `VerifyRunner` on a loop of its own, and what it sent."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.loop = EventLoop(lambda seconds: None)
        self.answers: list[ActionResult] = []
        self.progress: list[TaskProgressed] = []
        header = {"node": "n1", "incarnation": 1}
        emitter = SignalEmitter(
            next_header=lambda: header, emit=self._on_signal, heartbeat=lambda: None
        )
        self.runner = VerifyRunner(
            folder=folder,
            loop=self.loop,
            emitter=emitter,
            answer=self._on_answer,
            manifest_seconds=0.0,
            confirm_seconds=0.0,
            **fields,
        )
        self._num_awaited = 0

    def _on_signal(self, fact: object) -> None:
        assert isinstance(fact, TaskProgressed)
        self.progress.append(fact)

    def _on_answer(self, answer: ActionResult) -> None:
        self.answers.append(answer)
        if len(self.answers) == self._num_awaited:
            self.loop.stop()

    def run(self, num_answers: int) -> list[ActionResult]:
        """Run the loop until so many tasks are answered, then end."""
        self._num_awaited = num_answers
        if len(self.answers) < num_answers:
            self.loop.at("give up", time.monotonic() + WAIT_SECONDS, self.loop.stop)
            self.loop.run()
        self.runner.end(for_good=False)
        self.loop.close()
        assert len(self.answers) == num_answers, self.answers
        return self.answers


def task_of(number: int, **args: Any) -> Task:
    """Return a task for n1."""
    return Task(id=f"a{number}", node="n1", task="verify", args={**GOOD, **args})


def ask(
    node: Node, id_: str, folder: Path, manifest: str, *, deadline_seconds: float = 60.0
) -> None:
    """Send a task, under an id of one's own, to verify all of a checkpoint."""
    args = {"path": str(folder), "manifest": manifest, "share": 0, "shares": 1}
    task = Task(id=id_, node=node.name, task="verify", args=args, deadline_seconds=deadline_seconds)
    node.store.append(f"tasks/{node.name}", encode(task))


def readers(node: Node) -> list[int]:
    """Return the pids of the readers that were started, in order."""
    lines = [line for line in node.log().splitlines() if "verifies a share" in line]
    return [int(line.split("pid ")[1].split()[0]) for line in lines]


def recorded(node: Node) -> list[str]:
    """Return the names of the files that are recorded as verified."""
    try:
        lines = (node.folder / RECORD_NAME).read_text().split("\n")[1:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line)[0] for line in lines]


# ---- with a real agent ----------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_neither_kill_makes_a_node_read_a_file_twice(node: Node, slow: SlowFolder) -> None:
    """SIGKILL of the reader, then of the agent: the next ones go on with the files that are left, and one answer comes.

    The task comes again while it is open, and once more when it is answered: nothing starts for that.
    """
    folder, manifest = sealed_checkpoint(slow.folder, SIZES)
    before = slow.bytes_read()

    def reads(name: str) -> int:
        return (slow.bytes_read() - before)[f"{folder.name}/{name}"]

    slow.set(hangs="file2")
    node.start_agent()
    ask(node, "a1", folder, manifest)
    wait_until(lambda: reads("file2"), "a reader that hangs")
    assert recorded(node) == ["file0", "file1"]
    (pid,) = readers(node)
    reader = psutil.Process(pid)
    assert (reader.nice(), reader.ionice().ioclass) == (19, psutil.IOPRIO_CLASS_IDLE)
    reader.kill()
    ask(node, "a1", folder, manifest)
    slow.set(hangs="file4")
    wait_until(lambda: reads("file4"), "the reader after it")
    assert recorded(node) == ["file0", "file1", "file2", "file3"]
    node.kill_agent()
    slow.set()
    assert len(readers(node)) == 2
    wait_until(lambda: not is_alive(readers(node)[1]), "the end of the reader with its agent")
    node.start_agent()
    answer = node.answer("a1")
    assert answer.outcome == "done"
    assert (answer.detail["files"], answer.detail["size_bytes"]) == (8, 8 * FILE_BYTES)
    # What the scan of one agent's reader said is kept with the files that the next does not read.
    assert answer.detail["uncovered"].startswith("file0: no known format of tensors; file1:")
    # Those that were being read at a kill are read again. Where a file begins is looked at to see what it is.
    for name in ("file0", "file1", "file3", "file5"):
        assert FILE_BYTES <= reads(name) <= FILE_BYTES + 2 * mmap.PAGESIZE
    progress = node.signals("TaskProgressed")
    assert (progress[0].done_bytes, progress[0].total_bytes) == (0, 8 * FILE_BYTES)
    assert {each.id for each in progress} == {"a1"}
    # Until then, a later agent would verify again.
    wait_until(lambda: not load_tasks(node.folder / STATE_NAME)[0], "the answer on disk")
    node.kill_agent()
    node.start_agent()
    ask(node, "a1", folder, manifest)
    wait_until(lambda: len(node.signals("ActionResult")) == 2, "the kept answer")
    assert node.signals("ActionResult")[-1] == answer
    assert len(readers(node)) == 3


@pytest.mark.e2e
def test_a_folder_that_hangs_stops_no_agent(node: Node, slow: SlowFolder) -> None:
    """While its reader hangs, and cannot be killed, the agent sends heartbeats, and leaves when asked; the next one goes on."""
    folder, manifest = sealed_checkpoint(slow.folder, SIZES)
    slow.set(hangs=True)
    agent = node.start_agent()
    ask(node, "a1", folder, manifest)
    wait_until(lambda: slow.num_hung, "a reader that hangs")
    heartbeats = node.heartbeats()
    first = next(heartbeats).sequence
    assert any(next(heartbeats).sequence > first + 3 for _ in range(1000))
    agent.terminate()
    assert agent.wait(30) == 0
    (reader,) = readers(node)
    assert state_of(reader) == "D"
    slow.set()
    node.start_agent()
    answer = node.answer("a1")
    assert answer.outcome == "done", answer.message


# ---- on a loop of its own -------------------------------------------------------------------------------------------


def test_shares_wait_in_line(tmp_path: Path) -> None:
    """One child at a time; a task that is open starts nothing more; those beyond the queue are to be asked again."""
    folder, manifest = sealed_checkpoint(tmp_path, {"a": 10, "b": 20, "c": 30, "d": 40})
    bench = Bench(tmp_path / "node")
    given = [
        task_of(number, path=str(folder), manifest=manifest, share=number, shares=MAX_OPEN)
        for number in range(MAX_OPEN)
    ]
    for task in given:
        bench.runner.begin(task)
        bench.runner.begin(given[0])
    bench.runner.begin(task_of(9, path=str(folder), manifest=manifest))
    refused, *answers = bench.run(MAX_OPEN + 1)
    assert (refused.id, refused.outcome, refused.detail) == ("a9", "failed", {"damaged": False})
    assert "4 verifications are open here (a0, a1, a2, a3); ask again" in refused.message
    assert [(answer.id, answer.outcome) for answer in answers] == [
        (f"a{number}", "done") for number in range(MAX_OPEN)
    ]
    assert [answer.detail["size_bytes"] for answer in answers] == [40, 30, 20, 10]
    begun = [each.id for each in bench.progress if each.total_bytes]
    assert begun == [task.id for task in given]
    assert {each.id for each in bench.progress if not each.total_bytes} == {"a1", "a2", "a3"}
    assert load_tasks(tmp_path / "node" / STATE_NAME) == ([], answers)


def test_damage_is_answered_with_the_file(tmp_path: Path) -> None:
    """The answer names the file and its fault; a share asked for again is read again."""
    folder, manifest = sealed_checkpoint(tmp_path, {"a": 10, "b": 20})
    bench = Bench(tmp_path / "node")
    (folder / "b").write_bytes(bytes(20))
    bench.runner.begin(task_of(1, path=str(folder), manifest=manifest))
    bench.runner.begin(task_of(2, path=str(folder), manifest="1" * 64, share=1, shares=2))
    damaged, other = bench.run(2)
    assert (damaged.outcome, damaged.detail) == ("failed", {"damaged": True})
    assert f"{folder}/b is damaged: sha256" in damaged.message
    assert (other.outcome, other.detail) == ("failed", {"damaged": False})
    assert not (tmp_path / "node" / RECORD_NAME).exists()


@pytest.mark.costly
def test_progress_is_signalled_as_bytes_come(tmp_path: Path, slow: SlowFolder) -> None:
    """From the first moment to the last, more each time; none while nothing comes."""
    folder, manifest = sealed_checkpoint(slow.folder, SIZES)
    slow.set(read_bytes_per_second=600_000)
    bench = Bench(tmp_path / "node", progress_seconds=0.5)
    bench.runner.begin(task_of(1, path=str(folder), manifest=manifest))
    (answer,) = bench.run(1)
    assert answer.outcome == "done"
    sent = [each.done_bytes for each in bench.progress]
    assert sent[0] == 0
    assert len(sent) >= 3
    assert sent == sorted(set(sent))
    assert sent[-1] <= bench.progress[-1].total_bytes == 8 * FILE_BYTES


def test_a_reader_that_keeps_dying_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced twice; then the answer has its last words."""
    monkeypatch.setattr(
        "runner.agent.verification.share_child.PROGRAM", ("sh", "-c", "echo out of memory; exit 1")
    )
    monkeypatch.setattr("runner.agent.verification.verify_task.RESTART_SECONDS", 0.0)
    bench = Bench(tmp_path / "node")
    bench.runner.begin(task_of(1))
    (answer,) = bench.run(1)
    assert (answer.outcome, answer.detail) == ("failed", {"damaged": False})
    assert answer.message == "the reader died 3 times: out of memory"


@pytest.mark.costly
def test_a_reader_that_hangs_is_given_up(tmp_path: Path, slow: SlowFolder) -> None:
    """After a task's deadline without a byte it is answered; so is the next task, for as long as the reader cannot be killed."""
    folder, manifest = sealed_checkpoint(slow.folder, SIZES)
    slow.set(hangs=True)
    # Others may look at the folder, too.
    deadline_seconds, before = 1.0, slow.num_hung
    while deadline_seconds == 1.0 or slow.num_hung == before:
        # On a busy machine, the reader may not come to read in time.
        deadline_seconds *= 2
        bench = Bench(tmp_path / "node")
        task = task_of(1, path=str(folder), manifest=manifest)
        bench.runner.begin(replace(task, deadline_seconds=deadline_seconds))
        bench.runner.begin(task_of(2, path=str(folder), manifest=manifest))
        hung, next_one = bench.run(2)
    assert hung.message == f"nothing could be read for {deadline_seconds:g} s"
    assert "is killed and has not ended: its file system hangs" in next_one.message
    assert hung.detail == next_one.detail == {"damaged": False}


@pytest.mark.parametrize(
    "args",
    [
        {"path": "relative"},
        {"path": None},
        {"path": "/a\0b"},
        {"manifest": "0" * 63},
        {"manifest": "G" * 64},
        {"share": 1},
        {"share": -1},
        {"share": "0"},
        {"share": True, "shares": 2},
        {"shares": 10**9},
    ],
)
def test_a_task_that_makes_no_sense_is_refused(tmp_path: Path, args: dict[str, Any]) -> None:
    """The answer names the argument and its value; no child is started."""
    bench = Bench(tmp_path / "node")
    bench.runner.begin(task_of(1, **args))
    (answer,) = bench.run(1)
    assert (answer.outcome, answer.detail) == ("failed", {"damaged": False})
    assert next(iter(args)).removesuffix("s") in answer.message
    assert not (tmp_path / "node" / STATE_NAME).exists()


def test_open_tasks_outlive_an_agent_unless_it_leaves_for_good(tmp_path: Path) -> None:
    """A later instance answers what is open and has no answer on its way, and knows the last answers."""
    path = tmp_path / "node" / STATE_NAME
    folder, manifest = sealed_checkpoint(tmp_path, {"a": 10})
    first = Bench(tmp_path / "node")
    for number in range(3):
        first.runner.begin(task_of(number, path=str(folder), manifest=manifest))
    first.run(0)
    assert [task.id for task in load_tasks(path)[0]] == ["a0", "a1", "a2"]
    second = Bench(tmp_path / "node")
    assert second.runner.resume(["a1"]) == []
    answers = second.run(2)
    assert [answer.id for answer in answers] == ["a0", "a2"]
    third = Bench(tmp_path / "node")
    assert third.runner.resume([]) == answers
    third.runner.begin(task_of(4, path=str(folder), manifest=manifest))
    third.runner.end(for_good=True)
    third.run(0)
    assert load_tasks(path) == ([], answers)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-7],
        lambda data: data + b"\xff\n",
        lambda data: data + encode(TaskProgressed(node="n1", incarnation=1, id="a1")) + b"\n",
        lambda data: data * 10_000,
        lambda data: data.replace(b'"verify"', b'"drill"'),
    ],
)
def test_a_file_that_is_torn_or_foreign_holds_no_tasks(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    """The agent begins with nothing, and says so."""
    path = tmp_path / STATE_NAME
    task = task_of(1)
    save_tasks(path, [task], [tasks.result(task, "done", "")])
    assert load_tasks(path)[0] == [task]
    path.write_bytes(spoil(path.read_bytes()))
    assert load_tasks(path) == ([], [])


def test_a_share_may_be_verified_at_any_age() -> None:
    """A task that waited for an agent, or that is older than what runs, is done; one for another node is not."""
    limits: dict[str, Any] = {
        "instance_id": "i1",
        "generation": 7,
        "gang_generation": None,
        "has_waited": True,
    }
    assert tasks.refusal(task_of(1), node="n1", **limits) == ""
    assert "is for node 'n1'" in tasks.refusal(task_of(1), node="n2", **limits)
