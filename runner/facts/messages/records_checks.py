"""What checks found: records, and what the state and the published results of checks hold of it."""

from typing import Literal

from runner.facts.specs.cluster import CheckLevel
from runner.facts.wire import Value


class MeasuredValue(Value, gc=False):
    """A value that is compared with those of other hardware of its class.

    `better`: on which side of them it should be, or that it should be the same as most of them.
    """

    name: str
    value: float
    better: Literal["higher", "lower", "same"]
    unit: str = ""
    # What was measured: a device, a data type.
    subject: str = ""


class OutcomeGroup(Value):
    """Checks of a node that ended alike in one task, at its time and level ("": they were named one by one)."""

    outcome: Literal["PASS", "FAIL", "UNKNOWN"]
    at: float
    level: str = ""
    checks: tuple[str, ...] = ()


class CheckWanted(Value, kind="check_wanted"):
    """A node is to be checked as soon as it is idle, whatever it passed before: something hints at a fault, or a person asks.

    `level`: "" for the cluster's. `request`: of the person, which the verdict answers.
    """

    node: str
    reason: str
    level: CheckLevel = ""
    request: str = ""


class CheckPostponed(Value, kind="check_postponed"):
    """A node is checked again at `until`: its machine was busy with something else, which is no sign of a fault."""

    node: str
    until: float
    reason: str


class CheckDeferred(Value, kind="check_deferred"):
    """A node refused a check, since the program of another task runs there: it is asked again at `until`, or when that has ended.

    `task`: its id; "": it has ended.
    """

    node: str
    until: float
    task: str = ""


class HardwareChecked(Value, kind="hardware_checked"):
    """Checks of a node passed or failed. `level`: "" for checks that are named one by one; `checks`: those that passed.

    `behind`: the values that are beyond a floor, or behind those of the node's peers. They are one weak sign until the next check.
    """

    hardware: str
    node: str
    outcome: Literal["PASS", "FAIL"]
    level: str = ""
    checks: tuple[str, ...] = ()
    hardware_class: str = ""
    values: tuple[MeasuredValue, ...] = ()
    behind: tuple[str, ...] = ()


class TargetedCheckWanted(Value, kind="targeted_check_wanted"):
    """A node left a gang as the culprit of an incident: what can confirm or clear the cause is to be checked on it."""

    node: str
    cause: str
    incident: str
    run: int | None = None


class TargetedCheckBegun(Value, kind="targeted_check_begun"):
    """The node is checked, and beside it an idle spare of its class, the control; "": there is none."""

    node: str
    control: str = ""


class TargetedCheckResult(Value, kind="targeted_check_result"):
    """What the checks of the node, or of its control, found."""

    node: str
    checked: str
    outcome: Literal["PASS", "FAIL", "UNKNOWN"]
    text: str = ""


class TargetedCheckJudged(Value, kind="targeted_check_judged"):
    """What follows. `shared`: the control fails as well, so what both have in common is in doubt, and neither of them."""

    node: str
    verdict: Literal["confirmed", "cleared", "shared", "unknown"]
    text: str = ""
    incident: str | None = None
