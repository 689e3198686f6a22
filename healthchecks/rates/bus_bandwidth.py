"""The bus bandwidth of collectives, by the formulas of nccl-tests (doc/PERFORMANCE.md)."""


def bus_factor(name: str, num_ranks: int) -> float:
    """Return by what nccl-tests multiplies size by time: what a link must carry, whatever the number of ranks."""
    return (2 if name == "all_reduce" else 1) * (num_ranks - 1) / num_ranks
