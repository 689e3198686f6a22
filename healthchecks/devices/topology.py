"""How the GPUs of a node are linked with each other, pair by pair, as the vendor's tool prints it: NV18, PIX, SYS, XGMI, PCIE."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from healthchecks.check import NodeFacts
from healthchecks.commands import Ending, run_until
from healthchecks.devices.endings import how_it_ended

COMMANDS = {
    "nvidia": ("nvidia-smi", "topo", "-m"),
    "amd": ("rocm-smi", "--showtopotype"),
}
# Of the check's deadline.
SHARE, LIMIT_SECONDS = 0.2, 8.0

# The tools underline the heading on a terminal, some versions in a pipe, too.
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The type of the link between two GPUs by their numbers; `trouble`: why it is not known."""

    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    trouble: str = ""
    # There is no such tool here.
    is_absent: bool = False


def read_topology(node: NodeFacts) -> Topology:
    """Ask the vendor's tool."""
    command = COMMANDS[node.gpu_vendor or "nvidia"]
    limit = min(LIMIT_SECONDS, SHARE * node.deadline_seconds)
    try:
        ending = run_until(command, limit)
    except OSError as error:
        return Topology(trouble=f"{command[0]} cannot be started: {error}", is_absent=True)
    return topology_of(ending, " ".join(command), limit)


def topology_of(ending: Ending, name: str, limit_seconds: float) -> Topology:
    """Read what a tool printed until it ended."""
    if ended := how_it_ended(ending, limit_seconds):
        return Topology(trouble=f"{name} {ended}")
    links = parse_matrix(ending.output.decode(errors="replace"))
    return Topology(links=links, trouble="" if links else f"{name} printed no whole matrix")


def parse_matrix(text: str) -> dict[tuple[int, int], str]:
    """Read the matrix: a heading with the GPUs, and a row for each. One that is not whole is none."""
    columns: list[int] = []
    links: dict[tuple[int, int], str] = {}
    for line in _ESCAPE.sub("", text).splitlines():
        words = line.split()
        numbers = [int(found[1]) for word in words if (found := _GPU.fullmatch(word))]
        if not words or not numbers:
            continue
        if len(numbers) > 1 or (not columns and words[0] == "GPU0" and len(words) == 1):
            columns = numbers
        elif words[0] == f"GPU{numbers[0]}" and len(words) > len(columns):
            for column, kind in zip(columns, words[1:], strict=False):
                if column != numbers[0]:
                    links[numbers[0], column] = kind
    is_whole = len(links) == len(columns) * (len(columns) - 1)
    return links if is_whole else {}
