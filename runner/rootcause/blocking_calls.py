"""Functions in which ranks block until others come. In a gang that hangs, a rank that is in none of them is missing.

A row names a file as stacks do, and the functions that block in it. For packages that are installed, a test finds each
function in its source (`tests/rootcause/test_hang_analysis.py`).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# "all": every rank of a group must come. "peer": one other rank must; which one differs from rank to rank.
AwaitedPeers = Literal["all", "peer"]

# Stacks whose answers are cached: ranks of a large gang share a few of them; chosen.
MAX_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class BlockingCalls:
    """Functions of one file that block, or (`peers` None) may wait in C++ as well as work, which proves nothing either way."""

    peers: AwaitedPeers | None
    file: str
    functions: tuple[str, ...]


# fmt: off
_COLLECTIVES = (
    "_new_process_group_helper", "_store_based_barrier", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced",
    "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "init_process_group", "monitored_barrier", "new_group", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "split_group",
)
# fmt: on
_PEERS = ("send", "recv", "batch_isend_irecv", "send_object_list", "recv_object_list")
_C10D = "torch/distributed/distributed_c10d.py"

BLOCKING_CALLS = (
    BlockingCalls("all", _C10D, _COLLECTIVES),
    BlockingCalls("peer", _C10D, _PEERS),
    BlockingCalls("all", "torch/distributed/_functional_collectives.py", ("wait_tensor",)),
    BlockingCalls("all", "torch/distributed/rendezvous.py", ("_create_c10d_store",)),
    BlockingCalls("peer", "deepspeed/runtime/pipe/p2p.py", ("wait",)),
    # Megatron-LM waits here, in C++, for what it started asynchronously.
    BlockingCalls(
        "peer",
        "megatron/core/pipeline_parallel/p2p_communication.py",
        ("_communicate", "_communicate_shapes"),
    ),
    BlockingCalls(
        "all",
        "megatron/core/distributed/param_and_grad_buffer.py",
        ("finish_grad_sync", "finish_param_sync"),
    ),
    BlockingCalls(None, "torch/autograd/graph.py", ("_engine_run_backward",)),
    BlockingCalls(None, "torch/cuda/__init__.py", ("synchronize",)),
    BlockingCalls(None, "torch/cuda/streams.py", ("synchronize",)),
)
# Frames between a function that blocks and its C++.
TRANSPARENT = ("torch/distributed/c10d_logger.py", "torch/_ops.py")
# Frames in these are not user code.
LIBRARIES = ("torch/", "deepspeed/", "megatron/core/")


@lru_cache(MAX_REMEMBERED)
def _row_of(frames: tuple[str, ...]) -> BlockingCalls | None:
    file, function = file_and_function(blocking_frame(frames))
    rows = (row for row in BLOCKING_CALLS if function in row.functions)
    return next((row for row in rows if file.endswith(row.file)), None)


def peers_awaited(frames: tuple[str, ...]) -> AwaitedPeers | None:
    """Return which other ranks the innermost of these frames (`file:function:line`) waits for; None: for none."""
    row = _row_of(frames)
    return row.peers if row is not None else None


def may_wait(frames: tuple[str, ...]) -> bool:
    """Whether the innermost of these frames waits for other ranks, or may do so."""
    return _row_of(frames) is not None


@lru_cache(MAX_REMEMBERED)
def blocking_frame(frames: tuple[str, ...]) -> str:
    """Return the innermost frame outside `TRANSPARENT`; "" if there is none."""
    return next((at for at in frames if not file_and_function(at)[0].endswith(TRANSPARENT)), "")


@lru_cache(MAX_REMEMBERED)
def user_frame(frames: tuple[str, ...]) -> str:
    """Return the innermost frame of user code; "" when the stack was cut before it."""
    return next((frame for frame in frames if not _is_library(file_and_function(frame)[0])), "")


def file_and_function(frame: str) -> tuple[str, str]:
    """Return the file of a frame and its function, without the class of a method."""
    file, _, rest = frame.partition(":")
    return file, rest.rpartition(":")[0].rpartition(".")[2]


def _is_library(file: str) -> bool:
    return any(file.startswith(name) or f"/{name}" in file for name in LIBRARIES)
