"""Requests of people: appended to the store; the supervisor's answer comes back as a register."""

import time
import uuid
from collections.abc import Callable

from msgspec.structs import replace

from runner.errors import TemporaryError, WireError
from runner.facts import wire
from runner.facts.messages.requests import Answer, Request
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import REQUESTS, answer_register
from runner.serve.leaders import require_leader, require_own_store
from runner.signer import signer_of
from runner.store.protocol import Store

LEASE_CHECK_SECONDS = 2.0
# A request that no supervisor has read by then is refused. Less than lies between two clocks at most; chosen.
VALID_SECONDS = 240.0
MAX_REASON_CHARACTERS = 500


class NoAnswer(TemporaryError):
    """The supervisor did not answer in time; it may still carry the request out."""


def new_request_id() -> str:
    """Make an id; the same id sent twice is one request."""
    return f"q-{uuid.uuid4().hex[:12]}"


def send(store: Store, cluster: ClusterSpec, request: Request) -> None:
    """Append a request, signed; raise NoLeader if no supervisor would read it.

    Raises UserError unless the token of the store's cluster can be read: only its readers may make requests.
    """
    require_leader(store, cluster)
    require_own_store(store, cluster)
    now = time.time()
    request = replace(request, sent_at=now, expires_at=now + VALID_SECONDS)
    store.append(REQUESTS, signer_of(cluster).sign(REQUESTS, wire.encode(request)))


def decode_answer(cluster: ClusterSpec, register: str, payload: bytes) -> Answer:
    """Decode an answer; raise WireError for what the cluster's supervisor did not write, Forged above all."""
    answer = wire.decode(signer_of(cluster).verify(register, payload))
    if not isinstance(answer, Answer):
        raise WireError(f"{register} holds a {type(answer).__name__}, not an answer")
    return answer


def ask(
    store: Store,
    cluster: ClusterSpec,
    request: Request,
    *,
    timeout_seconds: float,
    on_accepted: Callable[[Answer], None] = lambda answer: None,
    on_wait: Callable[[], None] = lambda: None,
) -> Answer:
    """Send a request and wait until it is done, refused or failed; `on_accepted` gets the answer that accepts it.

    `on_wait` is called every two seconds meanwhile.

    Raises NoLeader and NoAnswer.
    """
    send(store, cluster, request)
    name, version, accepted, unbelieved = answer_register(request.id), 0, "", ""
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0:
        batch = store.read(
            streams={}, registers={name: version}, timeout_seconds=min(left, LEASE_CHECK_SECONDS)
        )
        if name in batch.registers:
            version = batch.registers[name].version
            try:
                answer = decode_answer(cluster, name, batch.registers[name].payload)
            except WireError as error:
                unbelieved = f"; the store holds an answer that is not believed: {error}"
                continue
            if answer.state != "open":
                return answer
            accepted = answer.message or "accepted"
            on_accepted(answer)
        elif left > LEASE_CHECK_SECONDS:
            require_leader(store, cluster)
            on_wait()
    progress = (
        f"it was accepted ({accepted}) and continues" if accepted else "it was not accepted yet"
    )
    raise NoAnswer(
        f"request {request.id} was not answered within {timeout_seconds:g} s: {progress}{unbelieved}; "
        "see `stoker status`, or wait longer with --timeout"
    )
