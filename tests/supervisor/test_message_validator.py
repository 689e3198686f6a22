"""What the supervisor believes of what lies in its streams: signed, of the right kind and life, and new; the rest is counted."""

from __future__ import annotations

import pytest

from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import Node, State
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.messages.records import JournalEntry, NodeRegistered, SupervisorStarted
from runner.facts.messages.requests import ShutDown
from runner.facts.messages.signals import Heartbeat, MalformedMessage, NodeJoined, NodeLeft
from runner.facts.store_names import HEARTBEATS, REQUESTS, SIGNALS
from runner.signer import UNSIGNED, Signer
from runner.supervisor.message_validator import MessageRefused, MessageValidator

SIGNER = Signer(b"a token of this cluster's own")
OTHER = Signer(b"the token of another cluster")


def state_with(instance_id: str = "a") -> State:
    """A state that knows n1 by the agent of one life, incarnation 3."""
    state = State()
    state.nodes["n1"] = Node(node="n1", index=0, incarnation=3, instance_id=instance_id)
    return state


def heartbeat(
    sequence: int, *, incarnation: int = 3, instance_id: str = "a", node: str = "n1"
) -> Heartbeat:
    """A heartbeat."""
    return Heartbeat(node=node, incarnation=incarnation, sequence=sequence, instance_id=instance_id)


def joined(sequence: int, *, incarnation: int, instance_id: str) -> NodeJoined:
    """An agent that joins as n1."""
    return NodeJoined(
        node="n1",
        incarnation=incarnation,
        sequence=sequence,
        instance_id=instance_id,
        hardware="file:1",
        slots=1,
        address="127.0.0.1",
        pid=1,
    )


def take_in(validator: MessageValidator, state: State, stream: str, fact: object) -> object:
    """Say something signed."""
    return validator.validate(stream, SIGNER.sign(stream, wire.encode(fact)), state)


def refusal(validator: MessageValidator, state: State, stream: str, payload: bytes) -> str:
    """Say something that is to be refused; return why it was."""
    with pytest.raises(MessageRefused) as refused:
        validator.validate(stream, payload, state)
    return refused.value.reason


def write_down(state: State, fact: object, *records: object) -> None:
    """Let the journal have it."""
    entry = JournalEntry(sequence=state.sequence + 1, now=1.0, input=fact, records=records)
    apply_entry(state, entry)


def test_what_is_signed_for_its_stream_is_taken_in() -> None:
    """A heartbeat, a signal, an agent's answer and a request, each in its own stream."""
    validator, state = MessageValidator(SIGNER), state_with()
    for stream, fact in (
        (HEARTBEATS, heartbeat(1)),
        (SIGNALS, NodeLeft(node="n1", incarnation=3, sequence=2, instance_id="a")),
        (SIGNALS, ActionResult(id="a1", outcome="done")),
        (REQUESTS, ShutDown(id="q-1", by="somebody")),
    ):
        assert take_in(validator, state, stream, fact) == fact
    assert not validator.refused


def test_what_is_not_signed_with_the_token_for_its_stream_is_refused() -> None:
    """No code, another token's, another stream's, and a message altered after it was signed."""
    validator, state = MessageValidator(SIGNER), state_with()
    plain = wire.encode(ShutDown(id="q-1", by="nobody"))
    altered = SIGNER.sign(REQUESTS, plain).replace(b"nobody", b"noboby")
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
def test_a_kind_that_does_not_belong_in_a_stream_is_junk(stream: str, fact: object) -> None:
    """Agents do not ask for things, and not even a holder of the token can speak as the supervisor itself."""
    validator, state = MessageValidator(SIGNER), state_with()
    assert refusal(validator, state, stream, SIGNER.sign(stream, wire.encode(fact))) == "malformed"


@pytest.mark.parametrize("signer", [SIGNER, UNSIGNED])
@pytest.mark.parametrize(
    "junk", [b"{", b"\x00" * 100, b'{"kind":"no such kind"}', b"[" * 50_000, b"x" * 70_000]
)
def test_junk_is_refused_whether_signed_or_not(signer: Signer, junk: bytes) -> None:
    """Broken, nested, of unknown kind, too long: each is one refusal, whoever signed it."""
    reason = refusal(MessageValidator(signer), state_with(), SIGNALS, signer.sign(SIGNALS, junk))
    assert reason == "malformed"


def test_a_signal_taken_before_is_refused_when_it_comes_again() -> None:
    """By incarnation and sequence, as the journal knows them: so a later supervisor refuses it too."""
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


def test_a_heartbeat_said_again_proves_no_life() -> None:
    """Neither the same one nor an older one of that life, nor one older than what the journal has of it."""
    validator, state = MessageValidator(SIGNER), state_with()
    write_down(state, NodeLeft(node="n1", incarnation=3, sequence=5, instance_id="a"))
    stale = SIGNER.sign(HEARTBEATS, wire.encode(heartbeat(4)))
    assert refusal(validator, state, HEARTBEATS, stale) == "replayed"
    take_in(validator, state, HEARTBEATS, heartbeat(10))
    for sequence in (10, 9, 6):
        payload = SIGNER.sign(HEARTBEATS, wire.encode(heartbeat(sequence)))
        assert refusal(validator, state, HEARTBEATS, payload) == "replayed"
    take_in(validator, state, HEARTBEATS, heartbeat(11))
    # In its own stream a heartbeat may be a moment behind a signal.
    write_down(state, NodeLeft(node="n1", incarnation=3, sequence=20, instance_id="a"))
    take_in(validator, state, HEARTBEATS, heartbeat(19))


def test_what_is_not_counted_is_refused_in_a_signed_cluster_only() -> None:
    """Without a sequence it could be said again and again; agents of older releases did count, and did not sign."""
    state = state_with()
    payload = SIGNER.sign(HEARTBEATS, wire.encode(heartbeat(0)))
    assert refusal(MessageValidator(SIGNER), state, HEARTBEATS, payload) == "unsequenced"
    assert MessageValidator(UNSIGNED).validate(
        HEARTBEATS, wire.encode(heartbeat(0)), state
    ) == heartbeat(0)


def test_another_agent_under_a_nodes_name_is_not_the_node() -> None:
    """Its heartbeats and signals are a stranger's; that it wants to join is heard, and whoever decides may refuse it."""
    validator, state = MessageValidator(SIGNER), state_with()
    for stream, fact in (
        (HEARTBEATS, heartbeat(100, instance_id="b")),
        (HEARTBEATS, heartbeat(100, node="n9")),
        (SIGNALS, NodeLeft(node="n1", incarnation=9, sequence=1, instance_id="b")),
    ):
        payload = SIGNER.sign(stream, wire.encode(fact))
        assert refusal(validator, state, stream, payload) == "unknown_sender"
    wish = joined(1, incarnation=1, instance_id="b")
    assert take_in(validator, state, SIGNALS, wish) == wish
    # refused: it leaves no mark on what the node itself said
    write_down(state, wish)
    news = NodeLeft(node="n1", incarnation=3, sequence=1, instance_id="a")
    assert take_in(validator, state, SIGNALS, news) == news


def test_the_join_of_a_life_that_is_over_is_refused() -> None:
    """A node that was started anew, its folder wiped, may count from 1 again; what joined before it may not come back."""
    state = state_with("")
    instance_ids = [("a", 5), ("b", 1), ("c", 1)]
    for instance_id, incarnation in instance_ids:
        wish = joined(1, incarnation=incarnation, instance_id=instance_id)
        assert take_in(MessageValidator(SIGNER), state, SIGNALS, wish) == wish
        registered = NodeRegistered(
            node="n1",
            incarnation=incarnation,
            hardware="file:1",
            slots=1,
            address="127.0.0.1",
            pid=1,
            instance_id=instance_id,
        )
        write_down(state, wish, registered)
    for instance_id, incarnation in instance_ids:
        payload = SIGNER.sign(
            SIGNALS, wire.encode(joined(1, incarnation=incarnation, instance_id=instance_id))
        )
        assert refusal(MessageValidator(SIGNER), state, SIGNALS, payload) == "replayed"
