"""The session without an agent: what it sends and receives, signed, for one instance or for many on one client."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from runner.agent.transport.outbox import Spool
from runner.agent.transport.session import AgentInstance, AgentSession, new_instance_id
from runner.agent.transport.store_client import StoreClient
from runner.errors import WireError
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.messages.signals import Heartbeat, MalformedMessage, NodeJoined
from runner.facts.wire import decode, encode
from runner.signer import SIGNATURE_BYTES, Signer
from runner.store.memory.store import MemoryStore
from runner.store.sqlite.store import SqliteStore
from tests.agent.node import wait_until

UNSIGNED = Signer(None)
SIGNER = Signer(b"the token of this cluster")
OTHER_SIGNER = Signer(b"the token of another one")


class RecordingListener:
    """A listener that records what the session delivers."""

    def __init__(self) -> None:
        self.assignments: list[Assignment] = []
        self.tasks: list[str] = []
        self.confirmed: list[int] = []
        self.malformed: list[str] = []
        self.acknowledged: list[object] = []
        self.displaced: list[str] = []

    def on_assignment(self, assignment: Assignment) -> None:
        """Record an assignment."""
        self.assignments.append(assignment)

    def on_task(self, task: Task, number: int) -> None:
        """Record a task."""
        self.tasks.append(task.id)

    def on_confirmed(self, request: int) -> None:
        """Record a confirmation."""
        self.confirmed.append(request)

    def on_malformed(self, reason: str) -> None:
        """Record a malformed message."""
        self.malformed.append(reason)

    def on_acknowledged(self, facts: list[object]) -> None:
        """Record the store's answer."""
        self.acknowledged += facts

    def on_displaced(self, instance_id: str) -> None:
        """Record a displacement."""
        self.displaced.append(instance_id)


class Talk:
    """A store, a client and sessions on it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.client = StoreClient(self.store)
        self.sessions: list[AgentSession] = []

    def session(
        self,
        listener: RecordingListener,
        node: str = "n1",
        *,
        signer: Signer = UNSIGNED,
        spool: Spool | None = None,
    ) -> AgentSession:
        """Make a session and subscribe it."""
        source = AgentInstance(node=node, incarnation=1, instance_id=new_instance_id())
        made = AgentSession(
            self.client, source, listener, signer=signer, rejoin_seconds=10.0, spool=spool
        )
        self.sessions.append(made)
        made.start()
        return made

    def put(
        self, instance_id: str, generation: int = 1, *, signer: Signer = UNSIGNED, node: str = "n1"
    ) -> None:
        """Write an idle assignment of a generation for an agent instance."""
        place = f"assignment/{node}"
        assignment = Assignment(node=node, generation=generation, instance_id=instance_id)
        self.store.put(place, signer.sign(place, encode(assignment)))

    def signals(self) -> list[bytes]:
        """Return the durable signals in the store."""
        batch = self.store.read(streams={"signals": 0}, registers={}, timeout_seconds=0)
        return [item.payload for item in batch.items.get("signals", ())]


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Yield a running client; stop its threads afterwards."""
    made = Talk()
    made.client.start()
    yield made
    for session in made.sessions:
        session.close()
    made.client.close()


def malformed(number: int) -> MalformedMessage:
    """Return a signal that no other equals."""
    return MalformedMessage(node="n1", incarnation=1, sequence=number, reason="test")


def joined(session: AgentSession) -> NodeJoined:
    """Return a session's joining."""
    return NodeJoined(**session.next_header(), hardware="h", slots=1, address="127.0.0.1", pid=1)


def test_order_is_kept_through_an_outage(tmp_path: Path, talk: Talk) -> None:
    """Signals emitted while the store is down arrive in order when it is back; heartbeats of that time do not."""
    talk.store.go_down()
    listener = RecordingListener()
    session = talk.session(listener, spool=Spool(tmp_path / "spool"))
    session.outbox.put(malformed(1))
    session.outbox.put_heartbeat(Heartbeat(node="n1", incarnation=1, sequence=2))
    wait_until(lambda: session.outbox.lost_since(time.monotonic()), "the outage noticed")
    session.outbox.put(malformed(2))
    assert not session.outbox.flush(0.05)
    talk.store.come_back()
    assert session.outbox.flush(10.0)
    kept = Heartbeat(node="n1", incarnation=1, sequence=3)
    session.outbox.put_heartbeat(kept)
    wait_until(lambda: talk.store.last("heartbeats"), "a heartbeat")
    heartbeats = talk.store.read(streams={"heartbeats": 0}, registers={}, timeout_seconds=0).items[
        "heartbeats"
    ]
    assert [decode(line) for line in talk.signals()] == [malformed(1), malformed(2)]
    assert [decode(item.payload) for item in heartbeats] == [kept]
    wait_until(lambda: listener.acknowledged == [malformed(1), malformed(2)], "both acknowledged")
    assert session.outbox.lost_since(time.monotonic()) is None
    assert (tmp_path / "spool").read_bytes() == b""


def test_what_was_not_acknowledged_outlives_the_process(tmp_path: Path, talk: Talk) -> None:
    """The next agent emits unacknowledged signals unchanged, and drops a line torn by a kill."""
    talk.store.go_down()
    first = talk.session(RecordingListener(), spool=Spool(tmp_path / "spool"))
    first.outbox.put(malformed(1))
    first.outbox.put(malformed(2))
    first.close()
    with (tmp_path / "spool").open("ab") as spool:
        spool.write(b'{"kind": "ju')
    second = talk.session(RecordingListener(), spool=Spool(tmp_path / "spool"))
    assert second.outbox.waiting == [malformed(1), malformed(2)]
    # behind the torn line
    second.outbox.put(malformed(3))
    second.close()
    third = talk.session(RecordingListener(), spool=Spool(tmp_path / "spool"))
    assert third.outbox.waiting == [malformed(1), malformed(2), malformed(3)]
    talk.store.come_back()
    assert third.outbox.flush(30.0)
    # A write that the first had under way may come late: a supervisor drops what it has processed.
    found = [decode(line) for line in talk.signals()]
    assert [each for n, each in enumerate(found) if each not in found[:n]] == [
        malformed(1),
        malformed(2),
        malformed(3),
    ]


@pytest.mark.parametrize("signer", [UNSIGNED, SIGNER])
def test_what_does_not_fit_is_refused(talk: Talk, signer: Signer) -> None:
    """A signal too large for a message, its signature included, is refused to its face and blocks none behind it."""
    session = talk.session(RecordingListener(), signer=signer)
    bare = len(encode(MalformedMessage(node="n1", incarnation=1, reason="")))
    room = 64 * 1024 - bare - (SIGNATURE_BYTES if signer.is_active else 0)
    with pytest.raises(WireError, match="the limit is"):
        session.outbox.put(MalformedMessage(node="n1", incarnation=1, reason="x" * (room + 1)))
    assert session.outbox.waiting == []
    session.outbox.put(MalformedMessage(node="n1", incarnation=1, reason="x" * room))
    assert session.outbox.flush(10.0)


def test_messages_are_signed_for_their_stream(talk: Talk) -> None:
    """Signals and heartbeats verify only for the stream they are in, and name the agent instance that sent them."""
    session = talk.session(RecordingListener(), signer=SIGNER)
    session.join(joined(session), time.monotonic())
    session.outbox.put_heartbeat(Heartbeat(**session.next_header()))
    assert session.outbox.flush(10.0)
    wait_until(lambda: talk.store.last("heartbeats"), "a heartbeat")
    for stream, other in (("signals", "heartbeats"), ("heartbeats", "signals")):
        batch = talk.store.read(streams={stream: 0}, registers={}, timeout_seconds=0)
        payload = batch.items[stream][0].payload
        assert decode(SIGNER.verify(stream, payload)).instance_id == session.instance.instance_id
        with pytest.raises(WireError, match="signed with another token"):
            SIGNER.verify(other, payload)


def test_what_is_not_signed_is_not_obeyed(talk: Talk) -> None:
    """Assignments and tasks that are unsigned, wrongly signed or for another node are malformed; the agent obeys signed ones."""
    listener = RecordingListener()
    session = talk.session(listener, signer=SIGNER)
    task = encode(Task(id="a1", node="n1", task="drill"))
    talk.put(session.instance.instance_id, 1)
    talk.store.append("tasks/n1", task)
    talk.store.append("tasks/n1", OTHER_SIGNER.sign("tasks/n1", task))
    talk.store.append("tasks/n1", SIGNER.sign("tasks/n2", task))
    wait_until(lambda: len(listener.malformed) == 4, "four malformed messages")
    assert all(reason.startswith("forged ") for reason in listener.malformed)
    talk.put(session.instance.instance_id, 1, signer=SIGNER)
    talk.store.append("tasks/n1", SIGNER.sign("tasks/n1", task))
    wait_until(lambda: listener.assignments and listener.tasks, "what was signed")
    assert [assignment.generation for assignment in listener.assignments] == [1]
    assert listener.tasks == ["a1"]


def test_nothing_is_confirmed_by_what_cannot_be_believed(talk: Talk) -> None:
    """While a forged assignment lies over the true one, reading it again confirms nothing; the next true one does."""
    listener = RecordingListener()
    talk.put("", 1, signer=SIGNER)
    session = talk.session(listener, signer=SIGNER)
    wait_until(lambda: listener.confirmed == [0], "the first look")
    talk.put("", 2, signer=OTHER_SIGNER)
    wait_until(lambda: listener.malformed, "the forged one read")
    asked = session.confirm()
    wait_until(lambda: len(listener.malformed) == 2, "it read again")
    talk.put("", 3, signer=SIGNER)
    wait_until(lambda: asked in listener.confirmed, "the confirmation")
    assert listener.confirmed == [0, asked]
    assert [assignment.generation for assignment in listener.assignments] == [1, 3]


def test_joining_is_sent_again_until_a_register_answers(talk: Talk) -> None:
    """Until a register names this instance, joining is due again, ever more seldom; another instance's name is no answer."""
    listener = RecordingListener()
    session = talk.session(listener)
    # Never emitted for the first time.
    assert not session.wants_join(1e9)
    now, pauses = 0.0, []
    for _ in range(6):
        session.join(joined(session), now)
        assert session.outbox.flush(10.0)
        pauses.append(next(pause for pause in range(1000) if session.wants_join(now + pause)))
        now += pauses[-1]
    assert pauses == [10, 20, 40, 80, 120, 120]
    talk.put("another", 1)
    wait_until(lambda: len(listener.assignments) == 1, "an assignment of another instance")
    assert session.wants_join(now)
    assert not session.is_mine(listener.assignments[0])
    talk.put(session.instance.instance_id, 1)
    wait_until(lambda: len(listener.assignments) == 2, "an assignment of this instance")
    assert not session.wants_join(now)
    assert session.is_mine(listener.assignments[1])
    assert listener.displaced == []


def test_joining_waits_while_the_store_is_away(talk: Talk) -> None:
    """The session does not repeat a join that the store has not acknowledged."""
    talk.store.go_down()
    session = talk.session(RecordingListener())
    session.join(joined(session), 0.0)
    assert not session.wants_join(1e9)
    talk.store.come_back()
    assert session.outbox.flush(30.0)
    assert session.wants_join(1e9)


def test_an_agent_that_the_register_no_longer_names_is_displaced(talk: Talk) -> None:
    """Once a register named this instance, a later one that names another displaces it and is not delivered as an assignment."""
    listener = RecordingListener()
    session = talk.session(listener)
    talk.put(session.instance.instance_id, 1)
    wait_until(lambda: listener.assignments, "an assignment")
    # of an older supervisor: as if it were ours
    talk.put("", 2)
    wait_until(lambda: len(listener.assignments) == 2, "another")
    talk.put("the other", 3)
    wait_until(lambda: listener.displaced == ["the other"], "being displaced")
    assert len(listener.assignments) == 2


def test_an_assignment_that_was_put_back_displaces_no_agent(talk: Talk) -> None:
    """A register that named an earlier instance, or is older than our naming, is malformed; a later one still counts."""
    listener = RecordingListener()
    talk.put("our last instance", 7, signer=SIGNER)
    session = talk.session(listener, signer=SIGNER)
    wait_until(lambda: listener.assignments, "what was meant for an earlier instance")
    talk.put(session.instance.instance_id, 7, signer=SIGNER)
    wait_until(lambda: len(listener.assignments) == 2, "an assignment")
    talk.put("our last instance", 7, signer=SIGNER)
    wait_until(
        lambda: len(listener.malformed) == 1 or listener.displaced, "a word about what was put back"
    )
    talk.put("an instance long before", 6, signer=SIGNER)
    wait_until(lambda: len(listener.malformed) == 2 or listener.displaced, "another word")
    assert listener.displaced == []
    assert all(reason.startswith("replayed ") for reason in listener.malformed)
    talk.put("the next one", 7, signer=SIGNER)
    wait_until(lambda: listener.displaced == ["the next one"], "being displaced")


def test_many_sessions_share_two_threads(tmp_path: Path) -> None:
    """300 sessions on one client have two threads and one handle; each receives its own messages, and each signal arrives."""
    before = threading.active_count()
    with closing(SqliteStore(tmp_path)) as store:
        client = StoreClient(store)
        received = {f"n{index}": RecordingListener() for index in range(300)}
        sessions = {
            node: AgentSession(
                client,
                AgentInstance(node=node, incarnation=1, instance_id=new_instance_id()),
                listener,
                signer=SIGNER,
                rejoin_seconds=10.0,
            )
            for node, listener in received.items()
        }
        client.start()
        for session in sessions.values():
            session.start()
            session.join(joined(session), 0.0)
        assert threading.active_count() == before + 2
        assert all(session.outbox.flush(60.0) for session in sessions.values())
        store.put_many(
            {f"assignment/{node}": _signed(session) for node, session in sessions.items()}
        )
        wait_until(
            lambda: all(listener.assignments for listener in received.values()), "all assignments"
        )
        for node, listener in received.items():
            assert [assignment.node for assignment in listener.assignments] == [node]
        batch = store.read(streams={"signals": 0}, registers={}, timeout_seconds=0, limit=1000)
        output = [decode(SIGNER.verify("signals", item.payload)) for item in batch.items["signals"]]
        assert sorted(output.node for output in output) == sorted(received)
        for session in sessions.values():
            session.close()
        client.close()
    assert threading.active_count() == before


def _signed(session: AgentSession) -> bytes:
    node = session.instance.node
    assignment = Assignment(node=node, generation=1, instance_id=session.instance.instance_id)
    return SIGNER.sign(f"assignment/{node}", encode(assignment))
