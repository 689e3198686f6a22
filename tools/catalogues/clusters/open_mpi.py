"""Open MPI with PMIx and PRRTE: the texts of their help files, which they print as they are, and calls that log."""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from tools.catalogues.c_source.levels import level_by_name
from tools.catalogues.clusters.emitter import Emitter
from tools.catalogues.debian import SourceTree
from tools.catalogues.rows import MAX_FORMAT, Level, Row
from tools.catalogues.rules import AT_FAULT, Rule, first_rule, judged
from tools.catalogues.texts import is_findable

_TOPIC = re.compile(r"^\[([^\]]+)\]\s*$")
# Lines of a topic that say what happened; what follows is advice.
_MAX_LINES = 4
# Help files about the options of a command.
_OF_OPTIONS = re.compile(
    r"usage|option|version|^--|schizo|cli"
    r"|help-(?:prun|prterun|prte|psched|palloc|pquery|pctrl|pterm|pps|pmix[-_]info|prte[-_]info)\.txt:[^:]*$",
    re.IGNORECASE,
)

RULES = (
    Rule(
        r"node[- ]?(?:died|failed)|daemon (?:has )?(?:died|lost|failed|unexpectedly)|lost (?:connection|communication)"
        r"|no longer (?:respond|reachable)|comm-failure|heartbeat",
        "node_failure",
        "the daemon of a node is gone",
        layer="launcher",
        scope="node",
    ),
    Rule(
        r"out of memory|could not allocate|memory allocation|ENOMEM|not enough memory",
        "host_oom",
        "the host has no memory left for it",
        layer="machine",
        scope="node",
    ),
    Rule(
        r"memlock|locked memory|registered memory|ulimit|rlimit|vader.*cma|permission",
        "config_error",
        "a limit of the host or of the user",
        scope="user",
    ),
    Rule(
        r"unreachable|connect(?:ion|ing)? .*(?:fail|refused|reset|closed|timed)|peer hung up|no route|btl-tcp.*peer"
        r"|unexpected process identifier"
        r"|OpenFabrics|openib|InfiniBand|transport retry|retry count|firewall|queue pair|TCP connection"
        r"|unable to reach|could not connect|process is unreachable",
        "nccl_network",
        "processes or nodes do not reach each other",
        layer="network",
        scope="fabric",
    ),
    Rule(
        r"not found|could not be found|unable to find|no such|invalid|unknown|unrecognized|not enough slots"
        r"|missing|conflict|incorrect|not supported|cannot be (?:used|specified)|bad |illegal|not allowed"
        r"|oversubscri|mismatch|must be|already|requested|available|binding|mapping|hostfile|slots",
        "config_error",
        "what was asked for cannot be done as it was asked",
        scope="user",
    ),
    Rule(
        r"timed? ?out|time limit|job cancelled|terminated by|SIGTERM",
        "preemption",
        "the command's own time limit, or a signal, ended the job",
        paths=("3rd-party/prrte",),
    ),
)


def _level_of(name: str, arguments: list[str]) -> Level | None:
    if name in ("opal_output", "prte_output", "pmix_output"):
        return "error"
    return level_by_name(name) if name.isupper() else None


def _help_files(tree: SourceTree) -> Iterator[Row]:
    """Yield the first lines of each topic of each help file."""
    for file in tree.files("", ".txt"):
        if file.name.startswith("help-") and "/test" not in tree.at(file):
            yield from _topics(file)


def _topics(file: Path) -> Iterator[Row]:
    lines = file.read_text(errors="replace").splitlines()
    for at, line in enumerate(lines):
        if topic := _TOPIC.match(line):
            until = takewhile(lambda one: not one.startswith("["), lines[at + 1 :])
            text = [one.strip() for one in until if one.strip() and not one.startswith("#")]
            yield from _of_topic(f"{file.name}:{topic[1]}", text)


def _of_topic(at: str, text: list[str]) -> Iterator[Row]:
    level = _level_of_topic(at, " ".join(text))
    first = text[:_MAX_LINES]
    rule = first_rule(RULES, "", " ".join((at, *first)), level) if level in AT_FAULT else None
    for line in first:
        if is_findable(line) and not line.startswith("-"):
            yield judged(Row(at, line[:MAX_FORMAT], level), rule)


def _level_of_topic(at: str, text: str) -> Level:
    if _OF_OPTIONS.search(at):
        return "info"
    if text.upper().startswith("WARNING") or "warn" in at:
        return "warning"
    return "info" if text.upper().startswith("NOTE") else "error"


OPEN_MPI = Emitter(
    "open_mpi",
    "Open MPI, PMIx and PRRTE",
    "openmpi",
    "5.0.7",
    ("opal", "ompi", "3rd-party/prrte/src", "3rd-party/openpmix/src"),
    level_of=_level_of,
    layer="launcher",
    scope="rank",
    rules=(
        Rule(
            r"connect|unreachable|peer|socket|qp|cq\b|send|recv|progress|handshake|endpoint",
            "nccl_network",
            "a transport between processes",
            paths=("opal/mca/btl", "ompi/mca/mtl", "ompi/mca/pml", "opal/mca/common"),
            layer="network",
            scope="fabric",
            levels=("error",),
        ),
        *RULES,
    ),
    left_out=(
        "test",
        "/alps",
        "/knem",
        "romio",
        "portals",
        "ftagree",
        "usnic",
        "ugni",
        "monitoring",
        "ompio",
        "examples",
    ),
    tables=_help_files,
)
