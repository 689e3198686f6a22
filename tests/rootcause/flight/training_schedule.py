"""Programs of the ranks of a 3D-parallel run, as lists of collectives, sends and receives in the order in which a rank calls them.

Tensor-parallel ranks count first, then data-parallel, then pipeline stages, as in Megatron-LM. Each step has micro-batches through
the stages, a reduction of gradients, and the loss of all ranks, for which the processor waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Op(NamedTuple):
    """What a rank calls. `peer`: the other rank of a send or receive. `is_awaited`: the processor waits until it is over."""

    group: str
    name: str
    shape: tuple[int, ...]
    peer: int = -1
    is_awaited: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return self.peer >= 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the dimensions, and what a run does in a step."""

    tensor: int
    data: int
    stages: int
    steps: int = 4
    micro_batches: int = 2
    layers: int = 2
    has_experts: bool = False
    awaits_receives: bool = False

    @property
    def num_ranks(self) -> int:
        """Return the ranks of the gang."""
        return self.tensor * self.data * self.stages

    def coords(self, rank: int) -> tuple[int, int, int]:
        """Return a rank's place in tensor, data and pipeline dimension."""
        return (
            rank % self.tensor,
            rank // self.tensor % self.data,
            rank // (self.tensor * self.data),
        )

    def rank_at(self, tensor: int, data: int, stage: int) -> int:
        """Return the rank at a place."""
        return tensor + self.tensor * (data + self.data * stage)

    def groups(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the groups: name -> description and ranks."""
        found = {"0": ("default_pg", tuple(range(self.num_ranks)))}
        for kind in ("DATA", "TENSOR", "EXPERT", "PIPELINE"):
            parts: dict[tuple[object, ...], list[int]] = {}
            for rank in range(self.num_ranks):
                tensor, data, stage = self.coords(rank)
                key: tuple[object, ...] = {
                    "DATA": (tensor, stage),
                    "TENSOR": (data, stage),
                    "EXPERT": (stage,),
                    "PIPELINE": (tensor, data),
                }[kind]
                parts.setdefault(key, []).append(rank)
            for ranks in parts.values():
                found[str(len(found))] = f"{kind}_PARALLEL_GROUP", tuple(ranks)
        return found

    def programs(self) -> list[list[Op]]:
        """Return what each rank calls."""
        of_rank: list[dict[str, str]] = [{} for _ in range(self.num_ranks)]
        for name, (description, ranks) in self.groups().items():
            for rank in ranks:
                of_rank[rank][description.partition("_")[0]] = name
        return [
            [op for _ in range(self.steps) for op in self._step(rank, of_rank[rank])]
            for rank in range(self.num_ranks)
        ]

    def _step(self, rank: int, own: dict[str, str]) -> Iterator[Op]:
        _, data, stage = self.coords(rank)
        tensor = self.coords(rank)[0]
        before = self.rank_at(tensor, data, stage - 1) if stage else -1
        after = self.rank_at(tensor, data, stage + 1) if stage + 1 < self.stages else -1
        for source, target in (
            *[(before, after)] * self.micro_batches,
            *[(after, before)] * self.micro_batches,
        ):
            if source >= 0:
                yield Op(own["PIPELINE"], "recv", (64, 1), source, self.awaits_receives)
            for _ in range(self.layers):
                yield Op(own["TENSOR"], "_all_gather_base", (64, 1))
                if self.has_experts:
                    yield Op(own["EXPERT"], "all_to_all", (32, 1))
                yield Op(own["TENSOR"], "_reduce_scatter_base", (128, 1))
            if target >= 0:
                yield Op(own["PIPELINE"], "send", (64, 1), target)
        yield Op(own["DATA"], "_reduce_scatter_base", (4096,))
        yield Op("0", "all_reduce", (1,), is_awaited=True)
        yield Op(own["DATA"], "_all_gather_base", (1024,))
