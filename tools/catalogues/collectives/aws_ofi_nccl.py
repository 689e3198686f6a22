"""aws-ofi-nccl, the plugin of NCCL for EFA: of a table of facts. Each of its lines has `NET/OFI`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.native.classes import classify, row, rules
from tools.catalogues.native.facts import table
from tools.catalogues.rows import FOLDER, Header, Level, Row, write

NAMES = ("aws-ofi-nccl",)
_LEVELS: dict[str, Level] = {"WARN": "error", "INFO": "info", "TRACE": "debug"}
# Left behind when a communicator ends, or of a setting that is only missed.
_TEAR_DOWN = rules(
    (
        r"clean ?up|dereg|de-register|dealloc|free(?:ing)? |destr|leaking|close|closing|fini\b|unmap|"
        r"not configuring|did not reorder|aborting reorder|delete",
        "",
        "",
    ),
)
_RULES = rules(
    (r"cuda", "", "the text of the runtime on the same line decides"),
    (r"already has an active|null|outstanding|inactive|duplicate", "", "a defect of the caller"),
    (
        r"register|\bMR\b|mr key|regattr|registration",
        "config_error",
        "memory cannot be registered: the limit of locked memory, or what is installed",
    ),
    (
        r"not support|requires|deprecated|unable to find|invalid value|conflict|configur|setting|"
        r"set on platform|gdr|NIC_DUP|forced rails|wrong number of nics|topolog|provider|hwloc|"
        r"FI_OPT|NCCL_\w+|protocol|max_msg|pci|nics? info|declared|no info list|pcidev|subtree|user data",
        "config_error",
        "a setting, or what is installed",
    ),
)


def make(name: str, *, folder: Path = FOLDER) -> Counter[str]:
    """Write the catalogue and return its rows by level."""
    header = Header(
        "aws-ofi-nccl",
        "of 2025",
        made="2026-11-26",
        program=__name__,
        source=f"facts/{name}.tsv, compiled of the plugin's public sources",
        style="printf",
        layer="network",
        scope="fabric",
        requires=("NET/OFI",),
    )
    return write(name, header, _rows(name), folder=folder)


def _rows(name: str) -> Iterator[Row]:
    for at, word, text in table(name):
        level = _LEVELS[word]
        if level == "error" and _TEAR_DOWN[0].pattern.search(text):
            level = "warning"
        fault, why = classify(text, _RULES, "nccl_network") if level == "error" else ("", "")
        yield row(f"src/{at}", text, level, fault, why=why)
