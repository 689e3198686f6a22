"""collectives: ranks on this node exchange data, and all of it is right. Each GPU has a rank, by NCCL or RCCL; else they use gloo.

All-reduce, all-gather, reduce-scatter, all-to-all: every value of each result is compared with the one that arithmetic gives. The
bus bandwidth, by the formulas of nccl-tests, is there to be compared with peers; it counts from the arrival of the last rank, so
that a late rank does not make a link look slow. A rank that arrives late again and again fails. The probe of the same name is
one rank.
"""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_most
from healthchecks.probe import CPU, Answer, num_threads, run_probes
from healthchecks.rates.bus_bandwidth import bus_factor
from healthchecks.rates.busyness import (
    BUSY,
    MOST_FOREIGN_PERCENT,
    percent_between,
    read_busyness,
)

NAME = "collectives"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
# Ranks on a CPU: one for each processor within these. Chosen, not measured.
LEAST_RANKS, MOST_CPU_RANKS = 2, 4
# Of a message, as nccl-tests counts it. Chosen, not measured.
GPU_BYTES, CPU_BYTES = 256 << 20, 8 << 20
# For one operation, and for all ranks to meet; chosen: less than the deadline of the probes, so that the ranks that waited report.
TIMEOUT_SECONDS = 15.0


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Run all ranks at the same time."""
    before = read_busyness()
    # A file that is in no folder: not even a kill leaves it behind.
    store = os.memfd_create("store")
    try:
        ranks = ask(node, f"/proc/{os.getpid()}/fd/{store}")
        answers = run_probes(NAME, node, ranks)
    finally:
        os.close(store)
    percent, measure = percent_between(before, read_busyness())
    return Verdict(check=NAME, evidence=tuple(judge_ranks(answers, percent, measure, judge)))


def ask(node: NodeFacts, store: str) -> list[dict[str, Any]]:
    """Return what each rank is asked. Collectives among GPUs need two of them."""
    has_gpus = node.num_gpus >= LEAST_RANKS
    world = node.num_gpus if has_gpus else max(LEAST_RANKS, min(MOST_CPU_RANKS, num_threads()))
    common = {
        "world": world,
        "store": store,
        "backend": "nccl" if has_gpus else "gloo",
        "bytes": GPU_BYTES if has_gpus else CPU_BYTES,
        "ops": OPERATIONS,
        "timeout_seconds": TIMEOUT_SECONDS,
    }
    return [
        {**common, "rank": rank, "device": f"cuda:{rank}" if has_gpus else CPU}
        for rank in range(world)
    ]


def judge_ranks(
    answers: Sequence[Answer], percent: float, measure: str, judge: Judge
) -> Iterator[Evidence]:
    """Judge what all ranks of a node found, while other programs took so many percent of it."""
    reasons = [why for rank, answer in enumerate(answers) if (why := _unfinished(rank, answer))]
    if reasons:
        yield judge("collectives.wrong_words", None, note="; ".join(reasons))
        return
    ranks = [answer.numbers["ops"] for answer in answers]
    foreign = judge("collectives.foreign_cpu", percent, note=measure)
    why = ""
    if foreign.limit is not None and percent > foreign.limit:
        why = f"{BUSY}: {measure}, {percent:.3g} percent"
        foreign = judge("collectives.foreign_cpu", None, note=why, is_busy=True)
    yield foreign
    for name in OPERATIONS:
        found = [rank[name] for rank in ranks]
        yield _wrong_words(name, found, judge)
        yield _bandwidth(name, found, why)
    for rank in range(len(ranks)):
        lag = statistics.median(lag for name in OPERATIONS for lag in lags(ranks, name, rank))
        value = None if why else max(0.0, lag)
        subject = f"rank {rank}"
        yield judge("collectives.lag_seconds", value, subject=subject, note=why, is_busy=bool(why))


def lags(ranks: Sequence[Mapping[str, Any]], name: str, rank: int) -> Iterator[float]:
    """Yield for each time that an operation ran by how much a rank arrived later than the median of the others."""
    for arrivals in zip(*(each[name]["arrivals"] for each in ranks), strict=True):
        others = [arrived for other, arrived in enumerate(arrivals) if other != rank]
        yield arrivals[rank] - statistics.median(others)


def _unfinished(rank: int, answer: Answer) -> str:
    """Return how far a rank came that did not come to the end; "" for one that did."""
    if answer.trouble:
        return f"rank {rank}: {answer.trouble}"
    error, at = answer.numbers.get("error"), answer.numbers.get("at")
    if error or at != "the end" or set(answer.numbers["ops"]) != set(OPERATIONS):
        return f"rank {rank} came to {at}: {error or 'half an answer'}"
    return ""


def _wrong_words(name: str, found: Sequence[Mapping[str, Any]], judge: Judge) -> Evidence:
    wrong = [int(each["wrong_words"]) for each in found]
    ranks = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(wrong) if count)
    return judge("collectives.wrong_words", sum(wrong), subject=name, note=ranks)


def _bandwidth(name: str, found: Sequence[Mapping[str, Any]], why: str) -> Evidence:
    times = [
        max(ends) - max(arrivals)
        for arrivals, ends in zip(
            zip(*(each["arrivals"] for each in found), strict=True),
            zip(*(each["ends"] for each in found), strict=True),
            strict=True,
        )
    ]
    size, factor = float(found[0]["size"]), bus_factor(name, len(found))
    return Evidence(
        name="collectives.bus_gb_per_second",
        value=None if why else size * factor / statistics.median(times) / 1e9,
        unit="GB/s",
        subject=name,
        note=why or f"{len(found)} ranks, {size / (1 << 20):g} MiB, {len(times)} times",
        better="higher",
    )


CHECK = HealthCheck(
    name=NAME,
    position=250,
    run=check,
    needs=("num_gpus", "python"),
    seconds={"quick": 8.0, "standard": 15.0, "deep": 60.0},
    limits={
        "collectives.foreign_cpu": at_most(MOST_FOREIGN_PERCENT, "percent", CHOSEN, most=100),
        "collectives.wrong_words": at_most(0, "words", DEFINED, most=0),
        "collectives.lag_seconds": at_most(0.1, "seconds", CHOSEN, most=60, least=1e-6),
    },
)
