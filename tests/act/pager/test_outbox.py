"""The outbox in virtual time: order, one page for a cause, limits, quiet hours, repeats, escalation, and what is given up."""

from typing import Any

import pytest

from runner.act.pager import outbox as boxes
from runner.act.pager.addresses import Address
from runner.act.pager.dispatch import Delivery, Dispatch
from runner.act.pager.outbox import PageOutbox
from runner.act.pager.outbox_state import OutboxState
from runner.act.pager.quiet_hours import quiet_until
from runner.act.pager.text import utc
from runner.facts import wire
from runner.facts.actions import OperatorPage
from runner.facts.messages.cluster_status import PagesStatus
from runner.facts.specs.pages import PagesSpec

# 2026-11-26 20:00:00 UTC.
NOW = 1_795_723_200.0
HOUR = 3600.0
ONCALL = Address("oncall", 1, "https://a.example/x")
OTHER = Address("oncall", 2, "json://b.example")
SECOND = Address("second", 1, "https://c.example")
ALERTS = Address("oncall", 3, "alertmanager://d.example")
SWITCH = Address("heartbeat", 1, "https://e.example")


class Paged:
    """An outbox with addresses, each of which accepts what it gets or not, at a time that the test moves."""

    def __init__(self, *addresses: Address, state: OutboxState | None = None, **spec: Any) -> None:
        self.now = NOW
        self.outbox = PageOutbox(PagesSpec(**spec), state)
        self.dispatch = Dispatch(self.outbox, "c", NOW)
        self.dispatch.addresses = addresses or (ONCALL,)
        self.errors: dict[str, str] = {}
        self.got: list[tuple[str, str]] = []
        self.posts: list[list[dict[str, Any]]] = []
        self.jobs: list[dict[str, Any]] = []

    def page(self, page_id: str, **content: Any) -> str:
        """Take in a page at this moment."""
        fields = {"text": page_id, "cause": page_id, **content}
        return self.outbox.accept(page_id, OperatorPage(**fields), self.now)

    def run(self, seconds: float = 0.0) -> None:
        """Send what is due from now on for so long."""
        until = self.now + seconds
        while True:
            self.outbox.tick(self.now)
            self.dispatch.forget_sent()
            for each in self.dispatch.due(self.now, is_busy=lambda _: False):
                self._deliver(each)
            due_at = self.dispatch.next_at(self.now, is_busy=lambda _: False)
            if due_at > until:
                self.now = until
                return
            self.now = max(due_at, self.now)

    def _deliver(self, delivery: Delivery) -> None:
        error = self.errors.get(delivery.address.id, "")
        if not error:
            self.got += [(delivery.address.id, page) for page in delivery.pages]
            self.jobs.append(delivery.job)
            if "alerts" in delivery.job:
                self.posts.append(delivery.job["alerts"])
        self.dispatch.on_result(delivery, error, self.now)

    def status(self) -> PagesStatus:
        """Return what the status shows now."""
        return self.dispatch.status("", self.now)

    def raised(self) -> dict[str, bool]:
        """Return the alerts of the newest post: page -> whether it is raised then."""
        now = utc(self.now)
        return {
            each["labels"].get("page", each["labels"]["alertname"]): each["endsAt"] > now
            for each in self.posts[-1]
        }


def test_each_address_gets_each_page_once_and_in_order() -> None:
    """An address that fails delays no other one, and gets its pages once it works again; the last page is not forgotten before."""
    paged = Paged(ONCALL, OTHER)
    paged.errors[OTHER.id] = "HTTP 500"
    for name in ("a1", "a2", "a3"):
        paged.page(name)
    paged.page("a2")
    paged.run(60)
    assert paged.got == [(ONCALL.id, each) for each in ("a1", "a2", "a3")]
    assert paged.status().waiting == 3
    del paged.errors[OTHER.id]
    paged.run(HOUR)
    assert paged.got[3:] == [(OTHER.id, each) for each in ("a1", "a2", "a3")]
    assert not paged.outbox.state.waiting
    status = paged.status()
    assert (status.sent, status.waiting, status.problem) == (6, 0, "")


def test_tries_are_apart_further_each_time_up_to_a_limit() -> None:
    """2, 4, 8, ... 300 seconds; the status has the count and the reason."""
    paged = Paged()
    paged.errors[ONCALL.id] = "it answered HTTP 500"
    paged.page("a1")
    paged.run(2 + 4 + 8 + 1)
    assert paged.outbox.state.failed == 4
    paged.run(10 * 300.0)
    assert paged.outbox.state.failed < 20
    assert paged.status().problem == "oncall/1: it answered HTTP 500"


def test_what_waits_outlives_the_supervisor() -> None:
    """The next one reads it as it was stored, sends it once, and takes in no page that the first one had."""
    first = Paged(ONCALL, OTHER)
    first.errors[OTHER.id] = "gone"
    first.page("a1", urgent=True, incident="i1")
    first.run(1)
    stored = wire.decode(wire.encode(first.outbox.state), limit_bytes=10**7)
    second = Paged(ONCALL, OTHER, state=stored)
    assert second.page("a1", urgent=True, incident="i1") == "known already"
    second.page("a2")
    second.run(5)
    assert [page for name, page in second.got if name == OTHER.id] == ["a1", "a2"]
    assert [page for name, page in second.got if name == ONCALL.id] == ["a2"]
    assert second.outbox.incidents == {"i1"}


def test_one_cause_pages_once() -> None:
    """Another page of it that can wait is held back for an hour; one that waits for a person is not."""
    paged = Paged()
    paged.page("a1", cause="ecc n3")
    assert "not sent" in paged.page("a2", cause="ecc n3")
    paged.page("a3", cause="i2 gave up", urgent=True)
    paged.run()
    assert [page for _, page in paged.got] == ["a1", "a3"]
    assert paged.outbox.state.inhibited == 1
    paged.now += boxes.URGENT_FRESH_SECONDS - 1
    assert "not sent" in paged.page("a5", cause="i2 gave up", urgent=True)
    paged.now += 1
    paged.page("a6", cause="i2 gave up", urgent=True)
    paged.run()
    assert paged.got[-1] == (ONCALL.id, "a6")
    paged.now += HOUR
    paged.page("a4", cause="ecc n3")
    paged.run()
    assert paged.got[-1] == (ONCALL.id, "a4")


def test_pages_above_the_limit_of_an_hour_are_sent_together() -> None:
    """Those that can wait once the hour is over, urgent ones within a minute; each is named, the first thirty of many."""
    paged = Paged(max_per_hour=2)
    for number in range(50):
        paged.page(f"a{number}")
    paged.run(60)
    assert [page for _, page in paged.got] == ["a0", "a1"]
    (digest,) = paged.outbox.state.waiting
    assert (digest.num_further, len(digest.further)) == (48, boxes.MAX_FURTHER)
    paged.page("a50", urgent=True)
    paged.run(boxes.DIGEST_SECONDS)
    assert [page for _, page in paged.got] == ["a0", "a1", "a2+"]
    text = paged.jobs[-1]["page"]["text"].splitlines()
    assert (text.count("a2"), text.count("a32"), text[-1]) == (1, 0, "type: stoker incidents")
    assert "and 19 more" in text


def test_quiet_hours_hold_back_what_can_wait() -> None:
    """Until they end, by the clock of the zone; what is urgent passes it by."""
    paged = Paged(quiet_hours="20:00-07:00", time_zone="UTC")
    assert "quiet hours" in paged.page("a1")
    paged.page("a2", urgent=True)
    paged.run(11 * HOUR - 1)
    # It is not due: no alert is to be raised about it.
    assert (paged.status().waiting, paged.status().due_later) == (0, 1)
    assert paged.status().waiting_since is None
    assert [page for _, page in paged.got] == ["a2"]
    paged.run(1)
    assert [page for _, page in paged.got] == ["a2", "a1"]


@pytest.mark.parametrize(
    ("hours", "zone", "until"),
    [
        ("", "UTC", 0),
        ("22:00-07:00", "UTC", 0),
        ("20:00-07:00", "UTC", 11 * HOUR),
        ("12:00-20:00", "UTC", 0),
        ("12:00-20:01", "UTC", 60),
        # It is 21:00 there.
        ("21:00-22:30", "Europe/Paris", 1.5 * HOUR),
        ("20:00-21:00", "Europe/Paris", 0),
        ("00:00-00:00", "UTC", 0),
        ("20:00-07:00", "No/Where", 0),
    ],
)
def test_quiet_hours_end(hours: str, zone: str, until: float) -> None:
    """At the minute that is given, tomorrow if they pass midnight; a zone that is not known has none."""
    assert quiet_until(hours, zone, NOW) - NOW == until


def test_an_urgent_page_repeats_until_a_person_acknowledges_its_incident() -> None:
    """And escalates once, to the second address, with the reason; what repeats and waits is dropped then."""
    paged = Paged(
        ONCALL, SECOND, repeat_seconds=600.0, escalate_to="second", escalate_seconds=900.0
    )
    paged.page("a1", urgent=True, incident="i1")
    paged.page("a2", incident="i2")
    paged.run(HOUR / 2 + 1)
    assert paged.got == [
        (ONCALL.id, "a1"),
        (ONCALL.id, "a2"),
        (ONCALL.id, "a1+1"),
        (SECOND.id, "a1+escalated"),
        (ONCALL.id, "a1+2"),
        (ONCALL.id, "a1+3"),
    ]
    paged.errors[ONCALL.id] = "gone"
    paged.run(600)
    assert [x.id for x in paged.outbox.state.waiting] == ["a1+4"]
    paged.outbox.settle_incidents({"i1": False, "i2": True}, paged.now)
    paged.errors.clear()
    paged.run(24 * HOUR)
    assert len(paged.got) == 6
    assert not paged.outbox.state.follow_ups


def test_repeats_do_not_pile_up_behind_an_address_that_is_gone() -> None:
    """The page itself is sent when it is back, and repeated from then on; ten times at most."""
    paged = Paged(repeat_seconds=60.0)
    paged.errors[ONCALL.id] = "gone"
    paged.page("a1", urgent=True, incident="i1")
    paged.run(HOUR)
    assert [x.id for x in paged.outbox.state.waiting] == ["a1"]
    paged.errors.clear()
    paged.run(5 * HOUR)
    assert [page for _, page in paged.got] == ["a1", *(f"a1+{n}" for n in range(1, 11))]


def test_what_no_address_took_within_a_day_is_given_up() -> None:
    """So is the oldest that can wait when a hundred wait; both are counted."""
    paged = Paged(max_per_hour=1000)
    paged.errors[ONCALL.id] = "gone"
    paged.page("u0", urgent=True)
    for number in range(boxes.MAX_WAITING):
        paged.page(f"a{number}")
    waiting = [x.id for x in paged.outbox.state.waiting]
    assert (len(waiting), waiting[:2]) == (boxes.MAX_WAITING, ["u0", "a1"])
    assert paged.outbox.state.dropped == 1
    paged.run(25 * HOUR)
    assert not paged.outbox.state.waiting
    assert paged.outbox.state.dropped == 1 + boxes.MAX_WAITING


def test_a_team_without_an_address_has_its_pages_sent_to_the_usual_one() -> None:
    """A page for a team that has one goes there alone; no page goes to a dead-man's switch."""
    team = Address("hardware", 1, "https://f.example")
    paged = Paged(ONCALL, team, SWITCH)
    paged.page("a1", to="hardware")
    paged.page("a2", to="network")
    paged.page("a3", to="heartbeat")
    paged.run()
    assert sorted(paged.got, key=lambda one: one[1]) == [
        (team.id, "a1"),
        (ONCALL.id, "a2"),
        (ONCALL.id, "a3"),
    ]
    unmanned = Paged(team)
    unmanned.page("a1")
    unmanned.run(60)
    assert unmanned.status().problem == "pages.to: no address is called 'oncall'"
    unmanned.dispatch.addresses = (team, ONCALL)
    unmanned.run()
    assert unmanned.got == [(ONCALL.id, "a1")]


def test_a_dead_mans_switch_gets_signs_of_life() -> None:
    """One every `heartbeat_seconds`; a failure is shown and tried again, and counts as no page."""
    paged = Paged(SWITCH, ONCALL, heartbeat_seconds=30.0)
    paged.run(95)
    status = paged.status()
    assert status.heartbeat_at == NOW + 90
    paged.errors[SWITCH.id] = "it answered HTTP 404 Not Found"
    paged.run(300)
    status = paged.status()
    assert (status.heartbeat_at, status.failed) == (NOW + 90, 0)
    assert "heartbeat/1: it answered HTTP 404" in status.problem


def test_a_supervisor_that_is_stuck_gives_no_sign_of_life() -> None:
    """Its pages are still sent; Alertmanager's watchdog is not among them, and ends."""
    paged = Paged(SWITCH, ALERTS, heartbeat_seconds=30.0)
    paged.run(60)
    paged.dispatch.is_alive = False
    num = len(paged.posts)
    paged.run(HOUR)
    assert (paged.status().heartbeat_at, len(paged.posts)) == (NOW + 60, num)
    paged.page("a1", incident="i1")
    paged.run()
    assert paged.raised() == {"a1": True}
    paged.dispatch.is_alive = True
    paged.run()
    assert paged.raised()["StokerWatchdog"]


def test_alertmanager_has_all_that_is_raised_and_the_watchdog() -> None:
    """An alert ends with its incident, five minutes after its page at the least; Alertmanager repeats by itself."""
    paged = Paged(ALERTS, repeat_seconds=60.0)
    paged.run()
    assert paged.raised() == {"StokerWatchdog": True}
    paged.page("a1", urgent=True, incident="i1")
    paged.page("a2", incident="i2")
    paged.run()
    assert paged.raised() == {"a1": True, "a2": True, "StokerWatchdog": True}
    paged.run(HOUR)
    assert [page for _, page in paged.got] == ["a1", "a2"]
    assert not paged.outbox.state.waiting
    paged.outbox.settle_incidents({"i1": False, "i2": True}, paged.now)
    paged.run()
    assert paged.raised() == {"a1": False, "a2": True, "StokerWatchdog": True}
    paged.run(HOUR)
    assert paged.raised() == {"a2": True, "StokerWatchdog": True}
    paged.page("a3", incident="i3")
    paged.outbox.settle_incidents({"i3": False}, paged.now)
    paged.run()
    assert paged.raised()["a3"]
    paged.run(boxes.LEAST_ALERT_SECONDS + 60)
    assert not paged.raised()["a3"]


def test_an_incident_shows_how_far_its_page_got() -> None:
    """With the reason while it waits, and the addresses that have it then."""
    paged = Paged()
    paged.errors[ONCALL.id] = "it did not answer in time"
    paged.page("a1", incident="i1")
    paged.run()
    assert paged.dispatch.incident_notes() == {
        "i1": "waits for oncall/1: it did not answer in time"
    }
    paged.errors.clear()
    paged.run(10)
    assert paged.dispatch.incident_notes()["i1"].startswith("sent to oncall/1 at 2026-11-26T20:00:")
