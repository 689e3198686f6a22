"""Rows of messages whose text the kernel puts together while it runs: what the sources say that it may become."""

from runner.facts.matches import Scope
from tools.catalogues.rows import Row

_AER = "drivers/pci/pcie/aer.c"
_TRAPS = "arch/x86/kernel/traps.c"


def _row(
    at: str, text: str, fault: str, why: str, requires: tuple[str, ...] = (), **more: object
) -> Row:
    return Row(
        at, text, "error", fault, requires=requires, why=why, lasting=bool(more.get("lasting"))
    )


_BY_SEVERITY = "the severity is put into the text; only a corrected error is harmless"
_BY_TYPE = "the name of the exception is put into the text of an oops"

_REQUESTS = "block/blk-core.c"
_BY_STATUS = "the name of the status is put into the text, see blk_errors"
_STATUSES: tuple[tuple[str, str, Scope], ...] = (
    ("I/O", "filesystem", "storage"),
    ("critical target", "filesystem", "storage"),
    # The disk reports that its medium is damaged.
    ("critical medium", "host_hardware", "node"),
    ("critical space allocation", "filesystem", "storage"),
    ("recoverable transport", "filesystem", "storage"),
    ("device offline", "filesystem", "storage"),
    ("timeout", "filesystem", "storage"),
    ("protection", "filesystem", "storage"),
)

# The part of `areas` in which each is.
EXTRA: tuple[tuple[str, Row], ...] = (
    *(
        (
            "drivers/pci",
            _row(
                _AER,
                f"PCIe Bus Error: severity={word} ({one}), type=%s",
                "host_hardware",
                _BY_SEVERITY,
                lasting=True,
            ),
        )
        for word in ("Uncorrectable", "Uncorrected")
        for one in ("Fatal", "Non-Fatal")
    ),
    # The first words since Linux 6.8, the others before.
    *(
        (
            "drivers/pci",
            Row(_AER, f"PCIe Bus Error: severity={word}, type=%s", "warning", why=_BY_SEVERITY),
        )
        for word in ("Correctable", "Corrected")
    ),
    *(
        (_TRAPS, _row(_TRAPS, f"{text}: %04x [#%d]", "node_failure", _BY_TYPE))
        for text in (
            "general protection fault",
            "general protection fault, probably for non-canonical address 0x%lx",
            "Oops: general protection fault, maybe for address 0x%lx",
            "divide error",
            "Oops: invalid opcode",
            "stack segment",
            "Oops: stack guard page",
        )
    ),
    (
        "drivers/firmware/efi/cper.c",
        Row(
            "drivers/firmware/efi/cper.c",
            "[Hardware Error]: event severity: fatal",
            "error",
            "host_hardware",
            lasting=True,
            why=_BY_SEVERITY,
        ),
    ),
    (
        "drivers/firmware/efi/cper.c",
        Row(
            "drivers/firmware/efi/cper.c",
            "[Hardware Error]: event severity: corrected",
            "info",
            why=_BY_SEVERITY,
        ),
    ),
    (
        "lib/bug.c",
        _row("lib/bug.c", "kernel BUG at %s:%u!", "node_failure", "short, and the kernel's own"),
    ),
    *(
        (
            "block",
            Row(
                _REQUESTS,
                f"{status} error, dev %s, sector %llu",
                "error",
                fault,
                scope=scope,
                why=_BY_STATUS,
            ),
        )
        for status, fault, scope in _STATUSES
    ),
)
