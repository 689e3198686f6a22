"""Random streams of inputs, valid, stale, repeated and foreign: nothing raises, invariants hold, a replay equals the original."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.errors import StoreUnavailable
from runner.facts import faults as f
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.drills import RANK_DRILLS
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions
from runner.facts.matches import LAYERS, Match, Role
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.remedies import REMEDIES
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.facts.trials import TrialJudged
from runner.journal.journal import Journal
from runner.store.memory.store import MemoryStore
from runner.supervisor.decisions import DecisionLog
from tests.decide.invariants import Books
from tests.decide.scenario import runbooks, scenarios

# N9 is unknown until it joins.
NODES = ("n1", "n2", "n3", "n9")
POLICY = Policy(
    cluster=ClusterSpec(name="c", state="s", local=LocalNodes(nodes=2, slots=2, spares=1)),
    runbooks=runbooks(),
)

node = st.sampled_from(NODES)
attempt = st.builds(AttemptId, st.integers(1, 2), st.integers(1, 2), st.integers(0, 3))
instance_ids = st.sampled_from(["", "", "a", "b"])
heartbeat_nodes = {"node": node, "incarnation": st.integers(1, 3)}
source = {**heartbeat_nodes, "instance_id": instance_ids}
of_attempt = {**source, "attempt": attempt, "generation": st.integers(1, 12)}
text = st.text(max_size=20)
runs = st.sampled_from(["a", "b", "1", "2", "unknown"])
incidents = st.sampled_from(["", "i1", "i2", "i9"])
request = {"id": st.integers(0, 30).map(lambda number: f"q{number}"), "by": text}
spec = st.builds(
    RunSpec,
    name=st.sampled_from(["a", "b"]),
    trainer=st.just({"recipe": "tiny"}),
    nodes=st.integers(1, 4),
    ranks_per_node=st.integers(1, 3),
)
step = st.none() | st.integers(0, 50)
result = st.builds(
    ActionResult,
    id=st.integers(1, 30).map(lambda number: f"a{number}"),
    outcome=st.sampled_from(["done", "done", "done", "failed", "unknown"]),
    detail=st.fixed_dictionaries(
        {
            "reachable": st.booleans(),
            "agent": st.sampled_from(["alive", "dead"]),
            "keeper": st.sampled_from(["alive", "dead"]),
            "ranks_alive": st.lists(st.integers(1, 99), max_size=2),
            "outcome": st.sampled_from(["PASS", "PASS", "FAIL", "UNKNOWN"]),
            "address": st.just("host"),
            "port": st.just(1),
        }
    ),
)
words = st.sampled_from(["", "0", "3", "-1", "9" * 40, "nan", "²", "n1", "0000:a1:00"])
line = st.builds(
    Match,
    signature=st.sampled_from(["a", "b"]),
    fault=st.sampled_from(["", "gpu_lost", "filesystem", "nccl_timeout", "unknown", "no such"]),
    layer=st.sampled_from(LAYERS),
    scope=st.sampled_from(["rank", "gpu", "node", "fabric", "storage", "user"]),
    weight=st.sampled_from(["primary", "supporting", "benign"]),
    role=st.sampled_from(get_args(Role)),
    is_lasting=st.booleans(),
    of_kernel=st.booleans(),
    file=st.sampled_from(["rank0.err", "kernel"]),
    line=st.integers(0, 9),
    text=text,
    rank=st.none() | st.integers(-1, 5),
    at=st.none() | st.floats(),
    named=st.dictionaries(
        st.sampled_from(["sequence", "late", "peer", "gpu", "node", "named", "xid"]), words
    ),
)
inputs = st.one_of(
    result,
    result,
    st.builds(
        s.NodeJoined,
        **source,
        hardware=st.sampled_from(["", "board:1", "board:2", "gpu:1"]) | text,
        parts=st.lists(st.sampled_from(["board:1", "gpu:1", "mac:1", "file:1"]), max_size=3).map(
            tuple
        ),
        slots=st.integers(0, 4),
        address=text,
        pid=st.just(1),
        attempt=st.none() | attempt,
        ranks_alive=st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple),
    ),
    st.builds(s.RanksStarted, **of_attempt),
    st.builds(
        s.ConditionsFound,
        **of_attempt,
        conditions=st.builds(
            LaunchConditions,
            git_commit=st.sampled_from(["", "a1", "b2"]),
            packages=st.sampled_from([{}, {"torch": "2.1"}, {"torch": "2.2"}]),
            data=st.sampled_from(["", "sha256:a", "sha256:b"]),
            left_out=st.sampled_from([(), ("variables",), ("code", "packages", "variables")]),
        ),
    ),
    st.builds(
        f.LaunchSurveyed,
        attempt=attempt,
        parts=st.dictionaries(
            st.sampled_from(["code", "data", "no such"]),
            st.lists(
                st.builds(
                    f.PartVariant,
                    digest=st.sampled_from(["a", "b", "c"]),
                    nodes=st.lists(node, min_size=1, max_size=3, unique=True).map(tuple),
                    num_nodes=st.integers(1, 9),
                ),
                max_size=3,
            ).map(tuple),
        ),
        missing=st.lists(node, max_size=2, unique=True).map(tuple),
        num_missing=st.integers(0, 9),
    ),
    st.builds(s.LaunchFailed, **of_attempt, reason=text, devices_busy=st.booleans()),
    st.builds(s.DevicesReleased, **source),
    st.builds(
        f.MetricNote,
        attempt=attempt,
        fault=st.sampled_from(["plateau", "grad_norm_drift"]),
        step=st.integers(0, 50),
        evidence=text,
    ),
    st.builds(
        f.LrObserved,
        attempt=attempt,
        step=st.integers(0, 50),
        lr=st.none() | st.floats(1e-6, 1e-2),
        before=st.none() | st.floats(1e-6, 1e-2),
    ),
    st.builds(
        f.GangStartTimed,
        attempt=attempt,
        slowest=st.sampled_from([{}, {"load": s.StartPhase(seconds=2.0, rank=3, node="n2")}]),
    ),
    st.builds(
        s.RankExited,
        **of_attempt,
        rank=st.integers(0, 5),
        exit_code=st.sampled_from([0, 0, 0, 1, 75, 78, -9, None]),
        last_step=step,
        stderr_tail=text,
    ),
    st.builds(
        s.RanksTerminated,
        **of_attempt,
        last_step=step,
        fenced=st.booleans(),
        num_stacks=st.integers(0, 3),
        rank_stacks=st.lists(
            st.builds(
                RankStack,
                ranks=st.lists(st.integers(-1, 12), max_size=3).map(tuple),
                state=st.sampled_from(["", "S", "T", "D"]),
                frames=st.sampled_from(
                    [(), ("loop.py:f:1",), ("torch/distributed/distributed_c10d.py:barrier:1",)]
                ),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(s.NodeLeft, **source),
    st.builds(
        s.RanksReady,
        **source,
        attempt=attempt,
        requests=st.sampled_from([(), ("stop", "drill")]),
        remedies=st.sampled_from([(), ("lr_factor", "lr_peak"), tuple(REMEDIES)]),
        checks_checkpoints=st.booleans(),
        drills=st.sampled_from([(), RANK_DRILLS]),
    ),
    st.builds(
        s.RequestTaken,
        **source,
        attempt=attempt,
        request=st.integers(0, 30).map(lambda number: f"q{number}"),
        step=st.integers(0, 50),
    ),
    st.builds(s.Progress, **source, attempt=attempt, step=st.integers(0, 50)),
    st.builds(
        s.SettingsInEffect,
        **source,
        attempt=attempt,
        step=st.integers(0, 50),
        values=st.sampled_from(
            [
                {},
                {"lr_factor": 0.9},
                {"lr_factor": float("nan")},
                {"lr": 1e-3, "lr_peak": 2e-3, "lr_floor": 1e-3, "skip_steps": [[5, 9]]},
                {"lr": "x", "lr_peak": [], "data_position": 20, "optimizer_reset": ["1.r1"]},
            ]
        ),
    ),
    st.builds(
        s.CheckpointSealed,
        **source,
        attempt=attempt,
        step=st.integers(0, 50),
        path=st.integers(0, 8).map(str),
    ),
    st.builds(
        f.Finding,
        fault=st.sampled_from(
            [
                "node_silent",
                "rank_stopped",
                "no_progress",
                "malformed_message",
                "divergence",
                "loss_spike",
                "nan_loss",
                "plateau",
                "straggler",
            ]
        ),
        evidence=text,
        attempt=st.none() | attempt,
        node=st.none() | node,
        rank=st.none() | st.integers(0, 5),
        step=step,
        recovered=st.booleans(),
    ),
    st.builds(
        TrialJudged,
        incident=st.integers(1, 4).map(lambda number: f"i{number}"),
        attempt=attempt,
        step=st.integers(0, 50),
        verdict=st.sampled_from(["helped", "not_helped", "made_worse"]),
        evidence=text,
    ),
    st.builds(
        s.LinesMatched,
        **of_attempt,
        matches=st.lists(line, max_size=4).map(tuple),
        ranks_alive=st.booleans(),
        last_step=step,
    ),
    st.builds(s.KernelLinesMatched, **source, matches=st.lists(line, max_size=4).map(tuple)),
    st.builds(
        s.ReplicasDisagree,
        **source,
        attempt=attempt,
        step=st.integers(0, 50),
        what=text,
        ranks=st.lists(st.integers(-1, 9), max_size=3).map(tuple),
        detail=text,
    ),
    st.builds(
        s.TaskProgressed,
        **source,
        id=st.integers(0, 30).map(lambda number: f"a{number}"),
        done_bytes=st.integers(0, 9),
        total_bytes=st.integers(0, 9),
    ),
    st.builds(f.HeartbeatResumed, **heartbeat_nodes),
    st.builds(
        f.GangStillStepping,
        attempt=attempt,
        nodes=st.lists(node, max_size=3, unique=True).map(tuple),
        step=st.integers(0, 50),
    ),
    st.builds(
        f.DomainSilence,
        domain=st.sampled_from(["rack", "switch"]),
        name=st.sampled_from(["r1", "r2"]),
        nodes=st.lists(node, max_size=3, unique=True).map(tuple),
    ),
    st.builds(
        s.Notice,
        **source,
        notice=st.sampled_from(["maintenance", "preemption"]),
        deadline_seconds=st.none() | st.floats(),
    ),
    st.builds(q.SwapNode, **request, node=node, spare=st.none() | node, reason=text),
    *(
        st.builds(kind, **request, node=node, reason=text)
        for kind in (q.DrainNode, q.QuarantineNode, q.ReadmitNode, q.RetireNode)
    ),
    st.builds(f.CorrelatedSilence, nodes=st.lists(node, max_size=3, unique=True).map(tuple)),
    st.builds(q.StartRun, **request, spec=spec),
    st.builds(q.StopRun, **request, run=runs),
    *(
        st.builds(kind, **request, run=runs, incident=incidents, seen=st.none() | st.integers(0, 9))
        for kind in (q.PauseRun, q.ResumeRun, q.RestartRun)
    ),
    st.builds(q.RestartRun, **request, run=runs, accepts_drift=st.just(True)),
    st.builds(q.RestartRun, **request, run=runs, from_step=step),
    st.builds(q.RewindRun, **request, run=runs, before_step=st.integers(-1, 60)),
    st.builds(q.RevertRemedy, **request, run=runs, remedy=st.sampled_from(["r1", "r2", "x"])),
    *(
        st.builds(kind, **request, action=st.sampled_from(["a1", "a9", "a20", "a25"]))
        for kind in (q.ApproveAction, q.DenyAction)
    ),
    st.builds(q.AddNote, **request, run=st.just("") | runs, incident=incidents, text=text),
    st.builds(q.AcknowledgeIncident, **request, incident=incidents),
    st.builds(
        q.AddRemedy,
        **request,
        run=runs,
        remedy=st.sampled_from(list(REMEDIES)),
        value=st.one_of(
            st.floats(),
            st.sampled_from(
                ["", "bf16", ("sgd", 10, 20), (0.9, 0.95), ((5, 9),), ((60, 61), (70, 80))]
            ),
        ),
    ),
    st.builds(q.PinCheckpoint, **request, run=runs, step=st.integers(0, 50), remove=st.booleans()),
    st.builds(
        q.Drill,
        **request,
        run=runs,
        fault=st.sampled_from(
            ["kill-rank", "stop-rank", "kill-node", "kill-agent", "ask-ranks", *RANK_DRILLS]
        ),
        rank=st.none() | st.integers(-1, 5),
        node=st.none() | node,
        steps=st.none() | st.integers(0, 20),
        strength=st.none() | st.floats(),
    ),
    st.just(r.Tick()),
    st.just(r.SupervisorPaused(seconds=7.0, reason="test")),
)
stream = st.lists(st.tuples(inputs, st.floats(0.0, 20.0)), max_size=60)


@dataclass
class Cluster:
    """A controller on a store in memory, and its journal."""

    store: MemoryStore
    turns: DecisionLog
    now: float = 0.0


def unavailable(error: StoreUnavailable) -> None:
    """Nothing in these tests makes the store unavailable."""
    raise error


def lead(store: MemoryStore, holder: str) -> DecisionLog:
    """Acquire the lease and recover to the end of the journal."""
    lease = store.acquire_lease("supervisor", holder, ttl_seconds=0.0)
    turns = DecisionLog(Controller(POLICY), Journal(store, lease), on_outage=unavailable)
    turns.recover()
    return turns


def live(facts: Iterable[tuple[object, float]], *, snapshot_at: int | None = None) -> Cluster:
    """Handle all inputs, checking the invariants after each entry."""
    store = MemoryStore()
    cluster = Cluster(store, lead(store, "one"))
    books = Books(policy=POLICY)
    started = r.SupervisorStarted(holder="one", token=1, version="t", nodes=NODES[:3])
    sequence = 0
    for number, (fact, seconds) in enumerate([(started, 0.0), *facts]):
        cluster.now += seconds
        cluster.turns.process(fact, cluster.now, stream="signals", cursor=number + 1)
        for entry in Journal(store).replay(sequence + 1):
            sequence = entry.sequence
            failures = [x.error for x in entry.records if isinstance(x, r.DecisionFailed)]
            assert not failures, failures[0]
            books.take(entry)
        if number == snapshot_at:
            cluster.turns.snapshot()
    return cluster


@settings(max_examples=150, deadline=None)
@given(stream)
def test_any_stream_is_handled_and_replays_to_the_same_state(
    facts: list[tuple[object, float]],
) -> None:
    """No input makes a decision raise or breaks an invariant; applying the journal gives the same state and ledger."""
    cluster = live(facts)
    again = lead(cluster.store, "two")
    assert wire.encode(again.controller.state) == wire.encode(cluster.turns.controller.state)
    assert again.ledger.dump() == cluster.turns.ledger.dump()


@settings(max_examples=50, deadline=None)
@given(stream, st.integers(0, 60))
def test_a_snapshot_and_its_tail_are_the_whole_journal(
    facts: list[tuple[object, float]], snapshot_at: int
) -> None:
    """Recovery from a snapshot anywhere gives the state that the whole journal gives."""
    cluster = live(facts, snapshot_at=snapshot_at)
    again = lead(cluster.store, "two")
    assert wire.encode(again.controller.state) == wire.encode(cluster.turns.controller.state)
    assert again.ledger.dump() == cluster.turns.ledger.dump()


@settings(max_examples=50, deadline=None)
@given(stream)
def test_inputs_read_twice_change_nothing(facts: list[tuple[object, float]]) -> None:
    """Inputs behind the inbox cursor were handled before: reading them again writes no entry."""
    cluster = live(facts)
    last = Journal(cluster.store).last()
    for number, (fact, _) in enumerate(facts):
        assert cluster.turns.process(fact, cluster.now, stream="signals", cursor=number + 2) == []
    assert Journal(cluster.store).last() == last


def digest() -> str:
    """Hash the journals of all scenarios, decided by this process."""
    total = hashlib.sha256()
    for scenario in scenarios():
        for entry in scenario.play(scenario.build()).entries:
            total.update(wire.encode(entry))
    return total.hexdigest()


@pytest.mark.costly
def test_deciding_again_in_another_process_gives_the_same_bytes() -> None:
    """The order of string hashes, which differs between processes, influences no decision."""
    code = "from tests.decide.test_random_streams import digest; print(digest())"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "4711")
    ]
    try:
        digests = [process.communicate(timeout=100)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(digests[0]) == 64
    assert digests == [digests[0]] * 3
