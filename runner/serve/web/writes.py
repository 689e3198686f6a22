"""What an operator may ask from the page: the request that the command of the same name sends, signed the same way."""

from collections.abc import Callable
from typing import Any

import msgspec

from runner.errors import StokerError, UserError
from runner.facts.messages import requests as q
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import known_words, printable
from runner.serve.requests import MAX_REASON_CHARACTERS, NoAnswer, ask, new_request_id
from runner.store.protocol import Store

# For the supervisor to say that it is done, or has begun; what takes longer is seen on the page. Chosen.
ANSWER_SECONDS = 8.0


class AskedFor(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a write. `about`: an action, a run's number or an incident; `incident`, `seen`: what the operator looked at."""

    do: str
    about: str
    reason: str = ""
    incident: str = ""
    seen: int | None = None


# What may be asked -> the request for it, given what it is about, and the fields of every request.
VERBS: dict[str, Callable[[str, dict[str, Any]], q.Request]] = {
    "approve": lambda about, fields: q.ApproveAction(action=about, **fields),
    "deny": lambda about, fields: q.DenyAction(action=about, **fields),
    "pause": lambda about, fields: q.PauseRun(run=about, **fields),
    "resume": lambda about, fields: q.ResumeRun(run=about, **fields),
    "ack": lambda about, fields: q.AcknowledgeIncident(
        **{**fields, "incident": about, "seen": None}
    ),
}


def decode_wanted(body: bytes) -> AskedFor:
    """Decode the body of a write; raise UserError for anything else."""
    try:
        wanted = msgspec.json.decode(body, type=AskedFor)
    except msgspec.DecodeError as error:
        raise UserError(f"the request cannot be read: {error}") from error
    if wanted.do not in VERBS:
        raise UserError(f"{wanted.do[:40]!r} cannot be asked here; {known_words(wanted.do, VERBS)}")
    if len(wanted.reason) > MAX_REASON_CHARACTERS or not wanted.reason.isprintable():
        raise UserError(f"the reason: write one line of at most {MAX_REASON_CHARACTERS} characters")
    return wanted


def carry_out(store: Store, cluster: ClusterSpec, wanted: AskedFor, *, by: str) -> dict[str, str]:
    """Send the request, and return the supervisor's answer, or that it has accepted it. Raises StokerError without either."""
    fields = {
        "id": new_request_id(),
        "by": f"{printable(by, 40)} (web)",
        "reason": wanted.reason,
        "incident": wanted.incident,
        "seen": wanted.seen if wanted.incident else None,
    }
    request = VERBS[wanted.do](wanted.about, fields)
    accepted: list[q.Answer] = []
    try:
        answer = ask(
            store, cluster, request, timeout_seconds=ANSWER_SECONDS, on_accepted=accepted.append
        )
    except NoAnswer:
        if not accepted:
            raise
        answer = accepted[-1]
    state = "accepted" if answer.state == "open" else answer.state
    return {"state": state, "message": printable(answer.message), "request": request.id}


def status_code(error: StokerError) -> int:
    """Return the HTTP status for an error: the visitor's fault, or the cluster's."""
    return 400 if isinstance(error, UserError) else 503
