"""Forked ranks of torch programs: loader workers, generators and gradients are those of fresh processes."""

import json
from pathlib import Path

import pytest

from tests.agent.node import Node
from tests.agent.programs import both, cold, program_plan

pytestmark = [pytest.mark.e2e, pytest.mark.trainer]

PROGRAM = """
import json, os, sys
import numpy
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([index * index]), os.getpid() != int(os.environ["MAIN"])


os.environ["MAIN"] = str(os.getpid())
found = {"seed": torch.initial_seed(), "threads": torch.get_num_threads(), "draw": torch.rand(3).tolist()}
for method in ("fork", "spawn"):
    loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    found[method] = [torch.cat([values for values, _ in batches]).flatten().tolist(), bool(torch.cat([o for _, o in batches]).all())]
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
torch.manual_seed(5)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
found["loss"] = loss.item()
found["product"] = torch.mm(torch.ones(300, 300), torch.ones(300, 300)).sum().item()
own = numpy.random.random()
with open(f"{os.environ['SEEN']}/torch-{os.environ['STOKER_ATTEMPT']}-{os.environ['RANK']}", "w") as file:
    json.dump([found, own], file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("threads", ["1", "2"])
def test_torch_in_a_forked_rank(node: Node, threads: str) -> None:
    """Seeds, loader workers by fork and by spawn, DDP's loss and threaded products are equal; numpy's own draws differ by rank."""
    node.start_agent()
    plan = program_plan(node, "{python}", "train.py", environment={"OMP_NUM_THREADS": threads})
    (Path(plan.working_directory) / "train.py").write_text(PROGRAM)
    fresh, forked = both(node, plan, preload=("torch", "torch.utils.data", "numpy"))
    assert cold(node, 2) == ""
    told = {
        (run.attempt.restart, rank): json.loads(
            (node.state / f"torch-{run.attempt}-{rank}").read_text()
        )
        for run in (fresh, forked)
        for rank in run.ranks
    }
    for rank in plan.ranks:
        assert told[2, rank][0] == told[1, rank][0]
        assert told[2, rank][0]["threads"] == int(threads)
    assert told[2, 0][1] != told[2, 1][1]
