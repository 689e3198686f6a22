"""`stoker diagnose --flight`: the ranks that a hang waits for, for people and for programs, and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from runner.cli import exit_codes
from runner.cli.diagnose.logs import diagnose
from tests.collect.flight_records.torch_records import entry, open_entry, record, write_gang

WORLD = {"0": ("default_pg", range(4))}


def judge(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(diagnose, ["--flight", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write records of four ranks, of which rank 2 has not come to the second collective."""
    records: dict[int, dict[str, Any]] = {
        rank: record(entry(1), *([] if rank == 2 else [open_entry(2)]), groups=WORLD)
        for rank in range(4)
    }
    write_gang(tmp_path, records, as_json=False)
    return tmp_path


def test_a_hang_is_an_incident_with_its_rank(folder: Path) -> None:
    """The first line says which records there are."""
    shown = judge(str(folder))
    assert shown.exit_code == exit_codes.FAILED
    assert shown.output.splitlines()[:3] == [
        "records of 4 of 4 ranks",
        "hang_no_error: rank 2, 95% sure",
        "  rank 2 has not enqueued #2 all_reduce of group 0 default_pg #e248 that ranks 0-1, 3 wait in",
    ]


def test_programs_get_one_object(folder: Path) -> None:
    """With the file of each culprit, and the ranks without a record."""
    (folder / "nccl_trace_rank_3").unlink()
    shown = judge("--json", *sorted(str(path) for path in folder.iterdir()))
    verdict = json.loads(shown.output)
    assert verdict["culprit"] == {"kind": "rank", "id": "2"}
    assert [culprit["id"] for culprit in verdict["culprits"]] == ["2"]
    assert verdict["evidence"][0]["file"] == str(folder / "nccl_trace_rank_2")
    assert verdict["records"] == {"read": 3, "ranks": 4, "missing": [3]}


def test_where_no_rank_waits_there_is_no_incident(tmp_path: Path) -> None:
    """Such records may be of ranks that work."""
    write_gang(tmp_path, {rank: record(entry(1), groups=WORLD) for rank in range(4)}, as_json=True)
    shown = judge(str(tmp_path))
    assert shown.exit_code == exit_codes.DONE
    assert "no incident found" in shown.output
    assert judge("--json", str(tmp_path)).output == ""


def test_where_all_wait_in_the_same_collective_no_rank_is_named(tmp_path: Path) -> None:
    """The network or a GPU may have failed."""
    write_gang(
        tmp_path, {rank: record(open_entry(1), groups=WORLD) for rank in range(4)}, as_json=True
    )
    shown = judge(str(tmp_path))
    assert shown.exit_code == exit_codes.FAILED
    assert "ranks 0-3 wait in #1 all_reduce of group 0 default_pg" in shown.output
    assert json.loads(judge("--json", str(tmp_path)).output)["culprit"] is None


def test_how_many_ranks_there_were_can_be_given(folder: Path) -> None:
    """Where records do not show it."""
    assert judge("--ranks", "6", str(folder)).output.startswith(
        "records of 4 of 6 ranks; none of ranks 4-5\n"
    )


def test_what_is_no_record_is_bad_input(tmp_path: Path) -> None:
    """The error has the reason for each file."""
    (tmp_path / "rank_0").write_bytes(b"\x80\x02}q")
    shown = judge(str(tmp_path / "rank_0"))
    assert shown.exit_code != exit_codes.DONE
    assert "it is cut off, or no flight record" in str(shown.exception)
