"""Requests of people: appended to the store; the supervisor's answer comes back as a register."""

from __future__ import annotations

import getpass
import os
import pwd
import time
import uuid
from collections.abc import Callable

from runner.cli.clusters import require_leader
from runner.errors import TemporaryError
from runner.facts import wire
from runner.facts.messages.requests import Answer, Request
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import REQUESTS, answer_register
from runner.signer import signer_of
from runner.store.protocol import Store

# Between two checks whether a supervisor still holds the lease.
LOOK_SECONDS = 2.0


class NoAnswer(TemporaryError):
    """The supervisor did not answer in time; it may still carry the request out."""


def new_request_id() -> str:
    """Make an id; the same id sent twice is one request."""
    return f"q-{uuid.uuid4().hex[:12]}"


def requester() -> str:
    """Return the user's name, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A user id without a name, as in containers.
        return "unknown"


def submitting_user() -> str:
    """Return the name of this process's effective user, who will own the ranks; "" without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # A user id without a name, as in containers.
        return ""


def send(store: Store, cluster: ClusterSpec, request: Request) -> None:
    """Append a request, signed; raise NoLeader if no supervisor would read it.

    Raises UserError if the cluster's token cannot be read: only its readers may make requests.
    """
    require_leader(store, cluster)
    store.append(REQUESTS, signer_of(cluster).sign(REQUESTS, wire.encode(request)))


def ask(
    store: Store,
    cluster: ClusterSpec,
    request: Request,
    *,
    timeout_seconds: float,
    on_accepted: Callable[[Answer], None] = lambda answer: None,
) -> Answer:
    """Send a request and wait until it is done, refused or failed; `on_accepted` gets the answer that accepts it.

    Raises NoLeader and NoAnswer.
    """
    send(store, cluster, request)
    return await_answer(
        store, cluster, request.id, timeout_seconds=timeout_seconds, on_accepted=on_accepted
    )


def await_answer(
    store: Store,
    cluster: ClusterSpec,
    request_id: str,
    *,
    timeout_seconds: float,
    on_accepted: Callable[[Answer], None] = lambda answer: None,
) -> Answer:
    """Wait for the final answer to a request that was sent."""
    name, version, accepted = answer_register(request_id), 0, ""
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0:
        batch = store.read(
            streams={}, registers={name: version}, timeout_seconds=min(left, LOOK_SECONDS)
        )
        if name in batch.registers:
            version = batch.registers[name].version
            answer = wire.decode(batch.registers[name].payload)
            if isinstance(answer, Answer):
                if answer.state != "open":
                    return answer
                accepted = answer.message or "accepted"
                on_accepted(answer)
        elif left > LOOK_SECONDS:
            require_leader(store, cluster)
    progress = (
        f"it was accepted ({accepted}) and continues" if accepted else "it was not accepted yet"
    )
    raise NoAnswer(
        f"request {request_id} was not answered within {timeout_seconds:g} s: {progress}; "
        "see `stoker status`, or wait longer with --timeout"
    )
