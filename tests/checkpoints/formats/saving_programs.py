"""Programs that write checkpoints with the libraries themselves: one folder of each kind, made once for a session of tests."""

import os
import subprocess
import sys
from pathlib import Path

# Each writes below the folder that is its argument.
HUGGING_FACE = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
)
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
for name, more in (("trainer", {}), ("weights", {"save_only_model": True}), ("shards", {})):
    model = LlamaForCausalLM(config)
    if name == "shards":
        save, model.save_pretrained = model.save_pretrained, None
        model.save_pretrained = lambda *a, **k: save(*a, **{**k, "max_shard_size": "4KB"})
    settings = dict(max_steps=4, save_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to=[])
    arguments = TrainingArguments(output_dir=f"{sys.argv[1]}/{name}", disable_tqdm=True, **settings, **more)
    Trainer(model, arguments, train_dataset=data).train()
"""
LIGHTNING = """
import sys, torch
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def training_step(self, batch, _):
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

class Sharded(Model):
    def configure_model(self):
        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

def fit(model, folder, **more):
    saving = ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1, save_last=True)
    common = dict(max_steps=4, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False)
    lightning.Trainer(callbacks=[saving], **common, **more).fit(model, loader)

loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
fit(Model(), f"{sys.argv[1]}/lightning")
strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=1)
fit(Sharded(), f"{sys.argv[1]}/lightning-sharded", strategy=strategy)
"""
DEEPSPEED = """
import os, socket, sys, torch
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = str(probe.getsockname()[1])
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
import deepspeed
# No compiler, and nothing left in /dev/shm.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
deepspeed.init_distributed(dist_backend="gloo")
for stage in range(4):
    model = torch.nn.Linear(4, 2)
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": adam, "bf16": {"enabled": stage > 0}}
    config["zero_optimization"] = {"stage": stage}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for step in range(1, 5):
        batch = torch.randn(2, 4, dtype=torch.bfloat16 if stage else torch.float32)
        engine.backward(engine(batch).pow(2).mean())
        engine.step()
        if step % 2 == 0:
            engine.save_checkpoint(f"{sys.argv[1]}/zero{stage}")
"""
# Megatron itself needs a GPU: its own layout around what torch writes. `torch_dist` is torch.distributed.checkpoint, with the two
# files that dist_checkpointing adds; `torch` one file of torch.save for each rank of the model.
TORCH = """
import argparse, json, os, sys, torch
import torch.distributed.checkpoint as dcp

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(2, 16)).sum().backward()
optimizer.step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
for step in (10, 20):
    dcp.save({**state, "step": step}, checkpoint_id=f"{sys.argv[1]}/titan/step-{step}")
    dcp.save({**state, "step": step}, checkpoint_id=f"{sys.argv[1]}/dcp/weights_{step}")
    folder = f"{sys.argv[1]}/megatron-dist/iter_{step:07d}"
    dcp.save(state, checkpoint_id=folder)
    torch.save({"args": None, "iteration": step}, f"{folder}/common.pt")
    with open(f"{folder}/metadata.json", "w") as file:
        json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1,
                   "common_backend": "torch", "common_backend_version": 1}, file)
    for tensor in range(2):
        for stage in range(2):
            folder = f"{sys.argv[1]}/megatron/iter_{step:07d}/mp_rank_{tensor:02d}_{stage:03d}"
            os.makedirs(folder)
            arguments = argparse.Namespace(
                tensor_model_parallel_size=2, pipeline_model_parallel_size=2, expert_model_parallel_size=1,
                use_distributed_optimizer=True, dtype=torch.bfloat16)
            saved = {"args": arguments, "checkpoint_version": 3.0, "iteration": step, **state}
            torch.save(saved, f"{folder}/model_optim_rng.pt")
            torch.save(optimizer.state_dict(), f"{folder}/distrib_optim.pt")
for name in ("megatron", "megatron-dist"):
    with open(f"{sys.argv[1]}/{name}/latest_checkpointed_iteration.txt", "w") as file:
        file.write("20")
"""
PROGRAMS = {
    "hugging_face": HUGGING_FACE,
    "lightning": LIGHTNING,
    "deepspeed": DEEPSPEED,
    "torch": TORCH,
}


def write_all(folder: Path) -> None:
    """Run each program, two at a time."""
    names = list(PROGRAMS)
    for pair in (names[:2], names[2:]):
        run_all({name: PROGRAMS[name] for name in pair}, str(folder), folder=folder)


def run_all(programs: dict[str, str], *arguments: str, folder: Path) -> str:
    """Run programs beside each other in a folder; return what they printed. Each must end well."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment = {k: v for k, v in environment.items() if k not in ("RANK", "WORLD_SIZE")}
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name, program in programs.items()
    }
    printed = ""
    for name, process in running.items():
        output = process.communicate(timeout=240)[0].decode(errors="replace")
        assert process.returncode == 0, f"{name}: {output[-3000:]}"
        printed += output
    return printed
