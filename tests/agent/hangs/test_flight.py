"""Records of torch's flight recorder: requested through a pipe, read by a child that trusts nothing in them."""

import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.agent.hangs import flight_recorder
from runner.agent.launch.rank_commands import base_environment
from runner.agent.launch.users import RankUser
from runner.attempt_folders import FLIGHT, make_output_folder
from runner.facts.contract import FLIGHT_PIPE, FLIGHT_VARIABLES
from runner.facts.messages.rank_stacks import Collective

Answer = Callable[[Path], object]


def entry(number: int, **fields: Any) -> dict[str, Any]:
    """Make an entry of a record as torch's NCCL backend writes it."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_795_385_231_916_629_124 + number,
        "input_sizes": [[4]],
        "state": "completed",
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        **fields,
    }


def record(*entries: dict[str, Any]) -> bytes:
    """Make a record."""
    return pickle.dumps({"version": "2.10", "pg_config": {}, "entries": list(entries)}, protocol=2)


WAITING = entry(
    3,
    profiling_name="nccl:_all_gather_base",
    state="started",
    retired=False,
    process_group=("3", "tp"),
)
GROUPS = (
    Collective(
        group="3 tp",
        sequence=3,
        operation="_all_gather_base",
        waits_at=3,
        shape="4",
        recent=("_all_gather_base 4",),
    ),
)


def completed(sequence: int, *, num_recorded: int) -> Collective:
    """Return the place of a rank that completed what it began in the group of all ranks."""
    return Collective(
        group="0 default_pg",
        sequence=sequence,
        operation="all_reduce",
        shape="4",
        recent=("all_reduce 4",) * num_recorded,
    )


END = b"end"
# A reader has a second or two in all, and this machine may stand still for as long.
TRIES = 5


class Recorders:
    """Plays ranks that listen at their pipes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pipes: list[int] = []

    def add(self, rank: int, answer: Answer | None) -> None:
        """Have a rank listen; `answer` is called with the path of its record on a request."""
        pipe = flight_recorder.pipe_path(self.folder / FLIGHT, rank)
        os.mkfifo(pipe)
        descriptor = os.open(pipe, os.O_RDWR)
        self._pipes.append(descriptor)
        path = flight_recorder.record_path(self.folder / FLIGHT, rank)

        def listen() -> None:
            while os.read(descriptor, 128) != END:
                if answer is not None:
                    answer(path)

        threading.Thread(target=listen, daemon=True).start()

    def close(self) -> None:
        """Have all threads end."""
        for descriptor in self._pipes:
            os.write(descriptor, END)


@pytest.fixture
def recorders(tmp_path: Path) -> Iterator[Recorders]:
    """Make ranks whose folder is prepared."""
    make_output_folder(tmp_path)
    played = Recorders(tmp_path)
    yield played
    played.close()


def ask(
    folder: Path, *ranks: int, budget_seconds: float = 4.0
) -> flight_recorder.CollectivesByRank:
    """Ask, and read what is answered."""
    asked = flight_recorder.request_records(str(folder), dict.fromkeys(ranks, os.getpid()))
    return flight_recorder.collect_records(str(folder), asked, budget_seconds=budget_seconds)


def ask_until(
    expected: flight_recorder.CollectivesByRank, folder: Path, *ranks: int
) -> flight_recorder.CollectivesByRank:
    """Ask until the answer is the expected one; return the last answer."""
    for _ in range(TRIES):
        found = ask(folder, *ranks, budget_seconds=2.0)
        if found == expected:
            break
    return found


def test_a_record_shows_in_which_collectives_a_rank_waits(
    recorders: Recorders, tmp_path: Path
) -> None:
    """Groups in which it waits come first; a rank that does not answer delays no other."""

    def slowly(path: Path) -> None:
        data = record(entry(1), entry(2), WAITING, entry(4, is_p2p=True))
        with path.open("wb") as file:
            for at in range(0, len(data), 200):
                file.write(data[at : at + 200])
                file.flush()
                time.sleep(0.05)

    recorders.add(0, slowly)
    recorders.add(1, None)
    recorders.add(2, lambda path: path.write_bytes(record()))
    last = completed(2, num_recorded=2)
    expected: flight_recorder.CollectivesByRank = {0: (*GROUPS, last), 2: ()}
    assert ask_until(expected, tmp_path, 0, 1, 2, 3) == expected


def test_without_a_recorder_nothing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most ranks have none: no folder, no pipe, no reader of the pipe, a file in its place, a record that stayed."""
    # What waits is the child.
    monkeypatch.delattr(subprocess, "run")
    assert ask(tmp_path, 0) == {}
    make_output_folder(tmp_path)
    folder = tmp_path / FLIGHT
    os.mkfifo(folder / "rank1-1.pipe")
    (folder / "rank2-2.pipe").write_text("")
    (folder / "rank3-3.pipe").symlink_to(folder / "rank2-2.pipe")
    (folder / "record1-1").write_bytes(record(WAITING))
    assert ask(tmp_path, 0, 1, 2, 3) == {}


def test_a_record_of_an_earlier_time_out_is_not_taken_for_an_answer(
    recorders: Recorders, tmp_path: Path
) -> None:
    """Torch writes one by itself when a collective has run out of time."""
    (tmp_path / FLIGHT / "record0-0").write_bytes(record(entry(1)))
    recorders.add(0, None)
    assert ask(tmp_path, 0, budget_seconds=0.5) == {}


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._mark}",)


@pytest.mark.costly
@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        b"\x80\x02",
        record(WAITING)[:-20],
        # a memo of two thousand million places
        b"\x80\x02]r\xff\xff\xff\x7f.",
        pickle.dumps(7),
        pickle.dumps({"entries": 7}),
        pickle.dumps({"entries": [{"record_id": 0}]}),
        pickle.dumps({"entries": [entry(1, collective_seq_id="many")]}),
        pickle.dumps({"entries": [entry(1, process_group=("a", "b", "c"))]}),
        pickle.dumps({"entries": [entry(1, collective_seq_id=2**80)]}),
        b"(" * 100_000,
    ],
)
def test_malformed_bytes_are_no_record(
    malformed: bytes, recorders: Recorders, tmp_path: Path
) -> None:
    """And what the others recorded is read all the same."""
    recorders.add(0, lambda path: path.write_bytes(malformed))
    recorders.add(1, lambda path: path.write_bytes(record(entry(2), WAITING)))
    expected = {1: (*GROUPS, completed(2, num_recorded=1))}
    assert ask_until(expected, tmp_path, 0, 1) == expected


def test_a_child_that_cannot_be_started_costs_the_records_alone(
    recorders: Recorders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stacks are read after that."""
    recorders.add(0, lambda path: path.write_bytes(record(WAITING)))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert ask(tmp_path, 0) == {}


def test_a_record_that_is_a_program_does_nothing(recorders: Recorders, tmp_path: Path) -> None:
    """Any code may have written it, and the agent may be root."""
    mark = tmp_path / "mark"
    data = pickle.dumps({"entries": [], "more": Evil(mark)})
    recorders.add(0, lambda path: path.write_bytes(data))
    assert ask(tmp_path, 0, budget_seconds=1.0) == {}
    assert not mark.exists()
    # it would have
    pickle.loads(data)
    assert mark.exists()


def test_a_record_that_is_no_file_is_left_alone(recorders: Recorders, tmp_path: Path) -> None:
    """A link to another user's file, or a pipe that never ends."""
    other = tmp_path / "other"
    other.write_bytes(record(WAITING))
    recorders.add(0, lambda path: path.symlink_to(other))
    recorders.add(1, os.mkfifo)
    assert ask(tmp_path, 0, 1, budget_seconds=1.0) == {}


def test_pipes_are_removed_and_records_stay(recorders: Recorders, tmp_path: Path) -> None:
    """A reader that opened one would wait for ever."""
    recorders.add(0, lambda path: path.write_bytes(record(WAITING)))
    assert ask_until({0: GROUPS}, tmp_path, 0) == {0: GROUPS}
    for name in (
        "rank1-0.pipe",
        "rank2-2.pipe",
        # made by what rank 1 has started, and by a rank of another node
    ):
        os.mkfifo(tmp_path / "flight" / name)
    flight_recorder.remove_pipes(str(tmp_path), range(2))
    assert sorted(os.listdir(tmp_path / "flight")) == ["rank2-2.pipe", "record0-0"]
    flight_recorder.remove_pipes(str(tmp_path), [2])
    assert os.listdir(tmp_path / "flight") == ["record0-0"]
    (tmp_path / "flight" / "record0-0").unlink()
    flight_recorder.remove_pipes(str(tmp_path), range(2))
    flight_recorder.remove_pipes(str(tmp_path), range(2))
    assert os.listdir(tmp_path) == []


def test_a_run_that_names_pipe_or_records_itself_keeps_its_names(tmp_path: Path) -> None:
    """And one whose folder can hold no pipes is started without."""
    given = {"PATH": "/bin"}
    assert (
        flight_recorder.environment(flight_recorder.recorder_folder(str(tmp_path), None), 3, given)
        == {}
    )
    make_output_folder(tmp_path)
    folder = flight_recorder.recorder_folder(str(tmp_path), None)
    assert flight_recorder.environment(folder, 3, given) == {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/flight/rank3-",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/flight/record3-",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/flight/record3-",
        "TORCH_INCLUDE_ONLY_ACTIVE": "0",
    }
    own = {"TORCH_INCLUDE_ONLY_ACTIVE": "1"}
    assert own.keys().isdisjoint(flight_recorder.environment(folder, 3, own))
    for name in FLIGHT_VARIABLES:
        assert flight_recorder.environment(folder, 3, {name: "/tmp/x"}) == {}
    assert os.listdir(tmp_path) == ["flight"]


def test_ranks_that_may_make_no_pipe_there_get_no_pipe_path(tmp_path: Path) -> None:
    """Else torch would end each of them: the folder is another's, or lies behind one that is closed."""
    make_output_folder(tmp_path)
    alice = RankUser(name="alice", uid=os.geteuid() + 7, gid=0, home="/")
    assert flight_recorder.recorder_folder(str(tmp_path), alice) == ""
    if os.geteuid() == 0:
        os.chown(tmp_path / FLIGHT, alice.uid, 0)
        assert flight_recorder.recorder_folder(str(tmp_path), None) == ""
        closed = [
            place
            for place in (tmp_path, *tmp_path.parents)
            if not place.stat().st_mode & stat.S_IXOTH
        ]
        assert bool(flight_recorder.recorder_folder(str(tmp_path), alice)) is not bool(closed)


def test_another_process_with_a_ranks_number_gets_no_request(
    recorders: Recorders, tmp_path: Path
) -> None:
    """A process of another world that a rank has started, and that knows itself by the same number."""
    recorders.add(0, lambda path: path.write_bytes(record(WAITING)))
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert flight_recorder.request_records(str(tmp_path), {0: other.pid}) == []
    finally:
        other.kill()
        other.wait()
    flight_recorder.pipe_path(tmp_path / FLIGHT, 0).unlink()
    os.mkfifo(flight_recorder.pipe_path(tmp_path / FLIGHT, 0))
    assert ask(tmp_path, 0) == {}


def test_an_agent_within_a_rank_hands_nothing_of_it_on() -> None:
    """Stoker in a rank of Stoker: the outer attempt's names are not the inner run's own."""
    outer = {"STOKER_CONTRACT": "1", "PATH": "/bin", **dict.fromkeys(FLIGHT_VARIABLES, "/x")}
    assert base_environment(outer) == {"PATH": "/bin"}
    of_user = {"PATH": "/bin", FLIGHT_PIPE: "/x"}
    assert base_environment(of_user) == of_user


def test_a_folder_in_which_no_pipe_can_be_made_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch would end every rank that cannot make its own."""

    def refuse(*_: object) -> None:
        raise PermissionError("no pipes here")

    monkeypatch.setattr(os, "mkfifo", refuse)
    make_output_folder(tmp_path)
    assert os.listdir(tmp_path) == []
