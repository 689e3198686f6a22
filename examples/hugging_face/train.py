"""Teach a small Llama to count: train it with transformers' Trainer on arithmetic progressions.

python train.py --output_dir=out --max_steps=200
torchrun --standalone --nproc-per-node=2 train.py --output_dir=out --max_steps=200
python train.py --output_dir=out --max_steps=200 --resume_from_checkpoint=out/checkpoint-100
"""

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.trainer import Trainer
from transformers.trainer_callback import TrainerCallback
from transformers.training_args import TrainingArguments


@dataclass
class ModelArguments:
    vocab_size: int = 128
    block_size: int = 64
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4


class Progressions(Dataset):
    """Sequences that begin anywhere and go on in equal steps, modulo the size of the vocabulary."""

    def __init__(self, model_args, size=20_000):
        self.vocab_size, self.block_size = model_args.vocab_size, model_args.block_size
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        start, stride = index % self.vocab_size, 1 + index % 7
        ids = (start + stride * torch.arange(self.block_size)) % self.vocab_size
        return {"input_ids": ids, "labels": ids}


class ArgumentsOutrankCheckpoint(TrainerCallback):
    """Trainer resumes with the learning rate of its checkpoint; with this, --learning_rate counts after a resume, too."""

    def on_train_begin(self, args, state, control, optimizer=None, lr_scheduler=None, **kwargs):
        scheduler = getattr(lr_scheduler, "scheduler", lr_scheduler)
        for index, group in enumerate(optimizer.param_groups):
            group["lr"] *= args.learning_rate / scheduler.base_lrs[index]
            group["initial_lr"] = scheduler.base_lrs[index] = args.learning_rate
        scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]


def main():
    model_args, args = HfArgumentParser(
        (ModelArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    set_seed(args.seed)
    config = LlamaConfig(
        vocab_size=model_args.vocab_size,
        hidden_size=model_args.hidden_size,
        intermediate_size=2 * model_args.hidden_size,
        num_hidden_layers=model_args.num_hidden_layers,
        num_attention_heads=model_args.num_attention_heads,
        num_key_value_heads=model_args.num_attention_heads,
        max_position_embeddings=model_args.block_size,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=args,
        train_dataset=Progressions(model_args),
        callbacks=[ArgumentsOutrankCheckpoint()],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
