"""Flight records as files: which rank's they are, what is wrong with them, and what hostile ones cannot do."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from runner.collect.flight_records import record_program
from runner.collect.flight_records.diagnosis import diagnose_records
from runner.collect.flight_records.record_files import is_flight_record, rank_of, read_record_files
from runner.errors import UserError
from tests.collect.flight_records.torch_records import (
    CREATED_NS,
    entry,
    open_entry,
    record,
    write_gang,
)

WORLD = {"0": ("default_pg", range(4))}


def gang(**last: Any) -> dict[int, dict[str, Any]]:
    """Make the records of four ranks, of which rank 2 has not begun what the others wait in."""
    calls = [entry(1), entry(2, **last)]
    return {
        rank: record(*calls, *([] if rank == 2 else [open_entry(3)]), groups=WORLD)
        for rank in range(4)
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_pickles_and_json_say_the_same(tmp_path: Path, *, as_json: bool) -> None:
    """And a sentence says what the rank has not done, and who waits in it."""
    write_gang(tmp_path, gang(), as_json=as_json)
    found = diagnose_records([str(tmp_path)])
    assert [culprit.reason for culprit in found.verdict.culprits] == [
        "rank 2 has not enqueued #3 all_reduce of group 0 default_pg #e248 that ranks 0-1, 3 wait in"
    ]
    assert all(is_flight_record(str(path)) for path in tmp_path.iterdir())


def test_missing_records_are_named(tmp_path: Path) -> None:
    """By the group of all ranks, or by what the caller knows."""
    write_gang(tmp_path, gang(), as_json=False)
    (tmp_path / "nccl_trace_rank_1").unlink()
    assert diagnose_records([str(tmp_path)]).coverage == "records of 3 of 4 ranks; none of rank 1"
    known = diagnose_records([str(tmp_path)], expected=6)
    assert known.coverage == "records of 3 of 6 ranks; none of ranks 1, 4-5"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("record3-4", 4),
        ("_dump_0.pickle", 0),
        ("rank_7.json", 7),
        ("rank7.JSON", 7),
        ("answer.txt", None),
        ("rank", None),
    ],
)
def test_the_rank_is_the_number_at_the_end_of_the_name(name: str, rank: int | None) -> None:
    """As torch and Stoker write it."""
    assert rank_of(f"/some/12/{name}") == rank


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._mark}",)


def nested(depth: int) -> bytes:
    """Return JSON whose lists nest."""
    return b'{"entries":' + b"[" * depth + b"]" * depth + b"}"


HOSTILE = {
    b"": "it is empty",
    b"\x80\x02}": "it is cut off, or no flight record",
    pickle.dumps(gang()[0])[:-20]: "it is cut off, or no flight record",
    # A memo of two thousand million places.
    b"\x80\x02]r\xff\xff\xff\x7f.": "it needs too much memory",
    # A text that says it has as many bytes as memory may have.
    b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b"x.": "",
    pickle.dumps(7): "no flight record: it has no entries",
    pickle.dumps({"entries": 7}): "no flight record: TypeError",
    pickle.dumps({"entries": [{"record_id": 0}]}): "no flight record: KeyError",
    pickle.dumps({"entries": [entry(1, collective_seq_id="many")]}): "no flight record: ValueError",
    pickle.dumps({"entries": [entry(1, process_group=("a", "b", "c"))]}): "no flight record",
    pickle.dumps(
        {"entries": [entry(1, collective_seq_id=2**80)]}
    ): "numbers that torch does not write",
    b"(" * 100_000: "it is cut off",
    b'{"entries": [': "it is cut off, or no flight record",
    nested(200_000): "it is nested too deeply",
    b"plain text": "",
    b"{" + b'"a":1,' * 1000: "it is cut off",
}


def test_each_hostile_file_gets_a_clear_word_and_the_others_are_read(tmp_path: Path) -> None:
    """In bounded memory and time, and the rank behind each is missing."""
    for number, data in enumerate(HOSTILE):
        (tmp_path / f"rank_{number + 4}").write_bytes(data)
    write_gang(tmp_path, gang(), as_json=False)
    found = read_record_files([str(path) for path in tmp_path.iterdir()])
    reasons = {warning.partition(": ")[0]: warning.partition(": ")[2] for warning in found.warnings}
    for number, reason in enumerate(HOSTILE.values()):
        given = reasons[str(tmp_path / f"rank_{number + 4}")]
        assert given
        assert reason in given
    assert sorted(found.places) == [0, 1, 2, 3]


def test_a_record_that_is_a_program_does_nothing(tmp_path: Path) -> None:
    """The word names what it would have called."""
    mark = tmp_path / "mark"
    (tmp_path / "rank_0").write_bytes(pickle.dumps({"entries": [], "more": Evil(mark)}))
    with pytest.raises(
        UserError, match=r"it is a program that would call posix.system, and was not run"
    ):
        read_record_files([str(tmp_path / "rank_0")])
    assert not mark.exists()


@pytest.mark.costly
def test_a_record_that_takes_too_long_ends_its_child_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files behind it are read by the next one."""
    doubling = b"\x80\x02]" + b"".join(
        b"q" + bytes([n]) + b"(" + (b"h" + bytes([n])) * 2 + b"l" for n in range(60)
    )
    keys = b"}(" + b"".join(b"(" + b"K\x01" * 2000 + b"tK\x01" for _ in range(5000)) + b"u."
    write_gang(tmp_path, gang(), as_json=False)
    (tmp_path / "rank_00004").write_bytes(doubling + b".")
    (tmp_path / "rank_00005").write_bytes(b"\x80\x02" + keys)
    found = read_record_files(sorted(str(path) for path in tmp_path.iterdir()))
    assert sorted(found.places) == [0, 1, 2, 3]
    assert len(found.warnings) == 2


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """A pipe never ends, and a link may lead to another user's file."""
    write_gang(tmp_path, gang(), as_json=False)
    os.mkfifo(tmp_path / "rank_8")
    (tmp_path / "rank_9").symlink_to(tmp_path / "nccl_trace_rank_0")
    assert not is_flight_record(str(tmp_path / "rank_8"))
    found = read_record_files(
        [str(tmp_path / "rank_8"), str(tmp_path / "rank_9"), str(tmp_path / "nccl_trace_rank_1")]
    )
    assert [warning.partition(": ")[2] for warning in found.warnings] == [
        "it is no regular file",
        "too many levels of symbolic links",
    ]


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a sparse one of any size."""
    with (tmp_path / "rank_0").open("wb") as file:
        file.truncate(record_program.MAX_FILE_BYTES + 1)
    with pytest.raises(UserError, match="larger than 64 MiB"):
        read_record_files([str(tmp_path / "rank_0")])


def test_records_of_two_runs_are_refused(tmp_path: Path) -> None:
    """By their ranks, by the rank in the name, by their times, or by two files of one rank."""
    write_gang(tmp_path, gang(), as_json=False)
    files = [str(tmp_path / f"nccl_trace_rank_{rank}") for rank in range(3)]
    larger = record(open_entry(3), groups={"0": ("default_pg", range(8))})
    cases = {
        "of a run of 4 ranks": larger,
        "is named for rank 3, which is not in its group 7": record(groups={"7": ("tp", (0, 1))}),
        "hours before": record(
            open_entry(3, time_created_ns=CREATED_NS + 9 * 3600 * 10**9), groups=WORLD
        ),
    }
    for reason, other in cases.items():
        (tmp_path / "other_3").write_bytes(pickle.dumps(other))
        with pytest.raises(UserError, match=reason):
            read_record_files([*files, str(tmp_path / "other_3")])
    with pytest.raises(UserError, match="both of rank 2"):
        read_record_files([*files, str(tmp_path / "rank_2.json")])


def test_a_folder_without_records_and_a_file_that_is_not_there_are_named(tmp_path: Path) -> None:
    """Files of other kinds in a folder are no records."""
    (tmp_path / "train.log").write_text("step 1")
    (tmp_path / "status.json").write_text(json.dumps({"step": 1}))
    with pytest.raises(UserError, match="no flight records in"):
        diagnose_records([str(tmp_path)])
    with pytest.raises(UserError, match="no file"):
        diagnose_records([str(tmp_path / "none")])
