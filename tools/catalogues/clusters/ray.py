"""Ray: what its Python modules raise and log, and what its daemons write of nodes, workers and actors that died."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues import rows
from tools.catalogues.python.statements import statements
from tools.catalogues.rows import Header, Row, first_line
from tools.catalogues.rules import Rule, first_rule, judged
from tools.catalogues.sources import wheel
from tools.catalogues.texts import is_findable

NAMES = ("ray",)
REQUIREMENT = "ray==2.60.0"
_PYTHON = (
    "ray/exceptions.py",
    "ray/_private/*.py",
    "ray/_private/runtime_env/*.py",
    "ray/autoscaler/_private/*.py",
    "ray/train/**/*.py",
    "ray/util/placement_group.py",
    "ray/dashboard/modules/job/*.py",
    "ray/actor.py",
    "ray/experimental/channel/*.py",
)
_DAEMONS = ("ray/core/src/ray/raylet/raylet", "ray/core/src/ray/gcs/gcs_server", "ray/_raylet.so")
# Sentences in a binary: as they are in its constants.
_SENTENCES = re.compile(rb"(?<=[\x00\n])[A-Z%][a-z]* [a-z(%][\x20-\x7e]{20,600}(?=[\x00\n])")
_FIELD = re.compile(r"\{[^{}]*\}")

RULES = (
    Rule(
        r"low on memory|memory pressure|OutOfMemory|out of memory error|OOM killer|due to memory|memory usage threshold",
        "host_oom",
        "Ray's memory monitor, or the kernel, ends workers",
        layer="machine",
        scope="node",
    ),
    Rule(
        r"by preemption|was (?:forcibly )?preempted|preemption detected|node preemption|Drain raylet RPC",
        "preemption",
        "the node is drained, or the cloud took it",
        layer="scheduler",
        scope="scheduler",
    ),
    Rule(
        r"node (?:has |was |is )?(?:died|dead|removed|failed)|node died|its node|marked (?:as )?dead|missed too many"
        r"|health check|lost its node|raylet (?:has )?(?:died|crashed|failed|exited)|GCS (?:server )?(?:is|may|has)"
        r"|GcsServer|failed to connect to GCS|node .*(?:terminated|unreachable)|dead node",
        "node_failure",
        "Ray's control plane lost the node, or the node lost the control plane",
        layer="scheduler",
        scope="node",
    ),
    Rule(
        r"object store is full|ObjectStoreFull|out of disk|disk full|no space left|OutOfDisk|spill\w* .*(?:fail|error)",
        "filesystem",
        "objects are spilled to a disk that is full or fails",
        layer="machine",
        scope="storage",
    ),
    Rule(
        r"runtime_env|working_dir|pip (?:install|package)|conda|cannot be scheduled|infeasible|placement group .*(?:cannot|invalid)"
        r"|invalid|must be|unsupported|should be|not supported|expected|is not (?:a|an|allowed)",
        "config_error",
        "what was asked for cannot be had",
        levels=("error",),
        scope="user",
    ),
)

_OF_DAEMONS = (
    Rule(
        r"running low on memory|killed due to memory pressure|OOM killer due to high memory",
        "host_oom",
        "Ray's memory monitor, or the kernel, ends workers",
        layer="machine",
        scope="node",
    ),
    Rule(
        r"^Node died|^Node is dead|its node has died|health check failed|^Health check failed for node|marked as dead"
        r"|missed too many|^Failed to connect to GCS|node it was running on is dead|owner's node died"
        r"|raylet exited|local raylet failed|GCS server is dead|GCS is terminated",
        "node_failure",
        "Ray's control plane lost the node, or the node lost the control plane",
        layer="scheduler",
        scope="node",
    ),
    Rule(
        r"forcibly preempted|died by preemption|^Drain raylet RPC",
        "preemption",
        "the node is drained, or the cloud took it",
        layer="scheduler",
        scope="scheduler",
    ),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue of Ray. Raises SourceMissing."""
    with wheel(REQUIREMENT) as folder:
        header = Header(
            "Ray",
            REQUIREMENT.partition("==")[2],
            made="2026-11-26",
            program=__name__,
            source=f"{REQUIREMENT}: Python modules; sentences among the constants of raylet, gcs_server, _raylet.so",
            style="braces",
            layer="program",
            scope="rank",
        )
        return rows.write(name, header, [*_of_python(folder), *_of_daemons(folder)])


def _of_python(folder: Path) -> Iterator[Row]:
    for path in sorted({path for part in _PYTHON for path in folder.glob(part)}):
        at = path.relative_to(folder).as_posix()
        if "test" in at:
            continue
        for one in statements(path.read_text(errors="replace")):
            row = Row(at, first_line(one.format), one.level)
            if row.format and is_findable(_FIELD.sub("%s", row.format)):
                yield judged(row, first_rule(RULES, at, row.format, row.level))


def _of_daemons(folder: Path) -> Iterator[Row]:
    """Yield the sentences that a rule knows: constants have no level, and only these are surely of a failure."""
    for name in _DAEMONS:
        for found in _SENTENCES.findall((folder / name).read_bytes()):
            text = first_line(found.decode("ascii"))
            rule = first_rule(_OF_DAEMONS, name, text, "error")
            if rule and is_findable(text):
                yield judged(Row(name, text, "error", style="printf"), rule)
