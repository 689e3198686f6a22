"""What the outbox keeps in the store, so that the next supervisor sends what this one could not. No address is in it."""

from msgspec import field

from runner.facts.actions import OperatorPage
from runner.facts.wire import MutableValue


class WaitingPage(MutableValue):
    """A page that some address lacks, written `at` a time and not sent before `due_at`. `done`: ids of addresses that have it.

    `repeats`: the id of the page that this one repeats. `further`: lines of pages that are sent together in this one.
    """

    id: str
    content: OperatorPage
    at: float
    to: str
    due_at: float = 0.0
    done: list[str] = field(default_factory=list)
    note: str = ""
    repeats: str = ""
    is_escalation: bool = False
    is_digest: bool = False
    further: list[str] = field(default_factory=list)
    num_further: int = 0


class FollowUp(MutableValue):
    """An urgent page about an incident that no person has acknowledged. `repeat_at`, `escalate_at`: 0: not again."""

    id: str
    content: OperatorPage
    at: float
    to: str
    repeat_at: float = 0.0
    escalate_at: float = 0.0
    num_repeats: int = 0


class RaisedAlert(MutableValue):
    """An alert of Alertmanager's for the addresses called `to`; over at `ends_at`. 0: it is raised until its incident is over."""

    id: str
    content: OperatorPage
    at: float
    to: str
    ends_at: float = 0.0


class OutboxState(MutableValue, kind="page_outbox"):
    """All of it: the register `pages`. Times are seconds since 1970 by the supervisors' own clocks."""

    waiting: list[WaitingPage] = field(default_factory=list)
    follow_ups: list[FollowUp] = field(default_factory=list)
    raised: list[RaisedAlert] = field(default_factory=list)
    # Ids of pages, the newest last: actions that a new supervisor repeats are known by them.
    known: list[str] = field(default_factory=list)
    # Cause -> when it was paged.
    recent: dict[str, float] = field(default_factory=dict)
    # When pages were sent one by one, within the last hour.
    times: list[float] = field(default_factory=list)
    # Incident -> addresses that have a page about it, and when the last one got it.
    reached: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    failed: int = 0
    dropped: int = 0
    inhibited: int = 0
    last_sent_at: float | None = None
