"""Which rank does what: the order of the axes, and the layers of each pipeline stage.

Ranks count through the tensor axis fastest, then data, then pipeline. So the ranks of one tensor
group are neighbours (one node, the fastest links), and those of one pipeline are furthest apart.
DeepSpeed's topology and the checkpoints rely on the same order.
"""

from dataclasses import dataclass

from trainer.config.settings import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCoords:
    """One rank's index on each axis, counted from 0."""

    rank: int
    pipeline: int
    data: int
    tensor: int


def coords_of(rank: int, layout: Layout) -> RankCoords:
    """Return the coordinates of a rank; `rank` must be below the world size of the layout."""
    rest, tensor = divmod(rank, layout.tensor)
    pipeline, data = divmod(rest, layout.data)
    return RankCoords(rank=rank, pipeline=pipeline, data=data, tensor=tensor)


def tensor_groups(layout: Layout) -> list[list[int]]:
    """Return the ranks of each tensor group, in order."""
    world = layout.pipeline * layout.data * layout.tensor
    return [list(range(first, first + layout.tensor)) for first in range(0, world, layout.tensor)]


def stage_bounds(num_blocks: int, num_stages: int) -> list[int]:
    """Return the first layer of each stage, and the end: embedding first, blocks evenly, head last.

    Layers are counted as the pipeline sees them: 0 is the embedding, 1 the first block.
    """
    per_stage = num_blocks // num_stages
    inner = [1 + per_stage * stage for stage in range(1, num_stages)]
    return [0, *inner, num_blocks + 2]


def layer_name(index: int, num_blocks: int) -> str:
    """Return a layer's name, the same on every layout: `embedding`, `blocks.3`, `head`."""
    if index == 0:
        return "embedding"
    return "head" if index == num_blocks + 1 else f"blocks.{index - 1}"
