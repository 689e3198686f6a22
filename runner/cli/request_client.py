"""Asking: a request goes into the store, the supervisor's answer comes back as a register."""

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

# how often a waiting client looks whether anybody still leads
LOOK_SECONDS = 2.0


class NoAnswer(TemporaryError):
    """The supervisor did not answer in time; the request stands and may still be done."""


def new_request_id() -> str:
    """Make an id: whoever sends the same id twice has asked once."""
    return f"q-{uuid.uuid4().hex[:12]}"


def requester() -> str:
    """Name the person for the logbook."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # a user id without a name, as in containers
        return "unknown"


def submitting_user() -> str:
    """Name the user whose ranks will be started: who we are to the kernel, whatever the environment says; "" without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # a user id without a name, as in containers
        return ""


def send(store: Store, cluster: ClusterSpec, request: Request) -> None:
    """Hand a request in, signed; raise NoLeader when it would lie there until somebody starts a supervisor one day.

    Raises UserError when the cluster's token cannot be read: who may not read it may not ask for anything.
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
    """Hand a request in and wait until it is done, refused or failed; `on_accepted` hears that it was accepted.

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
    """Wait for the last word on a request that was handed in."""
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
    stands = f"it was accepted ({accepted}) and goes on" if accepted else "it was not taken up yet"
    raise NoAnswer(
        f"request {request_id} was not answered within {timeout_seconds:g} s: {stands}; "
        "see `stoker status`, or wait longer with --timeout"
    )
