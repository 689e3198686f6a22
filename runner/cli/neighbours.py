"""What other clusters of this machine have of it, for a command that starts one more."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import counted, printable
from runner.providers.machine_slots import LocalSlots, other_clusters, slots_of

# Clusters that are named; chosen.
MAX_NAMED = 5


def neighbours(cluster: ClusterSpec, *, devices: Path = Path("/dev")) -> Iterator[str]:
    """Yield which clusters share this machine with the local nodes of `cluster`, what is taken, and what to do."""
    if not slots_of(cluster):
        return
    num_gpus = len([*devices.glob("nvidia[0-9]*")])
    others = other_clusters(cluster.state)
    for other in others[:MAX_NAMED]:
        named = (
            f"cluster {printable(other.cluster)} of this machine ({printable(other.state, 300)}, supervisor {other.pid}) has "
            f"{counted(other.slots, 'slot')}"
        )
        yield f"{named}: {_on_gpus(other, cluster, num_gpus) if num_gpus else 'processors and memory are shared'}"
    if len(others) > MAX_NAMED:
        yield f"and {len(others) - MAX_NAMED} more clusters of this machine"


def _on_gpus(other: LocalSlots, cluster: ClusterSpec, num_gpus: int) -> str:
    """Say which GPUs both would use: ranks take them by local rank, unless the run says otherwise."""
    taken = min(other.slots_per_node, num_gpus)
    wanted = min(cluster.local.slots, num_gpus)
    both = min(taken, wanted)
    gpus = "GPU 0" if both == 1 else f"GPUs 0 to {both - 1}"
    way_out = f"`stoker shutdown --cluster {shlex.quote(other.state)}` ends it"
    if taken + wanted <= num_gpus:
        free = ",".join(map(str, range(taken, taken + wanted)))
        way_out = (
            f"`environment: {{CUDA_VISIBLE_DEVICES: '{free}'}}` in run.yaml takes others; {way_out}"
        )
    return (
        f"its ranks use {gpus}, as those of this run would, which wait for their memory; {way_out}"
    )
