"""rdma-core: what the verbs library, the connection manager and the providers of NICs print."""

import re
from collections import Counter

from tools.catalogues.c_source.levels import level_by_name
from tools.catalogues.native.call_sites import CallSite
from tools.catalogues.native.classes import rules
from tools.catalogues.native.emitter import Emitter, folders
from tools.catalogues.rows import Header, Level

NAMES = ("rdma-core",)
_RULES = rules(
    (
        r"memlock|RLIMIT|ulimit|permission|abi version|not supported|unsupported|invalid|unknown|"
        r"couldn'?t (?:load|open)|no (?:such|userspace)|environment|config|driver|must be",
        "config_error",
        "a setting, or what is installed",
    ),
    (
        r"fatal|hung|unresponsive|firmware|hardware|command .*fail|mailbox|timed? ?out",
        "host_hardware",
        "the NIC does not answer",
    ),
)


def _level(call: CallSite) -> Level | None:
    text = " ".join(call.arguments[:3])
    if call.name == "fprintf" and not text.startswith("stderr"):
        return None
    if re.search(r'"[^"]*\b(?:usage|options?:|example)', text, re.IGNORECASE):
        return None
    if re.search(r"PFX\s*\"Warning|\"[Ww]arn", text):
        return "warning"
    return "error" if call.name == "fprintf" else level_by_name(call.name)


_RDMA = Emitter(
    Header(
        "rdma-core",
        "65.0",
        made="2026-11-26",
        program=__name__,
        source="Debian source package rdma-core 65.0",
        style="printf",
        layer="network",
        scope="node",
    ),
    "rdma-core",
    "linux-rdma-rdma-core-*",
    below=(
        "libibverbs",
        "librdmacm",
        *(
            f"providers/{one}"
            for one in ("mlx5", "mlx4", "efa", "bnxt_re", "irdma", "hns", "erdma")
        ),
    ),
    calls=re.compile(r"verbs_(?:err|warn)|mlx5_(?:err|dbg)|fprintf|hns_\w*err|irdma_debug"),
    level=_level,
    rules=_RULES,
    folders=folders((r"/cmd", ""), (r"librdmacm|providers", "nccl_network")),
    without="examples|dr_dbg",
    words=("libibverbs", "mlx", "rdma", "verbs", "qp", "ib"),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    return _RDMA.make(name)
