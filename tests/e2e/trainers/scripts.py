"""Scripts around real trainers, which know nothing of Stoker: what they print is their own. A stamp of each step goes to a file.

Each script takes its last step, a fault, and the step of the first attempt after which it comes: `nan` in rank 0's weights, a
`hang` of rank 1, or a `wait` of all ranks, which slow down, and make the fifth step from there once the file `go` is there.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from tests.e2e.cluster_harness import ClusterHarness

EXAMPLES = Path(__file__).parents[3] / "examples"
# What each script begins with.
_BEGIN = """
import json, os, sys, time
last, fault, at = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
rank, attempt = int(os.environ["RANK"]), os.environ["STOKER_ATTEMPT"]

def stamp(step):
    if rank == 0:
        with open("stamps", "a") as stamps:
            stamps.write(json.dumps([attempt, step, time.time()]) + "\\n")

def harm(step, parameters):
    if step == at and attempt == "1.1.0":
        if fault == "nan":
            next(iter(parameters)).data.fill_(float("nan"))
        elif fault == "hang" and rank == 1:
            time.sleep(1e6)
    if fault == "wait" and attempt == "1.1.0" and step >= at:
        time.sleep(0.2)
        while step >= at + 5 and not os.path.exists("go"):
            time.sleep(0.05)
"""
HUGGING_FACE = """
import torch
from transformers.trainer import Trainer
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from transformers.training_args import TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}

class Own(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **_):
        time.sleep(0.02)
        harm(state.global_step, model.parameters())
        stamp(state.global_step)

torch.manual_seed(1)
points = torch.randn(800, 8)
data = [{"x": x, "labels": x.sum() + 0.3 * torch.randn(())} for x in points]
args = TrainingArguments(
    output_dir="out", max_steps=last, per_device_train_batch_size=8, learning_rate=3e-3,
    lr_scheduler_type="constant", logging_steps=1, save_steps=10, save_total_limit=3,
    use_cpu=True, ddp_backend="gloo", report_to="none",
)
trainer = Trainer(model=Model(), args=args, train_dataset=data, callbacks=[Own()])
trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)
"""
LIGHTNING = """
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch):
        x, y = batch
        loss = ((self.layer(x).squeeze(-1) - y) ** 2).mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)

class Own(Callback):
    def on_train_batch_end(self, trainer, module, *_):
        time.sleep(0.02)
        harm(trainer.global_step, module.parameters())
        stamp(trainer.global_step)

torch.manual_seed(1)
# One epoch: after a resume its bar names no epoch.
points = torch.randn(2_000_000, 8)
data = torch.utils.data.TensorDataset(points, points.sum(-1) + 0.3 * torch.randn(2_000_000))
saves = ModelCheckpoint(dirpath="out", every_n_train_steps=10, save_last=True)
trainer = Trainer(
    max_steps=last, devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    accelerator="cpu", strategy="ddp", logger=False, enable_model_summary=False,
    # Where rich is installed the default is another bar, which writes nothing to a file before its end.
    callbacks=[Own(), saves, TQDMProgressBar()],
)
batches = torch.utils.data.DataLoader(data, batch_size=8)
trainer.fit(Model(), batches, ckpt_path="out/last.ckpt" if os.path.exists("out/last.ckpt") else None)
"""
# examples/nanogpt/train.py as it is, with what it prints stamped as it is printed.
NANOGPT = """
import builtins, re, runpy
import torch
printed = builtins.print

def print_and_stamp(*values, **keywords):
    printed(*values, **{**keywords, "flush": True})
    found = re.match(r"iter (\\d+): loss", str(values[0]))
    if found:
        stamp(int(found[1]))

class Optimizer(torch.optim.AdamW):
    def step(self, *values):
        super().step(*values)
        self.num = getattr(self, "num", 0) + 1
        time.sleep(0.02)
        harm(self.num, self.param_groups[0]["params"])

builtins.print, torch.optim.AdamW = print_and_stamp, Optimizer
start = "resume" if os.path.exists("out/ckpt.pt") else "scratch"
sys.argv = ["train.py", "--init_from=" + start, f"--max_iters={last}", f"--lr_decay_iters={last}"]
sys.argv += ["--n_layer=1", "--n_embd=32", "--batch_size=4", "--block_size=32"]
sys.argv += ["--eval_interval=10", "--eval_iters=1"]
sys.path.insert(0, os.getcwd())
runpy.run_path("train.py", run_name="__main__")
"""
SCRIPTS = {"hugging_face": HUGGING_FACE, "lightning": LIGHTNING, "nanogpt": NANOGPT}
PRELOAD = {
    "hugging_face": ["torch", "torch._dynamo", "transformers.trainer"],
    "lightning": ["torch", "torch._dynamo", "lightning.pytorch"],
    "nanogpt": ["torch", "torch._dynamo"],
}


class Stamp(NamedTuple):
    """One step that a script has made."""

    attempt: str
    step: int
    at: float


def start(
    harness: ClusterHarness, trainer: str, *words: object, nodes: int = 1, **fields: object
) -> None:
    """Write a trainer's script as main.py with what it needs, and its run, of two ranks that are forked."""
    harness.write_script(_BEGIN + SCRIPTS[trainer], "main.py")
    if trainer == "nanogpt":
        for name in ("train.py", "model.py", "input.txt"):
            (harness.folder / name).write_text((EXAMPLES / "nanogpt" / name).read_text())
    harness.write_run(
        command=" ".join(["{python} main.py", *map(str, words)]),
        python=sys.executable,
        nodes=nodes,
        ranks_per_node=2 // nodes,
        preload=PRELOAD[trainer],
        environment={"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        **fields,
    )


def stamps(harness: ClusterHarness) -> list[Stamp]:
    """Return the steps that the script has made so far."""
    path = harness.folder / "stamps"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Stamp(*json.loads(line)) for line in lines if line.endswith("]")]
