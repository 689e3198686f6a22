"""Train a small GPT on the characters of a text, in the style of nanoGPT.

python train.py --batch_size=32 --learning_rate=3e-4
torchrun --standalone --nproc-per-node=2 train.py --init_from=resume
"""

import ast
import math
import os
import sys
import time
from contextlib import nullcontext

import torch
from model import GPT
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

# -----------------------------------------------------------------------------
# i/o
out_dir = "out"
eval_interval = 200
log_interval = 1
eval_iters = 20
always_save_checkpoint = True
init_from = "scratch"  # or "resume"
run_name = "gpt"
# data
dataset = "input.txt"
gradient_accumulation_steps = 1
batch_size = 12
block_size = 64
# model
n_layer = 4
n_head = 4
n_embd = 128
dropout = 0.0
# adamw
learning_rate = 1e-3
max_iters = 2000
weight_decay = 1e-1
beta1 = 0.9
beta2 = 0.95
grad_clip = 1.0
# learning rate schedule
decay_lr = True
warmup_iters = 20
lr_decay_iters = 2000
min_lr = 1e-4
# system
backend = "gloo"
device = "cpu"
# -----------------------------------------------------------------------------
config_keys = [
    k for k, v in globals().items() if isinstance(v, (bool, int, float, str)) and k[0] != "_"
]
for arg in sys.argv[1:]:
    key, _, val = arg.removeprefix("--").partition("=")
    if key not in config_keys:
        raise ValueError(f"unknown config key: {key}")
    old = globals()[key]
    globals()[key] = val if isinstance(old, str) else type(old)(ast.literal_eval(val))
config = {k: globals()[k] for k in config_keys}
# -----------------------------------------------------------------------------

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
else:
    rank, world_size = 0, 1
master_process = rank == 0
if master_process:
    os.makedirs(out_dir, exist_ok=True)
    print(f"{run_name}: {config}")
torch.manual_seed(1337 + rank)

# characters, 90 % of them for training
with open(dataset, encoding="utf-8") as f:
    text = f.read()
chars = sorted(set(text))
ids = torch.tensor([chars.index(c) for c in text])
split = int(0.9 * len(ids))
data = {"train": ids[:split], "val": ids[split:]}


def get_batch(which):
    source = data[which]
    ix = torch.randint(len(source) - block_size - 1, (batch_size,))
    x = torch.stack([source[i : i + block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


iter_num = 0
best_val_loss = 1e9

model_args = {
    "n_layer": n_layer,
    "n_head": n_head,
    "n_embd": n_embd,
    "block_size": block_size,
    "dropout": dropout,
}
checkpoint = None
if init_from == "resume":
    if master_process:
        print(f"resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model_args = checkpoint["model_args"]
elif master_process:
    print("initializing a new model from scratch")
model = GPT(vocab_size=len(chars), **model_args)
if checkpoint is not None:
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]
    best_val_loss = checkpoint["best_val_loss"]
model.to(device)

optimizer = torch.optim.AdamW(
    model.parameters(), lr=learning_rate, betas=(beta1, beta2), weight_decay=weight_decay
)
if checkpoint is not None:
    optimizer.load_state_dict(checkpoint["optimizer"])
checkpoint = None
raw_model = model
if ddp:
    model = DistributedDataParallel(model)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {}
    for which in data:
        losses = [raw_model(*get_batch(which)).item() for _ in range(eval_iters)]
        out[which] = sum(losses) / len(losses)
    model.train()
    return out


def get_lr(it):
    """Linear warmup, then cosine decay to min_lr."""
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


t0 = time.time()
first_iter = iter_num
while True:
    lr = get_lr(iter_num) if decay_lr else learning_rate
    for group in optimizer.param_groups:
        group["lr"] = lr

    if iter_num % eval_interval == 0 and iter_num > first_iter and master_process:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss or always_save_checkpoint:
            best_val_loss = min(best_val_loss, losses["val"])
            print(f"saving checkpoint to {out_dir}")
            saved = {
                "model": raw_model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "model_args": model_args,
                "iter_num": iter_num,
                "best_val_loss": best_val_loss,
                "config": config,
            }
            torch.save(saved, os.path.join(out_dir, "ckpt.pt"))
    if iter_num >= max_iters:
        break

    for micro_step in range(gradient_accumulation_steps):
        is_last = micro_step == gradient_accumulation_steps - 1
        with model.no_sync() if ddp and not is_last else nullcontext():
            loss = model(*get_batch("train")) / gradient_accumulation_steps
            loss.backward()
    if grad_clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    t1 = time.time()
    dt, t0 = t1 - t0, t1
    if iter_num % log_interval == 0 and master_process:
        lossf = loss.item() * gradient_accumulation_steps
        print(f"iter {iter_num}: loss {lossf:.4f}, time {dt * 1000:.2f}ms, lr {lr:.4e}")
    iter_num += 1

if ddp:
    destroy_process_group()
