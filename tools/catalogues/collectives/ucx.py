"""UCX: its log calls by their level, `ucs_error` to `ucs_trace`."""

import re
from collections import Counter

from tools.catalogues.native.call_sites import CallSite
from tools.catalogues.native.classes import rules
from tools.catalogues.native.emitter import Emitter, folders
from tools.catalogues.rows import Header, Level

NAMES = ("ucx",)
_LEVELS: dict[str, Level] = {
    "fatal": "error",
    "error": "error",
    "warn": "warning",
    "diag": "info",
    "info": "info",
    "print": "info",
    "debug": "debug",
    "trace": "debug",
}
_LEVEL = re.compile(r"_(fatal|error|warn|diag|info|print|debug|trace)(?:_|$)|LOG_LEVEL_([A-Z]+)")
_RULES = rules(
    (
        r"retry count|remote (?:access|operation|invalid)|transport (?:retry|error)|time-?out|unreach"
        r"|endpoint .*(?:error|disconnect)|keepalive|connection reset|broken|closed by|refused",
        "nccl_network",
        "a peer or the way to it",
    ),
    (
        r"port .*(?:down|not active|inactive|error)|link .*down|device fatal|catas|async event",
        "nccl_network",
        "an event of the port or of the device",
    ),
    (
        r"cu(?:da)?[A-Z]\w* failed|cuda\w*\(\) failed|hip\w+ failed|\brocm|\bhsa",
        "",
        "the text of the runtime's error on the same line decides",
    ),
    (r"ulimit|memlock|RLIMIT|locked memory", "config_error", "a limit of the host"),
    (
        r"register(?:ing)? (?:address|memory|region|mr)|mem\w*_reg|ibv_reg|reg_mr",
        "config_error",
        "memory cannot be registered: the limit of locked memory",
    ),
    (
        r"/dev/shm|shared memory|shmget|shmat",
        "config_error",
        "the size of /dev/shm is a setting of the container",
    ),
    (
        r"version|not supported|unsupported|do(?:es)? not support|invalid|unknown|parse|illegal"
        r"|(?:must|should) (?:not )?be|no such|not (?:found|available)|does not exist|could not find"
        r"|too (?:large|small|long|many)|no (?:active|usable|supported|components|transports)"
        r"|dlopen|dlsym|permission|is set to",
        "config_error",
        "a setting, or what is installed",
    ),
)

UCX = Emitter(
    Header(
        "UCX",
        "1.13.1",
        made="2026-11-26",
        program=__name__,
        source="Debian source package ucx 1.13.1",
        style="printf",
        layer="network",
        scope="fabric",
    ),
    "ucx",
    "ucx-1*",
    below=("src/ucs", "src/uct", "src/ucp", "src/ucm"),
    calls=re.compile(
        r"(?:ucs|ucp|ucg|uct_\w+)_(?:fatal|error|warn|diag|info|print|debug|trace)(?:_\w+)?"
        r"|ucs_log|uct_log"
    ),
    level=lambda call: _level(call),
    rules=_RULES,
    folders=folders(
        (r"src/uct/sm/|/tools|ucs/config|ucs/profile|ucs/stats|ucs/vfs", "config_error"),
        (
            r"src/uct/(?:ib|tcp|ugni|base)|src/ucp/(?:wireup|core|rndv|tag|am|rma|proto)",
            "nccl_network",
        ),
    ),
    words=("UCX",),
    # Each line has it before its level.
    always_required=True,
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    return UCX.make(name)


def _level(call: CallSite) -> Level | None:
    is_generic = call.name.endswith("_log") and call.arguments
    one = _LEVEL.search(call.arguments[0] if is_generic else call.name)
    return _LEVELS.get((one[1] or one[2]).casefold()) if one else None
