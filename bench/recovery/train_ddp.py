"""Ordinary data-parallel training that knows of no launcher: it loads its own checkpoint, saves every ten steps, never ends.

Each rank appends a line to `steps.<rank>` after every step: the monotonic clock, its process id, the step.
"""

import os
import sys
import time
from itertools import count

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

pause_seconds = float(sys.argv[1])
torch.manual_seed(7)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
done = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["step"]
steps = open(f"steps.{rank}", "a", buffering=1)  # noqa: SIM115 - open as long as the process runs
for step in count(done + 1):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(8, 64, generator=generator)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps.write(f"{time.monotonic()} {os.getpid()} {step}\n")
    if rank == 0 and step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "checkpoint.part")
        os.replace("checkpoint.part", "checkpoint.pt")
    time.sleep(pause_seconds)
