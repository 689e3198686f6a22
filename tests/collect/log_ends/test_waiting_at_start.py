"""Logs that end while ranks wait for their peers, before any step: who is missing, and what is none of it."""

import pytest

from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from tests.collect.log_ends.test_log_ends import healthy, judge

BARRIER = (
    "I0511 09:28:{second}.417845 1398 distributed_c10d.py:337] Waiting in store based barrier to initialize process group for "
    "rank: {rank}, key: store_based_barrier_key:2 (world_size=16, worker_count=13, timeout=0:30:00)"
)
NCCL = (
    "n1:71:90 [0] NCCL INFO socketPollConnect: connect to 10.0.0.7<41213> returned Connection refused, retrying ({n}/34) after "
    "sleep for 100 msec"
)
# What a start ends with -> what the verdict says of those that are missing.
UNMET = {
    "torch": (
        [BARRIER.format(second=n, rank=rank) for n in (10, 20) for rank in (2, 7)],
        "3 of 16 missing",
    ),
    "newer torch": (
        [
            f"[rank2]:[I1126 16:00:0{n}] Waiting in store based barrier to initialize process group for {n}0.0 seconds, rank: 2, "
            "key: store_based_barrier_key:1 (world_size=4, num_workers_joined=3, timeout=0:10:00 error=x)"
            for n in (1, 2)
        ],
        "1 of 4 missing",
    ),
    "NCCL": ([NCCL.format(n=n) for n in (1, 2, 3)], ""),
    "Paddle": (["not ready endpoints:['10.0.0.3:6170']", "server not ready, wait 3 sec"] * 2, ""),
    "TensorFlow": (
        [
            f"2025-01-01 00:00:{n}.1: I master.cc:221] CreateSession still waiting for response from worker: "
            "/job:worker/replica:0/task:3"
            for n in (10, 20)
        ],
        "",
    ),
    "vLLM": (
        [
            f"INFO ray_utils.py:203] Waiting for creating a placement group of specs for {n} seconds. specs=[x]"
            for n in (10, 30)
        ],
        "",
    ),
    "Horovod": (["W stall_inspector.cc:105] Missing ranks: 3, 5"] * 2, "missing ranks 3, 5"),
    "an init container": (["waiting for master"] * 3, ""),
    "a launcher": (["waiting for all nodes to join: 3/4 nodes joined"] * 2, "1 of 4 missing"),
    "Kubernetes": (
        [
            f"{n}m  Warning  FailedScheduling  pod/train-3  0/12 nodes are available: 12 node(s) had untolerated taints."
            for n in (9, 4)
        ],
        "",
    ),
}
# What those that waited write once all are there.
MET = {
    "torch": "Rank 2: Completed store-based barrier for key:store_based_barrier_key:2 with 16 nodes.",
    "Kubernetes": "1m  Normal  Scheduled  pod/train-3  Successfully assigned train/train-3 to gpu-7",
    "a launcher": "all 4 nodes joined",
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return the engine with all patterns."""
    return engine_for()


@pytest.mark.parametrize("name", UNMET)
def test_a_start_that_ends_with_waiting_is_a_rendezvous_that_failed(
    name: str, engine: Engine
) -> None:
    """Lines in which one rank waits for its peers again and again, and no step: the verdict says who is missing."""
    lines, missing = UNMET[name]
    verdicts, end = judge("loading the configuration\n" + "\n".join(lines) + "\n", engine)
    assert [one.cause.fault for one in verdicts] == ["rendezvous"], end
    assert verdicts[0].evidence[0].text.startswith(missing)
    assert missing or "missing:" not in verdicts[0].evidence[0].text


@pytest.mark.parametrize("name", UNMET)
def test_waiting_that_steps_follow_is_no_incident(name: str, engine: Engine) -> None:
    """Nor is a rank that waited once, or one that writes that its peers came."""
    lines, _ = UNMET[name]
    assert not judge("\n".join(lines) + "\n" + healthy("megatron"), engine)[0]
    once = list(dict.fromkeys(lines))[:1]
    assert not judge("\n".join(once) + "\n", engine)[0]
    if name in MET:
        assert not judge("\n".join([*lines, MET[name]]) + "\n", engine)[0]


def test_a_pod_without_room_is_taken_back_until_it_has_some(engine: Engine) -> None:
    """The scheduler had no node for it; once it has one, or steps follow, nothing is wrong."""
    refused = "9m  Warning  FailedScheduling  pod/train-3  0/12 nodes are available: 2 were unschedulable, 10 Insufficient {}."
    for resource in ("cpu", "memory", "nvidia.com/gpu"):
        line = refused.format(resource) + "\n"
        verdicts, _ = judge(line, engine)
        assert [one.cause.fault for one in verdicts] == ["preemption"]
        assert not judge(f"{line}{MET['Kubernetes']}\n", engine)[0]
        assert not judge(line + healthy("megatron"), engine)[0]
        other = MET["Kubernetes"].replace("train-3", "train-0")
        assert judge(f"{line}{other}\n", engine)[0]
    described = "Warning  FailedScheduling  9m  default-scheduler  0/12 nodes are available: 12 Insufficient cpu.\n"
    assigned = (
        "Normal  Scheduled  2m  default-scheduler  Successfully assigned train/train-3 to gpu-7\n"
    )
    assert judge(described, engine)[0]
    assert not judge(described + assigned, engine)[0]


def test_each_rank_that_waits_once_is_a_start_under_way(engine: Engine) -> None:
    """Sixteen ranks that wrote one line each have waited for a moment only."""
    lines = [BARRIER.format(second=10, rank=rank) for rank in range(16)]
    assert not judge("\n".join(lines) + "\n", engine)[0]


def test_waiting_for_the_end_of_something_is_no_start(engine: Engine) -> None:
    """A program that waits for its workers to finish has met them."""
    lines = [f"waiting for worker {n} to finish" for n in range(4)]
    assert not judge("\n".join(lines) + "\n", engine)[0]
