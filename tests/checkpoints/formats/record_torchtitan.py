"""Has torchtitan's CheckpointManager save and resume on a CPU: `python -m tests.checkpoints.formats.record_torchtitan FOLDER`.

It needs torchtitan in an environment of its own (`pip install --no-deps torchtitan==0.3.0 tyro docstring_parser typeguard
spmd_types==0.2.3` beside torch); what it wrote lies in `recorded`, named after package and version. One rank saves as it trains and
prunes; two ranks, with FSDP, save in the background. Their last saves are what torchtitan makes of them: the model alone, and an
export. A save that torchtitan has pruned is put back from Stoker's copy, and resumed from.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from runner.act.checkpoints import free_port
from runner.checkpoints.script_saves.adoption import seal_copy
from runner.checkpoints.script_saves.resume import resume_arguments

NAME = "torchtitan-0.3.0"
INTERVAL, LAST = 10, 35
SAVES = "checkpoint"


class Counter:
    """State of the data, or of the training, as the manager saves it. `values`: by name."""

    def __init__(self, name: str) -> None:
        self.name, self.value = name, 0

    def state_dict(self) -> dict[str, int]:
        """Return the count."""
        return {self.name: self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take the count up."""
        self.value = state[self.name]


class Training:
    """A tiny model with torchtitan's optimizer, schedule and checkpoint manager."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        torch: Any = import_module("torch")
        fsdp: Any = import_module("torch.distributed.fsdp")
        optimizers: Any = import_module("torchtitan.components.optimizer")
        checkpoint: Any = import_module("torchtitan.components.checkpoint")
        adapters: Any = import_module("torchtitan.protocols.state_dict_adapter")
        self.model = torch.nn.Linear(2, 2, bias=False)
        if torch.distributed.get_world_size() > 1:
            fsdp.fully_shard(self.model)
        config = optimizers.default_adamw(lr=1e-3)
        config.implementation = "for-loop"
        self.optimizer = optimizers.OptimizersContainer(config, model_parts=[self.model])
        schedule = optimizers.LRSchedulersContainer.Config(warmup_steps=2)
        self.schedule = schedule.build(optimizers=self.optimizer, training_steps=LAST)
        self.state, self.data = Counter("step"), Counter("num_batches")
        plain = type(
            "Plain",
            (adapters.StateDictAdapter,),
            {"to_hf": lambda _, state: state, "from_hf": lambda _, state: state},
        )
        self.manager = checkpoint.CheckpointManager(
            checkpoint.CheckpointManager.Config(enable=True, interval=INTERVAL, **settings),
            dataloader=self.data,
            model_parts=[self.model],
            optimizers=self.optimizer,
            lr_schedulers=self.schedule,
            states={"train_state": self.state},
            sd_adapter=plain(None, None),
            base_folder=str(folder),
        )
        self.batch = torch.ones(2, 2)

    def train(self, until: int) -> None:
        """Make steps, and save as torchtitan's own loop does."""
        while self.state.value < until:
            self.model(self.batch).sum().backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            self.state.value += 1
            self.data.value += 1
            self.manager.save(self.state.value, last_step=self.state.value == LAST)
        self.manager.maybe_wait_for_saving()


def one_rank(folder: Path) -> None:
    """Save and prune; in a copy of the folder, put back what was pruned, and resume from it."""
    training = Training(folder, keep_latest_k=2)
    training.train(INTERVAL)
    with tempfile.TemporaryDirectory() as name:
        other = Path(name)
        sealed = seal_copy(folder / SAVES / f"step-{INTERVAL}", other / "sealed", "titan")
        training.train(LAST)
        training.manager.close()
        shutil.copytree(folder / SAVES, other / SAVES)
        original, later = (other / SAVES / f"step-{step}" for step in (INTERVAL, 2 * INTERVAL))
        assert not original.exists(), "torchtitan has not pruned"
        arguments = resume_arguments(sealed, other / SAVES, may_restore=True)
        assert arguments == ("--checkpoint.load_step", str(INTERVAL)), arguments
        again = Training(other, keep_latest_k=2)
        assert again.manager.load(step=INTERVAL)
        assert (again.state.value, again.data.value) == (INTERVAL, INTERVAL)
        # It prunes by number: what it saves after going back is deleted at once, for the sake of later steps from before.
        again.train(2 * INTERVAL)
        again.manager.close()
        assert not original.exists()
        assert not later.exists()


def two_ranks(folder: Path) -> None:
    """Save in the background, and export at the end."""
    training = Training(folder, keep_latest_k=2, async_mode="async", last_save_in_hf=True)
    training.train(LAST)
    training.manager.close()


def main() -> None:
    """Start the ranks of both runs, one after the other."""
    target = Path(sys.argv[1])
    for name, num_ranks in ((NAME, 1), (f"{NAME}-async", 2)):
        port = str(free_port("127.0.0.1"))
        common = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(target / name), "rank"],
                env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(num_ranks)
        ]
        assert [rank.wait() for rank in ranks] == [0] * num_ranks
        for save in (target / name / SAVES).iterdir():
            save.rename(target / name / save.name)
        (target / name / SAVES).rmdir()


def run_rank() -> None:
    """Be one rank."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    torch.distributed.init_process_group("gloo")
    run = one_rank if torch.distributed.get_world_size() == 1 else two_ranks
    run(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_rank() if sys.argv[2:] else main()
