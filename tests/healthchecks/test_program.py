"""`python -P -m healthchecks` and `stoker check`: what they print, and their exit codes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from healthchecks.check import NodeFacts
from healthchecks.coverage import checks_of, required_checks
from runner.cli.main import cli
from tests.healthchecks.check_harness import PROGRAM, ROOT, namespaces, program

FEW = ("disk_space.free_bytes=1", "memory.available_bytes=1", "shared_memory.leftover_bytes=1e15")
LENIENT = [f"--limit={text}" for text in (*FEW, "shared_memory.free_bytes=1")]


@pytest.fixture
def quiet_log(tmp_path: Path) -> Path:
    """A kernel log in which nothing happened."""
    path = tmp_path / "kern.log"
    path.write_text("[    0.000000] Linux version 6.1.0\n")
    return path


def stoker(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli, ["check", *arguments])


@pytest.mark.costly
def test_all_checks_pass_here(tmp_path: Path, quiet_log: Path) -> None:
    """One line for each check in order, each with evidence, then PASS with the required checks; exit code 0."""
    code, lines = program(f"--folder={tmp_path}", f"--kernel-log={quiet_log}", *LENIENT)
    *checks, total = lines
    assert [each["check"] for each in checks] == list(checks_of(NodeFacts()))
    assert all(each["evidence"] for each in checks)
    assert (code, total["outcome"]) == (0, "PASS"), checks
    assert total["required"] == list(required_checks(NodeFacts()))
    assert not total["left_out"]
    assert total["not_covered"] == ["GPUs and other accelerators", "the network between nodes"]


def test_one_failure_fails_the_node(tmp_path: Path) -> None:
    """A line of the kernel's is enough, though its check is not required; exit code 1."""
    log = tmp_path / "kern.log"
    log.write_text("mce: [Hardware Error]: Machine check events logged\n")
    code, lines = program("--check=kernel_log", "--check=clock", f"--kernel-log={log}")
    assert code == 1
    assert (lines[-1]["passed"], lines[-1]["failed"]) == (["clock"], ["kernel_log"])
    assert "Machine check events logged" in lines[1]["reason"]


@pytest.mark.costly
def test_a_file_system_that_never_answers_is_unknown(tmp_path: Path) -> None:
    """A probe of a hung mount is killed at the deadline, and the checks after it still run; exit code 2."""
    hung = tmp_path / "hung"
    hung.mkdir()
    mounts = [
        *namespaces("--mount"),
        sys.executable,
        str(Path(__file__).with_name("hung_folder.py")),
        str(hung),
    ]
    if subprocess.run([*mounts, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no FUSE in user namespaces")
    names = ("--check=disk_space", "--check=clock")
    code, lines = program(*names, f"--folder={hung}", "--seconds=2", within=mounts)
    assert code == 2
    assert (lines[-1]["passed"], lines[-1]["unknown"]) == (["clock"], ["disk_space"])
    assert "hung" in lines[1]["reason"]


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        ("--check=memori", "did you mean 'memory'?"),
        ("--limit=clock.slew=1", "did you mean"),
        ("--seconds=0", "positive"),
        ("--seconds=nan", "positive"),
        ("--sekunden=5", "--sekunden"),
    ],
)
def test_bad_arguments_are_refused(argument: str, word: str) -> None:
    """Exit code 64, which is no verdict, one line, and nothing was checked."""
    done = subprocess.run(
        [*PROGRAM, argument], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_ends_the_program() -> None:
    """Without a reader the program ends quietly, as UNKNOWN."""
    with subprocess.Popen(
        [*PROGRAM, "--check=clock"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
        assert child.wait(30) == 2


def test_each_line_comes_as_its_check_ends() -> None:
    """The first verdict can be read while the second check still runs."""
    with subprocess.Popen(
        [*PROGRAM, "--check=clock", "--check=memory"], cwd=ROOT, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        assert first["check"] == "clock"
        assert child.poll() is None
        child.terminate()
        assert child.wait(10) != 0


def test_stoker_check_shows_a_table() -> None:
    """Each check has a row, the last line sums up, and the exit codes are those of `stoker --help`."""
    passed = stoker(
        "--check", "clock", "--check", "loopback", "--limit", "loopback.bytes_per_second=1e6"
    )
    assert passed.exit_code == 0, passed.output
    lines = passed.stdout.splitlines()
    assert lines[0].split() == ["CHECK", "OUTCOME", "TIME", "WHY"]
    assert [line.split()[:2] for line in lines[1:3]] == [["clock", "PASS"], ["loopback", "PASS"]]
    assert lines[-1].startswith("PASS; required: clock, loopback; not asked for: ")
    assert lines[-1].endswith(
        "; not looked at: GPUs and other accelerators, the network between nodes"
    )
    failed = stoker("--check", "clock", "--limit", "clock.earliest_year=2199")
    assert failed.exit_code == 1
    assert "at least 2,199" in failed.stdout


def test_stoker_check_shows_what_runs_where_a_person_looks() -> None:
    """On standard error, if that is a terminal; the answer is the same."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-P", "-m", "runner.cli.main", "check", "--check", "clock", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as child:
        answer, _ = child.communicate()
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "1 of 1: clock, about 1.00 s" in shown
    assert shown.endswith("\r")
    assert [each["kind"] for each in json.loads(answer)["checks"]] == ["check"]


def test_stoker_check_answers_programs(tmp_path: Path) -> None:
    """`--json` prints one document; an unknown outcome gives exit code 4."""
    unknown = stoker("--check", "disk_space", "--folder", str(tmp_path / "gone"), "--json")
    assert unknown.exit_code == 4
    answer = json.loads(unknown.stdout)
    assert answer["overall"]["outcome"] == "UNKNOWN"
    assert [each["check"] for each in answer["checks"]] == ["disk_space"]


def test_stoker_check_refuses_bad_input() -> None:
    """A misspelt name is one message with the way out, exit code 2."""
    refused = stoker("--check", "memori")
    assert refused.exit_code == 2
    assert refused.stderr == "stoker: no check 'memori'; did you mean 'memory'?\n"


def test_stoker_check_does_not_wait_for_a_hung_check() -> None:
    """The deadline is passed on."""
    began = time.monotonic()
    hung = stoker("--check", "clock", "--seconds", "0.05")
    assert hung.exit_code == 4
    assert "hung" in hung.stdout
    assert time.monotonic() - began < 20
