"""Dispatch: which address gets which pages now, and what is known of the tries. Pure.

Each address gets its pages in the order in which they were written, one at a time; one that fails delays no other address.
Alertmanager gets all alerts that are raised at once, whenever one changes and with each sign of life.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from runner.act.pager import text
from runner.act.pager.addresses import Address
from runner.act.pager.outbox import PageOutbox
from runner.act.pager.outbox_state import RaisedAlert, WaitingPage
from runner.facts.messages.cluster_status import PagesStatus

_LOG = logging.getLogger("stoker")

# All chosen. Between two tries of one address: doubled from the first up to the longest.
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 300.0
# An alert is over this long after the last sign of life, and the watchdog's after so many of them that did not come.
ALERT_SECONDS, MISSED_SIGNS = 1800.0, 4.0
# Incidents whose page is remembered with the addresses that it reached.
MAX_REACHED = 200


class Delivery(NamedTuple):
    """Something to be sent to an address: pages (their ids), or, without any, a sign of life."""

    address: Address
    pages: tuple[str, ...]
    job: dict[str, Any]


class Tries(NamedTuple):
    """The tries of one address since one worked."""

    failed: int
    next_at: float
    error: str


class Dispatch:
    """Hands the pages of an outbox to addresses. One thread calls it; times are seconds since 1970."""

    def __init__(self, outbox: PageOutbox, cluster: str, now: float) -> None:
        """`cluster`: its name; `now`: since when this supervisor leads."""
        self._outbox, self._cluster, self._began_at = outbox, cluster, now
        self._spec = outbox.spec
        self.addresses: tuple[Address, ...] = ()
        self._tries: dict[str, Tries] = {}
        # Address -> when its next sign of life is due.
        self._sign_due: dict[str, float] = {}
        self._heartbeat_at: float | None = None
        # Whether the supervisor decides: otherwise it gives no sign of life.
        self.is_alive = True

    @property
    def _waiting(self) -> list[WaitingPage]:
        return self._outbox.state.waiting

    def next_at(self, now: float, *, is_busy: Callable[[str], bool]) -> float:
        """Return when something is due at the earliest, if nothing comes in before."""
        times = [self._outbox.next_at()]
        for address in self.addresses:
            if is_busy(address.id):
                # Its outcome comes in.
                continue
            tries = self._tries.get(address.id)
            held_until = tries.next_at if tries is not None else 0.0
            own = [x.due_at for x in self._pages_for(address)]
            if self._gives_signs(address):
                own.append(self._sign_due.get(address.id, 0.0))
            if own:
                times.append(max(min(own), held_until))
        return max(now, min(times))

    def due(self, now: float, *, is_busy: Callable[[str], bool]) -> list[Delivery]:
        """Return what to send now: at most one delivery for each address that is not busy."""
        if self._outbox.has_ended_alerts:
            self._sign_due.clear()
            self._outbox.has_ended_alerts = False
        found = []
        for address in self.addresses:
            tries = self._tries.get(address.id)
            if is_busy(address.id) or (tries is not None and now < tries.next_at):
                continue
            pages = [x for x in self._pages_for(address) if x.due_at <= now]
            is_sign = self._gives_signs(address) and now >= self._sign_due.get(address.id, 0.0)
            if address.is_alertmanager and (pages or is_sign):
                found.append(self._alerts(address, pages, now))
            elif address.is_heartbeat and is_sign:
                found.append(Delivery(address, (), {}))
            elif pages and not address.is_alertmanager:
                found.append(self._page(address, pages[0]))
        return found

    def _gives_signs(self, address: Address) -> bool:
        return self.is_alive and _has_signs(address)

    def _team(self, name: str) -> str:
        """Return whose addresses get what is for `name`: a team without an address has those of `to`."""
        return name if any(x.name == name for x in self._paged()) else self._spec.to

    def _paged(self) -> list[Address]:
        return [x for x in self.addresses if not x.is_heartbeat]

    def _pages_for(self, address: Address) -> list[WaitingPage]:
        """Return the pages that an address lacks, the oldest first."""
        if address.is_heartbeat:
            return []
        # Alertmanager repeats by itself.
        return [
            x
            for x in self._waiting
            if self._team(x.to) == address.name
            and address.id not in x.done
            and not (address.is_alertmanager and x.repeats and not x.is_escalation)
        ]

    def _page(self, address: Address, page: WaitingPage) -> Delivery:
        job = text.job(
            address,
            self._cluster,
            page.id,
            page.content,
            at=page.at,
            team=page.to,
            ends_at=page.at + ALERT_SECONDS,
            notes=_notes(page),
        )
        return Delivery(address, (page.id,), job)

    def _alerts(self, address: Address, pages: Sequence[WaitingPage], now: float) -> Delivery:
        """Return all alerts that are raised for an address, those that are over, and the watchdog."""
        # What waits for the end of quiet hours is raised then.
        held = {x.id for x in self._waiting if x.due_at > now}
        alerts = [
            self._alert(x, now)
            for x in self._outbox.state.raised
            if self._team(x.to) == address.name and x.id not in held
        ]
        if self.is_alive:
            signs_end = now + MISSED_SIGNS * self._spec.heartbeat_seconds
            alerts.append(text.watchdog(self._cluster, starts_at=self._began_at, ends_at=signs_end))
        return Delivery(address, tuple(x.id for x in pages), {"alerts": alerts})

    def _alert(self, raised: RaisedAlert, now: float) -> dict[str, Any]:
        return text.alert(
            self._cluster,
            raised.id,
            raised.content,
            team=raised.to,
            starts_at=raised.at,
            ends_at=raised.ends_at or now + ALERT_SECONDS,
        )

    def on_result(self, delivery: Delivery, error: str, now: float) -> None:
        """Record how a delivery ended; `error` "": the address accepted it."""
        address, state = delivery.address, self._outbox.state
        if error:
            self._on_failure(address, delivery.pages, error, now)
            return
        if self._tries.pop(address.id, None) is not None:
            _LOG.info("pages: %s accepts them again", address.id)
        if self._gives_signs(address):
            self._sign_due[address.id] = now + self._spec.heartbeat_seconds
            self._heartbeat_at = now
        for page in [x for x in self._waiting if x.id in delivery.pages]:
            self._outbox.has_changed = True
            page.done.append(address.id)
            state.sent, state.last_sent_at = state.sent + 1, now
            _LOG.info("page %s was sent to %s", page.id, address.id)
            self._note_reached(page, now)
        self.forget_sent()

    def _on_failure(self, address: Address, pages: Sequence[str], error: str, now: float) -> None:
        before = self._tries.get(address.id, Tries(0, 0.0, ""))
        seconds = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**before.failed)
        self._tries[address.id] = Tries(before.failed + 1, now + seconds, error)
        if pages:
            self._outbox.state.failed += 1
            self._outbox.has_changed = True
        if error != before.error:
            what = f"page {', '.join(pages)}" if pages else "the sign of life"
            _LOG.warning("%s did not reach %s: %s; it is tried again", what, address.id, error)

    def _note_reached(self, page: WaitingPage, now: float) -> None:
        state, incident = self._outbox.state, page.content.incident
        if incident:
            state.reached.pop(incident, None)
            state.reached[incident] = f"sent to {', '.join(page.done)} at {text.utc(now)}"
            state.reached = dict(list(state.reached.items())[-MAX_REACHED:])

    def forget_sent(self) -> None:
        """Forget the pages that no address lacks; one for which there is no address waits for one."""
        names = {x.name for x in self._paged()}
        lacking = {x.id for each in self.addresses for x in self._pages_for(each)}
        kept = [x for x in self._waiting if x.id in lacking or self._team(x.to) not in names]
        if len(kept) != len(self._waiting):
            self._outbox.has_changed = True
            self._outbox.state.waiting = kept

    def status(self, problem: str, now: float) -> PagesStatus:
        """Return what the status shows. `problem`: of the file of addresses."""
        state = self._outbox.state
        due = [x.due_at for x in state.waiting if x.due_at <= now]
        problems = [problem] if problem else self._missing_teams()
        problems += [f"{name}: {tries.error}" for name, tries in self._tries.items()]
        return PagesStatus(
            addresses=tuple(f"{x.id} {x.scheme}" for x in self.addresses),
            sent=state.sent,
            failed=state.failed,
            dropped=state.dropped,
            inhibited=state.inhibited,
            waiting=len(due),
            due_later=len(state.waiting) - len(due),
            waiting_since=min(due, default=None),
            last_sent_at=state.last_sent_at,
            problem="; ".join(problems),
            heartbeat_at=self._heartbeat_at,
        )

    def _missing_teams(self) -> list[str]:
        names = {x.name for x in self._paged()}
        wanted = {"to": self._spec.to, "escalate_to": self._spec.escalate_to}
        return [
            f"pages.{field}: no address is called {name!r}"
            for field, name in wanted.items()
            if name and name not in names
        ]

    def incident_notes(self) -> dict[str, str]:
        """Return incident -> how far the newest page about it got."""
        notes = dict(self._outbox.state.reached)
        for page in self._waiting:
            if page.content.incident:
                lacking = [x.id for x in self.addresses if page in self._pages_for(x)]
                errors = [self._tries[x].error for x in lacking if x in self._tries]
                why = f": {errors[0]}" if errors else ""
                notes[page.content.incident] = f"waits for {', '.join(lacking) or page.to}{why}"
        return notes


def _has_signs(address: Address) -> bool:
    return address.is_alertmanager or address.is_heartbeat


def _notes(page: WaitingPage) -> tuple[str, ...]:
    left_out = page.num_further - len(page.further)
    more = (f"and {left_out} more",) if left_out else ()
    note = (page.note,) if page.note else ()
    return (*note, f"written at {text.utc(page.at)}", *page.further, *more)
