"""The kernel's log is read in all the forms it comes in, of this boot only, since a moment, with what is missing counted."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.collect.kernel import DEVICE, KernelLog, KernelRecord, merge, parse, this_boot
from runner.kernel_lines import KernelLine, parse_kernel_line

BOOT = "b1"
# seconds since boot: later than all samples
LATE = 1e6


def texts(records: list[KernelRecord]) -> list[str]:
    """Return the messages read."""
    return [record.line.text for record in records]


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        (
            "3,812,5000123,-;EXT4-fs error (device sda1): bad block\n SUBSYSTEM=block\n DEVICE=b8:1",
            KernelLine(text="EXT4-fs error (device sda1): bad block", microseconds=5000123, level=3, sequence=812),
        ),
        ("[    5.000123] oops", KernelLine(text="oops", microseconds=5000123)),
        ("[    5.000123][  T17] oops", KernelLine(text="oops", microseconds=5000123)),
        ("<4>[    5.000123] oops", KernelLine(text="oops", microseconds=5000123, level=4)),
        ("kern  :err   : [    5.000123] oops", KernelLine(text="oops", microseconds=5000123, level=3)),
        ("Jan  2 03:04:05 node7 kernel: [    5.000123] oops", KernelLine(text="oops", microseconds=5000123)),
        (
            "2025-01-02T03:04:05+00:00 node7 kernel: oops",
            KernelLine(text="oops", wall_time="2025-01-02T03:04:05+00:00"),
        ),
        ("NVRM: oops", KernelLine(text="NVRM: oops")),
        (
            r"6,1,7,-;two\x0alines \x5c and \xc3\xa9",
            KernelLine(text="two\nlines \\ and é", microseconds=7, level=6, sequence=1),
        ),
    ],
)  # fmt: skip
def test_a_record_in_each_of_its_forms(line: str, parsed: KernelLine) -> None:
    """kmsg, dmesg with and without levels, and syslog give the same entry."""
    at = 1735787045.0 if parsed.wall_time else None
    assert parse(line) == KernelRecord(line=parsed, at=at, last_microseconds=parsed.microseconds)


@pytest.mark.parametrize(
    "line",
    [
        "Jan  2 03:04:05 node7 systemd[1]: NVRM: Xid pretended",
        "2025-01-02T03:04:05.000001+00:00 node7 sshd[77]: NVRM: Xid pretended",
        "<14>[    5.000123] NVRM: Xid pretended",
        "daemon:info  : [    5.000123] NVRM: Xid pretended",
    ],
)
def test_lines_of_programs_are_not_the_kernels(line: str) -> None:
    """A fault that a program pretends in the log is not believed."""
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "wall_time", "text"),
    [
        ("[Thu Jan  2 03:04:05 2025] oops", "2025-01-02T03:04:05", "oops"),
        ("2025-01-02T03:04:05,000001+00:00 oops", "2025-01-02T03:04:05,000001+00:00", "oops"),
        ("2025-01-02T03:04:05Z node7 kernel: [    5.000123] oops", "2025-01-02T03:04:05Z", "oops"),
        ("[    5.000123] oops", "", "oops"),
    ],
)
def test_a_wall_clock_time_is_read_as_iso_8601(line: str, wall_time: str, text: str) -> None:
    """The pure parser names the moment; its caller, who knows the time zone, makes seconds of it."""
    parsed = parse_kernel_line(line)
    assert (parsed.wall_time, parsed.text, parsed.is_from_kernel) == (wall_time, text, True)


def test_a_wall_clock_time_is_kept_as_such() -> None:
    """What dmesg -T prints bears no microseconds since boot."""
    record = parse("[Thu Jan  2 03:04:05 2025] oops")
    assert record is not None
    assert (record.line.text, record.line.microseconds) == ("oops", None)
    assert record.at == time.mktime((2025, 1, 2, 3, 4, 5, 0, 0, -1))


def test_a_file_is_followed(tmp_path: Path) -> None:
    """New lines come at the next poll, once, and a new reader goes on where the old one stopped."""
    path = tmp_path / "kern.log"
    path.write_text("[    1.000000] a\n[    2.000000] b\n")
    log = KernelLog(path, BOOT)
    assert texts(log.poll(LATE)) == ["a", "b"]
    assert log.poll(LATE + 1) == []
    position = log.position
    log.close()
    with path.open("a") as file:
        file.write("[    3.000000] c\n")
    log = KernelLog(path, BOOT, position=position)
    assert texts(log.poll(LATE)) == ["c"]
    log.close()


def test_only_since_a_moment(tmp_path: Path) -> None:
    """Earlier records are counted, not given; a line without a time might be new, so it is given."""
    path = tmp_path / "kern.log"
    path.write_text(
        "[    1.000000] old\n[    2.000000] new\nno time\n"
        "2025-01-02T03:04:05+00:00 n kernel: old\n2025-01-02T03:04:07+00:00 n kernel: new as well\n"
    )
    log = KernelLog(path, BOOT, since_microseconds=2_000_000, since=1735787046.0)
    assert texts(log.poll(LATE)) == ["new", "no time", "new as well"]
    assert log.num_earlier == 2
    log.close()


def test_only_this_boot(tmp_path: Path) -> None:
    """Where the clock falls back, or a version appears, a boot began; times that this boot has not reached are none of it."""
    path = tmp_path / "kern.log"
    path.write_text(
        "[  900.000000] before the boot\n[    0.000000] Linux version 6.1\n[    5.000000] a\n[    4.999990] b\n"
    )
    log = KernelLog(path, BOOT)
    assert texts(log.poll(60.0)) == ["Linux version 6.1", "a", "b"]
    assert log.num_earlier == 1
    with path.open("a") as file:
        file.write("[  900.000000] of a boot that lasted longer\n")
    assert log.poll(61.0) == []
    log.close()


def test_a_repeated_line_is_folded(tmp_path: Path) -> None:
    """Times in a text make no difference, anything else does; the first and the last time are kept."""
    path = tmp_path / "kern.log"
    path.write_text(
        "".join(f"[   {second}.000000] link down at {second}:00:00\n" for second in range(11, 51))
        + "[   51.000000] link up\n"
    )
    log = KernelLog(path, BOOT)
    down, up = log.poll(LATE)
    assert (down.num_repeats, down.line.microseconds, down.last_microseconds) == (
        40,
        11_000_000,
        50_000_000,
    )
    assert (up.line.text, up.num_repeats) == ("link up", 1)
    log.close()


def test_records_that_were_overwritten_are_counted(tmp_path: Path) -> None:
    """A gap in the numbers is counted; what programs wrote fills no gap and is no record."""
    path = tmp_path / "kmsg"
    path.write_text(
        "6,10,1000,-;a\n SUBSYSTEM=pci\n14,11,2000,-;a program\n6,12,3000,-;b\n6,20,4000,-;c\n"
    )
    log = KernelLog(path, BOOT)
    records = log.poll(LATE)
    assert [(record.line.text, record.num_lost_before) for record in records] == [
        *(("a", 0), ("b", 0), ("c", 7)),
    ]
    assert (log.num_lost, log.num_foreign) == (7, 1)
    position = log.position
    log.close()
    assert (position.sequence, position.boot_id) == (20, BOOT)


def test_a_log_that_is_not_there_is_trouble(tmp_path: Path) -> None:
    """A missing log is reported with a way out, and read once it is there."""
    log = KernelLog(tmp_path / "kern.log", BOOT)
    assert log.poll(LATE) == []
    assert "name a file" in log.trouble
    (tmp_path / "kern.log").write_text("[    1.000000] a\n")
    assert texts(log.poll(LATE)) == ["a"]
    assert log.trouble == ""
    log.close()


def test_the_device_of_this_machine() -> None:
    """/dev/kmsg is read to its end without waiting, record by record; a second poll goes on from there."""
    if not os.access(DEVICE, os.R_OK):
        pytest.skip(f"{DEVICE} may not be read here")
    log = KernelLog(DEVICE, this_boot())
    records = log.poll(time.clock_gettime(time.CLOCK_BOOTTIME))
    if log.trouble:
        pytest.skip(log.trouble)
    assert all(
        record.line.microseconds is not None and record.line.sequence is not None
        for record in records
    )
    assert len(log.poll(0.0)) <= max(10, len(records) // 2)
    resumed = KernelLog(DEVICE, this_boot(), position=log.position)
    assert len(resumed.poll(0.0)) <= max(10, len(records) // 2)
    log.close()
    resumed.close()


@given(st.text(max_size=200))
def test_any_line_is_survived(text: str) -> None:
    """Hostile text never raises, and folding keeps the count of messages."""
    records = [record for line in text.splitlines() if (record := parse(line))]
    assert sum(record.num_repeats for record in merge(records)) == len(records)
