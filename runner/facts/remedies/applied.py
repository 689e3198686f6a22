"""A remedy as a run keeps it: the order, its origin and reason, and what became of it."""

from typing import Any, Literal

from runner.facts.ids import AttemptId
from runner.facts.wire import Value

# ordered (in effect from the next attempt on) -> in_effect or failed, as the trainer reads back -> reverted
RemedyState = Literal["ordered", "in_effect", "failed", "reverted"]


class AppliedRemedy(Value):
    """One remedy of a run. `id`: "r1", "r2", ... in the order of their orders; `by`: a person, a page, or the run it is kept from.

    `reason`: why it was ordered. `detail`: why it failed, or who reverted it and why. `attempt`: the last that read it back.
    """

    id: str
    name: str
    value: Any
    by: str = ""
    reason: str = ""
    incident: str | None = None
    request: str | None = None
    added_at: float = 0.0
    state: RemedyState = "ordered"
    detail: str = ""
    attempt: AttemptId | None = None
    reverted_at: float | None = None
