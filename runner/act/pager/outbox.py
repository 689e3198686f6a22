"""The outbox: which page waits, what is held back, repeated and escalated. Pure; `dispatch` says which address gets what when."""

import logging
import math
from collections.abc import Mapping

from msgspec.structs import replace

from runner.act.pager import text
from runner.act.pager.outbox_state import FollowUp, OutboxState, RaisedAlert, WaitingPage
from runner.act.pager.quiet_hours import quiet_until
from runner.facts.actions import OperatorPage
from runner.facts.specs.pages import PagesSpec

_LOG = logging.getLogger("stoker")

# All chosen. Pages that wait at most, and how long; how many are remembered, and raised as alerts.
MAX_WAITING, MAX_AGE_SECONDS = 100, 24 * 3600.0
MAX_KNOWN, MAX_RAISED = 500, 100
# While a cause is fresh, it pages once; an urgent page is one that repeats the last one for a shorter time.
FRESH_SECONDS, URGENT_FRESH_SECONDS = 3600.0, 300.0
HOUR_SECONDS = 3600.0
MAX_REPEATS = 10
# Pages above the limit of an hour: how many of them are written out, and until when an urgent one waits.
MAX_FURTHER, DIGEST_SECONDS = 30, 60.0
# An alert about no incident is over this long after its page.
LONE_ALERT_SECONDS = 3600.0
# Each is raised for so long, or Alertmanager, which waits before it notifies (`group_wait`), would never do so.
LEAST_ALERT_SECONDS = 300.0
# One that is over is posted as such for this long.
ENDED_ALERT_SECONDS = 600.0


class PageOutbox:
    """The pages of one cluster. One thread calls it; times are seconds since 1970."""

    def __init__(self, spec: PagesSpec, state: OutboxState | None = None) -> None:
        """`state`: what an earlier supervisor left."""
        self.state = state or OutboxState()
        # It changed since the caller set this to False.
        self.has_changed = False
        self.spec = spec
        # Alerts are over that Alertmanager takes for raised.
        self.has_ended_alerts = False

    def accept(self, page_id: str, content: OperatorPage, now: float) -> str:
        """Take in a page, once for each id; return in words what becomes of it."""
        state = self.state
        if page_id in state.known:
            return "known already"
        self.has_changed = True
        state.known = [*state.known, page_id][-MAX_KNOWN:]
        state.recent = {cause: at for cause, at in state.recent.items() if now - at < FRESH_SECONDS}
        before, fresh = state.recent.get(content.cause), FRESH_SECONDS
        if content.urgent:
            fresh = URGENT_FRESH_SECONDS
        if before is not None and now - before < fresh:
            state.inhibited += 1
            return f"not sent: its cause was paged at {text.utc(before)}"
        state.recent[content.cause] = now
        to = content.to or self.spec.to
        self._follow(page_id, content, to, now)
        if self._is_over_limit(page_id, content, to, now):
            return "sent together with others: more than pages.max_per_hour"
        state.times.append(now)
        due_at = now
        if not content.urgent:
            due_at = quiet_until(self.spec.quiet_hours, self.spec.time_zone, now)
        self._add(WaitingPage(id=page_id, content=content, at=now, to=to, due_at=due_at))
        return f"sent to {to}" if due_at <= now else f"waits until {text.utc(due_at)}: quiet hours"

    def _is_over_limit(self, page_id: str, content: OperatorPage, to: str, now: float) -> bool:
        """Put a page that is one too many for this hour into one that sends several together."""
        state = self.state
        state.times = [at for at in state.times if now - at < HOUR_SECONDS]
        if len(state.times) < self.spec.max_per_hour:
            return False
        # One that is due may be on its way.
        page = next(
            (x for x in state.waiting if x.is_digest and x.to == to and x.due_at > now), None
        )
        due_at = now + DIGEST_SECONDS if content.urgent else state.times[0] + HOUR_SECONDS
        if page is None:
            what = (
                f"more than {self.spec.max_per_hour} pages within an hour: see `stoker incidents`"
            )
            joined = OperatorPage(text=what, to=to, command="stoker incidents")
            page = WaitingPage(
                id=f"{page_id}+", content=joined, at=now, to=to, due_at=due_at, is_digest=True
            )
            self._add(page)
        page.due_at = min(page.due_at, due_at)
        page.content = replace(page.content, urgent=page.content.urgent or content.urgent)
        page.num_further += 1
        if len(page.further) < MAX_FURTHER:
            page.further.append(content.text)
        return True

    def _add(self, page: WaitingPage) -> None:
        waiting = self.state.waiting
        if len(waiting) >= MAX_WAITING:
            lost = next((x for x in waiting if not x.content.urgent), waiting[0])
            self._drop(lost, f"{MAX_WAITING} pages wait already")
        waiting.append(page)
        if page.repeats and not page.is_escalation:
            # Alertmanager repeats by itself.
            return
        incident = page.content.incident
        for older in self.state.raised:
            if incident and (older.content.incident, older.to) == (incident, page.to):
                older.ends_at = older.ends_at or page.at
        ends_at = 0.0 if incident else page.at + LONE_ALERT_SECONDS
        alert = RaisedAlert(
            id=page.id, content=page.content, at=page.at, to=page.to, ends_at=ends_at
        )
        self.state.raised = [*self.state.raised, alert][-MAX_RAISED:]

    def _drop(self, page: WaitingPage, why: str) -> None:
        self.state.waiting.remove(page)
        self.state.dropped += 1
        self.has_changed = True
        _LOG.error(
            "page %s was not delivered and is given up: %s: %s", page.id, why, page.content.text
        )

    def _follow(self, page_id: str, content: OperatorPage, to: str, now: float) -> None:
        if not content.urgent or not content.incident:
            return
        spec, state = self.spec, self.state
        state.follow_ups = [x for x in state.follow_ups if x.content.incident != content.incident]
        state.follow_ups.append(
            FollowUp(
                id=page_id,
                content=content,
                at=now,
                to=to,
                repeat_at=now + spec.repeat_seconds if spec.repeat_seconds else 0.0,
                escalate_at=now + spec.escalate_seconds if spec.escalate_to else 0.0,
            )
        )

    @property
    def incidents(self) -> frozenset[str]:
        """The incidents whose state matters here."""
        raised = (x.content.incident for x in self.state.raised if not x.ends_at)
        return frozenset((*(x.content.incident for x in self.state.follow_ups), *raised))

    def settle_incidents(self, asks_for_a_person: Mapping[str, bool], now: float) -> None:
        """End repeats and alerts of incidents that are acknowledged or over: those with False, of `incidents`."""
        over = [name for name in self.incidents if not asks_for_a_person.get(name, True)]
        if not over:
            return
        state, self.has_changed = self.state, True
        state.follow_ups = [x for x in state.follow_ups if x.content.incident not in over]
        state.waiting = [x for x in state.waiting if not (x.repeats and x.content.incident in over)]
        for alert in state.raised:
            if alert.content.incident in over and not alert.ends_at:
                alert.ends_at = max(now, alert.at + LEAST_ALERT_SECONDS)
        self.has_ended_alerts = True

    def tick(self, now: float) -> None:
        """Repeat and escalate what is due, and give up what waited too long."""
        for page in list(self.state.waiting):
            if now - max(page.at, page.due_at) >= MAX_AGE_SECONDS:
                self._drop(page, f"no address took it within {MAX_AGE_SECONDS / 3600:g} hours")
        for follow in self.state.follow_ups:
            since = f"no person has acknowledged it since {text.utc(follow.at)}"
            if follow.escalate_at and now >= follow.escalate_at:
                follow.escalate_at = 0.0
                page = self._again(follow, f"{follow.id}+escalated", f"escalated: {since}", now)
                page.to, page.is_escalation = self.spec.escalate_to, True
                self._add(page)
            if follow.repeat_at and now >= follow.repeat_at and not self._is_undelivered(follow.id):
                follow.num_repeats += 1
                is_last = follow.num_repeats >= MAX_REPEATS
                follow.repeat_at = 0.0 if is_last else now + self.spec.repeat_seconds
                number = f"{follow.id}+{follow.num_repeats}"
                self._add(self._again(follow, number, f"repeated: {since}", now))
        self.state.raised = [
            x
            for x in self.state.raised
            if now - x.at < MAX_AGE_SECONDS
            and (not x.ends_at or now < x.ends_at + ENDED_ALERT_SECONDS)
        ]

    def _again(self, follow: FollowUp, page_id: str, note: str, now: float) -> WaitingPage:
        self.has_changed = True
        return WaitingPage(
            id=page_id,
            content=follow.content,
            at=now,
            to=follow.to,
            due_at=now,
            note=note,
            repeats=follow.id,
        )

    def _is_undelivered(self, page_id: str) -> bool:
        """Whether a page, or one that repeats it, is not delivered yet."""
        return any(page_id in (x.id, x.repeats) for x in self.state.waiting)

    def next_at(self) -> float:
        """Return when something is to be repeated or escalated at the earliest; inf: nothing."""
        times = [x.escalate_at for x in self.state.follow_ups if x.escalate_at]
        times += [
            x.repeat_at
            for x in self.state.follow_ups
            if x.repeat_at and not self._is_undelivered(x.id)
        ]
        return min(times, default=math.inf)
