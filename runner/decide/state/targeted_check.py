"""Targeted checks in the state: a node that left a gang as a culprit, and what is checked on it."""

from msgspec import field

from runner.facts.wire import MutableValue, Value


class CheckFinding(Value):
    """How the checks of a node ended, and what they found."""

    outcome: str
    text: str = ""


class TargetedCheck(MutableValue):
    """The checks for one cause on the suspected node and on its control ("": none). `found`: by their names, once ended."""

    node: str
    cause: str
    incident: str
    run: int | None = None
    has_begun: bool = False
    control: str = ""
    found: dict[str, CheckFinding] = field(default_factory=dict)
