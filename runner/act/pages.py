"""Pages: the one way to alert a person. Each is a line of the supervisor's log, and goes to the addresses of cluster.yaml, if any.

The text of a page is made on the supervisor's own thread (`announce`), since it reads the state; the rest waits elsewhere.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runner.act.pager import text
from runner.act.pager.addresses import Address, read_addresses
from runner.act.pager.dispatch import Delivery
from runner.act.pager.sender import PageSender, send
from runner.errors import UserError
from runner.facts.actions import Action, ActionResult, OperatorPage, Outcome, PageOperator
from runner.facts.messages.cluster_status import PagesStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.pages import PagesSpec
from runner.signer import Signer
from runner.store.protocol import Lease, Store

_LOG = logging.getLogger("stoker")

LOGGED = "written to the supervisor's log"
# Of a test: its alert at Alertmanager is over after this long. Chosen.
TEST_SECONDS = 300.0


class Pager:
    """Pages of a supervisor that leads. Its loop calls it, except `page`, which any thread may call."""

    def __init__(self, sender: PageSender | None = None) -> None:
        """`sender`: None without addresses."""
        self._sender = sender
        self._contents: dict[str, OperatorPage] = {}
        self._settled_at: tuple[int, frozenset[str]] = (-1, frozenset())
        self._settled: dict[str, bool] = {}

    @classmethod
    def of_cluster(
        cls,
        cluster: ClusterSpec,
        store: Store,
        lease: Lease,
        signer: Signer,
        *,
        report: Callable[[ActionResult], None],
    ) -> "Pager":
        """Return the pager of a cluster. `report` gets the outcome of each page once it cannot be lost any more."""
        if not cluster.pages.addresses_file:
            return cls()

        def on_kept(page_id: str, outcome: str) -> None:
            report(ActionResult(id=page_id, outcome="done", message=outcome))

        return cls(PageSender(cluster.pages, cluster.name, store, lease, signer, on_kept=on_kept))

    def start(self) -> None:
        """Begin to send: what an earlier supervisor could not, too."""
        if self._sender is not None:
            self._sender.start()

    def announce(self, page_id: str, content: OperatorPage) -> None:
        """Say what a page is to contain; `page` follows."""
        self._contents[page_id] = content

    def page(self, action: Action) -> Outcome | None:
        """Page a person; None: the outcome is reported later. Repeating it does no harm; it never raises."""
        asked = action.read(PageOperator)
        write_page(asked.message, asked.to or "")
        content = self._contents.pop(action.id, None)
        if self._sender is None:
            return "done", {}, LOGGED
        self._sender.submit(action.id, content or OperatorPage(text=asked.message))
        return None

    def settle_incidents(self, asks_for_a_person: Callable[[str], bool], sequence: int) -> None:
        """End repeats about incidents that are acknowledged or over: once a turn. `sequence`: of the state's newest entry."""
        if self._sender is None:
            return
        self._sender.on_turn()
        incidents = self._sender.incidents
        if self._settled_at == (sequence, incidents):
            return
        self._settled_at = sequence, incidents
        settled = {name: asks_for_a_person(name) for name in sorted(incidents)}
        if settled != self._settled:
            self._settled = settled
            self._sender.settle_incidents(dict(settled))

    @property
    def status(self) -> PagesStatus | None:
        """How far pages got; None without addresses."""
        return self._sender.status if self._sender is not None else None

    @property
    def incident_notes(self) -> Mapping[str, str]:
        """Incident -> how far the newest page about it got."""
        return self._sender.incident_notes if self._sender is not None else {}

    def close(self, timeout_seconds: float) -> None:
        """Send what is new, within a time, and end."""
        if self._sender is not None:
            self._sender.close(timeout_seconds)


def write_page(message: str, to: str = "") -> None:
    """Write a page into the log."""
    _LOG.warning("PAGE%s: %s", f" {to}" if to else "", message)


def page_at_once(message: str, pages: PagesSpec, cluster: str, *, command: str) -> None:
    """Page everyone, once, from a process that ends: nothing of it is kept. It never raises."""
    write_page(message)
    if not pages.addresses_file:
        return
    content = OperatorPage(text=message, urgent=True, command=command)
    wanted = (pages.to, pages.escalate_to)
    try:
        addresses = read_addresses(Path(pages.addresses_file))
    except UserError as error:
        _LOG.error("the page was not sent: %s", error)
        return
    page_id = f"stopped-{int(time.time())}"
    found = [x for x in addresses if x.name in wanted and not x.is_heartbeat]
    for address, why in _send_each(found, content, cluster, page_id, pages.send_seconds):
        if why:
            _LOG.error("the page was not sent to %s: %s", address.id, why)
        else:
            _LOG.info("the page was sent to %s", address.id)


def send_test(pages: PagesSpec, cluster: str, by: str) -> list[tuple[Address, str]]:
    """Send a page to each address, and a sign of life to each dead-man's switch; return the errors, "" for none.

    Raises UserError when the addresses cannot be read.
    """
    addresses = read_addresses(Path(pages.addresses_file))
    content = OperatorPage(
        text=f"a test of pages, sent by {by or 'a person'}: nothing is wrong",
        next="nothing",
        command="stoker status",
    )
    page_id = f"test-{int(time.time())}"
    return _send_each(addresses, content, cluster, page_id, pages.send_seconds)


def _send_each(
    addresses: list[Address] | tuple[Address, ...],
    content: OperatorPage,
    cluster: str,
    page_id: str,
    seconds: float,
) -> list[tuple[Address, str]]:
    if not addresses:
        return []
    now = time.time()
    deliveries = [_delivery(each, content, cluster, page_id, now) for each in addresses]
    with ThreadPoolExecutor(len(deliveries)) as pool:
        errors = list(pool.map(lambda each: send(each, seconds), deliveries))
    return list(zip(addresses, errors, strict=True))


def _delivery(
    address: Address, content: OperatorPage, cluster: str, page_id: str, now: float
) -> Delivery:
    if address.is_heartbeat:
        return Delivery(address, (), {})
    return Delivery(
        address,
        (page_id,),
        text.job(
            address,
            cluster,
            page_id,
            content,
            at=now,
            team=address.name,
            ends_at=now + TEST_SECONDS,
        ),
    )
