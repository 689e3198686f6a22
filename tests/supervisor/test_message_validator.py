"""The supervisor accepts signed, new messages of the right kind and agent instance; it counts the rest."""

import math
import time

import pytest
from msgspec.structs import replace

from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import (
    MAX_REFUSED_JOINS_KEPT,
    MAX_REQUEST_IDS_KEPT,
    Node,
    State,
)
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.messages.records import (
    JournalEntry,
    NodeRegistered,
    RequestRecorded,
    SupervisorStarted,
)
from runner.facts.messages.requests import ShutDown
from runner.facts.messages.signals import Heartbeat, MalformedMessage, NodeJoined, NodeLeft
from runner.facts.store_names import HEARTBEATS, REQUESTS, SIGNALS
from runner.signer import UNSIGNED, Signer
from runner.supervisor.message_validator import (
    MAX_APART_SECONDS,
    MessageRefused,
    MessageValidator,
)

SIGNER = Signer(b"a token of this cluster's own")
OTHER = Signer(b"the token of another cluster")


def state_with(instance_id: str = "a") -> State:
    """A state that knows n1 by one agent instance, incarnation 3."""
    state = State()
    state.nodes["n1"] = Node(node="n1", index=0, incarnation=3, instance_id=instance_id)
    return state


def heartbeat(
    sequence: int, *, incarnation: int = 3, instance_id: str = "a", node: str = "n1"
) -> Heartbeat:
    """Make a heartbeat."""
    return Heartbeat(node=node, incarnation=incarnation, sequence=sequence, instance_id=instance_id)


def joined(
    sequence: int, *, incarnation: int, instance_id: str, sent_at: float | None = None
) -> NodeJoined:
    """Make the request of an agent to join as n1."""
    return NodeJoined(
        node="n1",
        incarnation=incarnation,
        sequence=sequence,
        instance_id=instance_id,
        hardware="file:1",
        slots=1,
        address="127.0.0.1",
        pid=1,
        sent_at=time.time() if sent_at is None else sent_at,
    )


def accepted(validator: MessageValidator, state: State, stream: str, fact: object) -> object:
    """Send a signed message; return what the validator accepts."""
    return validator.validate(stream, SIGNER.sign(stream, wire.encode(fact)), state)


def refusal(validator: MessageValidator, state: State, stream: str, payload: bytes) -> str:
    """Send a message that the validator refuses; return the reason."""
    with pytest.raises(MessageRefused) as refused:
        validator.validate(stream, payload, state)
    return refused.value.reason


def write_down(state: State, fact: object, *records: object) -> None:
    """Apply inputs as the journal does."""
    entry = JournalEntry(sequence=state.sequence + 1, now=1.0, input=fact, records=records)
    apply_entry(state, entry)


def test_a_message_signed_for_its_stream_is_accepted() -> None:
    """The validator accepts a heartbeat, a signal, an agent's answer and a request, each in its own stream."""
    validator, state = MessageValidator(SIGNER), state_with()
    for stream, fact in (
        (HEARTBEATS, heartbeat(1)),
        (SIGNALS, NodeLeft(node="n1", incarnation=3, sequence=2, instance_id="a")),
        (SIGNALS, ActionResult(id="a1", outcome="done")),
        (REQUESTS, ShutDown(id="q-1", by="ann", sent_at=time.time())),
    ):
        assert accepted(validator, state, stream, fact) == fact
    assert not validator.refused


def test_a_message_not_signed_with_the_token_for_its_stream_is_refused() -> None:
    """The code is missing, of another token or stream, or the message was altered afterwards."""
    validator, state = MessageValidator(SIGNER), state_with()
    plain = wire.encode(ShutDown(id="q-1", by="mallory"))
    altered = SIGNER.sign(REQUESTS, plain).replace(b"mallory", b"malvory")
    for payload in (
        plain,
        b"",
        plain + b"\n" + b"0" * 64,
        OTHER.sign(REQUESTS, plain),
        SIGNER.sign(SIGNALS, plain),
        altered,
    ):
        assert refusal(validator, state, REQUESTS, payload) == "unsigned"
    assert validator.refused == {"unsigned": 6}


@pytest.mark.parametrize(
    ("stream", "fact"),
    [
        (SIGNALS, ShutDown(id="q-1")),
        (SIGNALS, heartbeat(1)),
        (SIGNALS, SupervisorStarted(holder="me", token=99, version="x")),
        (REQUESTS, NodeLeft(node="n1", incarnation=3, sequence=1, instance_id="a")),
        (HEARTBEATS, NodeLeft(node="n1", incarnation=3, sequence=1, instance_id="a")),
        (REQUESTS, ActionResult(id="a1", outcome="done")),
    ],
)
def test_a_kind_that_does_not_belong_in_a_stream_is_malformed(stream: str, fact: object) -> None:
    """Agents send no requests, and not even a holder of the token can send the supervisor's own inputs."""
    validator, state = MessageValidator(SIGNER), state_with()
    assert refusal(validator, state, stream, SIGNER.sign(stream, wire.encode(fact))) == "malformed"


@pytest.mark.parametrize("signer", [SIGNER, UNSIGNED])
@pytest.mark.parametrize(
    "malformed", [b"{", b"\x00" * 100, b'{"kind":"no such kind"}', b"[" * 50_000, b"x" * 70_000]
)
def test_a_malformed_message_is_refused_signed_or_not(signer: Signer, malformed: bytes) -> None:
    """Broken, nested, of unknown kind, too long: each is one refusal, with any signature."""
    reason = refusal(
        MessageValidator(signer), state_with(), SIGNALS, signer.sign(SIGNALS, malformed)
    )
    assert reason == "malformed"


def test_a_replayed_signal_is_refused() -> None:
    """The journal has its incarnation and sequence, so a later supervisor refuses it too."""
    state = state_with()
    write_down(
        state,
        MalformedMessage(node="n1", incarnation=3, sequence=7, instance_id="a", reason="noise"),
    )
    for signer in (SIGNER, UNSIGNED):
        validator = MessageValidator(signer)
        again = NodeLeft(node="n1", incarnation=3, sequence=7, instance_id="a")
        older = NodeLeft(node="n1", incarnation=3, sequence=6, instance_id="a")
        earlier_instance_id = NodeLeft(node="n1", incarnation=2, sequence=90, instance_id="a")
        for fact in (again, older, earlier_instance_id):
            payload = signer.sign(SIGNALS, wire.encode(fact))
            assert refusal(validator, state, SIGNALS, payload) == "replayed"
        news = NodeLeft(node="n1", incarnation=3, sequence=8, instance_id="a")
        assert validator.validate(SIGNALS, signer.sign(SIGNALS, wire.encode(news)), state) == news


def test_a_replayed_heartbeat_is_refused() -> None:
    """That holds for the same one, an older one of that instance, and one older than the journal's signals."""
    validator, state = MessageValidator(SIGNER), state_with()
    write_down(state, NodeLeft(node="n1", incarnation=3, sequence=5, instance_id="a"))
    stale = SIGNER.sign(HEARTBEATS, wire.encode(heartbeat(4)))
    assert refusal(validator, state, HEARTBEATS, stale) == "replayed"
    accepted(validator, state, HEARTBEATS, heartbeat(10))
    for sequence in (10, 9, 6):
        payload = SIGNER.sign(HEARTBEATS, wire.encode(heartbeat(sequence)))
        assert refusal(validator, state, HEARTBEATS, payload) == "replayed"
    accepted(validator, state, HEARTBEATS, heartbeat(11))
    # In its own stream a heartbeat may be a moment behind a signal.
    write_down(state, NodeLeft(node="n1", incarnation=3, sequence=20, instance_id="a"))
    accepted(validator, state, HEARTBEATS, heartbeat(19))


def test_an_unsequenced_message_is_refused_in_a_signed_cluster_only() -> None:
    """Without a sequence it could be replayed; agents of older releases did count, and did not sign."""
    state = state_with()
    payload = SIGNER.sign(HEARTBEATS, wire.encode(heartbeat(0)))
    assert refusal(MessageValidator(SIGNER), state, HEARTBEATS, payload) == "unsequenced"
    assert MessageValidator(UNSIGNED).validate(
        HEARTBEATS, wire.encode(heartbeat(0)), state
    ) == heartbeat(0)


def test_messages_of_another_agent_under_a_nodes_name_are_refused() -> None:
    """Its heartbeats and signals are of an unknown sender; its request to join passes, and the controller may refuse it."""
    validator, state = MessageValidator(SIGNER), state_with()
    for stream, fact in (
        (HEARTBEATS, heartbeat(100, instance_id="b")),
        (HEARTBEATS, heartbeat(100, node="n9")),
        (SIGNALS, NodeLeft(node="n1", incarnation=9, sequence=1, instance_id="b")),
    ):
        payload = SIGNER.sign(stream, wire.encode(fact))
        assert refusal(validator, state, stream, payload) == "unknown_sender"
    request = joined(1, incarnation=1, instance_id="b")
    assert accepted(validator, state, SIGNALS, request) == request
    # A refused join does not make the node's own signals look stale.
    write_down(state, request)
    news = NodeLeft(node="n1", incarnation=3, sequence=1, instance_id="a")
    assert accepted(validator, state, SIGNALS, news) == news


def test_the_join_of_a_past_instance_is_refused() -> None:
    """A node with a wiped folder may count from 1 again; the instances before it may not return."""
    state = state_with("")
    instance_ids = [("a", 5), ("b", 1), ("c", 1)]
    for instance_id, incarnation in instance_ids:
        request = joined(1, incarnation=incarnation, instance_id=instance_id)
        assert accepted(MessageValidator(SIGNER), state, SIGNALS, request) == request
        registered = NodeRegistered(
            node="n1",
            incarnation=incarnation,
            hardware="file:1",
            slots=1,
            address="127.0.0.1",
            pid=1,
            instance_id=instance_id,
        )
        write_down(state, request, registered)
    for instance_id, incarnation in instance_ids:
        payload = SIGNER.sign(
            SIGNALS, wire.encode(joined(1, incarnation=incarnation, instance_id=instance_id))
        )
        assert refusal(MessageValidator(SIGNER), state, SIGNALS, payload) == "replayed"


@pytest.mark.parametrize("apart", [-1.01, -0.99, 0.0, 0.99, 1.01, math.nan, math.inf, -1e300])
def test_requests_and_joins_are_accepted_within_a_window_around_the_wall_clock(
    apart: float,
) -> None:
    """That holds whatever the clock of the decisions is: after a clock that was off it may be hours ahead."""
    now = 1.8e9
    validator, state = MessageValidator(SIGNER, lambda: now), state_with("")
    state.now = now + 7200
    sent_at = now + apart * MAX_APART_SECONDS
    for stream, fact in (
        (REQUESTS, ShutDown(id="q-1", sent_at=sent_at)),
        (SIGNALS, joined(1, incarnation=4, instance_id="b", sent_at=sent_at)),
    ):
        if abs(apart) < 1:
            assert accepted(validator, state, stream, fact) == fact
        else:
            assert refusal(validator, state, stream, SIGNER.sign(stream, wire.encode(fact))) == (
                "stale"
            )


def test_messages_of_older_senders_without_a_time_are_accepted_in_an_unsigned_cluster_only() -> (
    None
):
    """A signed one could be put back at any time; the refusal says what to do."""
    request, join = ShutDown(id="q-1"), joined(1, incarnation=4, instance_id="b", sent_at=0.0)
    unsigned, state = MessageValidator(UNSIGNED), state_with("")
    for stream, fact in ((REQUESTS, request), (SIGNALS, join)):
        assert unsigned.validate(stream, wire.encode(fact), state) == fact
        payload = SIGNER.sign(stream, wire.encode(fact))
        with pytest.raises(MessageRefused, match="upgrade that machine"):
            MessageValidator(SIGNER).validate(stream, payload, state)


def test_more_requests_than_are_remembered_are_refused_by_the_time_of_the_newest() -> None:
    """The memory is bounded; a request dated into the future does not shut out those sent now."""
    validator, state, now = MessageValidator(SIGNER), State(), time.time()
    state.now = now
    future = RequestRecorded(id="f", request="x", by="", state="refused", sent_at=now + 1e9)
    write_down(state, object(), *[replace(future, id=f"f{n}") for n in range(1100)])
    assert not state.other_requests_until
    for number in range(3):
        record = RequestRecorded(
            id=f"q-{number}", request="x", by="", state="done", sent_at=now - 3 + number
        )
        write_down(state, object(), record, replace(record, state="failed"))
    assert len(state.request_ids) == MAX_REQUEST_IDS_KEPT
    state.requests.clear()
    for number in range(3):
        again = ShutDown(id=f"q-{number}", sent_at=now - 3 + number)
        payload = SIGNER.sign(REQUESTS, wire.encode(again))
        assert refusal(validator, state, REQUESTS, payload) == "stale"
    accepted(validator, state, REQUESTS, ShutDown(id="q-new", sent_at=now))


def test_a_join_that_was_refused_is_not_accepted_later() -> None:
    """Put back once the name is free, it would register an agent that is gone; a newer join of that agent is accepted."""
    validator, state = MessageValidator(SIGNER), state_with()
    first = joined(1, incarnation=4, instance_id="b")
    for node in ("n1", "n7"):
        accepted(validator, state, SIGNALS, first)
        write_down(state, replace(first, node=node))
        # Whatever frees the name; of n7 nothing is known.
        state.nodes["n1"].instance_id = ""
        again = SIGNER.sign(SIGNALS, wire.encode(replace(first, node=node)))
        assert refusal(validator, state, SIGNALS, again) == "replayed"
        newer = joined(3, incarnation=4, instance_id="b")
        assert accepted(validator, state, SIGNALS, newer) == newer
        first = joined(1, incarnation=4, instance_id="c")
        state.nodes["n1"].instance_id = "a"
    for number in range(2 * MAX_REFUSED_JOINS_KEPT):
        write_down(state, joined(1, incarnation=1, instance_id=f"i{number}"))
    assert len(state.refused_joins) == MAX_REFUSED_JOINS_KEPT


def test_a_request_is_refused_from_its_own_time_on() -> None:
    """Its sender says how long it is wanted; one without a time of its own is as fresh as any."""
    now = time.time()
    clock = [now]
    validator = MessageValidator(SIGNER, lambda: clock[0])
    request = ShutDown(id="q-1", sent_at=now, expires_at=now + 10)
    state = State()
    assert accepted(validator, state, REQUESTS, request) == request
    clock[0] = now + 10.5
    payload = SIGNER.sign(REQUESTS, wire.encode(request))
    with pytest.raises(MessageRefused, match="q-1 expired") as refused:
        validator.validate(REQUESTS, payload, state)
    assert refused.value.stale == request
    for expires_at in (math.nan, -1.0):
        payload = SIGNER.sign(REQUESTS, wire.encode(replace(request, expires_at=expires_at)))
        assert refusal(validator, state, REQUESTS, payload) == "stale"
    accepted(validator, state, REQUESTS, replace(request, expires_at=0.0))
