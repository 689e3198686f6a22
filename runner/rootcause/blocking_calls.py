"""Functions in which ranks block until others come. In a gang that hangs, a rank that is in none of them is missing.

A row names a file as stacks do, and the functions that block in it. For packages that are installed, a test finds each
function in its source (`tests/decide/test_hang_analysis.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# "all": every rank of a group must come. "peer": one other rank must; which one differs from rank to rank.
AwaitedPeers = Literal["all", "peer"]

# Stacks whose answers are cached: ranks of a large gang share a few of them; chosen.
MAX_REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingCalls:
    """Functions of one file that block."""

    peers: AwaitedPeers
    file: str
    functions: tuple[str, ...]


# fmt: off
_COLLECTIVES = (
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced",
    "all_gather_object", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "gather", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter",
)
# fmt: on
_PEERS = ("send", "recv", "batch_isend_irecv")

BLOCKING_CALLS: tuple[BlockingCalls, ...] = (
    BlockingCalls(
        peers="all",
        file="torch/distributed/distributed_c10d.py",
        functions=(
            *_COLLECTIVES,
            "all_gather_into_tensor",
            "gather_object",
            "scatter_object_list",
            "init_process_group",
            "new_group",
            "split_group",
            "_new_process_group_helper",
            "_store_based_barrier",
        ),
    ),
    BlockingCalls(
        peers="peer",
        file="torch/distributed/distributed_c10d.py",
        functions=(*_PEERS, "send_object_list", "recv_object_list"),
    ),
    BlockingCalls(
        peers="all", file="torch/distributed/_functional_collectives.py", functions=("wait_tensor",)
    ),
    BlockingCalls(
        peers="all", file="torch/distributed/rendezvous.py", functions=("_create_c10d_store",)
    ),
    BlockingCalls(peers="peer", file="deepspeed/runtime/pipe/p2p.py", functions=("wait",)),
    # Megatron-LM waits here, in C++, for what it started asynchronously.
    BlockingCalls(
        peers="peer",
        file="megatron/core/pipeline_parallel/p2p_communication.py",
        functions=("_communicate", "_communicate_shapes"),
    ),
    BlockingCalls(
        peers="all",
        file="megatron/core/distributed/param_and_grad_buffer.py",
        functions=("finish_grad_sync", "finish_param_sync"),
    ),
)
# Functions in which a rank may wait for others in C++ as well as work: they prove nothing either way.
MAYBE_BLOCKING: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torch/autograd/graph.py", ("_engine_run_backward",)),
    ("torch/cuda/__init__.py", ("synchronize",)),
    ("torch/cuda/streams.py", ("synchronize",)),
)
# Frames between such a function and the C++ that blocks.
TRANSPARENT = ("torch/distributed/c10d_logger.py", "torch/_ops.py")
# Frames in these are not user code.
LIBRARIES = ("torch/", "deepspeed/", "megatron/core/")


@lru_cache(MAX_REMEMBERED)
def peers_awaited(frames: tuple[str, ...]) -> AwaitedPeers | None:
    """Return which other ranks the innermost of these frames (`file:function:line`) waits for; None: for none."""
    file, function = file_and_function(blocking_frame(frames))
    return next(
        (
            row.peers
            for row in BLOCKING_CALLS
            if function in row.functions and file.endswith(row.file)
        ),
        None,
    )


@lru_cache(MAX_REMEMBERED)
def may_wait(frames: tuple[str, ...]) -> bool:
    """Whether the innermost of these frames waits for other ranks, or may do so."""
    file, function = file_and_function(blocking_frame(frames))
    is_maybe = any(function in names and file.endswith(known) for known, names in MAYBE_BLOCKING)
    return is_maybe or peers_awaited(frames) is not None


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
