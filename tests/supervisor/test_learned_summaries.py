"""Learned summaries: when they are written, and that a damaged one is refused with its reason and stops no start."""

import itertools
import logging
import threading
import time
from pathlib import Path

import pytest

from runner.decide.state.cluster_state import Run, State
from runner.detect.registry import DetectorRegistry
from runner.facts import wire
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.learned import LearnedSeal, LearnedSummary
from runner.facts.messages.records import SupervisorStarted
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import LEASE, learned_register
from runner.facts.watch import WatchedAttempt, WatchList
from runner.journal.journal import Journal
from runner.journal.learned import VERSION, LearnedRegisters, encode_summary
from runner.journal.snapshots import sha256
from runner.providers.self_joined import SelfJoinedProvider
from runner.signer import UNSIGNED, Signer
from runner.store.memory.store import MemoryStore
from runner.supervisor.learned import PAUSE_SECONDS, SUMMARY_SECONDS, LearnedSummaries
from runner.supervisor.loop import Supervisor

# Above every wait in this file.
LONG_SECONDS = 60.0
ATTEMPT = AttemptId(1, 1, 0)
WATCHED = WatchedAttempt(
    attempt=ATTEMPT, nodes=("n1",), since=0.0, start_seconds=60.0, progress_seconds=60.0
)
SIGNER = Signer(b"token of the cluster")


def runs(*numbers: int) -> State:
    """Make a state in which these runs are live."""
    spec = RunSpec(name="a", command=("true",), nodes=1)
    return State(runs={number: Run(run=number, spec=spec) for number in numbers})


def detectors(num_steps: int = 0) -> DetectorRegistry:
    """Make detectors that have followed so many steps of run 1."""
    registry = DetectorRegistry(5.0)
    registry.watch(WatchList(nodes=("n1",), attempts=(WATCHED,)))
    for step in range(1, num_steps + 1):
        steps = (StepRecord(step=step, loss=2.0 + 1 / step),)
        heartbeat = Heartbeat(node="n1", incarnation=1, attempt=ATTEMPT, steps=steps)
        registry.on_heartbeat(heartbeat, float(step))
    return registry


def summaries(
    store: MemoryStore, registry: DetectorRegistry, *, signer: Signer = SIGNER, holder: str = "a"
) -> LearnedSummaries:
    """Make the summaries of one supervisor."""
    lease = store.acquire_lease(LEASE, holder, ttl_seconds=60)
    return LearnedSummaries(registry, LearnedRegisters(store, signer), lease)


def test_a_summary_is_due_at_once_then_at_intervals_and_after_a_finding() -> None:
    """One run in a turn, the one that waits longest first; the summary of a run that ended is deleted."""
    store = MemoryStore()
    kept = summaries(store, detectors())
    state, now = runs(1, 2), 100.0
    made = [kept.next(state, now + turn * PAUSE_SECONDS / 2) for turn in range(5)]
    assert [image.run if image else None for image in made] == [1, None, 2, None, None]
    kept.on_findings([Finding(fault="straggler", evidence="slow", attempt=ATTEMPT)], now + 1)
    soon = kept.next(state, now + 1)
    assert soon is not None
    assert soon.run == 1
    late = now + SUMMARY_SECONDS + 2
    due = [kept.next(state, late + turn * PAUSE_SECONDS) for turn in range(3)]
    assert [image.run if image else None for image in due] == [2, 1, None]
    kept.write(soon)
    assert list(store.registers("status.learned.")) == [learned_register(1)]
    state.runs[1].ended_at = now
    later = (late + turn * SUMMARY_SECONDS for turn in itertools.count(1))
    gone = next(image for at in later if (image := kept.next(state, at)) and not image.body)
    kept.write(gone)
    assert not store.registers("status.learned.")


def test_what_one_supervisor_writes_the_next_one_knows() -> None:
    """Its detectors then dump the same; a supervisor of another token is given nothing."""
    store = MemoryStore()
    old = detectors(200)
    writer = summaries(store, old)
    writer.write_all(runs(1), 200.0)
    new = detectors()
    reader = LearnedSummaries(new, LearnedRegisters(store, SIGNER), writer._lease)
    assert reader.load(runs(1), 200.0) == (1,)
    assert encode_summary(1, new.dump(1, 200.0), 0.0) == encode_summary(1, old.dump(1, 200.0), 0.0)
    other = LearnedRegisters(store, Signer(b"another token"))
    assert LearnedSummaries(detectors(), other, writer._lease).load(runs(1), 200.0) == ()
    # It ended while no supervisor led: nothing is loaded, and the register is deleted.
    assert reader.load(runs(2), 200.0) == ()
    assert reader.next(runs(2), 200.0) == (1, b"")


def sealed(message: bytes) -> bytes:
    """Return a summary's register with a right seal and code."""
    seal = wire.encode(LearnedSeal(bytes=len(message), sha256=sha256(message)))
    return SIGNER.sign(learned_register(1), seal + b"\n" + message)


def damaged() -> dict[str, bytes]:
    """Return registers that must be refused, by what the log then says."""
    body, _ = encode_summary(1, detectors(100).dump(1, 100.0), 100.0)
    good: LearnedSummary = wire.decode(body)
    torn = wire.encode(LearnedSeal(bytes=len(body), sha256=sha256(body))) + b"\n" + body[:-400]
    newer = LearnedSummary(run=1, version=VERSION + 1, made_at=0.0, detectors=good.detectors)
    other = LearnedSummary(run=2, version=VERSION, made_at=0.0, detectors=good.detectors)
    strange = LearnedSummary(run=1, version=VERSION, made_at=0.0, detectors={"LiveNumerics": 3})
    return {
        "is not signed": body,
        "sealed were": SIGNER.sign(learned_register(1), torn),
        f"version {VERSION + 1}, this release reads {VERSION}": sealed(wire.encode(newer)),
        "not the summary of run 1": sealed(wire.encode(other)),
        "LiveNumerics: ": sealed(wire.encode(strange)),
        "not a JSON message": SIGNER.sign(learned_register(1), b"\x00\xff"),
    }


@pytest.mark.parametrize("reason", damaged())
def test_a_damaged_summary_is_refused_with_its_reason(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The detectors know nothing then, and the next summary takes its place."""
    store = MemoryStore()
    kept = summaries(store, detectors())
    store.put(learned_register(1), damaged()[reason])
    with caplog.at_level(logging.WARNING):
        assert kept.load(runs(1), 100.0) == ()
    assert "what was learned of run 1 is refused" in caplog.text
    assert reason in caplog.text
    assert kept._detectors.dump(1, 100.0) == {}
    image = kept.next(runs(1), 100.0)
    assert image is not None
    kept.write(image)
    assert LearnedSummaries(detectors(), LearnedRegisters(store, SIGNER), kept._lease).load(
        runs(1), 101.0
    ) == (1,)


def test_a_store_out_of_reach_and_detectors_that_fail_stop_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says once what is not kept."""
    store = MemoryStore()
    kept = summaries(store, detectors(100))
    store.go_down()
    assert kept.load(runs(1), 1.0) == ()
    kept.write_all(runs(1), 2.0)
    store.come_back()

    def fail(*_: object) -> None:
        raise ArithmeticError("an error of a detector")

    monkeypatch.setattr(DetectorRegistry, "dump", fail)
    assert [kept.next(runs(1), 1_000.0 * turn) for turn in (1, 2, 3)] == [None, None, None]
    assert caplog.text.count("an error of a detector") == 1


def test_a_supervisor_starts_without_a_summary_that_is_refused(tmp_path: Path) -> None:
    """It leads, and says in the journal of which runs its detectors know."""
    cluster = ClusterSpec(name="c", state=str(tmp_path), heartbeat_timeout_seconds=5.0)
    store = MemoryStore()
    reader = store.another()
    store.put(learned_register(1), b"torn")
    lease = store.acquire_lease(LEASE, "a", ttl_seconds=600)
    supervisor = Supervisor(cluster, store, lease, SelfJoinedProvider(cluster, store, UNSIGNED))
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()

    def started() -> list[SupervisorStarted]:
        entries = Journal(reader).replay()
        return [each.input for each in entries if isinstance(each.input, SupervisorStarted)]

    deadline = time.monotonic() + LONG_SECONDS
    while not started() or reader.get(learned_register(1)) is not None:
        assert time.monotonic() < deadline, "it never led, or kept the summary of no run"
        time.sleep(0.05)
    supervisor.stop()
    thread.join(LONG_SECONDS)
    assert not thread.is_alive()
    assert started()[0].learned_runs == ()
