"""Waits: the functions in which ranks wait for others. Whoever of a gang that hangs is in none of them is who is missed.

A row holds for a file as a stack names it and for the functions that block in it. Of rows whose package is installed a test
finds each function there (`tests/decide/test_hang_dossier.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# "all": everybody of a group must come. "peer": one other rank must; which one differs from rank to rank.
Wait = Literal["all", "peer"]


# stacks: the ranks of a large gang stand in few places, and each is asked about; chosen
MAX_REMEMBERED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Functions of one file that wait."""

    wait: Wait
    file: str
    functions: tuple[str, ...]


_COLLECTIVES = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)
_PEERS = ("send", "recv", "batch_isend_irecv")

WAITS: tuple[Waits, ...] = (
    Waits(
        wait="all",
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
    Waits(
        wait="peer",
        file="torch/distributed/distributed_c10d.py",
        functions=(*_PEERS, "send_object_list", "recv_object_list"),
    ),
    Waits(
        wait="all", file="torch/distributed/_functional_collectives.py", functions=("wait_tensor",)
    ),
    Waits(wait="all", file="torch/distributed/rendezvous.py", functions=("_create_c10d_store",)),
    Waits(wait="peer", file="deepspeed/runtime/pipe/p2p.py", functions=("wait",)),
    # Megatron-LM: what it asked for asynchronously is waited for here, in C++.
    Waits(
        wait="peer",
        file="megatron/core/pipeline_parallel/p2p_communication.py",
        functions=("_communicate", "_communicate_shapes"),
    ),
    Waits(
        wait="all",
        file="megatron/core/distributed/param_and_grad_buffer.py",
        functions=("finish_grad_sync", "finish_param_sync"),
    ),
)
# Functions in which a rank may wait for others in C++ as well as work for itself: they prove nothing either way.
PERHAPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torch/autograd/graph.py", ("_engine_run_backward",)),
    ("torch/cuda/__init__.py", ("synchronize",)),
    ("torch/cuda/streams.py", ("synchronize",)),
)
# What stands between such a function and the C++ that blocks.
TRANSPARENT = ("torch/distributed/c10d_logger.py", "torch/_ops.py")
# Frames in these are not the user's own: whose call it was stands further out.
LIBRARIES = ("torch/", "deepspeed/", "megatron/core/")


@lru_cache(MAX_REMEMBERED)
def wait_of(frames: tuple[str, ...]) -> Wait | None:
    """Say whether the innermost of these frames (`file:function:line`) waits for other ranks, and for whom."""
    file, function = split(blocking_of(frames))
    return next(
        (row.wait for row in WAITS if function in row.functions and file.endswith(row.file)), None
    )


@lru_cache(MAX_REMEMBERED)
def may_wait(frames: tuple[str, ...]) -> bool:
    """Whether the innermost of these frames waits for other ranks, or may do so."""
    file, function = split(blocking_of(frames))
    is_open = any(function in names and file.endswith(known) for known, names in PERHAPS)
    return is_open or wait_of(frames) is not None


@lru_cache(MAX_REMEMBERED)
def blocking_of(frames: tuple[str, ...]) -> str:
    """Return the innermost frame but for what stands between it and the C++; "" if there is none."""
    return next((at for at in frames if not split(at)[0].endswith(TRANSPARENT)), "")


@lru_cache(MAX_REMEMBERED)
def caller_of(frames: tuple[str, ...]) -> str:
    """Return the innermost frame that is no library's; "" when it is too far out to be known."""
    return next((frame for frame in frames if not _is_library(split(frame)[0])), "")


def split(frame: str) -> tuple[str, str]:
    """Return the file of a frame and its function, by its last name: methods are told with their class."""
    file, _, rest = frame.partition(":")
    return file, rest.rpartition(":")[0].rpartition(".")[2]


def _is_library(file: str) -> bool:
    return any(file.startswith(name) or f"/{name}" in file for name in LIBRARIES)
