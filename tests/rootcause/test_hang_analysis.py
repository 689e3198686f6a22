"""Hang analysis names the missing ranks of a gang by the stacks of all ranks, and names none when the stacks do not show them."""

import ast
import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.agent.hangs.stack_dumps import MAX_FILE_BYTES
from runner.agent.hangs.stack_summary import parse_stack, read_stacks
from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.rank_stacks import (
    MAX_COLLECTIVES,
    MAX_RANK_STACK,
    MAX_RANK_STACKS,
    Collective,
    RankStack,
)
from runner.facts.wire import MAX_MESSAGE_BYTES, decode, encode
from runner.rootcause.blocking_calls import BLOCKING_CALLS
from runner.rootcause.hang_analysis import MissingRanks, find_missing_ranks

ATTEMPT = AttemptId(1, 1, 0)
C10D = "torch/distributed/distributed_c10d.py"
LOGGER = "torch/distributed/c10d_logger.py:wrapper:83"
OUTER = "train.py:main:9"
# Stacks of ranks, the innermost frame first.
REDUCE = (f"{C10D}:all_reduce:3252", LOGGER, "loop.py:step:70", OUTER)
REDUCE_LATER = (f"{C10D}:all_reduce:3252", LOGGER, "loop.py:step:95", OUTER)
BARRIER = (f"{C10D}:barrier:5350", LOGGER, "loop.py:save:120", OUTER)
SEND = (f"{C10D}:send:2750", LOGGER, "pipe.py:forward:31", OUTER)
RECV = (f"{C10D}:recv:2800", LOGGER, "pipe.py:forward:25", OUTER)
P2P = ("deepspeed/runtime/pipe/p2p.py:wait:90", "deepspeed/runtime/pipe/engine.py:_exec:9", OUTER)
WORK = ("loop.py:step:77", OUTER)
LOADER = (
    "/usr/lib/python3.11/queue.py:get:180",
    "torch/utils/data/dataloader.py:_get:1200",
    "loop.py:step:60",
    OUTER,
)
BACKWARD = (
    "torch/autograd/graph.py:_engine_run_backward:869",
    "torch/_tensor.py:backward:630",
    "loop.py:step:68",
)
FINISH = (
    "megatron/core/distributed/param_and_grad_buffer.py:finish_grad_sync:400",
    "loop.py:step:66",
)
CHECKS = ("megatron/core/distributed/param_and_grad_buffer.py:check_grads:200", *FINISH)

# Frames, or a state without any.
Where = tuple[str, ...] | str


def judge(
    places: Mapping[int, Where], *, nodes: int = 2, size: int = 4, pipeline: int = 1
) -> MissingRanks | None:
    """Judge ranks, each with its stack: 8 on two nodes by default."""
    rank_stacks = [
        RankStack(ranks=(rank,), state=at, wchan="nfs_wait")
        if isinstance(at, str)
        else RankStack(ranks=(rank,), state="S", wchan="futex_do_wait", frames=at)
        for rank, at in places.items()
    ]
    names = [f"n{number}" for number in range(1, nodes + 1)]
    return find_missing_ranks(rank_stacks, nodes=names, ranks_per_node=size, pipeline=pipeline)


def all_except(others: Where, apart: Mapping[int, Where], num: int = 8) -> dict[int, Where]:
    """Give all ranks the same stack, except some."""
    return {rank: apart.get(rank, others) for rank in range(num)}


@pytest.mark.parametrize(
    ("places", "who"),
    [
        (all_except(REDUCE, {3: WORK}), ("n1", 3)),
        (all_except(REDUCE, {5: LOADER}), ("n2", 5)),
        (
            all_except(REDUCE, {0: REDUCE_LATER, 1: BARRIER, 6: WORK}),
            ("n2", 6),
            # Waiters at different lines.
        ),
        # Several, of one node.
        (all_except(REDUCE, {4: WORK, 5: LOADER, 6: WORK}), ("n2", None)),
        # Only the state is readable.
        (all_except(REDUCE, {6: "D"}), ("n2", 6)),
        (all_except(REDUCE, {6: "T"}), ("n2", 6)),
        # Below the same function, without waiting in it.
        (all_except(FINISH, {1: CHECKS}), ("n1", 1)),
        # The rank skipped one collective, and waits in the next.
        (all_except(REDUCE, {2: BARRIER}), ("n1", 2)),
        (all_except(REDUCE, {2: REDUCE_LATER}), ("n1", 2)),
        (
            all_except(BACKWARD, {7: WORK}),
            ("n2", 7),
            # Waiting in C++, below a function that may also work.
        ),
        (all_except(BACKWARD, {7: REDUCE}), ("n2", 7)),
        (all_except(P2P, {2: WORK}), ("n1", 2)),
        (
            {**all_except(RECV, {0: SEND, 3: REDUCE}), 5: WORK},
            ("n2", 5),
            # Stages wait in different places.
        ),
        (
            {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: REDUCE, 4: REDUCE, 5: WORK},
            ("n2", 5),
            # Two not read.
        ),
    ],
)
def test_the_missing_ranks_are_named(places: dict[int, Where], who: tuple[str, int | None]) -> None:
    """Named are the one rank, or the ranks of one node, that do not wait with the others."""
    verdict = judge(places)
    assert verdict is not None
    assert (verdict.node, verdict.rank) == who, verdict


@pytest.mark.parametrize(
    "places",
    [
        all_except(REDUCE, {}),
        all_except(WORK, {}),
        # An even split.
        all_except(REDUCE, dict.fromkeys(range(4, 8), WORK)),
        all_except(REDUCE, dict.fromkeys(range(4), BARRIER)),
        # Of two nodes.
        all_except(REDUCE, {1: WORK, 6: WORK}),
        all_except(REDUCE, dict.fromkeys(range(5), ("loop.py:step:1",))),
        all_except(
            LOADER,
            {2: REDUCE},
            # Storage does not answer. One rank has read already: it waits for the others.
        ),
        # A pipeline: the first stage always has another stack.
        all_except(RECV, {0: SEND}),
        all_except(RECV, {7: REDUCE}),
        all_except(RECV, {0: P2P, 7: BACKWARD, 1: WORK}),
        {rank: (f"{rank}.py:a:1", OUTER) for rank in range(8)},
        # Of six nothing is known.
        {0: REDUCE, 1: WORK},
        {0: REDUCE, 1: REDUCE, 2: REDUCE, 3: REDUCE},
        {0: WORK},
    ],
)
def test_no_rank_is_named_when_the_stacks_do_not_show_it(places: dict[int, Where]) -> None:
    """Equal stacks, an even split, ranks of different nodes, pipelines, and gangs with too few stacks name no rank."""
    verdict = judge(places)
    assert verdict is not None
    assert (verdict.node, verdict.rank) == (None, None), verdict
    assert "no rank is named" in verdict.evidence or "does not show" in verdict.evidence


def test_a_gang_without_readable_stacks_gives_no_verdict() -> None:
    """Unreadable stacks are no evidence; a rank outside the gang is none either."""
    assert judge(dict.fromkeys(range(8), "S")) is None
    assert judge({8: WORK, -1: REDUCE}) is None
    assert find_missing_ranks([], nodes=["n1"], ranks_per_node=1) is None


def test_a_rank_is_compared_with_the_ranks_of_its_own_stage() -> None:
    """Stages that wait in collectives of their own differ as a matter of course; a rank does not normally differ from its stage."""
    last: dict[int, Where] = {6: BARRIER, 7: BARRIER}
    assert [judge(all_except(REDUCE, last), pipeline=n).node for n in (1, 4)] == ["n2", None]  # type: ignore[union-attr]
    verdict = judge(
        {**all_except(REDUCE, {4: BARRIER, 5: BARRIER, 6: BARRIER, 7: REDUCE_LATER})}, pipeline=2
    )
    assert verdict is not None
    assert (verdict.node, verdict.rank) == ("n2", 7)


def test_two_ranks_of_which_one_waits() -> None:
    """A pair is no majority, but the waiting rank is present; of two ranks in different calls none is named."""
    one, two = judge({0: WORK, 1: REDUCE}, size=1), judge({0: BARRIER, 1: REDUCE}, size=1)
    assert one is not None
    assert two is not None
    assert (one.node, one.rank, two.node) == ("n1", 0, None)
    assert one.evidence == (
        "rank 0 on n1 is in loop.py:step:77, rank 1 on n2 waits in distributed_c10d.py:all_reduce:3252 from loop.py:step:70"
    )


def test_the_evidence_names_the_stack_of_each_group_of_ranks() -> None:
    """One sentence names the missing rank and the others, or how ranks divide and how many stacks are unknown."""

    def evidence(places: Mapping[int, Where]) -> str:
        verdict = judge(places)
        return verdict.evidence if verdict is not None else ""

    reduce = "distributed_c10d.py:all_reduce:3252 from loop.py:step:70"
    barrier = "distributed_c10d.py:barrier:5350 from loop.py:save:120"
    assert evidence(all_except(REDUCE, {3: WORK})) == (
        f"rank 3 on n1 is in loop.py:step:77, the other 7 wait in {reduce}"
    )
    assert evidence(all_except(REDUCE, {3: "D", 1: BARRIER})) == (
        f"rank 3 on n1 is in state D in nfs_wait, the other 7 wait: 6 in {reduce} (ranks 0, 2, 4-7); 1 in {barrier} (rank 1)"
    )
    assert evidence(all_except(REDUCE, {4: WORK, 6: WORK}, num=7)) == (
        "ranks 4, 6 on n2 are in loop.py:step:77, the other 5 wait in "
        f"{reduce}; 1 could not be read"
    )
    assert (
        evidence(all_except(REDUCE, {}))
        == f"all 8 ranks wait in {reduce}: the missing rank does not show"
    )
    assert evidence(all_except(REDUCE, dict.fromkeys(range(4), WORK))) == (
        f"the ranks divide, no rank is named: 4 in loop.py:step:77 (ranks 0-3); 4 in {reduce} (ranks 4-7)"
    )


# A rank, its state, the kernel function it is in, and its frames.
Seen = tuple[str, str, tuple[str, ...]]
IN_BACKWARD: Seen = ("S", "futex_do_wait", BACKWARD)
ASLEEP: Seen = ("S", "hrtimer_nanosleep", WORK)


@pytest.mark.parametrize(
    ("places", "rank"),
    [
        ((IN_BACKWARD, ASLEEP), 1),
        ((("R", "0", WORK), IN_BACKWARD), 0),
        ((IN_BACKWARD, ("D", "nfs_wait", LOADER)), 1),
        # It waits for something that stacks do not show: perhaps for the other one.
        ((IN_BACKWARD, ("S", "futex_do_wait", WORK)), None),
        # The other one computes its gradients.
        ((("R", "0", BACKWARD), ASLEEP), None),
        ((IN_BACKWARD, ("S", "hrtimer_nanosleep", BACKWARD)), None),
        ((ASLEEP, ASLEEP), None),
    ],
)
def test_a_rank_at_work_is_missing_while_all_others_are_idle_in_calls_that_may_wait(
    places: tuple[Seen, ...], rank: int | None
) -> None:
    """Of two ranks the one that sleeps, computes or reads is named, unless the other may work; with GPUs neither is."""
    rank_stacks = [
        RankStack(ranks=(number,), state=state, wchan=wchan, frames=at)
        for number, (state, wchan, at) in enumerate(places)
    ]
    for has_gpus, expected in ((False, rank), (True, None)):
        verdict = find_missing_ranks(rank_stacks, nodes=["n1"], ranks_per_node=2, has_gpus=has_gpus)
        assert verdict is not None
        assert verdict.rank == expected, verdict


frames = st.lists(
    st.sampled_from([*REDUCE, *BARRIER, *SEND, *WORK, "", ":", "a:b", "::1"])
    | st.text(max_size=40),
    max_size=4,
)


# The first text that is drawn takes seconds on a busy machine.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    places=st.dictionaries(
        st.integers(-1, 9), st.tuples(frames, st.sampled_from("RSDTtZ?")), max_size=9
    ),
    pipeline=st.integers(0, 9),
)
def test_for_any_stacks_the_verdict_is_bounded_and_names_a_minority(
    places: dict[int, tuple[list[str], str]], pipeline: int
) -> None:
    """The analysis never raises; a named rank has a readable stack, and its group is smaller than the rest."""
    rank_stacks = [
        RankStack(ranks=(rank,), state=state, frames=tuple(at))
        for rank, (at, state) in places.items()
    ]
    verdict = find_missing_ranks(
        rank_stacks, nodes=["n1", "n2"], ranks_per_node=4, pipeline=pipeline
    )
    if verdict is None:
        return
    assert len(verdict.evidence) < 2_000
    assert verdict == find_missing_ranks(
        rank_stacks[::-1], nodes=["n1", "n2"], ranks_per_node=4, pipeline=pipeline
    )
    if verdict.rank is not None:
        assert verdict.rank in places
        assert verdict.node == ("n1" if verdict.rank < 4 else "n2")


# ---- the table of blocking functions


ROWS = [(row.file, row.functions) for row in BLOCKING_CALLS]


@pytest.mark.parametrize(("file", "functions"), ROWS, ids=lambda row: str(row)[:60])
def test_each_blocking_function_exists(file: str, functions: tuple[str, ...]) -> None:
    """In the installed package the file defines every function of its row: a rule that cannot fire is a defect."""
    package = file.partition("/")[0]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    tree = ast.parse((Path(found.origin).parent.parent / file).read_text())
    defined = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert [name for name in functions if name not in defined] == []


# ---- from the file of a stack to a RankStack

STACK = """rank 3, pid 41, state S, 2026-01-02 03:04:05 UTC
  thread 41 'python' S in futex_do_wait
    [<0>] futex_do_wait+0x46/0x90
  thread 44 'pt_gloo_runloop' S in do_epoll_wait

Process 41: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 44 (idle): "loader"
    get (queue.py:171)
Thread 41 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
    Engine.step (/srv/code/very/deep/folder/loop.py:70)
    <module> (train.py:9)
"""


def test_a_stack_is_reduced_to_the_main_thread() -> None:
    """A RankStack has the main thread's state, its kernel function and its Python frames, without long paths."""
    rank_stack = parse_stack(3, STACK)
    assert rank_stack == RankStack(
        ranks=(3,),
        state="S",
        wchan="futex_do_wait",
        frames=(
            "torch/distributed/distributed_c10d.py:all_reduce:3252",
            "torch/distributed/c10d_logger.py:wrapper:83",
            "very/deep/folder/loop.py:Engine.step:70",
            "train.py:<module>:9",
        ),
    )
    stopped = parse_stack(3, STACK.replace(" S in", " T in").split("Process")[0] + "no stack: why")
    assert stopped == RankStack(ranks=(3,), state="T", wchan="futex_do_wait")
    gone = "rank 0, pid 5, state gone, now\n\nno stack: the process is gone\n"
    assert parse_stack(0, gone) is None
    assert parse_stack(0, "") is None


@given(
    st.text(max_size=400),
    st.sampled_from(["", "    f (x.py:1)\n", "Thread 41 (idle)\n", '"MainThread"\n']),
)
def test_hostile_names_stay_short_and_printable(text: str, after: str) -> None:
    """For any names of functions, files and threads a RankStack is bounded, ASCII, and survives the wire."""
    hostile = (
        STACK.replace("all_reduce", text)
        .replace("'python'", repr(text))
        .replace("get (", after + text)
    )
    for rank_stack in (
        parse_stack(3, hostile),
        parse_stack(3, STACK[:60] + text),
        parse_stack(3, text),
    ):
        if rank_stack is None:
            continue
        assert sum(map(len, rank_stack.frames)) <= MAX_RANK_STACK
        assert all(
            frame.isascii() and frame.isprintable()
            for frame in (*rank_stack.frames, rank_stack.wchan, rank_stack.state)
        )


def test_a_node_reports_a_bounded_number_of_stacks(tmp_path: Path) -> None:
    """Ranks with equal stacks share a row; the message of a thousand different stacks still fits."""
    for rank in range(1000):
        where = "é" * 500 + f"{rank} (" + "x" * 500 + f"{rank}.py:5)"
        text = STACK.replace("rank 3", f"rank {rank}")
        (tmp_path / f"rank{rank}.txt").write_text(
            text if rank % 2 else text.replace("<module> (train.py:9)", where)
        )
    (tmp_path / "rank0.txt").write_bytes(b"\xff" * (MAX_FILE_BYTES + 50))
    longest = tuple(
        Collective(group=f"{n}" + "g" * 39, sequence=2**60, operation="o" * 30, waits_at=7)
        for n in range(MAX_COLLECTIVES)
    )
    rank_stacks = read_stacks(tmp_path, range(1100), dict.fromkeys(range(1100), longest))
    assert len(rank_stacks) == MAX_RANK_STACKS
    assert max(len(rank_stack.ranks) for rank_stack in rank_stacks) == 500
    gone = s.RanksTerminated(
        node="n1",
        incarnation=1,
        generation=1,
        attempt=ATTEMPT,
        num_stacks=999,
        rank_stacks=rank_stacks,
    )
    assert len(encode(gone)) < MAX_MESSAGE_BYTES
    assert decode(encode(gone)) == gone


def test_a_rank_that_may_wait_below_python_is_not_named() -> None:
    """In backward, or in a copy from a GPU, it may wait for the ranks that wait for it: the evidence gives its stack."""
    verdict = judge(all_except(REDUCE, {2: BACKWARD}))
    assert verdict is not None
    assert (verdict.node, verdict.rank) == (None, None)
    assert "rank 2" in verdict.evidence
    rank_stacks = [
        RankStack(ranks=(rank,), state="S", wchan="", frames=WORK if rank == 3 else BARRIER)
        for rank in range(8)
    ]
    # The logging rank reads its loss: .item().
    for has_gpus, rank in ((True, None), (False, 3)):
        found = find_missing_ranks(
            rank_stacks, nodes=["n1", "n2"], ranks_per_node=4, has_gpus=has_gpus
        )
        assert found is not None
        assert found.rank == rank
    spins = [
        replace(rank_stack, state="R" if 3 in rank_stack.ranks else "S")
        for rank_stack in rank_stacks
    ]
    found = find_missing_ranks(spins, nodes=["n1", "n2"], ranks_per_node=4, has_gpus=True)
    assert found is not None
    assert found.rank == 3
