"""Verdicts: what an incident is, whose it is, how sure that is, and what kind of answer it wants."""

from typing import Literal

from runner.facts.faults import ActionClass
from runner.facts.ids import AttemptId
from runner.facts.matches import Match, Scope
from runner.facts.wire import Value

CulpritKind = Literal["rank", "gpu", "node"]


class Culprit(Value):
    """What failed. `id`: a rank's number, a GPU's PCI address or index, a node's name or address."""

    kind: CulpritKind
    id: str


class Cause(Value):
    """The cause of an incident, as it is stored and shown. `confidence` is between 0 and 1; `node` logged the first line."""

    fault: str
    scope: Scope
    culprit: Culprit | None
    node: str
    confidence: float
    action_class: ActionClass
    # "n2 rank3.err:120: ...", the deciding one first.
    lines: tuple[str, ...] = ()
    # Of an unknown fault: its first line with the variable parts masked, by which it is recognised the next time.
    template: str = ""
    # The last incident with an equal or similar template.
    seen_in: str = ""


class Failure(Value):
    """One attempt that ended with an incident: where, after which step, and what it had resumed from ("": nothing)."""

    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    step: int | None = None
    checkpoint: str = ""
    steps_made: bool = False


class Verdict(Value):
    """One incident, judged. `evidence` has the deciding line first."""

    cause: Cause
    evidence: tuple[Match, ...]
    # The run died of it and made steps again, in the same log.
    recovered: bool = False
