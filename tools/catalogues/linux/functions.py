"""Functions of the kernel that log: their level, and the words that lines of each begin with."""

import re

from tools.catalogues.c_source.levels import level_by_name, level_of_kernel
from tools.catalogues.rows import Level

# Of include/linux/printk.h.
MACROS = {
    "HW_ERR": "[Hardware Error]: ",
    "FW_BUG": "[Firmware Bug]: ",
    "FW_WARN": "[Firmware Warn]: ",
    "FW_INFO": "[Firmware Info]: ",
    "DEPRECATED": "[Deprecated]: ",
    "KBUILD_MODNAME": "",
}
# Functions that take a `KERN_` word, or write at the default level without one.
_PRINTK = re.compile(
    r"(?:^|_)printk(?:_ratelimited|_once|_deferred)?$|^\w+_msg$|^(?:lpfc_printf_v?log)$"
)
# Of those that end in `_msg`, these write to the log.
_MESSAGES = ("ext4_msg", "f2fs_msg", "fat_msg", "exfat_msg", "fs_msg")
_NAMED: dict[str, Level] = {
    **dict.fromkeys(("panic", "nmi_panic", "die", "EXT4_ERROR_INODE", "EXT4_ERROR_FILE"), "error"),
    **dict.fromkeys(("EXT4_ERROR_INODE_BLOCK", "EXT4_ERROR_INODE_ERR", "ext4_abort"), "error"),
    **dict.fromkeys(
        ("ext4_grp_locked_error", "btrfs_handle_fs_error", "btrfs_abort_transaction"), "error"
    ),
    **dict.fromkeys(("btrfs_panic", "btrfs_crit_rl", "DMCRIT", "xfs_alert_tag", "fs_err"), "error"),
    **dict.fromkeys(("pr_err_client", "pr_err_ratelimited_client", "cifs_server_dbg"), "error"),
    **dict.fromkeys(
        ("WARN", "WARN_ONCE", "WARN_RATELIMIT", "pr_warn_client", "warn_alloc", "fs_warn"),
        "warning",
    ),
    **dict.fromkeys(("pr_warn_ratelimited_client", "dev_WARN", "dev_WARN_ONCE"), "warning"),
    **dict.fromkeys(("pr_info_client", "pr_notice_client", "fs_info"), "info"),
    **dict.fromkeys(("pr_debug_client", "xfs_debug", "DP_NOTICE"), "debug"),
}
# Debugging that no one turns on where runs go: of the millions of ways to be healthy it shows nothing.
_SILENT = re.compile(r"^(?:d|df)printk$|^(?:dout|doutc|DP|edac_dbg|ql_dbg\w*)$|^DMDEBUG|_cdbg$")
_CIFS = ("cifs_dbg", "cifs_server_dbg", "cifs_tcon_dbg")
_QLOGIC = ("ql_log", "ql_log_pci", "ql_log_qp")
# Functions that write nothing of a device before the text.
_BARE = re.compile(
    r"^(?:pr_|printk|panic$|nmi_panic$|die$|WARN|early_printk|warn_alloc$|vfs_|audit_)"
)
_OF_FILE_SYSTEM = {
    "ext4": "EXT4-fs", "EXT4": "EXT4-fs", "xfs": "XFS", "btrfs": "BTRFS", "f2fs": "F2FS-fs",
    "cifs": "CIFS", "fs": "gfs2", "erofs": "erofs", "DMERR": "device-mapper",
    "DMWARN": "device-mapper", "DMINFO": "device-mapper", "DMCRIT": "device-mapper",
    "edac": "EDAC", "ql": "qla2xxx", "lpfc": "lpfc", "ata": "ata",
}  # fmt: skip


def level_of(name: str, arguments: list[str]) -> Level | None:
    """Return the level of a call; with no arguments, any level where the name may log at all."""
    if _SILENT.search(name):
        return None
    if name in _CIFS:
        return "debug" if arguments and arguments[0].startswith(("FYI", "NOISY")) else "error"
    if name in _QLOGIC:
        return _of_qlogic(arguments)
    if name in _NAMED:
        return _NAMED[name]
    if _PRINTK.search(name):
        if name.endswith("_msg") and name not in _MESSAGES:
            return None
        return level_of_kernel(arguments)
    return level_by_name(name)


def _of_qlogic(arguments: list[str]) -> Level:
    word = arguments[0].rpartition("_")[2] if arguments else "info"
    return level_by_name(word) or "info"


def is_of_device(name: str) -> bool:
    """Whether lines of a function may begin with the driver and the device."""
    return not _BARE.match(name)


def word_of(name: str) -> str:
    """Return the word that every line of a function has; "" where it depends on the file."""
    return (
        "panic" if name in ("panic", "nmi_panic") else _OF_FILE_SYSTEM.get(name.split("_")[0], "")
    )
