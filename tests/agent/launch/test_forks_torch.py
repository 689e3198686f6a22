"""Forked ranks of torch programs: loader workers, generators and gradients are those of fresh processes."""

import json
import socket
from pathlib import Path

import pytest

from tests.agent.node import Node
from tests.agent.programs import both, not_forked_reason, program_plan

pytestmark = [pytest.mark.e2e, pytest.mark.trainer]

PROGRAM = """
import json
import os

import numpy
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([index * index]), os.getpid()


def main():
    own = [numpy.random.random(), torch.initial_seed(), torch.rand(3).tolist()]
    torch.manual_seed(5)
    found = {"threads": torch.get_num_threads()}
    for method, num_workers in (("fork", 2), ("spawn", 1)):
        loader = DataLoader(
            Squares(), batch_size=4, num_workers=num_workers, multiprocessing_context=method
        )
        batches = list(loader)
        values = torch.cat([values for values, _ in batches]).flatten().tolist()
        workers = {pid for _, pids in batches for pid in pids.tolist()}
        found[method] = [values, len(workers), os.getpid() in workers]
    product = torch.mm(torch.ones(300, 300), torch.ones(300, 300)).sum().item()
    found["product"] = [product, torch.get_num_threads()]
    # The loss is compared to the last bit. With two threads the library chooses how they share a sum, and thus its rounding.
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 64)).square().mean()
        loss.backward()
        optimizer.step()
    found["loss"] = loss.item()
    name = f"torch-{os.environ['STOKER_ATTEMPT']}-{os.environ['RANK']}"
    with open(os.path.join(os.environ["SEEN"], name), "w") as file:
        json.dump([found, own], file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


def test_torch_in_a_forked_rank(node: Node) -> None:
    """Loader workers by fork and spawn, DDP's loss (in one thread) and threaded products are equal; what is drawn differs."""
    node.start_agent()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"OMP_NUM_THREADS": "2"}
    plan = program_plan(node, "{python}", "train.py", environment=environment, master_port=port)
    (Path(plan.working_directory) / "train.py").write_text(PROGRAM)
    fresh, forked = both(node, plan, preload=("torch", "torch.utils.data", "numpy"))
    assert not_forked_reason(node, 2) == ""
    reported = {
        (run.attempt.restart, rank): json.loads(
            (node.state / f"torch-{run.attempt}-{rank}").read_text()
        )
        for run in (fresh, forked)
        for rank in run.ranks
    }
    for rank in plan.ranks:
        assert reported[2, rank][0] == reported[1, rank][0]
        assert reported[2, rank][0]["threads"] == 2
        assert reported[2, rank][0]["product"] == [300.0**3, 2]
    drawn = [reported[2, rank][1] for rank in plan.ranks]
    assert all(ours != others for ours, others in zip(*drawn, strict=True))
