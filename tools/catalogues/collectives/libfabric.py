"""libfabric and its providers. A warning is an error where its code gives up; providers that cannot serve a job only say why."""

import re
from collections import Counter

from tools.catalogues.native.call_sites import CallSite
from tools.catalogues.native.classes import rules
from tools.catalogues.native.emitter import Emitter, folders
from tools.catalogues.rows import Header, Level

NAMES = ("libfabric",)
_LEVEL = re.compile(r"(WARN|FATAL|ERROR|ERR|INFO|TRACE|DBG|DEBUG)")
_LEVELS: dict[str, Level] = {
    "FATAL": "error",
    "ERROR": "error",
    "ERR": "error",
    "INFO": "info",
    "TRACE": "debug",
    "DBG": "debug",
    "DEBUG": "debug",
}
_RULES = rules(
    (
        r"unreach|retry|time-?d? ?out|refused|reset by|disconnect|broken|remote|peer|handshake"
        r"|completion .*error|cq ?(?:read)?err|link .*down|port .*(?:down|inactive)|async event"
        r"|connection (?:closed|lost|error|fail)",
        "nccl_network",
        "a peer or the way to it",
    ),
    (
        r"cuda\w* (?:failed|error)|hip\w+ failed|failed to perform cuda|\bhsa|neuron|synapse|gaudi",
        "",
        "the text of the runtime's error on the same line decides",
    ),
    (r"ulimit|memlock|locked memory|hugepage|huge page", "config_error", "a limit of the host"),
    (
        r"register (?:memory|mr|buffer)|reg_mr|mr_reg|dma-?buf|peermem",
        "config_error",
        "memory cannot be registered: the limit of locked memory, or the peer memory module",
    ),
    (
        r"not supported|unsupported|do(?:es)? not support|invalid|unknown|mismatch|illegal|bad "
        r"|(?:must|should) (?:not )?be|no such|not (?:found|available)|exceed|too (?:large|small|long|many)"
        r"|permission|requires?|environment|FI_\w+=|dlopen|dlsym|version|unrecognized|incompatible",
        "config_error",
        "a setting, or what is installed",
    ),
)


def _level(call: CallSite) -> Level | None:
    one = _LEVEL.search(call.name if call.name != "FI_LOG" else " ".join(call.arguments[:2]))
    if one is None:
        return None
    if one[1] == "WARN":
        return "error" if call.gives_up else "warning"
    return _LEVELS[one[1]]


_LIBFABRIC = Emitter(
    Header(
        "libfabric",
        "2.1.0",
        made="2026-11-26",
        program=__name__,
        source="Debian source package libfabric 2.1.0",
        style="printf",
        layer="network",
        scope="fabric",
    ),
    "libfabric",
    "libfabric-2*",
    below=(
        *(
            f"prov/{one}"
            for one in ("efa", "verbs", "tcp", "rxm", "rxd", "cxi", "psm3", "opx", "shm", "sockets")
        ),
        *(f"prov/{one}" for one in ("util", "coll", "ucx", "lnx", "mrail", "udp", "hook", "sm2")),
        "src",
    ),
    calls=re.compile(
        r"(?:FI|EFA|VRB|CXIP|SOCK_LOG|RXM|TCP|XNET|OFI|OPX|SMR|PSM3|PSM2)_(?:\w+_)?"
        r"(?:WARN|FATAL|ERROR|ERR|INFO|TRACE|DBG|DEBUG)(?:_ONCE|_ERRNO|_SPARSE)?|FI_LOG"
    ),
    level=_level,
    rules=_RULES,
    folders=folders(
        (r"getinfo|fabric\.c|_attr|_init\.c|_info|domain|fi_getinfo|log\.c|var\.c", "config_error"),
        (r"hmem", ""),
        (r"prov/(?:shm|sm2)|util_shm", "config_error"),
        (r"prov/", "nccl_network"),
    ),
    words=("libfabric",),
    # Each line begins with `libfabric:` and the process.
    always_required=True,
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    return _LIBFABRIC.make(name)
