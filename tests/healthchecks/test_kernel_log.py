"""The kernel log: every signature fires on the kernel's lines and on nothing that merely resembles them."""

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.kernel_log import (
    CHECK,
    CLASSES,
    WINDOW_SECONDS,
    Now,
    classify,
    count_lines,
    parse,
    read_lines,
)
from healthchecks.limits import judge_of
from tests.healthchecks.check_harness import named, verdict_of

# Class -> lines of that class, as kernels print them.
SAMPLES = {
    "corrected PCIe error": [
        "pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0",
        "pcieport 0000:00:1c.4: AER: Correctable error message received from 0000:07:00.0",
        "pcieport 0000:00:1c.1: AER: Multiple Correctable error message received from 0000:06:00.0",
        "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "r8169 0000:06:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Transmitter ID)",
        "pcieport 0000:00:1b.4: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00dc(Receiver ID)",
    ],
    "corrected accelerator error": [
        "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 3 new correctable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 1 new correctable hardware errors detected in gfx block, "
        "no user action is needed",
        "amdgpu 0000:0b:00.0: amdgpu: 2 correctable hardware errors detected in umc block, no user action is needed.",
    ],
    "harmless accelerator event": [
        "NVRM: Xid (PCI:0003:01:00): 145, RLW_CTRL  Nonfatal XC0 i0 Link 05 (0x00000004 0x00000000)",
    ],
    "accelerator fault": [
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=4242, name=python3, An uncorrectable double bit error",
        "NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU 0000:4f:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:87:00): 74, pid=1201, NVLink: fatal error detected on link 4",
        "nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
        "NVRM: Xid (PCI:0001:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Reboot)",
        "amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 1 new uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: amdgpu: SMU is in hanged state, failed to send smu message!",
        "amdgpu 0000:c1:00.0: amdgpu: Saved bad pages 65 reaches threshold value 64",
        "amdgpu 0000:c1:00.0: amdgpu: socket: 1, die: 0, 2 new uncorrectable hardware errors detected in xgmi_wafl block",
        "amdgpu 0000:c1:00.0: amdgpu: XGMI PCS DataLossErr detected",
        "amdgpu 0000:c1:00.0: amdgpu: 1 uncorrectable hardware errors detected in gfx block",
        "nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    ],
    "accelerator error": [
        "NVRM: Xid (PCI:0000:5e:00): 94, pid=991, name=python, Contained: SM (0x1). RST: No, D-RST: No",
        "NVRM: Xid (PCI:0000:e1:00): 119, pid=77, name=nvidia-smi, Timeout after 6s of waiting for RPC",
        "amdgpu 0000:83:00.0: amdgpu: GPU reset begin!",
        "amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 1 new deferred hardware errors detected in umc block",
    ],
    "accelerator event of a program": [
        "NVRM: Xid (PCI:0000:0f:00): 31, pid=5150, name=python3, Ch 00000008, intr 10000000. MMU Fault",
        "NVRM: Xid (PCI:0000:0f:00): 45, pid=5150, name=python3, Ch 00000008",
        "NVRM: Xid (PCI:0001:01:00): 154, GPU recovery action changed from 0x2 (Reboot) to 0x0 (None)",
    ],
    "network card error": [
        "mlx5_core 0000:c2:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
        "mlx5_core 0000:c2:00.0: print_health_info:447:(pid 0): synd 0x7: irisc not responding",
        "NETDEV WATCHDOG: ens3f0np0 (mlx5_core): transmit queue 3 timed out",
    ],
    "link down": [
        "mlx5_core 0000:c2:00.0 ens3f0np0: Link down",
        "bond0: (slave eth0): link is not ready",
    ],
    "PCIe error": [
        "pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:15:01.0",
        "pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000",
    ],
    "machine check": [
        "mce: [Hardware Error]: Machine check events logged",
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: bea0000000000108",
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 1: f600000000070f0f",
    ],
    "uncorrected memory error": [
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        "{1}[Hardware Error]: event severity: fatal",
        "{7}[Hardware Error]: event severity: recoverable",
        "Memory failure: 0x1f3a80: recovery action for dirty LRU page: Recovered",
    ],
    "corrected memory error": [
        "EDAC MC1: 101 CE memory scrubbing error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
        "{2}[Hardware Error]: event severity: corrected",
    ],
    "control group out of memory": [
        "Memory cgroup out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB",
    ],
    "out of memory": [
        "Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
        "Out of memory (oom_kill_allocating_task): Killed process 4711 (python) total-vm:9kB",
    ],
    "lockup": [
        "watchdog: BUG: soft lockup - CPU#7 stuck for 26s! [python:4711]",
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 5",
        "rcu: INFO: rcu_sched self-detected stall on CPU",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "INFO: task kworker/u64:1:321 blocked for more than 120 seconds.",
    ],
    "storage error": [
        "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "blk_update_request: I/O error, dev sda, sector 12345 op 0x1:(WRITE) flags 0x800",
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory",
        "XFS (dm-0): Metadata I/O Error (0x1) detected. Shutting down filesystem.",
        "EXT4-fs (sda1): Remounting filesystem read-only",
    ],
}
HARMLESS = [
    "pcieport 0000:00:1b.4: AER: Corrected error received: id=00dc",
    "pcieport 0000:67:04.0:   device [8086:0b26] error status/mask=00000080/00002000",
    "pcieport 0000:67:04.0:    [ 7] BadDLLP",
    "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 7 correctable hardware errors detected in total in umc block",
    "amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 0 new correctable hardware errors detected in umc block",
    "mlx5_core 0000:c2:00.0: mlx5_cmd_out_err:808:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad",
    "mlx5_core 0000:c2:00.0 ens3f0np0: Link up",
    "nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 11012, Non-fatal, Link 12 single bit ECC",
    "amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 0 new uncorrectable hardware errors detected in umc block",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.54.03",
    "mce: CPU supports 32 MCE banks",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "EDAC MC: Ver: 3.0.0",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
    "HEST: Table parsing has been initialized.",
    "rcu: INFO: rcu_tasks_rude: Setting shift to 4",
    "watchdog: Delayed init of the lockup detector failed: -19",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "I/O error, dev loop3, sector 0 op 0x0:(READ) flags 0x80700",
    "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0",
    "EXT4-fs (vda1): mounted filesystem with ordered data mode",
    "XFS (dm-0): Mounting V5 Filesystem",
    "oom_reaper: reaped process 4711 (python), now anon-rss:0kB",
]


def log(tmp_path: Path, *lines: str) -> Verdict:
    """Judge a file of kernel lines."""
    path = tmp_path / "kern.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return verdict_of("kernel_log", kernel_log=str(path))


def stamped(text: str, *, age_seconds: float = 0.0) -> str:
    """Write a line as dmesg would have so many seconds ago."""
    return f"[{time.clock_gettime(time.CLOCK_BOOTTIME) - age_seconds:12.6f}] {text}"


def spread(times: int, *texts: str) -> list[str]:
    """Write lines as so many events: one every two seconds, and of as many devices as that takes."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    lines = []
    # The newest, which a check quotes, are of the device that is named.
    for number in reversed(range(times)):
        device, at = divmod(number, 10)
        for text in texts:
            other = re.sub(r"\b([0-9a-f]{4}):[0-9a-f]{2}:", rf"\g<1>:{0x80 + device:02x}:", text)
            lines.append(f"[{now - 2.0 * at:12.6f}] {other if device else text}")
    return lines


def test_there_is_a_sample_for_every_signature() -> None:
    """No rule is without a line that makes it fire."""
    assert list(SAMPLES) == [line_class.name for line_class in CLASSES]


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in SAMPLES.items() for line in lines]
)
def test_a_signature_fires(tmp_path: Path, name: str, line: str) -> None:
    """Each line is put into its class; a fresh one fails the check, unless its class is informational."""
    found = classify(line)
    assert found is not None
    assert found.name == name
    if name == "corrected memory error":
        # these may come a hundred times: see below
        return
    # What may come several times fails by the next one.
    times = int(CHECK.limits[found.limit].value) + 1 if found.limit else 1
    lines = spread(times, line)
    verdict = log(tmp_path, *lines)
    assert verdict.outcome is (Outcome.FAIL if found.limit else Outcome.PASS), verdict.reason
    assert any(line[:50] in each.note for each in verdict.evidence)
    if times > 1:
        assert log(tmp_path, *lines[1:]).outcome is Outcome.PASS


@pytest.mark.parametrize("line", HARMLESS)
def test_a_harmless_line_passes(line: str) -> None:
    """Lines of every boot, and errors of devices without a medium, mean nothing."""
    assert classify(line) is None


def test_a_quiet_log_passes(tmp_path: Path) -> None:
    """A log with nothing but harmless lines passes."""
    assert log(tmp_path, *map(stamped, HARMLESS)).outcome is Outcome.PASS


@pytest.mark.proves(*CHECK.limits)
def test_every_limit_fires(tmp_path: Path) -> None:
    """A log with lines of every class, each as often as it takes, is beyond every limit of the check."""
    lines = [line for name in SAMPLES for line in SAMPLES[name]]
    log(
        tmp_path,
        *(stamped(line, age_seconds=2.0 * number) for line in lines for number in range(6)),
        *(
            each
            for name in SAMPLES
            if "corrected" in name
            for each in spread(481, SAMPLES[name][0])
        ),
    )


def test_an_event_that_is_printed_many_times_at_once_counts_once(tmp_path: Path) -> None:
    """A storm of lines of one fault within a second is one event; the same fault of six GPUs is six."""
    line = "NVRM: Xid (PCI:0000:5e:00): 94, pid=991, name=python, Contained: SM (0x1). RST: No"
    now = time.clock_gettime(time.CLOCK_BOOTTIME) - 5
    verdict = log(tmp_path, *[f"[{now:12.6f}] {line}"] * 500)
    assert (named(verdict, "accelerator_errors").value, verdict.outcome) == (1, Outcome.PASS)
    others = [line.replace("5e", f"{number}e") for number in range(6)]
    assert log(tmp_path, *(f"[{now:12.6f}] {each}" for each in others)).outcome is Outcome.FAIL


def test_one_corrected_error_of_pcie_counts_once_and_does_not_fail_a_node(tmp_path: Path) -> None:
    """The port's line and the device's own report are one event, of a whole report as the kernel prints it; 480 an hour pass."""
    report = (
        "pcieport 0000:00:1c.4: AER: Correctable error message received from 0000:07:00.0",
        "pcieport 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
        "pcieport 0000:07:00.0:   device [8086:15ea] error status/mask=00000080/00002000",
        "pcieport 0000:07:00.0:    [ 7] BadDLLP",
    )
    for times, outcome in ((1, Outcome.PASS), (480, Outcome.PASS), (481, Outcome.FAIL)):
        verdict = log(tmp_path, *spread(times, *report))
        assert (named(verdict, "corrected_pcie_errors").value, verdict.outcome) == (times, outcome)


def test_a_line_from_before_the_boot_does_not_count(tmp_path: Path) -> None:
    """A file of the system's log that is older than the machine's boot shows faults that a reboot has answered."""
    line = SAMPLES["accelerator fault"][0]
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = Now(boot_seconds=60.0, wall=time.time())
    written = datetime.fromtimestamp(time.time() - 120, tz=UTC).isoformat()
    aged = parse(f"{written} n1 kernel: {line}", now)
    assert not aged.is_of_this_boot
    judge = judge_of(CHECK.limits, {})
    counted = {each.name: each.value for each in count_lines([aged], judge, subject="")}
    assert counted["kernel_log.accelerator_faults"] == 0
    recent = parse(f"{written} n1 kernel: {line}", Now(boot_seconds=boot + 600, wall=time.time()))
    counted = {each.name: each.value for each in count_lines([recent], judge, subject="")}
    assert counted["kernel_log.accelerator_faults"] == 1


def test_corrected_errors_are_counted_by_the_number_in_their_line(tmp_path: Path) -> None:
    """A line for 101 errors is beyond the limit of 100, two single ones are not."""
    many, few = "EDAC MC1: 101 CE memory error", "EDAC MC1: 1 CE memory error"
    assert log(tmp_path, stamped(many)).outcome is Outcome.FAIL
    verdict = log(tmp_path, stamped(few), stamped(few))
    assert named(verdict, "corrected_memory_errors").value == 2
    assert verdict.outcome is Outcome.PASS


def test_an_old_line_does_not_count(tmp_path: Path) -> None:
    """A line older than the window does not count; a line without a time may be recent and counts."""
    line = SAMPLES["machine check"][0]
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    at_boot = Now(boot_seconds=boot + 2 * WINDOW_SECONDS, wall=0.0)
    age = parse(f"[{boot:.6f}] {line}", at_boot).age_seconds
    assert age == pytest.approx(2 * WINDOW_SECONDS)
    old = datetime.fromtimestamp(time.time() - 2 * WINDOW_SECONDS, tz=UTC).isoformat()
    new = datetime.fromtimestamp(time.time(), tz=UTC).isoformat()
    assert log(tmp_path, f"{old} n1 kernel: {line}").outcome is Outcome.PASS
    assert log(tmp_path, f"{new} n1 kernel: {line}").outcome is Outcome.FAIL
    assert log(tmp_path, f"Nov 20 14:02:59 n1 kernel: {line}").outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("line", "age_seconds"),
    [
        ("6,344,90000000,-;EXT4-fs (vda): mounted", 10.0),
        ("<6>[   90.000000] EXT4-fs (vda): mounted", 10.0),
        ("[   90.000000] EXT4-fs (vda): mounted", 10.0),
        ("2026-01-01T00:00:00+00:00 EXT4-fs (vda): mounted", 10.0),
        ("2026-13-99T00:00:00 odd", None),
        ("[  120.000000] from the future", 0.0),
    ],
)
def test_a_line_is_taken_apart(line: str, age_seconds: float | None) -> None:
    """Every form gives text and age; a time that cannot be is none, one ahead of us is now."""
    wall = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + 10
    parsed = parse(line, Now(boot_seconds=100.0, wall=wall))
    assert parsed.age_seconds == (None if age_seconds is None else pytest.approx(age_seconds))


def test_a_missing_or_empty_log_is_unknown(tmp_path: Path) -> None:
    """A missing file, an empty one, a device that holds nothing and a pipe without a writer are unknown, and none hangs."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for path in (tmp_path / "gone", tmp_path / "empty", tmp_path / "pipe", Path("/dev/null")):
        verdict = verdict_of("kernel_log", kernel_log=str(path))
        assert verdict.outcome is Outcome.UNKNOWN
        assert str(path) in verdict.reason


def test_of_a_long_file_the_newest_is_read(tmp_path: Path) -> None:
    """A file beyond the limit is read from its end."""
    path = tmp_path / "kern.log"
    with path.open("w") as file:
        file.truncate(40 << 20)
        file.seek(0, os.SEEK_END)
        file.write("\nthe newest line\n")
    assert read_lines(str(path))[-1] == "the newest line"


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel log may not be read")
def test_the_kernel_log_of_this_machine_is_read() -> None:
    """The device is read to its present end without waiting for more, and its lines carry times."""
    verdict = verdict_of("kernel_log")
    if not read_lines("/dev/kmsg"):
        assert verdict.outcome is Outcome.UNKNOWN
        return
    assert named(verdict, "recent_lines").value is not None
