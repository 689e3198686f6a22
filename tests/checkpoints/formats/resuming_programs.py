"""Programs that resume from checkpoints with the libraries themselves, and print how many steps that showed."""

import json
import re
from pathlib import Path

from tests.checkpoints.formats.saving_programs import run_all

# Each gets the sealed copies by their names as JSON, and prints a line `NAME: N` for its own ones: steps that were left to
# make, or of DeepSpeed the steps that the engine loaded.
LOOPS = """
import json, sys, torch
import lightning
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

copies = json.loads(sys.argv[1])

class Model(lightning.LightningModule):
    num_steps = 0

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def training_step(self, batch, _):
        self.num_steps += 1
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

class Sharded(Model):
    def configure_model(self):
        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=1)
quiet = dict(logger=False, enable_progress_bar=False, enable_checkpointing=False)
for name, model, more in (("lightning", Model(), {}), ("lightning-sharded", Sharded(), {"strategy": strategy})):
    trainer = lightning.Trainer(max_steps=4, accelerator="cpu", devices=1, **quiet, **more)
    trainer.fit(model, loader, ckpt_path=copies[name])
    print(f"\\n{name}: {model.num_steps}", flush=True)

config = LlamaConfig(
    hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
)
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]

class Counting(Trainer):
    num_steps = 0

    def training_step(self, *given, **more):
        self.num_steps += 1
        return super().training_step(*given, **more)

for name in ("trainer", "shards"):
    settings = dict(max_steps=4, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no")
    arguments = TrainingArguments(output_dir="resumed", disable_tqdm=True, **settings)
    trainer = Counting(LlamaForCausalLM(config), arguments, train_dataset=data)
    trainer.train(resume_from_checkpoint=copies[name])
    print(f"\\n{name}: {trainer.num_steps}", flush=True)
"""
DEEPSPEED = """
import json, os, socket, sys, torch
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = str(probe.getsockname()[1])
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
import deepspeed
# No compiler, and nothing left in /dev/shm.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
deepspeed.init_distributed(dist_backend="gloo")
copies = json.loads(sys.argv[1])
for stage in (1, 3):
    model = torch.nn.Linear(4, 2)
    adam = {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": adam, "bf16": {"enabled": True}}
    config["zero_optimization"] = {"stage": stage}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    assert engine.load_checkpoint(copies[f"zero{stage}"])[0]
    print(f"\\nzero{stage}: {engine.global_steps}", flush=True)
"""


def resume_all(folder: Path, copies: dict[str, str]) -> dict[str, int]:
    """Resume from each copy; return the number that each program printed for it."""
    programs = {"loops": LOOPS, "deepspeed": DEEPSPEED}
    printed = run_all(programs, json.dumps(copies), folder=folder)
    lines = re.findall(r"^([\w-]+): (\d+)$", printed, re.MULTILINE)
    return {name: int(number) for name, number in lines if name in copies}
