"""Teach a small network to count: Lightning's Trainer on arithmetic progressions, with the callback for Stoker.

python train.py
torchrun --standalone --nproc-per-node=2 train.py
"""

import os

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stoker.integrations.lightning import Callback

VOCABULARY, LENGTH, STEPS = 128, 64, 3000


class Progressions(Dataset):
    """Sequences that begin anywhere and go on in equal steps, modulo the size of the vocabulary."""

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        start, stride = index % VOCABULARY, 1 + index % 7
        return (start + stride * torch.arange(LENGTH + 1)) % VOCABULARY


class Counter(LightningModule):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.layers = nn.GRU(64, 64, batch_first=True)
        self.head = nn.Linear(64, VOCABULARY)

    def training_step(self, batch):
        logits = self.head(self.layers(self.embedding(batch[:, :-1]))[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    seed_everything(1, verbose=False)
    stoker = Callback()
    trainer = Trainer(
        max_steps=STEPS,
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        accelerator="cpu",
        strategy="ddp",
        logger=False,
        callbacks=[stoker, ModelCheckpoint(dirpath="out", every_n_train_steps=60)],
    )
    batches = DataLoader(Progressions(), batch_size=8, shuffle=True)
    trainer.fit(Counter(), batches, ckpt_path=stoker.ckpt_path)


if __name__ == "__main__":
    main()
