"""Many logs: several processes find what one finds, in the same order; a reader that dies is named; memory has a bound."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.collect.log_folders.incidents import judge
from runner.collect.log_folders.inputs import find_inputs
from runner.collect.log_folders.readers import ReadLog, SourceReader, max_repeats, read_here
from runner.collect.log_folders.worker_processes import num_workers, read_with_workers
from runner.facts.causes import Culprit

STEPS = "".join(f"2026-02-03 04:05:{at:02d} step {at + 1} loss 2.{at}\n" for at in range(50))
RESET = "[rank{rank}]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
SICK = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"


def make_folder(folder: Path, num_ranks: int = 12) -> None:
    """Write the logs of a run of which rank 3 failed."""
    for rank in range(num_ranks):
        last = SICK if rank == 3 else RESET.format(rank=rank)
        (folder / f"rank{rank}.log").write_text(STEPS * (rank % 3 + 1) + last)
    (folder / "dmesg-n1.txt").write_bytes(b"\xff\xfe broken \0\0 text\r\n" * 20)


def read(folder: Path, workers: int) -> list[ReadLog]:
    """Read a folder with so many processes; 0: in this one."""
    sources = find_inputs([str(folder)]).logs
    reader = SourceReader(own_format=None, repeats=max_repeats(len(sources)))
    seen: list[int] = []
    if workers:
        found = read_with_workers(sources, reader, seen.append, workers)
    else:
        found = list(read_here(sources, reader, seen.append))
    assert sum(seen) == sum(source.size for source in sources)
    return found


def contents(found: list[ReadLog]) -> list[object]:
    """Return all that was found, to compare."""
    return [(one.log.__dict__, one[1:]) for one in found]


@pytest.mark.costly
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_processes_find_what_one_process_finds(tmp_path: Path, workers: int) -> None:
    """The same matches, steps, warnings and verdicts, whichever process reads which log."""
    make_folder(tmp_path)
    alone, shared = read(tmp_path, 0), read(tmp_path, workers)
    assert contents(alone) == contents(shared)
    sources = find_inputs([str(tmp_path)]).logs
    verdicts = [
        judge([(source, one.log) for source, one in zip(sources, found, strict=True)])
        for found in (alone, shared)
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][0].verdict.cause.culprit == Culprit(kind="rank", id="3")


def test_one_of_many_ranks_that_alone_has_a_fault_is_the_culprit(tmp_path: Path) -> None:
    """The others wrote nothing but steps."""
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(STEPS + (SICK[9:] if rank == 2 else ""))
    sources = find_inputs([str(tmp_path)]).logs
    found = read(tmp_path, 0)
    (incident,) = judge([(a, b.log) for a, b in zip(sources, found, strict=True)])
    assert incident.verdict.cause.culprit == Culprit(kind="rank", id="2")


def test_a_log_whose_reader_dies_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may end a process for its memory; the diagnosis goes on with what is left."""
    make_folder(tmp_path, 6)
    plain = SourceReader.read

    def read_or_die(self: SourceReader, source: object, on_bytes: object) -> ReadLog:
        if "rank4" in str(source):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, source, on_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(SourceReader, "read", read_or_die)
    sources = find_inputs([str(tmp_path)]).logs
    reader = SourceReader(own_format=None, repeats=10)
    found = read_with_workers(sources, reader, lambda num: None, 2)
    errors = [one.error for one in found if one.error]
    assert errors == [f"{tmp_path}/rank4.log: the process that read it ended before its end"]
    assert sum(bool(one.log.num_bytes) for one in found) == len(sources) - 1


def test_no_worker_is_left_when_the_reading_ends_early(tmp_path: Path) -> None:
    """Ctrl-C ends all of them."""
    make_folder(tmp_path)

    def interrupted(num: int) -> None:
        raise KeyboardInterrupt

    sources = find_inputs([str(tmp_path)]).logs
    reader = SourceReader(own_format=None, repeats=10)
    with pytest.raises(KeyboardInterrupt):
        read_with_workers(sources, reader, interrupted, 3)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_matches_of_a_log_are_bounded_by_the_number_of_logs(tmp_path: Path) -> None:
    """Of many logs the first and the last matches of each kind are kept."""
    log = tmp_path / "rank0.log"
    log.write_text("".join(f"rank0: attempt {at}\n{RESET.format(rank=0)}" for at in range(500)))
    (source,) = find_inputs([str(log)]).logs
    found = SourceReader(own_format=None, repeats=20).read(source, lambda num: None)
    of_signature = [
        m.line for m in found.log.matches if m.signature == found.log.matches[0].signature
    ]
    assert len(of_signature) == 20
    assert (of_signature[0], of_signature[-1]) == (2, 1000)
    assert max_repeats(1) == 1000 > max_repeats(1000) > max_repeats(50_000) >= 20
    assert len(pickle.dumps(found)) < 100_000


@pytest.mark.costly
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the command leaves no process that reads on, and nothing on the terminal."""
    log = tmp_path / "rank0.log"
    log.write_text(STEPS * 20_000)
    for rank in range(1, 200):
        os.link(log, tmp_path / f"rank{rank}.log")
    program = (
        "import sys\n"
        "from runner.collect.log_folders.inputs import find_inputs\n"
        "from runner.collect.log_folders.readers import SourceReader\n"
        "from runner.collect.log_folders.worker_processes import read_with_workers\n"
        "def started(num): print(num, flush=True)\n"
        "read_with_workers(find_inputs(sys.argv[1:]).logs, SourceReader(own_format=None, repeats=9), started, 2)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline()
    parent.kill()
    # Its workers have the same standard error: it ends when they have ended.
    assert parent.communicate(timeout=60)[1] == b""


def test_small_inputs_are_read_by_one_process() -> None:
    """Another one would take longer to start than to read."""
    assert num_workers(100, 1 << 20) == 1
    assert num_workers(1, 1 << 40) == 1
    assert num_workers(1000, 1 << 40) >= 1
