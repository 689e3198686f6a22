"""machine: each limit fires by a change of the machine, or of what its kernel and its tools answer; what hangs is named."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from healthchecks.check import Outcome, Verdict, from_plain
from healthchecks.checks import machine
from tests.healthchecks.check_harness import named, namespaces, program, verdict_of
from tests.healthchecks.slow_folder import SlowFolder, slow_folder
from tests.healthchecks.substitutes.tools import Substitutes
from tests.healthchecks.substitutes.trees import write

EDAC = "devices/system/edac/mc/mc0"
# Linux, drivers/edac/edac_mc_sysfs.c: a controller that has run for ten hours.
SOUND = {f"{EDAC}/ue_count": "0", f"{EDAC}/ce_count": "3", f"{EDAC}/seconds_since_reset": "36000"}
# /proc/interrupts of a machine with two processors, Linux 6.1.
INTERRUPTS = """\
            CPU0       CPU1
 NMI:          0          0   Non-maskable interrupts
 MCE:          0          0   Machine check exceptions
 MCP:         87         87   Machine check polls
"""


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no settings of collectives in the environment."""
    for name in list(os.environ):
        if name.startswith(machine.CONFIGURED):
            monkeypatch.delenv(name)
    monkeypatch.setattr(machine, "NCCL_FILES", ())


def judged(root: Path, files: dict[str, str] = SOUND, **facts: object) -> Verdict:
    """Run the check on a machine with these files in sysfs."""
    write(root / "sys", files)
    return verdict_of(
        "machine", None, **{"sysfs": str(root / "sys"), "deadline_seconds": 4, **facts}
    )


def failed(verdict: Verdict) -> list[str]:
    """Return the names of the limits that fired."""
    return [each.name for each in verdict.evidence if each.outcome is Outcome.FAIL]


def test_a_sound_machine_passes(tmp_path: Path) -> None:
    """A machine that has all it should have passes, and its size is noted for comparison with its peers."""
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    (tmp_path / "data").write_text("data")
    began = time.monotonic()
    verdict = judged(
        tmp_path, num_cores=cores, memory_bytes=memory, storage=(str(tmp_path / "data"),)
    )
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert time.monotonic() - began < 5
    assert named(verdict, "cores").value == cores


@pytest.mark.parametrize(
    ("limit", "file", "text"),
    [
        pytest.param(*case, marks=pytest.mark.proves(case[0]))
        for case in [
            ("machine.uncorrected_errors", "ue_count", "1"),
            ("machine.corrected_errors_per_hour", "ce_count", "1010"),
        ]
    ],
)
def test_errors_of_memory_fail(tmp_path: Path, limit: str, file: str, text: str) -> None:
    """One uncorrected error fails, and more than a hundred corrected ones an hour."""
    verdict = judged(tmp_path, SOUND | {f"{EDAC}/{file}": text})
    assert failed(verdict) == [limit]
    assert "mc0" in verdict.reason


@pytest.mark.parametrize("text", ["", "many", "4294967295", "-1"])
def test_counts_that_are_none_are_unknown(tmp_path: Path, text: str) -> None:
    """An empty file, a text, and a full counter are no measurement."""
    assert judged(tmp_path, SOUND | {f"{EDAC}/ue_count": text}).outcome is Outcome.UNKNOWN


def test_a_counter_that_never_answers_is_named(tmp_path: Path) -> None:
    """A driver that hangs leaves UNKNOWN with the file's name, and the rest is judged."""
    write(tmp_path / "sys", SOUND)
    path = tmp_path / "sys" / EDAC / "ue_count"
    path.unlink()
    os.mkfifo(path)
    verdict = verdict_of("machine", sysfs=str(tmp_path / "sys"), deadline_seconds=2.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert f"hung for 1 s in {EDAC}/ue_count" in verdict.reason
    assert named(verdict, "read_only_mounts").value == 0


@pytest.mark.costly
@pytest.mark.proves("machine.machine_checks")
def test_a_machine_check_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that any processor counted fails; polls do not; a kernel without the line has nothing to say."""
    path = tmp_path / "interrupts"
    monkeypatch.setattr(machine, "INTERRUPTS", path)
    for text, outcome in (
        (INTERRUPTS, Outcome.PASS),
        (
            INTERRUPTS.replace("MCE:          0          0", "MCE:          0          2"),
            Outcome.FAIL,
        ),
        ("            CPU0\n", Outcome.PASS),
        (" MCE: \n", Outcome.UNKNOWN),
    ):
        path.write_text(text)
        assert judged(tmp_path).outcome is outcome
    path.unlink()
    assert judged(tmp_path).outcome is Outcome.UNKNOWN


@pytest.mark.proves("machine.memory_ratio")
def test_less_memory_than_there_should_be_fails(tmp_path: Path) -> None:
    """A lost module is more than the tolerance of 3 %."""
    memory = psutil.virtual_memory().total
    assert failed(judged(tmp_path, memory_bytes=memory * 16 // 15)) == ["machine.memory_ratio"]
    assert judged(tmp_path, memory_bytes=int(memory * 1.02)).outcome is Outcome.PASS


@pytest.mark.proves("machine.cores_ratio")
def test_fewer_cores_than_there_should_be_fail(tmp_path: Path) -> None:
    """A process that may use one core fewer than there should be says so."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    assert judged(tmp_path, num_cores=len(cores)).outcome is Outcome.PASS
    try:
        os.sched_setaffinity(0, set(list(cores)[1:]))
        verdict = judged(tmp_path, num_cores=len(cores))
    finally:
        os.sched_setaffinity(0, cores)
    assert failed(verdict) == ["machine.cores_ratio"]


@pytest.mark.proves("machine.read_only_mounts")
def test_a_file_system_that_became_read_only_fails(tmp_path: Path) -> None:
    """One that is mounted for writing and is read-only all the same is named; one that is mounted read-only is meant so."""
    for name in ("meant", "broken"):
        (tmp_path / name).mkdir()
    mounts = namespaces(
        "--mount",
        f"""
        mount -t tmpfs -o ro none {tmp_path}/meant
        mount -t tmpfs none {tmp_path}/broken
        mount -o remount,ro {tmp_path}/broken
        mount -o remount,bind,rw {tmp_path}/broken
        """,
    )
    code, lines = program("--check=machine", f"--folder={tmp_path}", within=mounts)
    verdict = from_plain(lines[0], check="machine")
    found = named(verdict, "read_only_mounts")
    assert (code, found.value, found.note) == (1, 1, str(tmp_path / "broken"))


# storage


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[SlowFolder]:
    """Mount a folder that is slow, hangs or fails as it is set."""
    with slow_folder(tmp_path / "mount") as folder:
        (folder.backing / "shard").write_bytes(bytes(4096))
        yield folder


@pytest.mark.proves("machine.storage_errors")
def test_storage_that_fails_is_broken(tmp_path: Path, mounted: SlowFolder) -> None:
    """An error of the disk behind a path fails, and names the path and what was done."""
    storage = (str(mounted.folder),)
    assert judged(tmp_path, storage=storage).outcome is Outcome.PASS
    mounted.set(error=5, error_in="shard")
    verdict = judged(tmp_path, storage=storage)
    assert failed(verdict) == ["machine.storage_errors"]
    assert f"{mounted.folder}" in verdict.reason
    assert "read of shard" in verdict.reason


@pytest.mark.proves("machine.storage_seconds")
def test_storage_that_is_slow_fails(tmp_path: Path, mounted: SlowFolder) -> None:
    """A small read that takes longer than the limit fails; the same limit passes on the same folder at speed."""
    limits, write_facts = {"machine.storage_seconds": 0.4}, str(tmp_path / "sys")
    write(tmp_path / "sys", SOUND)
    facts = {"storage": (str(mounted.folder),), "sysfs": write_facts}
    assert verdict_of("machine", limits, **facts).outcome is Outcome.PASS
    mounted.set(read_bytes_per_second=6000)
    assert failed(verdict_of("machine", limits, **facts)) == ["machine.storage_seconds"]


@pytest.mark.costly
def test_storage_that_hangs_is_named_and_the_rest_is_judged(
    tmp_path: Path, mounted: SlowFolder
) -> None:
    """A mount that never answers is UNKNOWN in time, though SIGKILL does not end its reader; the other paths are judged."""
    mounted.set(hangs=True)
    began = time.monotonic()
    verdict = judged(tmp_path, storage=(str(tmp_path), str(mounted.folder)))
    assert time.monotonic() - began < 10
    assert verdict.outcome is Outcome.UNKNOWN
    assert f"storage_seconds of {mounted.folder} not measured" in verdict.reason
    assert "hung for 1.2 s" in verdict.reason
    assert "in statvfs" in verdict.reason
    sound = [each for each in verdict.evidence if each.subject == str(tmp_path)]
    assert [each.outcome for each in sound] == [Outcome.PASS]
    mounted.set()


def test_a_missing_path_is_unknown(tmp_path: Path) -> None:
    """A path that is not there proves nothing about the storage."""
    verdict = judged(tmp_path, storage=(str(tmp_path / "gone"),))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "No such file" in verdict.reason


# disks

SCAN = b'{"smartctl": {"version": [7, 4]}, "devices": [{"name": "/dev/nvme0", "type": "nvme"}]}'
ASKED = "--json -H -A /dev/nvme0"
# smartctl 7.4, Samsung 970 EVO and ST1000LM048; smartctl 7.2 without permission.
NVME = {
    "smartctl": {"version": [7, 4], "exit_status": 0, "messages": []},
    "smart_status": {"passed": True, "nvme": {"value": 0}},
    "nvme_smart_health_information_log": {
        "critical_warning": 0,
        "percentage_used": 7,
        "media_errors": 0,
    },
}
ATA = {
    "smartctl": {"version": [7, 4], "exit_status": 64, "messages": []},
    "smart_status": {"passed": True},
}
REFUSED = {
    "smartctl": {
        "version": [7, 2],
        "messages": [
            {"string": "Smartctl open device failed: Permission denied", "severity": "error"}
        ],
        "exit_status": 2,
    }
}


def disk(substitutes: Substitutes, answer: object, *, code: int = 0) -> None:
    """Have one disk that answers so."""
    answers = {"--json --scan": SCAN, ASKED: json.dumps(answer).encode()}
    substitutes.tool("smartctl", answers, code=code)


def test_a_sound_disk_passes(tmp_path: Path, substitutes: Substitutes) -> None:
    """NVMe and ATA disks that call themselves sound pass, whatever else the exit code says; one that may not be asked is noted."""
    for answer, code in ((NVME, 0), (ATA, 64)):
        disk(substitutes, answer, code=code)
        verdict = judged(tmp_path)
        assert named(verdict, "failing_disks").value == 0
        assert verdict.outcome is Outcome.PASS
    disk(substitutes, REFUSED, code=2)
    refused = named(judged(tmp_path), "failing_disks")
    assert refused.outcome is None
    assert "Permission denied" in refused.note


@pytest.mark.proves("machine.failing_disks")
def test_a_failing_disk_fails(tmp_path: Path, substitutes: Substitutes) -> None:
    """A disk that calls itself failing, and one with a critical warning, fail by name."""
    log = {**NVME["nvme_smart_health_information_log"], "critical_warning": 4}  # type: ignore[dict-item]
    for answer in (
        {**ATA, "smart_status": {"passed": False}},
        {**NVME, "nvme_smart_health_information_log": log},
    ):
        disk(substitutes, answer, code=8)
        verdict = judged(tmp_path)
        assert failed(verdict) == ["machine.failing_disks"]
        assert "/dev/nvme0" in verdict.reason


@pytest.mark.costly
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "hung"),
        (
            'case $2 in --scan) echo \'{"devices": [{"name": "/dev/sda"}]}\';; *) exec sleep 600;; esac',
            "hung",
        ),
        ('echo \'{"devices": [{"na\'', "smartctl"),
        (
            'case $2 in --scan) echo \'{"devices": [{"name": "/dev/sda"}]}\';; *) echo \'{"smartc\';; esac',
            "no whole answer",
        ),
        (
            'case $2 in --scan) echo \'{"devices": [{"name": "/dev/sda"}]}\';;'
            ' *) echo \'{"smartctl": {}, "smart_status": {"passed": "perhaps"}}\';; esac',
            "no answer",
        ),
    ],
)
def test_smartctl_that_goes_wrong_is_unknown(
    tmp_path: Path, substitutes: Substitutes, script: str, reason: str
) -> None:
    """A tool that hangs, in the scan or at a disk, stops within a line or answers nonsense leaves UNKNOWN."""
    substitutes.program("smartctl", script)
    verdict = judged(tmp_path)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason


# leftovers, and the site's own program


@pytest.mark.proves("machine.leftover_variables")
def test_a_leftover_variable_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What serialises every kernel is found in the environment and in NCCL's file; a choice of an interface is noted."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    verdict = judged(tmp_path)
    assert (verdict.outcome, named(verdict, "nccl_variables").note) == (
        Outcome.PASS,
        "NCCL_SOCKET_IFNAME=ib0",
    )
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "CUDA_LAUNCH_BLOCKING=1: unset" in judged(tmp_path).reason.replace(")", "")
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    path = tmp_path / "nccl.conf"
    path.write_text("# NCCL_IB_DISABLE=1\nNCCL_P2P_DISABLE=1\n")
    monkeypatch.setattr(machine, "NCCL_FILES", (str(path),))
    assert failed(judged(tmp_path)) == ["machine.leftover_variables"]


@pytest.mark.costly
@pytest.mark.proves("machine.site_script_code")
@pytest.mark.parametrize(
    ("script", "outcome", "word"),
    [
        ("exit 0", Outcome.PASS, ""),
        (
            "echo 'ERROR: nhc: Health check failed: check_fs_mount_rw: /scratch'; exit 1",
            Outcome.FAIL,
            "/scratch",
        ),
        ("exec sleep 600", Outcome.UNKNOWN, "hung for 1.2 s"),
        ("kill -9 $$", Outcome.UNKNOWN, "code -9"),
        ("exec /nonexistent/nhc", Outcome.UNKNOWN, "not found"),
        ("no-such-program", Outcome.UNKNOWN, "not found"),
    ],
)
def test_the_site_s_program_counts(
    tmp_path: Path, script: str, outcome: Outcome, word: str
) -> None:
    """Its exit code decides, its last line is quoted; one that hangs, is killed or cannot start is UNKNOWN."""
    path = tmp_path / "nhc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    verdict = judged(tmp_path, site_script=str(path))
    assert verdict.outcome is outcome, verdict.evidence
    assert word in verdict.reason
    path.write_text("#!/bin/sh\nexit 3\n")
    assert judged(tmp_path, site_script=str(path)).outcome is Outcome.FAIL


def test_a_site_s_program_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    """A missing file, and one that may not be executed, are no healthy node."""
    (tmp_path / "text").write_text("exit 0\n")
    for name in ("gone", "text"):
        verdict = judged(tmp_path, site_script=str(tmp_path / name))
        assert verdict.outcome is Outcome.UNKNOWN
        assert "cannot be started" in verdict.reason
