"""What the kernel says when hardware or the machine is in trouble: one pattern per class of line, held against the kernel's text.

Lines of accelerators (NVRM, amdgpu) and of network cards are classes of their own and not in this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A class of lines. A group called `count`, where the pattern has one, says for how many errors a line stands."""

    # name in the table of thresholds; empty: told, not judged
    limit: str
    name: str
    pattern: re.Pattern[str]


def _signature(name: str, limit: str, *patterns: str) -> Signature:
    return Signature(
        name=name,
        limit=f"kernel_log.{limit}" if limit else "",
        pattern=re.compile("|".join(f"(?:{pattern})" for pattern in patterns)),
    )


# The first that matches counts. Wording as printed by the kernel's own sources named beside each.
SIGNATURES = (
    # arch/x86/kernel/cpu/mce/core.c; a bare "mce:" also appears at each boot
    _signature(
        "machine check",
        "machine_checks",
        r"mce: \[Hardware Error\]: (?:Machine check events logged|CPU \d+: Machine Check(?: Exception)?: )",
    ),
    # drivers/edac/edac_mc.c; drivers/firmware/efi/cper.c
    _signature(
        "uncorrected memory error",
        "uncorrected_memory_errors",
        r"EDAC MC\d+: (?P<count>\d+) UE ",
        r"\[Hardware Error\]: event severity: (?:recoverable|fatal)",
        r"Memory failure: 0x[0-9a-f]+: ",
    ),
    _signature(
        "corrected memory error",
        "corrected_memory_errors",
        r"EDAC MC\d+: (?P<count>\d+) CE ",
        r"\[Hardware Error\]: event severity: corrected",
    ),
    # mm/oom_kill.c: a control group's own limit is a matter of the job in it, not of the node
    _signature(
        "control group out of memory", "", r"Memory cgroup out of memory: Killed process \d+"
    ),
    _signature(
        "out of memory", "out_of_memory_kills", r"Out of memory(?: \([^)]*\))?: Killed process \d+"
    ),
    # kernel/watchdog.c, kernel/rcu/tree_stall.h, kernel/hung_task.c
    _signature(
        "lockup",
        "lockups",
        r"BUG: soft lockup - CPU#\d+ stuck for \d+s!",
        r"[Ww]atchdog.*[Hh]ard LOCKUP",
        r"rcu: INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stall",
        r"INFO: task \S+:\d+ blocked for more than \d+ seconds",
    ),
    # block/blk-core.c, fs/ext4/super.c, fs/xfs/xfs_fsops.c; loop devices and floppies say it for harmless reasons
    _signature(
        "storage error",
        "storage_errors",
        r"I/O error, dev (?!loop|fd\d|sr\d)\S+, sector \d+",
        r"EXT4-fs error \(device (?!loop)\S+\)",
        r"XFS \((?!loop)\S+\): .*(?:[Ss]hutting down filesystem|Corruption of in-memory data)",
        r"Remounting filesystem read-only",
    ),
)


def classify(
    text: str, signatures: Iterable[Signature] = SIGNATURES
) -> tuple[Signature, int] | None:
    """Return the class of a kernel line and for how many errors it stands; None for a line that means nothing to us."""
    for signature in signatures:
        match = signature.pattern.search(text)
        if match is not None:
            count = match.groupdict().get("count")
            return signature, 1 if count is None else int(count)
    return None
