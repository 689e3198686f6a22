"""This rank among the others: its coordinates, its device and the process groups it talks through."""

import datetime
import os

import torch.distributed as dist

from runner.errors import SpecError
from trainer.config.settings import Settings
from trainer.contract.flight_recorder import answer_requests
from trainer.parallel.collectives import Meter, TensorAxis
from trainer.parallel.device import own_device
from trainer.parallel.layout import RankCoords, coords_of, tensor_groups


class World:
    """The connection to the other ranks. A GPU and NCCL where there is one, else the CPU and gloo.

    Every group has the run's time-out. `side_group` is for agreement on requests and for
    checkpoints: on the CPU, apart from training.
    """

    def __init__(self, settings: Settings) -> None:
        """Join the rendezvous of the environment; raises SpecError when the layout does not fit it."""
        self.layout = settings.layout
        world_size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        if world_size != self.layout.world_size:
            raise SpecError(
                f"layout needs {self.layout.world_size} ranks (tensor {self.layout.tensor} x pipeline "
                f"{self.layout.pipeline} x data {self.layout.data}), WORLD_SIZE is {world_size}: "
                "change the layout or start that many ranks"
            )
        self.coords: RankCoords = coords_of(rank, self.layout)
        self.timeout = datetime.timedelta(seconds=settings.group_timeout_seconds)
        self.device = own_device(repeatable=settings.repeatable)
        self.meter = Meter(self.device)
        on_gpu = self.device.type == "cuda"
        self.backend = "nccl" if on_gpu else "gloo"
        dist.init_process_group(
            self.backend, timeout=self.timeout, device_id=self.device if on_gpu else None
        )
        # NCCL's own is asked in the same way
        if not on_gpu:
            answer_requests(rank)
        self.tensor_axis = self._join_tensor_axis()
        self.side_group = dist.new_group(backend="gloo", timeout=self.timeout)

    def _join_tensor_axis(self) -> TensorAxis:
        mine = None
        if self.layout.tensor > 1:
            for ranks in tensor_groups(self.layout):
                group = dist.new_group(ranks, timeout=self.timeout)
                mine = group if self.coords.rank in ranks else mine
        return TensorAxis(mine, rank=self.coords.tensor, size=self.layout.tensor, meter=self.meter)

    def leave(self) -> None:
        """Wait for the others and take the process groups down."""
        dist.barrier(group=self.side_group)
        dist.destroy_process_group()
