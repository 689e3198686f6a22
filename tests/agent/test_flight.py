"""Records of torch's flight recorder: asked for through a pipe, read by a child that trusts nothing in them."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.act.outputs import FLIGHT, make_output_folder
from runner.agent import flight, flight_records
from runner.facts.stands import Collective

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


WAITS = entry(
    3,
    profiling_name="nccl:_all_gather_base",
    state="started",
    retired=False,
    process_group=("3", "tp"),
)
GROUPS = (
    Collective(group="3 tp", sequence=3, operation="_all_gather_base", waits=True),
    Collective(group="0 default_pg", sequence=2, operation="all_reduce"),
)


class Recorders:
    """Plays ranks that listen at their pipes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pipes: list[int] = []

    def add(self, rank: int, answer: Answer | None) -> None:
        """Have a rank listen; `answer` is called with the path of its record once it is asked."""
        pipe = self.folder / FLIGHT / f"{flight.PIPES}{rank}.pipe"
        os.mkfifo(pipe)
        descriptor = os.open(pipe, os.O_RDWR)
        self._pipes.append(descriptor)
        path = self.folder / FLIGHT / f"{flight.RECORDS}{rank}"

        def listen() -> None:
            os.read(descriptor, 128)
            if answer is not None:
                answer(path)

        threading.Thread(target=listen, daemon=True).start()

    def close(self) -> None:
        """Have all threads end."""
        for descriptor in self._pipes:
            os.write(descriptor, b"end")


@pytest.fixture
def recorders(tmp_path: Path) -> Iterator[Recorders]:
    """Make ranks whose folder is prepared."""
    make_output_folder(tmp_path)
    played = Recorders(tmp_path)
    yield played
    played.close()


def ask(folder: Path, *ranks: int, budget_seconds: float = 4.0) -> flight.Found:
    """Ask, and read what is answered."""
    asked = flight.ask(str(folder), ranks)
    return flight.gather(str(folder), asked, budget_seconds=budget_seconds)


def test_a_record_says_in_which_collectives_a_rank_waits(
    recorders: Recorders, tmp_path: Path
) -> None:
    """Groups in which it waits come first; a rank that does not answer keeps nobody from being read."""

    def slowly(path: Path) -> None:
        data = record(entry(1), entry(2), WAITS, entry(4, is_p2p=True, state="scheduled"))
        with path.open("wb") as file:
            for at in range(0, len(data), 200):
                file.write(data[at : at + 200])
                file.flush()
                time.sleep(0.05)

    recorders.add(0, slowly)
    recorders.add(1, None)
    recorders.add(2, lambda path: path.write_bytes(record()))
    assert ask(tmp_path, 0, 1, 2, 3) == {0: GROUPS, 2: ()}


def test_without_a_recorder_nothing_is_waited_for(tmp_path: Path) -> None:
    """Most ranks have none: no folder, no pipe, nobody who reads the pipe, a file in its place, a record that stayed."""
    begun = time.monotonic()
    assert ask(tmp_path, 0) == {}
    make_output_folder(tmp_path)
    folder = tmp_path / FLIGHT
    os.mkfifo(folder / "rank1.pipe")
    (folder / "rank2.pipe").write_text("")
    (folder / "rank3.pipe").symlink_to(folder / "rank2.pipe")
    (folder / "record1").write_bytes(record(WAITS))
    assert ask(tmp_path, 0, 1, 2, 3) == {}
    assert time.monotonic() - begun < 1.0


def test_a_record_of_an_earlier_time_out_is_not_taken_for_an_answer(
    recorders: Recorders, tmp_path: Path
) -> None:
    """Torch writes one by itself when a collective has run out of time."""
    (tmp_path / FLIGHT / "record0").write_bytes(record(entry(1)))
    recorders.add(0, None)
    assert ask(tmp_path, 0, budget_seconds=0.5) == {}


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._mark}",)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x80\x02",
        record(WAITS)[:-20],
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of two thousand million places
        pickle.dumps(7),
        pickle.dumps({"entries": 7}),
        pickle.dumps({"entries": [{"record_id": 0}]}),
        pickle.dumps({"entries": [entry(1, collective_seq_id="many")]}),
        pickle.dumps({"entries": [entry(1, process_group=("a", "b", "c"))]}),
        pickle.dumps({"entries": [entry(1, collective_seq_id=2**80)]}),
        b"(" * 100_000,
    ],
)
def test_junk_is_no_record(junk: bytes, recorders: Recorders, tmp_path: Path) -> None:
    """And what the others recorded is read all the same."""
    recorders.add(0, lambda path: path.write_bytes(junk))
    recorders.add(1, lambda path: path.write_bytes(record(entry(2), WAITS)))
    assert ask(tmp_path, 0, 1, budget_seconds=2.0) == {1: GROUPS}


def test_a_child_that_cannot_be_started_costs_the_records_alone(
    recorders: Recorders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stacks are read after that."""
    recorders.add(0, lambda path: path.write_bytes(record(WAITS)))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert ask(tmp_path, 0) == {}


def test_a_record_that_is_a_program_does_nothing(recorders: Recorders, tmp_path: Path) -> None:
    """Whoever wrote it may be anybody's code, and the agent may be root."""
    mark = tmp_path / "mark"
    data = pickle.dumps({"entries": [], "more": Evil(mark)})
    recorders.add(0, lambda path: path.write_bytes(data))
    assert ask(tmp_path, 0, budget_seconds=1.0) == {}
    assert not mark.exists()
    pickle.loads(data)  # it would have
    assert mark.exists()


def test_a_record_that_is_no_file_is_left_alone(recorders: Recorders, tmp_path: Path) -> None:
    """A link to somebody else's file, or a pipe that never ends."""
    other = tmp_path / "other"
    other.write_bytes(record(WAITS))
    recorders.add(0, lambda path: path.symlink_to(other))
    recorders.add(1, os.mkfifo)
    assert ask(tmp_path, 0, 1, budget_seconds=1.0) == {}


def test_pipes_are_removed_and_records_stay(recorders: Recorders, tmp_path: Path) -> None:
    """Whoever opened one to read it would wait for ever."""
    recorders.add(0, lambda path: path.write_bytes(record(WAITS)))
    assert ask(tmp_path, 0)
    flight.clear(str(tmp_path), range(2))
    assert os.listdir(tmp_path / "flight") == ["record0"]
    (tmp_path / "flight" / "record0").unlink()
    flight.clear(str(tmp_path), range(2))
    flight.clear(str(tmp_path), range(2))
    assert os.listdir(tmp_path) == []


def test_names_are_cut_and_made_printable() -> None:
    """They come from a rank."""
    odd = entry(5, process_group=("7\x1b[2J", "ü" * 100), profiling_name="nccl:" + "x" * 100)
    (found,) = flight_records.summary({"entries": [odd]})
    assert found["group"] == "7?[2J " + "?" * (flight.MAX_GROUP - 6)
    assert len(found["operation"]) == flight.MAX_OPERATION
    many = [entry(n, process_group=(str(n), "")) for n in range(20)]
    assert [each["group"] for each in flight_records.summary({"entries": many})] == [
        "19",
        "18",
        "17",
        "16",
    ]


def test_a_run_that_names_pipe_or_records_itself_keeps_its_names(tmp_path: Path) -> None:
    """And one whose folder can hold no pipes is started without."""
    given = {"PATH": "/bin"}
    assert flight.environment(flight.folder_of(str(tmp_path)), given) == {}
    make_output_folder(tmp_path)
    assert flight.environment(flight.folder_of(str(tmp_path)), given) == {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/flight/rank",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/flight/record",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/flight/record",
    }
    for name in flight.RECORD_VARIABLES:
        assert flight.environment(flight.folder_of(str(tmp_path)), {name: "/tmp/x"}) == {}
    assert os.listdir(tmp_path) == ["flight"]


def test_a_folder_in_which_no_pipe_can_be_made_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch would end every rank that cannot make its own."""

    def refuse(*_: object) -> None:
        raise PermissionError("no pipes here")

    monkeypatch.setattr(os, "mkfifo", refuse)
    make_output_folder(tmp_path)
    assert os.listdir(tmp_path) == []
