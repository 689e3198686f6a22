"""systemd: the manager of services, its killer for want of memory, core dumps, shutdown and log-in sessions."""

import re

from tools.catalogues.c_source.levels import level_by_name
from tools.catalogues.clusters.emitter import Emitter
from tools.catalogues.rows import Level
from tools.catalogues.rules import ALL_LEVELS, AT_FAULT, Rule

# Functions whose names end with what they take, not with the level.
_TAIL = re.compile(r"_(?:errno|full|zerook|once)+$")
_BY_ARGUMENT: dict[str, Level] = {
    **dict.fromkeys(("LOG_EMERG", "LOG_ALERT", "LOG_CRIT", "LOG_ERR"), "error"),
    "LOG_WARNING": "warning",
    **dict.fromkeys(("LOG_NOTICE", "LOG_INFO"), "info"),
    "LOG_DEBUG": "debug",
}

RULES = (
    Rule(
        r"^Killed %s due to memory|killed by the OOM killer|oom-kill|due to memory pressure for|due to memory used",
        "host_oom",
        "systemd-oomd, or the kernel for a unit of systemd",
        levels=ALL_LEVELS,
        layer="machine",
        scope="node",
    ),
    Rule(
        r"(?:failed|fail) to (?:mount|remount|unmount)|mount process|read-only file system|mount point .*(?:hang|time)",
        "filesystem",
        "a file system is not mounted",
        paths=("src/core/mount", "src/core/automount", "src/shutdown"),
        levels=AT_FAULT,
        layer="machine",
        scope="storage",
    ),
    Rule(
        r"^(?:system is |system )?(?:rebooting|powering off|halting|power(?:ing)? down)|^Rebooting|^Powering off"
        r"|^Shutting down\.|Hardware watchdog .*(?:expired|triggered)|freezing execution|crash, please"
        r"|^Caught <%s>|emergency(?: mode)?",
        "node_failure",
        "the node goes down, or its manager of services does",
        paths=("src/core", "src/shutdown", "src/login"),
        levels=("error", "warning", "info"),
        layer="machine",
        scope="node",
    ),
)


def _level_of(name: str, arguments: list[str]) -> Level | None:
    if not name.startswith(("log_", "LOG_")):
        return None
    if name in ("LOG_UNIT_MESSAGE", "LOG_MESSAGE"):
        return "info"
    if name.endswith(("log_full", "log_full_errno", "log_unit_full", "log_unit_full_errno")):
        return next((_BY_ARGUMENT[one] for one in arguments if one in _BY_ARGUMENT), "debug")
    return level_by_name(_TAIL.sub("", name))


SYSTEMD = Emitter(
    "systemd",
    "systemd",
    "systemd",
    "257.13",
    ("src/core", "src/oom", "src/coredump", "src/shutdown", "src/login", "src/journal"),
    level_of=_level_of,
    layer="machine",
    scope="node",
    rules=RULES,
    daemons=("",),
    left_out=("test", "fuzz", "selinux", "smack", "apparmor"),
    requires=dict.fromkeys(ALL_LEVELS, ("systemd",)),
)
