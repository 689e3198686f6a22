"""The adapters, in the order in which they are asked: what has a name of its own before what goes by its files."""

from runner.checkpoints.formats.adapter import Adapter
from runner.checkpoints.formats.deepspeed import DeepSpeed
from runner.checkpoints.formats.hugging_face import HuggingFace
from runner.checkpoints.formats.lightning_ckpt import Lightning
from runner.checkpoints.formats.megatron import Megatron
from runner.checkpoints.formats.torch_distributed import TorchDistributed
from runner.checkpoints.formats.torchtitan import Torchtitan

ADAPTERS: tuple[Adapter, ...] = (
    *(Megatron(), Torchtitan(), Lightning(), HuggingFace()),
    *(DeepSpeed(), TorchDistributed()),
)
BY_NAME = {adapter.name: adapter for adapter in ADAPTERS}
# No script saves anything that is to be sealed from outside.
NONE = "none"


def adapters_for(name: str) -> tuple[Adapter, ...]:
    """Return the adapters that a run.yaml's `checkpoint_format` allows; "" all. Raises KeyError for an unknown name."""
    if name == NONE:
        return ()
    return (BY_NAME[name],) if name else ADAPTERS
