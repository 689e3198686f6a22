"""Has megatron.core write a checkpoint on a CPU: `python -m tests.checkpoints.formats.record_megatron FOLDER`.

It needs megatron-core in an environment of its own; what it wrote lies in `recorded`, named after package and version. One rank,
with a weight and a moment of its optimizer, as Megatron-LM lays them out for `torch_dist`.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from runner.act.checkpoints import free_port

STEP = 10


def main() -> None:
    """Save once, and write the tracker."""
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(rank, MASTER_PORT=str(free_port("127.0.0.1")))
    torch.distributed.init_process_group("gloo")
    import_module("megatron.core.parallel_state").initialize_model_parallel(1, 1)
    sharded: Any = import_module("megatron.core.dist_checkpointing").ShardedTensor
    weight = torch.randn(4, 4)
    state = {
        "model": {"weight": sharded.from_rank_offsets("weight", weight)},
        "optimizer": {"exp_avg": sharded.from_rank_offsets("exp_avg", weight * 0)},
        "iteration": STEP,
        "checkpoint_version": 3.0,
    }
    target = Path(sys.argv[1])
    folder = target / f"iter_{STEP:07d}"
    folder.mkdir(parents=True)
    import_module("megatron.core.dist_checkpointing").save(state, str(folder))
    (target / "latest_checkpointed_iteration.txt").write_text(str(STEP))


torch: Any = import_module("torch")
# There is no GPU to wait for; the processes that write import this module, too.
torch.cuda.synchronize = torch.cuda.current_device = lambda *_: None

if __name__ == "__main__":
    main()
