"""What an agent is started with: its node, its folder, its cluster."""

import sys
from dataclasses import dataclass
from pathlib import Path

from runner.facts.specs.cluster import ClusterSpec
from runner.providers.machine_slots import slots_of_machine

NOTICE_NAME = "notice.json"
# That a health check takes.
MAX_RANKS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What an agent is started with. `python` runs the keeper, and ranks whose plan names no interpreter.

    `machine` is the root of the paths that describe the hardware: sys/class/...
    """

    node: str
    folder: Path
    cluster: ClusterSpec
    slots: int = 1
    address: str = "127.0.0.1"
    python: str = sys.executable
    device_files: Path = Path("/dev")
    machine: Path = Path("/")

    @property
    def shares_machine(self) -> bool:
        """Whether the node is one of those that the cluster's own machine plays: n1, n2, ... of `local`."""
        local = self.cluster.local
        return self.node in {f"n{index}" for index in range(1, local.nodes + local.spares + 1)}

    @property
    def is_made_up(self) -> bool:
        """Whether a command made the node up on this machine, for a cluster that has no other."""
        return self.shares_machine and not self.cluster.spans_machines

    def ranks_to_check(self) -> int:
        """Return for how many ranks the machine needs room: local nodes share it with all others of this machine."""
        return min(MAX_RANKS, slots_of_machine(self.cluster)) if self.is_made_up else self.slots

    @property
    def notice_path(self) -> Path:
        """File of the node's notices."""
        setting = self.cluster.notice_file
        return Path(setting.replace("{node}", self.node)) if setting else self.folder / NOTICE_NAME

    @property
    def rank_variables(self) -> dict[str, str]:
        """Variables in the environment of every rank of this node, whatever its attempt."""
        return {"STOKER_CLUSTER": self.cluster.name, "STOKER_NODE": self.node}
