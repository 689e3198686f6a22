"""The sender: the thread that owns the outbox. It keeps it in the store, and has each delivery made by a process of its own.

The supervisor's thread hands pages in and goes on. A store that is out of reach delays no page: what changed is kept in memory and
written once it is back. When the supervisor dies, the next one sends what the store has; a page whose acceptance was not
written yet is sent again, under the same id.
"""

import json
import logging
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from runner.act.pager.addresses import read_addresses
from runner.act.pager.dispatch import Delivery, Dispatch
from runner.act.pager.outbox import PageOutbox
from runner.act.pager.outbox_state import OutboxState
from runner.errors import Fenced, Forged, StoreCorrupt, StoreUnavailable, UserError, WireError
from runner.facts import wire
from runner.facts.actions import OperatorPage
from runner.facts.messages.cluster_status import PagesStatus
from runner.facts.specs.pages import PagesSpec
from runner.facts.specs.programs import module_command
from runner.facts.store_names import PAGES
from runner.signer import Signer
from runner.store.protocol import MAX_LARGE_BYTES, Lease, Store

_LOG = logging.getLogger("stoker")

# All chosen. Processes that send at once; what one may take beyond the time of its address: its start, on a loaded machine.
MAX_SENDING, START_SECONDS = 8, 30.0
STORE_RETRY_SECONDS = 1.0
# Between two looks at the file of addresses, while something waits for it.
FILE_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 60.0
# Of a supervisor whose loop made no turn for so long, no sign of life is given; it makes one a minute when nothing happens.
STUCK_SECONDS = 180.0


class _Submitted(NamedTuple):
    id: str
    content: OperatorPage


class _Ended(NamedTuple):
    delivery: Delivery
    error: str


def send(delivery: Delivery, seconds: float) -> str:
    """Have something sent by a process of its own; return why it failed, "" if the address accepted it. Never raises."""
    job = {"url": delivery.address.url, "seconds": seconds, **delivery.job}
    try:
        ended = subprocess.run(
            module_command("runner.act.pager.delivery"),
            input=json.dumps(job).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds + START_SECONDS,
            check=False,
        )
        return str(json.loads(ended.stdout)["error"])
    except subprocess.TimeoutExpired:
        return "it did not answer in time"
    except (OSError, ValueError, KeyError, TypeError) as error:
        # The job, which holds the address, is in no text of these.
        return f"the program that sends failed ({type(error).__name__})"


class PageSender:
    """Sends the pages of one supervisor that leads. `submit` and `settle_incidents` are called by its loop, never for long."""

    def __init__(
        self,
        spec: PagesSpec,
        cluster: str,
        store: Store,
        lease: Lease,
        signer: Signer,
        *,
        on_kept: Callable[[str, str], None],
    ) -> None:
        """`on_kept(id, what becomes of it)` is called on the thread, once a page is kept in the store."""
        self._spec, self._cluster, self._on_kept = spec, cluster, on_kept
        self._store, self._lease, self._signer = store, lease, signer
        self._inbox: queue.SimpleQueue[_Submitted | _Ended | dict[str, bool] | None] = (
            queue.SimpleQueue()
        )
        self._busy: set[str] = set()
        self._kept: list[tuple[str, str]] = []
        self._problem = ""
        self._is_closing = False
        self._turned_at = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)
        # Replaced, never changed, by the thread: what the supervisor's loop reads.
        self.status: PagesStatus | None = None
        self.incident_notes: Mapping[str, str] = {}
        self.incidents: frozenset[str] = frozenset()

    def start(self) -> None:
        """Start to send what an earlier supervisor left, and what comes."""
        self._thread.start()

    def on_turn(self) -> None:
        """Note that the supervisor's loop turns: a dead-man's switch is to notice when it does not."""
        self._turned_at = time.monotonic()

    def submit(self, page_id: str, content: OperatorPage) -> None:
        """Send a page, once for each id."""
        self._inbox.put(_Submitted(page_id, content))

    def settle_incidents(self, asks_for_a_person: dict[str, bool]) -> None:
        """Tell which of `incidents` still ask for a person; repeats and alerts of the others end."""
        self._inbox.put(asks_for_a_person)

    def close(self, timeout_seconds: float) -> None:
        """Send what is new, within a time, and end; what waits is the next supervisor's."""
        self._is_closing = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._is_over.wait(timeout_seconds)

    def _run(self) -> None:
        try:
            self._send_all()
        except (Fenced, StoreCorrupt) as error:
            _LOG.warning("pages are left to the supervisor that leads: %s", error)
        except Exception:  # noqa: BLE001 - bulkhead: the supervisor goes on, and its log has each page
            _LOG.exception("pages are sent no more: the sender failed")
        finally:
            self._is_over.set()

    def _send_all(self) -> None:
        outbox = PageOutbox(self._spec, self._load())
        dispatch = Dispatch(outbox, self._cluster, time.time())
        read_at = -FILE_SECONDS
        while True:
            now = time.time()
            if time.monotonic() >= read_at + FILE_SECONDS or not dispatch.addresses:
                self._read_addresses(dispatch)
                read_at = time.monotonic()
            dispatch.is_alive = time.monotonic() - self._turned_at < STUCK_SECONDS
            outbox.tick(now)
            dispatch.forget_sent()
            room = MAX_SENDING - len(self._busy)
            deliveries = dispatch.due(now, is_busy=self._busy.__contains__)[:room]
            # A try without a write before it could be made after another supervisor has begun to send.
            is_saved = self._save(outbox, is_lease_checked=bool(deliveries))
            for delivery in deliveries:
                self._begin(delivery)
            self.status = dispatch.status(self._problem, now)
            self.incident_notes = dispatch.incident_notes()
            self.incidents = outbox.incidents
            if self._is_closing and self._inbox.empty() and not self._has_new(dispatch, now):
                return
            self._take_in(outbox, dispatch, self._wait_seconds(dispatch, is_saved=is_saved))

    def _wait_seconds(self, dispatch: Dispatch, *, is_saved: bool) -> float:
        now = time.time()
        is_full = len(self._busy) >= MAX_SENDING
        is_busy = (lambda _: True) if is_full else self._busy.__contains__
        due_in = dispatch.next_at(now, is_busy=is_busy) - now
        longest = LONGEST_WAIT_SECONDS if is_saved else STORE_RETRY_SECONDS
        if self._problem:
            longest = min(longest, FILE_SECONDS)
        return min(due_in, longest)

    def _has_new(self, dispatch: Dispatch, now: float) -> bool:
        """Whether an address may still take a page at once: one is on its way, or was not tried yet."""
        return bool(self._busy) or bool(dispatch.due(now, is_busy=lambda _: False))

    def _take_in(self, outbox: PageOutbox, dispatch: Dispatch, wait_seconds: float) -> None:
        """Wait for something to come in, and take in all that has."""
        try:
            item = self._inbox.get(timeout=max(wait_seconds, 0.0))
        except queue.Empty:
            return
        while True:
            now = time.time()
            if isinstance(item, _Submitted):
                self._kept.append((item.id, outbox.accept(item.id, item.content, now)))
            elif isinstance(item, _Ended):
                self._busy.discard(item.delivery.address.id)
                dispatch.on_result(item.delivery, item.error, now)
            elif item is not None:
                outbox.settle_incidents(item, now)
            if self._inbox.empty():
                return
            item = self._inbox.get()

    def _begin(self, delivery: Delivery) -> None:
        """Send in a thread that no exit waits for: the process that it started ends by itself."""
        name = delivery.address.id
        self._busy.add(name)
        threading.Thread(
            target=self._deliver, args=(delivery,), name=f"page-{name}", daemon=True
        ).start()

    def _deliver(self, delivery: Delivery) -> None:
        self._inbox.put(_Ended(delivery, send(delivery, self._spec.send_seconds)))

    def _read_addresses(self, dispatch: Dispatch) -> None:
        try:
            dispatch.addresses = read_addresses(Path(self._spec.addresses_file))
            problem = ""
        except UserError as error:
            dispatch.addresses, problem = (), str(error)
        if problem != self._problem:
            if problem:
                _LOG.error("pages wait: %s", problem)
            else:
                _LOG.info("pages: the file of addresses is read again")
        self._problem = problem

    def _load(self) -> OutboxState | None:
        while True:
            try:
                register = self._store.get(PAGES)
                break
            except StoreUnavailable as error:
                if self._is_closing:
                    return None
                time.sleep(min(error.delay_seconds, STORE_RETRY_SECONDS))
        if register is None:
            return None
        try:
            found = wire.decode(
                self._signer.verify_kept(PAGES, register.payload)[0], limit_bytes=MAX_LARGE_BYTES
            )
        except (Forged, WireError) as error:
            _LOG.error("pages that waited cannot be read, and are not sent: %s", error)
            return None
        return found if isinstance(found, OutboxState) else None

    def _save(self, outbox: PageOutbox, *, is_lease_checked: bool) -> bool:
        """Keep the outbox in the store if it changed; return whether the store has it.

        `is_lease_checked`: write it in any case. Raises Fenced if another leads: each write finds out.
        """
        if outbox.has_changed or is_lease_checked:
            payload = self._signer.sign(PAGES, wire.encode(outbox.state))
            try:
                self._store.put(PAGES, payload, fence=self._lease)
            except StoreUnavailable:
                return False
            outbox.has_changed = False
        kept, self._kept = self._kept, []
        for page_id, outcome in kept:
            self._on_kept(page_id, outcome)
        return True
