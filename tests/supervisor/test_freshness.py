"""Requests and joins are fresh: what was processed, or was sent long ago, is refused when it is put back into the store."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from runner.agent.transport.session import AgentInstance, AgentSession
from runner.agent.transport.store_client import StoreClient
from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.messages.requests import Answer, PauseRun, Request, StopRun
from runner.facts.messages.signals import NodeJoined
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import LEASE, REQUESTS, answer_register
from runner.journal.journal import Journal
from runner.providers.self_joined import SelfJoinedProvider
from runner.signer import Signer
from runner.store.memory.store import MemoryStore
from runner.store.registry import open_store
from runner.supervisor.loop import MAX_STALE_ANSWERED, Supervisor
from runner.supervisor.message_validator import MAX_APART_SECONDS, MessageValidator

SIGNER = Signer(b"a token of this cluster's own")
LONG_SECONDS = 60.0
T = TypeVar("T")
TWO_HOURS = 7200.0


class Stage:
    """A signed cluster in memory, whose supervisors' wall clock is off by `shift` seconds, and who has its token."""

    def __init__(self, folder: Path) -> None:
        self.cluster = ClusterSpec(name="c", state=str(folder), checks=())
        self.store = MemoryStore()
        self.supervisor_store = self.store.another()
        self.shift = 0.0
        self.refused: Callable[[str], int] = lambda reason: 0

    @contextmanager
    def led(self) -> Iterator[None]:
        """Lead the cluster while the block runs."""
        store = self.supervisor_store
        lease = store.acquire_lease(LEASE, "a", ttl_seconds=600)
        provider = SelfJoinedProvider(self.cluster, store, SIGNER)
        supervisor = Supervisor(self.cluster, store, lease, provider, signer=SIGNER)
        validator = MessageValidator(SIGNER, lambda: time.time() + self.shift)
        supervisor._validator = validator
        self.refused = lambda reason: validator.refused[reason]
        thread = threading.Thread(target=supervisor.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            supervisor.stop()
            thread.join(LONG_SECONDS)
            store.release(lease)

    def send(self, request: Request) -> bytes:
        """Append a request; return its bytes."""
        payload = SIGNER.sign(REQUESTS, wire.encode(request))
        self.store.append(REQUESTS, payload)
        return payload

    def ask(self, name: str, sent_at: float | None = None) -> tuple[bytes, Answer]:
        """Send a request that is refused in any case; return its bytes and the answer."""
        sent_at = time.time() if sent_at is None else sent_at
        payload = self.send(StopRun(id=name, by="ann", run="none", sent_at=sent_at))
        return payload, self.until(lambda: self.answer(name), f"an answer to {name}")

    def answer(self, name: str) -> Answer | None:
        """Return the answer to a request, or to a join; it must verify."""
        place = answer_register(name)
        register = self.store.get(place)
        answer = wire.decode(SIGNER.verify(place, register.payload)) if register else None
        assert answer is None or isinstance(answer, Answer)
        return answer

    def put_back(self, payload: bytes, reason: str) -> None:
        """Append bytes again, and wait until they are refused for this reason."""
        before = self.refused(reason)
        self.store.append(REQUESTS, payload)
        self.until(lambda: self.refused(reason) > before, f"a refusal as {reason}")

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """Wait until `look` returns something true; return it."""
        deadline = time.monotonic() + LONG_SECONDS
        while not (found := look()):
            assert time.monotonic() < deadline, f"timed out waiting for {what}"
            time.sleep(0.01)
        return found

    def recorded(self) -> list[str]:
        """Return the requests that the journal records, once for each time."""
        entries = Journal(self.store, signer=SIGNER).replay()
        return [
            record.id
            for entry in entries
            for record in entry.records
            if isinstance(record, r.RequestRecorded)
        ]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Give a cluster that no supervisor leads yet."""
    return Stage(tmp_path)


def test_an_answered_request_that_is_put_back_is_refused(stage: Stage) -> None:
    """At once, after 250 others, by the next supervisor, and when its time is over; its answer stays as it is."""
    with stage.led():
        payload, answer = stage.ask("q-first")
        assert "no live run" in answer.message
        stage.put_back(payload, "replayed")
        for number in range(249):
            stage.send(StopRun(id=f"q-{number}", run="none", sent_at=time.time()))
        stage.ask("q-last")
        stage.put_back(payload, "replayed")
    with stage.led():
        stage.put_back(payload, "replayed")
        stage.shift = TWO_HOURS
        stage.put_back(payload, "replayed")
    assert stage.recorded().count("q-first") == 1
    assert stage.answer("q-first") == answer


@pytest.mark.parametrize(("shift", "order"), [(TWO_HOURS, "before"), (-TWO_HOURS, "after")])
def test_a_request_by_a_clock_that_is_off_is_answered_with_the_difference(
    stage: Stage, shift: float, order: str
) -> None:
    """It is not processed when its time has come, either; the next one by the right clock is."""
    stage.shift = shift
    with stage.led():
        payload, answer = stage.ask("q-off")
        assert answer.state == "refused"
        for part in ("request q-off was", " 7,", f" s {order} this", "at most 300 s", "NTP"):
            assert part in answer.message
        assert stage.refused("stale") == 1
        stage.shift = 0.0
        stage.put_back(payload, "replayed")
        assert "no live run" in stage.ask("q-right")[1].message
    assert stage.recorded().count("q-off") == 1


def test_of_a_flood_of_old_messages_a_few_are_answered_and_no_answer_is_replaced(
    stage: Stage,
) -> None:
    """The journal does not grow with the flood, and a request that is sent now is answered."""
    with stage.led():
        known = SIGNER.sign(answer_register("q-3"), wire.encode(Answer(id="q-3", state="done")))
        stage.store.put(answer_register("q-3"), known)
        for number in range(300):
            stage.send(StopRun(id=f"q-{number}", run="none", sent_at=time.time() - TWO_HOURS))
        assert "no live run" in stage.ask("q-now")[1].message
        assert stage.refused("stale") == 300
        answered = [number for number in range(300) if stage.answer(f"q-{number}")]
        assert answered == list(range(MAX_STALE_ANSWERED))
        assert stage.answer("q-3") == Answer(id="q-3", state="done")
    assert len(stage.recorded()) == MAX_STALE_ANSWERED


def test_requests_that_no_supervisor_could_read_in_time_are_refused(stage: Stage) -> None:
    """A supervisor that takes over reads what was sent before; the answer says to send it again."""
    sent_at = time.time() - MAX_APART_SECONDS - 1
    stage.send(StopRun(id="q-early", run="none", sent_at=sent_at))
    stage.send(StopRun(id="q-late", run="none", sent_at=time.time()))
    with stage.led():
        stage.until(lambda: stage.answer("q-late"), "an answer")
        early, late = stage.answer("q-early"), stage.answer("q-late")
        assert early is not None
        assert late is not None
        assert "send it again" in early.message
        assert "no live run" in late.message


def test_an_agent_by_a_clock_that_is_off_joins_once_it_is_right(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then its log says by how much and what is allowed; so does the journal, once."""
    stage.shift = TWO_HOURS
    client = StoreClient(stage.store.another())
    instance = AgentInstance(node="n1", incarnation=1, instance_id="i-1")
    session = AgentSession(client, instance, Listener(), SIGNER, rejoin_seconds=0.05)

    def join() -> None:
        session.join(
            NodeJoined(**session.next_header(), hardware="h", slots=1, address="", pid=1),
            time.monotonic(),
        )

    def rejoin_until(look: Callable[[], object], what: str) -> None:
        def look_after_rejoin() -> object:
            if session.wants_join(time.monotonic()):
                join()
            return look()

        stage.until(look_after_rejoin, what)

    with stage.led():
        join()
        session.start()
        client.start()

        def complaints() -> list[str]:
            return [line for line in caplog.messages if "may not join" in line]

        rejoin_until(lambda: stage.refused("stale") >= 3 and complaints(), "three refused joins")
        (shown,) = complaints()
        for part in ("the join of n1 was sent at", " s before this", "at most 300 s", "NTP"):
            assert part in shown
        stage.shift = 0.0
        rejoin_until(lambda: session._is_answered, "an assignment")
        client.close()
        session.close()
    entries = list(Journal(stage.store, signer=SIGNER).replay())
    records = [record for entry in entries for record in entry.records]
    (refused,) = [record for record in records if isinstance(record, r.JoinRefused)]
    # The agent may have missed the answer to its first join, whose times the journal has.
    assert re.sub(r"[\d,]+", "", refused.reason) in re.sub(r"[\d,]+", "", shown)
    assert any(isinstance(record, r.NodeRegistered) for record in records)


class Listener:
    """A listener that does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@pytest.mark.parametrize("back_end", ["memory", "sqlite"])
def test_a_request_that_expired_is_refused_and_an_answered_one_put_back_too(
    stage: Stage, back_end: str
) -> None:
    """Each is answered once; a run that was paused and resumed is not paused again by the old bytes."""
    if back_end == "sqlite":
        stage.store.close()
        stage.store = open_store(stage.cluster, create=True)  # type: ignore[assignment]
        stage.supervisor_store = open_store(stage.cluster)  # type: ignore[assignment]
    now = time.time()
    with stage.led():
        pause = PauseRun(id="q-old", by="ann", run="none", sent_at=now - 100, expires_at=now - 1)
        payload = stage.send(pause)
        answer = stage.until(lambda: stage.answer("q-old"), "an answer to q-old")
        assert answer.state == "refused"
        assert "expired" in answer.message
        assert "send it again" in answer.message
        stage.put_back(payload, "replayed")
        fresh = PauseRun(id="q-new", by="ann", run="none", sent_at=now, expires_at=now + 200)
        payload = stage.send(fresh)
        answer = stage.until(lambda: stage.answer("q-new"), "an answer to q-new")
        assert "no live run" in answer.message
        stage.put_back(payload, "replayed")
        stage.shift = 250.0
        stage.put_back(payload, "replayed")
    assert stage.recorded().count("q-new") == stage.recorded().count("q-old") == 1
    stage.store.close()
    stage.supervisor_store.close()
