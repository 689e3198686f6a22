"""Users' scripts: they know nothing of these tests, and most of them nothing of Stoker."""

from dataclasses import dataclass
from pathlib import Path

# Steps without end, until the file `enough` appears. It reports its steps through the channel and writes each into a file of
# its own, from which a later start goes on.
STEPPING = """
import json, os, socket, time
rank = os.environ["RANK"]
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))
channel.setblocking(False)

def report(**fields):
    try:
        channel.send(json.dumps(fields).encode())
    except BlockingIOError:
        pass

report(kind="hello", requests=[], remedies=[])
with open(f"steps.{rank}", "a+") as steps:
    steps.seek(0)
    step = sum(1 for _ in steps)
    while not os.path.exists("enough"):
        time.sleep(0.02)
        step += 1
        steps.write(f"{os.environ['STOKER_ATTEMPT']} {os.getpid()} {step}\\n")
        steps.flush()
        report(kind="step", step=step, loss=1.0 / step)
"""

# The same without any report to Stoker: it only prints lines to standard output. In its first attempt it falls silent
# after so many steps of that attempt as its argument gives (0: never), alive and not stopped.
PLAIN = """
import os, sys, time
rank, silent_after = os.environ["RANK"], int(sys.argv[1])
with open(f"steps.{rank}", "a+") as steps:
    steps.seek(0)
    done = sum(1 for _ in steps)
    step = done
    while not os.path.exists("enough"):
        time.sleep(0.05)
        step += 1
        steps.write(f"{os.environ['STOKER_ATTEMPT']} {os.getpid()} {step}\\n")
        steps.flush()
        print(f"step {step}", flush=True)
        if not done and step == silent_after:
            time.sleep(1000)
"""

# Ordinary data-parallel training that saves for itself and goes on from what it saved.
DDP = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 40
torch.manual_seed(7)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
done = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    done = saved["step"]
for step in range(done + 1, STEPS + 1):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(8, 16, generator=generator)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
    if rank == 0 and step % 5 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "checkpoint.part")
        os.replace("checkpoint.part", "checkpoint.pt")
if rank == 0:
    with open("result", "w") as result:
        result.write(f"{step} {loss.item()!r}")
dist.destroy_process_group()
"""

# Sleeps, then exits as its arguments order.
ENDING = """
import sys, time
time.sleep(float(sys.argv[2]))
sys.stderr.write(sys.argv[3] + "\\n")
sys.exit(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A line that a stepping rank wrote."""

    attempt: str
    pid: int
    step: int


def steps_of(folder: Path, rank: int) -> list[Step]:
    """Read the steps that a rank wrote; a line it is just writing is left out."""
    path = folder / f"steps.{rank}"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [Step(attempt, int(pid), int(step)) for attempt, pid, step in map(str.split, lines)]
