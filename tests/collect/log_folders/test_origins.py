"""Who wrote a file, by its path: launchers and schedulers name files in their own ways, and a guess must name no rank."""

from runner.collect.log_folders.origins import Origin, origins_of


def origins(*paths: str) -> dict[str, Origin]:
    """Return the origins of paths below one folder, by their path within it."""
    found = origins_of(
        [f"/logs/{path}" for path in paths], {f"/logs/{path}": "/logs" for path in paths}
    )
    return {path.removeprefix("/logs/"): origin for path, origin in found.items()}


def ranks(*paths: str) -> list[int | None]:
    """Return the ranks of these paths."""
    return [origin.rank for origin in origins(*paths).values()]


def test_a_torchrun_folder_has_attempts_and_local_ranks() -> None:
    """On one node the local rank is the rank; with several nodes it is not."""
    paths = [f"run_ab/attempt_{a}/{r}/stderr.log" for a in (0, 1) for r in (0, 1)]
    found = list(origins(*paths).values())
    assert [one.rank for one in found] == [0, 1, 0, 1]
    assert [one.launch_name for one in found] == [
        "attempt 0",
        "attempt 0",
        "attempt 1",
        "attempt 1",
    ]
    several = [f"gpu-{n}/run_ab/attempt_0/{r}/stderr.log" for n in ("011", "012") for r in (0, 1)]
    found = list(origins(*several).values())
    assert [one.rank for one in found] == [None] * 4
    assert [one.local_rank for one in found] == [0, 1, 0, 1]
    assert [one.node for one in found] == ["gpu-011", "gpu-011", "gpu-012", "gpu-012"]


def test_slurm_names_hold_job_node_and_task() -> None:
    """%j-%n-%t: the last number that counts every task is the rank; jobs come one after the other."""
    paths = [f"{job}-{task // 2}-{task}.out" for job in (81234, 81301) for task in range(4)]
    found = list(origins(*paths).values())
    assert [one.rank for one in found] == [0, 1, 2, 3] * 2
    assert found[0].launch < found[-1].launch
    assert [one.launch_name for one in origins("slurm-12.out", "slurm-9.out").values()] == [
        "job 12",
        "job 9",
    ]
    assert origins("slurm-77_3.out")["slurm-77_3.out"].launch == (77, 3)


def test_words_before_a_number_say_what_it_is() -> None:
    """Ranks, nodes and local ranks are told apart; numbers of steps, epochs and adapters are none of them."""
    assert ranks("rank_0.log", "rank_10.err", "train.rank3.log.gz") == [0, 10, 3]
    assert ranks("epoch_0.log", "epoch_1.log") == [None, None]
    assert ranks("step-0.txt", "step-1.txt") == [None, None]
    assert ranks("lora_rank_8.log") == [8] or ranks("lora_8.log") == [None]
    assert ranks("worker-0a1b2c-01000000-4242.err", "worker-3.log") == [None, 3]
    assert ranks("task0/log.txt", "task1/log.txt") == [0, 1]
    repeated = origins("node0_rank0.log", "node0_rank1.log", "node1_rank0.log")
    assert [one.rank for one in repeated.values()] == [None] * 3
    assert [one.local_rank for one in repeated.values()] == [0, 1, 0]


def test_bare_numbers_are_ranks_only_if_they_count_from_zero() -> None:
    """Rotated logs and dates are none."""
    assert ranks("log_0.txt", "log_1.txt", "log_2.txt") == [0, 1, 2]
    assert ranks("log_1.txt", "log_2.txt") == [None, None]
    assert ranks("log_0.txt", "log_2.txt") == [None, None]
    assert ranks("train.log", "train.log.1", "train.log.2") == [None] * 3
    assert ranks("0.out", "0.err", "1.out", "1.err") == [0, 0, 1, 1]
    assert ranks("2026-01-01.log", "2026-01-02.log") == [None, None]


def test_parts_of_a_rotated_log_come_one_after_the_other() -> None:
    """The file without a number is the newest; of the kernel's log all parts are of one node."""
    found = origins(
        "train.log", "train.log.1", "train.log.2.gz", "other.log.1", "messages", "messages.1"
    )
    assert [one.launch for one in found.values()] == [(0,), (-1,), (-2,), (), (), ()]
    assert [one.rank for one in found.values()] == [None] * 6


def test_a_host_beside_a_jobs_name_is_the_node() -> None:
    """%x-%j-%N of Slurm."""
    found = origins("llama-81234-gpu017.out", "llama-81234-gpu018.out", "ip-10-0-3-7.log")
    assert [one.node for one in found.values()] == ["gpu017", "gpu018", "ip-10-0-3-7"]
    assert [one.rank for one in found.values()] == [None] * 3


def test_kernel_logs_and_pods_are_of_a_node_and_of_no_rank() -> None:
    """The host is in the name or in the folder; a pod has as many ranks as it has GPUs."""
    found = origins(
        "dmesg-gpu-017.txt",
        "gpu-018/dmesg",
        "nodes/n3/kern.log",
        "dmesg.cn0412",
        "default/llm-worker-0/logs.txt",
        "default/llm-worker-1/logs.txt",
        "pods/ns_llm-0_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/pytorch/0.log",
    )
    assert [one.node for one in found.values()] == [
        "gpu-017",
        "gpu-018",
        "n3",
        "cn0412",
        "llm-worker-0",
        "llm-worker-1",
        "llm-0",
    ]
    assert {one.rank for one in found.values()} == {None}
    assert [one.is_kernel for one in found.values()] == [True] * 4 + [False] * 3


def test_a_run_folder_of_stoker_has_attempts() -> None:
    """They are compared as numbers."""
    found = origins("attempts/1.9.0/rank0.err", "attempts/1.10.0/rank0.err")
    assert [one.launch for one in found.values()] == [(1, 9, 0), (1, 10, 0)]
    assert [one.rank for one in found.values()] == [0, 0]


def test_hostile_names_have_no_origin() -> None:
    """Numbers of any length and strange characters raise nothing."""
    long = "9" * 200
    assert ranks(f"rank{long}.log", f"{long}.log", "rank٣.log", "\udcff\n.log") == [None] * 4
