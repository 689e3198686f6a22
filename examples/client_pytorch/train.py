"""Teach a small network to count: a loop in plain torch with DDP, and the client of Stoker.

torchrun --standalone --nproc-per-node=2 train.py
"""

import os

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import stoker
from stoker.integrations.pytorch import StepSampler, TrainingState

VOCABULARY, LENGTH, STEPS = 128, 64, 3000


class Progressions(Dataset):
    """Sequences that begin anywhere and go on in equal steps, modulo the size of the vocabulary."""

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        start, stride = index % VOCABULARY, 1 + index % 7
        return (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.layers = nn.GRU(64, 64, batch_first=True)
        self.head = nn.Linear(64, VOCABULARY)

    def forward(self, batch):
        logits = self.head(self.layers(self.embedding(batch[:, :-1]))[0])
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def main():
    init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(Counter())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    dataset = Progressions()
    sampler = StepSampler(len(dataset), batch_size=8)

    run = stoker.attach()
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}
    state = TrainingState(run, clip_norm=1.0, **parts)
    done = state.load()
    for step, batch in enumerate(DataLoader(dataset, batch_sampler=sampler), done + 1):
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), state.clip_norm)
        optimizer.step()
        scheduler.step()
        run.step(step, loss=loss.item(), lr=state.lr)
        if os.environ["RANK"] == "0":
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if run.should_checkpoint or step % 60 == 0:
            state.save(step)
        if run.should_stop or step == STEPS:
            break
    destroy_process_group()


if __name__ == "__main__":
    main()
