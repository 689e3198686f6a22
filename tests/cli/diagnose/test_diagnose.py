"""`stoker diagnose`: it reads any log, and prints one incident, or none for a healthy log."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from runner.cli.main import cli

SICK = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
ECHO = "[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
STEPS = "".join(f"iter {step}: loss 2.4, time 135.20ms, mfu 41.20%\n" for step in range(100, 160))


def diagnose(*arguments: str, given: bytes = b"") -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["diagnose", *arguments], input=given)


def test_an_incident_is_printed_as_json_and_as_text_with_its_evidence(tmp_path: Path) -> None:
    """The exit code is 1; the output has file, line and text of the evidence."""
    log = tmp_path / "train.log"
    log.write_text(STEPS + ECHO + SICK)
    result = diagnose(str(log), "--json")
    assert result.exit_code == 1
    (incident,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert incident["fault"] == "cuda_illegal_access"
    assert incident["culprit"] == {"kind": "rank", "id": "3"}
    assert incident["action_class"] == "restart"
    assert incident["evidence"][0] == {"file": str(log), "line": 62, "text": SICK[9:].strip()}
    lines = diagnose(str(log)).stdout.splitlines()
    assert lines[0].startswith("what:      cuda_illegal_access: a kernel on a GPU")
    assert lines[1] == "whose:     rank 3"
    assert lines[2].startswith("how sure:  85%, by a line that is known")
    assert lines[3].startswith(f"because:   {log}:62 rank 3: RuntimeError")
    assert lines[4].startswith("to do:     restart: start the same nodes again")
    assert lines[4].endswith("(`stoker runbook cuda_illegal_access`)")
    assert lines[5:] == ["from 1 file, 0.0 MB"]
    assert f"  {log}:61 rank 0: ConnectionReset" in diagnose(str(log), "--evidence").stdout


def test_a_healthy_log_prints_no_json_and_a_short_text(tmp_path: Path) -> None:
    """The exit code is 0."""
    log = tmp_path / "train.log"
    log.write_text(STEPS)
    result = diagnose(str(log), "--json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert diagnose(str(log)).stdout.startswith("no incident found in 1 file")


def test_several_files_are_ranks_of_one_run_numbered_by_their_names(tmp_path: Path) -> None:
    """That includes compressed files and standard input."""
    (tmp_path / "rank0.log").write_text(ECHO[9:])
    (tmp_path / "rank7.log.gz").write_bytes(gzip.compress(SICK[9:].encode()))
    result = diagnose(*map(str, sorted(tmp_path.iterdir())), "--json")
    assert json.loads(result.stdout)["culprit"] == {"kind": "rank", "id": "7"}
    result = diagnose("-", "--json", given=SICK.encode())
    assert json.loads(result.stdout)["evidence"][0]["file"] == "-"


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A missing file or a broken archive gives one message and exit code 2; the other files are read."""
    result = diagnose(str(tmp_path / "none.log"))
    assert result.exit_code == 2
    assert "none.log: cannot be read (No such file or directory); give the path" in result.stderr
    assert "empty" not in result.stderr
    assert result.stdout == "nothing was read\n"
    broken = tmp_path / "x.log.gz"
    broken.write_bytes(gzip.compress(SICK.encode() * 1000)[:40])
    assert diagnose(str(broken)).exit_code == 2
    broken.write_bytes(gzip.compress(SICK.encode() * 1000)[:20] + b"malformed" * 30)
    assert diagnose(str(broken)).exit_code == 2
    log = tmp_path / "good.log"
    log.write_text(SICK)
    result = diagnose(str(tmp_path / "none.log"), str(log), "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 1)
    log.write_text(STEPS)
    result = diagnose(str(tmp_path / "none.log"), str(log))
    assert result.exit_code == 2
    assert "no incident found in what could be read: 1 file" in result.stdout


def test_a_compressed_log_needs_no_suffix_and_a_hole_at_its_start_is_skipped(
    tmp_path: Path,
) -> None:
    """That holds for any tool that rotated it."""
    packed = tmp_path / "train.log.1"
    packed.write_bytes(gzip.compress(SICK.encode()))
    assert diagnose(str(packed), "--json").exit_code == 1
    packed.write_bytes(b"\0" * 5000 + SICK.encode())
    assert diagnose(str(packed), "--json").exit_code == 1


def test_a_binary_file_and_an_empty_one_give_one_warning_and_no_incident(tmp_path: Path) -> None:
    """Text beside them is still read."""
    (tmp_path / "core").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "zeros").write_bytes(b"x\0\0\0" * 3_000 + SICK.encode())
    (tmp_path / "empty").write_bytes(b"")
    result = diagnose(str(tmp_path / "zeros"), "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("is no text") == 1
    result = diagnose(str(tmp_path / "empty"), str(tmp_path / "core"), "--json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "empty: empty" in result.stderr


def test_a_custom_pattern_reads_the_steps_of_an_unknown_trainer(tmp_path: Path) -> None:
    """A wrong pattern is refused with the known groups."""
    log = tmp_path / "own.log"
    losses = [2.4] * 80 + [float("nan")] * 3
    log.write_text("".join(f"@{step} L={loss} G=0.5\n" for step, loss in enumerate(losses)))
    assert diagnose(str(log), "--json").stdout == ""
    pattern = r"@(?P<step>\d+) L=(?P<loss>\S+) G=(?P<grad_norm>\S+)"
    result = diagnose(str(log), "--json", "--pattern", pattern)
    assert json.loads(result.stdout.splitlines()[0])["fault"] == "nan_loss"
    result = diagnose(str(log), "--pattern", r"(?P<steps>\d+)")
    assert result.exit_code == 2
    assert "known:" in result.stderr
    result = diagnose(str(log), "--pattern", r"(?<!x)@(?P<step>\d+) ")
    assert result.exit_code == 2


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_has_examples(words: list[str]) -> None:
    """Examples stand below the options; without a file there is a message."""
    result = diagnose(*words)
    assert ("kubectl logs" in result.output) == bool(words)
    assert result.exit_code == (0 if words else 2)
