"""Each check on a sample on which it passes, one that makes it fail, and one that it cannot judge."""

import errno
import mmap
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from healthchecks.check import Outcome, Verdict, from_plain
from healthchecks.checks import clock, loopback, memory, processes
from healthchecks.checks.disk_space import wrong_bytes
from healthchecks.limits import judge_of
from tests.healthchecks.check_harness import (
    MIB,
    forked,
    named,
    namespaces,
    program,
    seen,
    verdict_of,
)
from tests.healthchecks.slow_folder import slow_folder
from tests.healthchecks.substitutes.tools import Substitutes

# a user without processes, files or rights
OTHER_USER = 54_321
LENIENT = {"disk_space.free_bytes": 1, "disk_space.free_inodes": 1}


# disk_space


def test_disk_space_passes_on_a_sound_folder(tmp_path: Path) -> None:
    """A folder with room keeps what is written, and nothing is left in it."""
    verdict = verdict_of("disk_space", LENIENT, folders=(str(tmp_path),))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert named(verdict, "written_bytes").value == 4 * MIB
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("disk_space.free_inodes", "disk_space.written_bytes")
def test_disk_space_fails_on_full_and_read_only_file_systems(tmp_path: Path) -> None:
    """A full file system, one without inodes, and a read-only one each fail with what the kernel answered."""
    for name in ("full", "crowded", "fixed"):
        (tmp_path / name).mkdir()
    mounts = namespaces(
        "--mount",
        f"""
        cd {tmp_path}
        mount -t tmpfs -o size=2m none full && head -c 3000000 /dev/zero > full/big 2>/dev/null || true
        mount -t tmpfs -o nr_inodes=1 none crowded
        mount -t tmpfs -o ro none fixed
        cd "$OLDPWD"
        """,
    )
    folders = [f"--folder={tmp_path / name}" for name in ("full", "crowded", "fixed")]
    code, lines = program("--check=disk_space", *folders, within=mounts)
    verdict = from_plain(lines[0], check="disk_space")
    assert code == 1
    assert named(verdict, "free_bytes", str(tmp_path / "full")).outcome is Outcome.FAIL
    assert named(verdict, "free_inodes", str(tmp_path / "crowded")).value == 0
    for name, words in (("full", "No space"), ("crowded", "No space"), ("fixed", "Read-only")):
        written = named(verdict, "written_bytes", str(tmp_path / name))
        assert written.outcome is Outcome.FAIL
        assert words in written.note


@pytest.mark.costly
@pytest.mark.proves("disk_space.free_bytes")
def test_disk_space_says_where_a_small_disk_may_serve(tmp_path: Path) -> None:
    """Less than 2 GiB fails, and passes where a shortage serves; the way out is named both times."""
    small = namespaces("--mount", f"mount -t tmpfs -o size=64m none {tmp_path}")
    asked = ("--check=disk_space", f"--folder={tmp_path}")
    code, lines = program(*asked, within=small)
    assert code == 1
    assert "64 MiB, at least 2,048 MiB: remove files" in lines[0]["reason"]
    code, lines = program(*asked, "--shortage-serves", within=small)
    assert code == 0
    assert "64 MiB, at least 2,048 MiB: remove files" in lines[0]["shortage"]


def test_disk_space_counts_what_came_back_wrong() -> None:
    """A flipped bit, a missing end and a surplus one are all counted."""
    data = bytes(range(256))
    assert wrong_bytes(data, data) == 0
    assert wrong_bytes(bytes([1]) + data[1:], data) == 1
    assert wrong_bytes(data[:-3], data) == 3
    assert wrong_bytes(data + b"x", data) == 1


@pytest.mark.costly
@pytest.mark.proves("disk_space.wrong_bytes", "disk_space.fsync_seconds")
def test_disk_space_fails_on_a_disk_that_is_slow_or_returns_wrong_bytes(tmp_path: Path) -> None:
    """A disk that flips a bit of what is read, and one whose fsync takes longer than the limit; the same one passes at speed."""
    limits = LENIENT | {"disk_space.fsync_seconds": 0.4}
    with slow_folder(tmp_path / "mount") as mounted:
        folders = (str(mounted.folder),)
        assert verdict_of("disk_space", limits, folders=folders).outcome is Outcome.PASS
        mounted.set(flips=True)
        verdict = verdict_of("disk_space", limits, folders=folders)
        assert named(verdict, "wrong_bytes").value
        assert named(verdict, "renamed_bytes").value == 4095
        mounted.set(fsync_seconds=0.5)
        verdict = verdict_of("disk_space", limits, folders=folders)
        failed = [each.name for each in verdict.evidence if each.outcome is Outcome.FAIL]
        assert failed == ["disk_space.fsync_seconds"]


def test_disk_space_does_not_know_a_missing_folder(tmp_path: Path) -> None:
    """A folder that is not there, or none at all, is unknown."""
    verdict = verdict_of("disk_space", LENIENT, folders=(str(tmp_path / "gone"),))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "gone" in verdict.reason
    assert verdict_of("disk_space").outcome is Outcome.UNKNOWN


# shared_memory


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    """A folder of our own in real shared memory."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def leave(folder: Path, *, mode: int = 0o600) -> Path:
    """Leave 17 MiB there, written an hour ago."""
    path = folder / "psm_left"
    path.write_bytes(bytes(17 * MIB))
    path.chmod(mode)
    then = path.stat().st_mtime - 3600
    os.utime(path, (then, then))
    return path


def test_shared_memory_passes_when_empty(shared_memory: Path) -> None:
    """Room and no file: nothing to complain of."""
    few = {"shared_memory.free_bytes": 1.0}
    verdict = verdict_of("shared_memory", few, shared_memory=str(shared_memory))
    assert verdict.outcome is Outcome.PASS, verdict.reason


@pytest.mark.proves("shared_memory.leftover_bytes")
def test_shared_memory_fails_on_a_leftover(shared_memory: Path) -> None:
    """An old file that no process has open is found and named."""
    leave(shared_memory)
    verdict = verdict_of("shared_memory", shared_memory=str(shared_memory))
    left = named(verdict, "leftover_bytes")
    assert left.outcome is Outcome.FAIL
    assert "psm_left" in left.note


def test_shared_memory_spares_what_is_new_or_in_use(shared_memory: Path) -> None:
    """A file that is open, one that is only mapped, and one just written are no leftovers."""
    path = leave(shared_memory)
    with path.open("rb") as file:
        opened = verdict_of("shared_memory", shared_memory=str(shared_memory))
        mapped = mmap.mmap(file.fileno(), MIB, access=mmap.ACCESS_READ)
    with mapped:
        only_mapped = verdict_of("shared_memory", shared_memory=str(shared_memory))
    path.touch()
    new = verdict_of("shared_memory", shared_memory=str(shared_memory))
    for verdict in (opened, only_mapped, new):
        assert named(verdict, "leftover_bytes").value == 0


@pytest.mark.costly
@pytest.mark.parametrize(
    ("node", "least_mib", "code"),
    [
        (("--slots=1", "--gpus=0"), 64, 0),
        (("--slots=2", "--gpus=0"), 128, 1),
        (("--slots=200", "--gpus=0"), 1024, 1),
        (("--slots=1", "--gpus=1"), 1024, 1),
    ],
)
def test_shared_memory_fails_when_small(
    tmp_path: Path, node: tuple[str, ...], least_mib: int, code: int
) -> None:
    """The 64 MiB that containers get by default are enough for one rank without a GPU; the way out is named."""
    small = namespaces("--mount", f"mount -t tmpfs -o size=64m none {tmp_path}")
    asked = ("--check=shared_memory", f"--shared-memory={tmp_path}", *node)
    found, lines = program(*asked, within=small)
    assert found == code
    free = named(from_plain(lines[0], check="shared_memory"), "free_bytes")
    assert (free.value, free.limit) == (64 * MIB, least_mib * MIB)
    assert ("--shm-size=1g" in lines[0]["reason"]) == bool(code)
    # A node that may be short of it passes, and the message says so.
    found, lines = program(*asked, "--shortage-serves", within=small)
    assert found == 0
    assert ("--shm-size=1g" in lines[0]["shortage"]) == bool(code)


@pytest.mark.proves("shared_memory.free_bytes")
def test_shared_memory_fails_on_less_than_containers_have(tmp_path: Path) -> None:
    """32 MiB are too little for one rank."""
    small = namespaces("--mount", f"mount -t tmpfs -o size=32m none {tmp_path}")
    asked = ("--check=shared_memory", f"--shared-memory={tmp_path}", "--slots=1", "--gpus=0")
    code, _ = program(*asked, within=small)
    assert code == 1


def test_shared_memory_does_not_know_what_it_may_not_see(
    shared_memory: Path, tmp_path: Path
) -> None:
    """A missing folder is unknown, and so is a leftover that another user's process may be using."""
    gone = verdict_of("shared_memory", shared_memory=str(tmp_path / "gone"))
    assert gone.outcome is Outcome.UNKNOWN
    leave(shared_memory, mode=0o644)
    verdict = forked("shared_memory", user=OTHER_USER, shared_memory=str(shared_memory))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "may not be inspected" in verdict.reason


# memory


def test_memory_passes_on_sound_memory() -> None:
    """Every pattern comes back as written."""
    verdict = verdict_of("memory", {"memory.available_bytes": 1.0})
    patterns = [each for each in verdict.evidence if each.name == "memory.wrong_bytes"]
    assert len(patterns) == len(memory.PATTERNS)
    assert all(each.outcome is Outcome.PASS for each in patterns)
    assert verdict.outcome is Outcome.PASS, verdict.reason


def recorded_memory(folder: Path, *, available_kib: int, swap_free_kib: int) -> None:
    """Write what /proc shows of a machine with 32 GiB of memory and 8 GiB of swap."""
    lines = {"MemTotal": 32 << 20, "MemFree": available_kib, "MemAvailable": available_kib}
    lines |= {"Buffers": 0, "Cached": 0, "Shmem": 0, "Active": 0, "Inactive": 0}
    lines |= {"SwapTotal": 8 << 20, "SwapFree": swap_free_kib}
    text = "".join(f"{name}: {kib} kB\n" for name, kib in lines.items())
    (folder / "meminfo").write_text(text)
    (folder / "vmstat").write_text("pswpin 0\npswpout 0\n")


@pytest.mark.proves("memory.available_bytes", "memory.swap_used_ratio")
def test_memory_fails_when_little_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a gigabyte left and most of its swap in use fails by both, one with neither passes by both."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    recorded_memory(tmp_path, available_kib=1 << 20, swap_free_kib=1 << 20)
    verdict = verdict_of("memory")
    failed = [each.name for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert failed == ["memory.available_bytes", "memory.swap_used_ratio"]
    recorded_memory(tmp_path, available_kib=16 << 20, swap_free_kib=7 << 20)
    verdict = verdict_of("memory", {"memory.available_bytes": 1})
    assert named(verdict, "swap_used_ratio").outcome is Outcome.PASS


class WeakMemory(mmap.mmap):
    """Memory in which one bit of a word never becomes 1."""

    def __getitem__(self, span: slice | int) -> Any:  # type: ignore[override]
        """Return what was written, except that bit."""
        data = bytearray(super().__getitem__(span))
        data[77] &= 0xFE
        return bytes(data)


@pytest.mark.proves("memory.wrong_bytes", "memory.wrong_sums")
def test_memory_fails_where_a_bit_sticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit that sticks in the memory under test fails the check by what comes back and by its sum."""
    monkeypatch.setattr(memory, "mmap", SimpleNamespace(mmap=WeakMemory))
    verdict = verdict_of("memory", {"memory.available_bytes": 1.0})
    failed = {each.name for each in verdict.evidence if each.outcome is Outcome.FAIL}
    assert failed == {"memory.wrong_bytes", "memory.wrong_sums"}


@pytest.mark.parametrize("pattern", memory.PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("bit", [0, 77, 8 * memory.BLOCK_BYTES - 1])
def test_memory_finds_a_flipped_bit(pattern: memory.Pattern, bit: int) -> None:
    """One bit that changed after it was written is found in every pattern, on the way up, down, and at last."""
    with mmap.mmap(-1, 2 * memory.BLOCK_BYTES) as stretch:
        memory.fill(stretch, pattern)
        flip(stretch, bit)
        assert sum(memory.invert(stretch, pattern.block, upwards=True)) == 1
        # the fault was copied into the complement: right again
        flip(stretch, bit)
        assert sum(memory.invert(stretch, pattern.complement, upwards=False)) == 0
        assert memory.read_back(stretch, pattern) == (0, 0)
        flip(stretch, bit)
        assert memory.read_back(stretch, pattern) == (1, 1)


def flip(stretch: mmap.mmap, bit: int) -> None:
    """Flip one bit."""
    stretch[bit // 8] ^= 1 << bit % 8


def test_memory_finds_an_address_line_that_sticks() -> None:
    """Where one block shows up in place of another, words that hold their own position show it."""
    with mmap.mmap(-1, 2 * memory.BLOCK_BYTES) as stretch:
        memory.fill(stretch, memory.OWN_POSITION)
        stretch[memory.BLOCK_BYTES :] = stretch[: memory.BLOCK_BYTES]
        assert sum(memory.invert(stretch, memory.OWN_POSITION.block, upwards=True)) > 0


def test_memory_does_not_know_what_it_cannot_have() -> None:
    """Memory that the process may not have is unknown, not sound."""
    has = psutil.Process().memory_info().vms
    verdict = forked("memory", lower={resource.RLIMIT_AS: has + MIB}, pattern_bytes=64 * MIB)
    assert named(verdict, "wrong_bytes").outcome is Outcome.UNKNOWN
    assert "cannot be had" in named(verdict, "wrong_bytes").note
    huge = verdict_of("memory", pattern_bytes=1 << 60)
    assert named(huge, "wrong_bytes").outcome is Outcome.UNKNOWN


# clock

START = clock.Reading(wall=1_800_000_000 * 10**9, monotonic=5 * 10**9, raw=6 * 10**9, spread=200)
SECOND = 10**9
LATER = replace(
    START,
    wall=START.wall + SECOND,
    monotonic=START.monotonic + SECOND,
    raw=START.raw + SECOND,
)


def judged(after: clock.Reading, before: clock.Reading = START) -> Verdict:
    """Judge two readings a second apart."""
    evidence = clock.compare(before, after, judge_of(clock.CHECK.limits, {}), asked_seconds=1.0)
    return seen(Verdict(check="clock", evidence=tuple(evidence)))


def test_clock_passes_on_this_machine() -> None:
    """The real clocks of this machine run together."""
    assert verdict_of("clock").outcome is Outcome.PASS
    assert judged(LATER).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("name", "after"),
    [
        pytest.param(*case, marks=pytest.mark.proves(f"clock.{case[0]}"))
        for case in [
            ("step_seconds", replace(LATER, wall=LATER.wall + SECOND // 50)),
            ("step_seconds", replace(LATER, wall=LATER.wall - SECOND // 50)),
            ("slew_ratio", replace(LATER, raw=LATER.raw + SECOND // 100)),
            ("elapsed_ratio", replace(LATER, monotonic=START.monotonic)),
            ("earliest_year", replace(LATER, wall=SECOND)),
            ("latest_year", replace(LATER, wall=5_000_000_000 * SECOND)),
        ]
    ],
)
def test_clock_fails_on_each_fault(name: str, after: clock.Reading) -> None:
    """A stepped, a slewed and a stopped clock fail, and so does a year from before or long after this software."""
    assert named(judged(after), name).outcome is Outcome.FAIL


def test_clock_does_not_know_what_was_read_too_slowly() -> None:
    """Readings torn apart by a pause show neither steps nor slewing; nor does a raw clock that has stopped."""
    torn = judged(replace(LATER, spread=SECOND))
    assert torn.outcome is Outcome.UNKNOWN
    assert "read too slowly" in torn.reason
    stopped = judged(replace(LATER, raw=START.raw))
    assert named(stopped, "slew_ratio").outcome is Outcome.UNKNOWN


# loopback


def test_loopback_passes_here() -> None:
    """All bytes go round."""
    verdict = verdict_of("loopback", {"loopback.bytes_per_second": 1e6})
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert named(verdict, "exchanged_bytes").value == 2 * loopback.PAYLOAD_BYTES


@pytest.mark.proves("loopback.exchanged_bytes")
def test_loopback_fails_where_the_interface_is_down() -> None:
    """In a network namespace whose loopback was never brought up the exchange fails."""
    code, lines = program("--check=loopback", within=namespaces("--net"))
    assert (code, lines[0]["outcome"]) == (1, "FAIL"), lines


def test_loopback_counts_wrong_bytes() -> None:
    """An echo that spoils one byte, one that swallows some, and one that gives everything back unchanged are caught."""
    payload = bytes(range(256)) * 64
    assert loopback.wrong_bytes(payload, loopback.exchange(payload)) == 0

    def spoil(piece: bytes) -> bytes:
        return bytes([piece[0]]) + piece[1:].translate(loopback.COMPLEMENT)

    assert loopback.wrong_bytes(payload, loopback.exchange(payload, spoil)) >= 1
    swallowed = loopback.exchange(payload, lambda piece: piece.translate(loopback.COMPLEMENT)[5:])
    assert loopback.wrong_bytes(payload, swallowed) >= 5
    assert loopback.wrong_bytes(payload, loopback.exchange(payload, bytes)) == len(payload)


@pytest.mark.costly
@pytest.mark.proves("loopback.wrong_bytes", "loopback.bytes_per_second")
def test_loopback_fails_on_a_path_that_spoils_bytes_or_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One wrong byte of 16 MiB fails, and so does an exchange at a tenth of the limit."""

    def spoil(piece: bytes) -> bytes:
        return bytes([piece[0]]) + piece[1:].translate(loopback.COMPLEMENT)

    def dawdle(piece: bytes) -> bytes:
        time.sleep(len(piece) / 25e6)
        return piece.translate(loopback.COMPLEMENT)

    monkeypatch.setattr(loopback, "_complement", spoil)
    assert named(verdict_of("loopback"), "wrong_bytes").outcome is Outcome.FAIL
    monkeypatch.setattr(loopback, "_complement", dawdle)
    slow = verdict_of("loopback")
    failed = [each.name for each in slow.evidence if each.outcome is Outcome.FAIL]
    assert failed == ["loopback.bytes_per_second"]


def test_loopback_does_not_know_without_descriptors() -> None:
    """No descriptor left for a socket proves nothing about the network."""
    verdict = forked("loopback", lower={resource.RLIMIT_NOFILE: 4})
    assert verdict.outcome is Outcome.UNKNOWN
    assert "Too many open files" in verdict.reason


# processes


def test_processes_passes_here() -> None:
    """Files open, threads start, and no machine-wide limit is near."""
    few = {"processes.free_threads": 16.0, "processes.free_files": 16.0}
    verdict = verdict_of("processes", few)
    assert verdict.outcome is Outcome.PASS, verdict.reason


@pytest.mark.proves(
    "processes.open_files_soft", "processes.open_files_hard", "processes.opened_files"
)
def test_processes_fails_under_lowered_limits() -> None:
    """A child that may open 64 files only fails by the limit it reads and by what it can really open."""
    verdict = forked("processes", lower={resource.RLIMIT_NOFILE: 64})
    assert verdict.outcome is Outcome.FAIL
    assert named(verdict, "open_files_soft").value == 64
    opened = named(verdict, "opened_files")
    assert opened.outcome is Outcome.FAIL
    assert "Too many open files" in opened.note


@pytest.mark.proves("processes.free_files")
def test_processes_fails_where_the_machine_s_files_are_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that may open a hundred more files fails by its own count."""
    (tmp_path / "fs").mkdir()
    (tmp_path / "fs/file-nr").write_text("100000\t0\t100100\n")
    monkeypatch.setattr(processes, "PROC_SYS", tmp_path)
    verdict = verdict_of("processes")
    assert named(verdict, "free_files").outcome is Outcome.FAIL


@pytest.mark.proves("processes.free_threads", "processes.started_threads")
def test_processes_fails_when_threads_run_out() -> None:
    """More threads than can be had are counted as far as they came."""
    assert processes.start_threads(8) == (8, "")
    verdict = forked("processes", lower={resource.RLIMIT_NPROC: 8}, user=OTHER_USER)
    assert named(verdict, "free_threads", "RLIMIT_NPROC").outcome is Outcome.FAIL
    assert named(verdict, "started_threads").outcome is Outcome.FAIL


def test_processes_does_not_know_limits_it_cannot_read() -> None:
    """Where /proc/sys is hidden the machine's limits are unknown, though all else is well."""
    hidden = namespaces("--mount", "mount -t tmpfs none /proc/sys")
    code, lines = program("--check=processes", within=hidden)
    verdict = from_plain(lines[0], check="processes")
    assert named(verdict, "free_files").outcome is Outcome.UNKNOWN
    assert (code, verdict.outcome) == (2, Outcome.UNKNOWN)


# the time service

# chronyc 4.5 and 4.6, which has one field more in front.
TRACKING = "192.0.2.1,2,1735830000.1,%s,0.000023,0.0001,-3.2,0.01,0.05,0.002,0.001,64.2,%s"
NEWER_TRACKING = f"C0000201,{TRACKING}"


@pytest.mark.proves("clock.offset_seconds")
@pytest.mark.parametrize("line", [TRACKING, NEWER_TRACKING])
def test_clock_fails_where_it_is_far_from_its_sources(substitutes: Substitutes, line: str) -> None:
    """A clock that chrony finds more than a second off fails in either direction; a millisecond passes."""
    for offset, outcome in (("0.001", Outcome.PASS), ("1.5", Outcome.FAIL), ("-1.5", Outcome.FAIL)):
        substitutes.tool("chronyc", {"-n -c tracking": (line % (offset, "Normal")).encode()})
        assert verdict_of("clock").outcome is outcome


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "chronyc hung"),
        (f"echo '{TRACKING % ('0.1', 'Not synchronised')}'", "Not synchronised"),
        ("printf 'C0000201,192.0.2.1,2,17358'", "half an answer"),
        (f"echo '{TRACKING % ('soon', 'Normal')}'", "no number"),
        (f"echo '{TRACKING % ('nan', 'Normal')}'", "offset_seconds"),
    ],
)
def test_clock_does_not_know_what_chrony_does_not_say(
    substitutes: Substitutes, script: str, reason: str
) -> None:
    """A tool that hangs, half a line, nonsense, and a service without a source leave UNKNOWN."""
    substitutes.program("chronyc", script)
    verdict = verdict_of("clock", deadline_seconds=2.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason


def test_clock_passes_without_a_time_service_that_can_be_asked(substitutes: Substitutes) -> None:
    """Where chrony does not run, what systemd says is noted, and no more."""
    substitutes.program("chronyc", "echo '506 Cannot talk to daemon'; exit 1")
    substitutes.tool("timedatectl", {"show -p NTPSynchronized --value": b"yes\n"})
    verdict = verdict_of("clock")
    assert verdict.outcome is Outcome.PASS
    assert "506 Cannot talk" in named(verdict, "offset_seconds").note
    assert named(verdict, "is_synchronised").value == 1


# disk_space: a save


@pytest.mark.proves("disk_space.renamed_bytes")
def test_disk_space_fails_where_a_saved_file_cannot_be_read_by_its_new_name(
    tmp_path: Path,
) -> None:
    """A disk that fails in the renamed file alone fails, and nothing is left in the folder."""
    with slow_folder(tmp_path / "mount") as mounted:
        passed = verdict_of("disk_space", LENIENT, folders=(str(mounted.folder),))
        assert named(passed, "renamed_bytes").outcome is Outcome.PASS
        mounted.set(error=errno.EIO, error_in=".renamed")
        verdict = verdict_of("disk_space", LENIENT, folders=(str(mounted.folder),))
        failed = [each.name for each in verdict.evidence if each.outcome is Outcome.FAIL]
        assert failed == ["disk_space.renamed_bytes"], verdict.reason
        assert list(mounted.backing.iterdir()) == []


def test_disk_space_removes_what_a_killed_check_left(tmp_path: Path) -> None:
    """A file of a check that was killed an hour ago is removed; that of one that runs stays."""
    old, new = tmp_path / ".stoker-check-1", tmp_path / ".stoker-check-2"
    for path in (old, new):
        path.write_bytes(b"x")
    then = old.stat().st_mtime - 7200
    os.utime(old, (then, then))
    verdict_of("disk_space", LENIENT, folders=(str(tmp_path),))
    assert list(tmp_path.iterdir()) == [new]
