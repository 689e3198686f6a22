"""Teach a small Llama to count: transformers' Trainer on arithmetic progressions, with the callback for Stoker.

python train.py --output_dir=out --max_steps=200
torchrun --standalone --nproc-per-node=2 train.py --output_dir=out --max_steps=200
"""

import torch
from torch.utils.data import Dataset
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.trainer import Trainer
from transformers.training_args import TrainingArguments

from stoker.integrations.huggingface import Callback

VOCABULARY, LENGTH = 128, 64


class Progressions(Dataset):
    """Sequences that begin anywhere and go on in equal steps, modulo the size of the vocabulary."""

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        start, stride = index % VOCABULARY, 1 + index % 7
        ids = (start + stride * torch.arange(LENGTH)) % VOCABULARY
        return {"input_ids": ids, "labels": ids}


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    set_seed(args.seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
    )
    stoker = Callback()
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=args,
        train_dataset=Progressions(),
        callbacks=[stoker],
    )
    trainer.train(resume_from_checkpoint=stoker.resume_from_checkpoint)


if __name__ == "__main__":
    main()
