"""The sender with a real server, real processes and a store: no address, and no store, makes it lose, repeat or reorder a page."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.act.pager.outbox_state import OutboxState, WaitingPage
from runner.act.pager.sender import PageSender
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.actions import OperatorPage
from runner.facts.specs.pages import PagesSpec
from runner.facts.store_names import LEASE, PAGES
from runner.signer import Signer
from runner.store.memory.store import MemoryStore
from tests.act.webhook import Webhook

WAIT_SECONDS = 60.0
SIGNER = Signer(b"a token of this cluster's own")


class SenderHarness:
    """One store and one file of addresses; `lead` starts the sender of a new supervisor."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pages.addresses"
        self.store = MemoryStore()
        self.kept: list[tuple[str, str]] = []
        self._senders: list[PageSender] = []
        self._leaders = 0

    def addresses(self, text: str, mode: int = 0o600) -> None:
        """Write the file of addresses."""
        self.file.write_text(text)
        self.file.chmod(mode)

    def lead(self, **spec: Any) -> PageSender:
        """Start a sender under a lease of its own; the one before is fenced from now on."""
        name = f"s{self._leaders}"
        self.store.break_lease(LEASE, f"s{self._leaders - 1}")
        self._leaders += 1
        lease = self.store.acquire_lease(LEASE, name, ttl_seconds=1000.0)
        given = PagesSpec(addresses_file=str(self.file), **{"send_seconds": 5.0, **spec})
        sender = PageSender(
            given, "c", self.store, lease, SIGNER, on_kept=lambda *kept: self.kept.append(kept)
        )
        sender.start()
        self._senders.append(sender)
        return sender

    def close(self) -> None:
        """End all senders."""
        for sender in self._senders:
            sender.close(1.0)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SenderHarness]:
    """A harness whose senders end with the test."""
    made = SenderHarness(tmp_path)
    with contextlib.closing(made):
        yield made


def submit(sender: PageSender, *names: str, **content: Any) -> None:
    """Hand in urgent pages, each of a cause of its own."""
    for name in names:
        fields = {"text": name, "cause": name, "urgent": True, **content}
        sender.submit(name, OperatorPage(**fields))


def until(holds: Callable[[], Any], what: str) -> Any:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)
    return found


def ids(bodies: list[Any]) -> list[str]:
    """Return the ids of pages that a server got."""
    return [body["id"].removeprefix("c/") for body in bodies]


@pytest.mark.costly
def test_a_webhook_that_fails_hangs_and_comes_back_gets_each_page_once_and_in_order(
    harness: SenderHarness,
) -> None:
    """Gone, answering 500, hanging, and well again: nothing is accepted twice, and handing pages in takes no time."""
    server = Webhook("refuse")
    harness.addresses(f"oncall http://{server.place}/\n")
    sender = harness.lead(send_seconds=1.0)
    began_at = time.monotonic()
    submit(sender, "a1", "a2")
    assert time.monotonic() - began_at < 0.5
    until(lambda: server.refused, "a page is refused")
    server.behaviour = "hang"
    until(lambda: len(server.refused) > 1, "a page hangs")
    submit(sender, "a3")
    status = until(
        lambda: (x := sender.status) and "did not answer in time" in x.problem and x, "it is shown"
    )
    assert (status.waiting, status.sent) == (3, 0)
    assert status.failed >= 2
    server.close()
    with Webhook(port=server.port) as back:
        submit(sender, "a4")
        until(lambda: len(back.accepted) == 4, "all pages")
        until(lambda: (x := sender.status) and x.waiting == 0, "none waits")
        assert ids(back.accepted) == ["a1", "a2", "a3", "a4"]
    assert {name for name, _ in harness.kept} == {"a1", "a2", "a3", "a4"}


def test_the_next_supervisor_sends_what_the_one_before_could_not(harness: SenderHarness) -> None:
    """The first one is fenced in the middle of its tries; no page comes twice, and what was sent is not sent again."""
    with Webhook() as server:
        harness.addresses(f"oncall http://{server.place}/\n")
        first = harness.lead()
        submit(first, "a1")
        until(lambda: (x := first.status) and x.sent == 1, "the first page")
        server.behaviour = "refuse"
        submit(first, "a2", "a3")
        until(lambda: ("a3" in dict(harness.kept)) and server.refused, "two pages are kept")
        second = harness.lead()
        # Actions without an outcome are issued again.
        submit(second, "a1", "a2", "a3")
        server.behaviour = "accept"
        submit(second, "a4")
        until(lambda: len(server.accepted) >= 4, "all pages")
        until(lambda: (x := second.status) and x.waiting == 0, "none waits")
        until(lambda: not first._thread.is_alive(), "the first one ends")
        assert ids(server.accepted) == ["a1", "a2", "a3", "a4"]
        assert second.status is not None
        assert second.status.sent == 4


@pytest.mark.costly
def test_a_fenced_supervisor_makes_no_further_try(harness: SenderHarness) -> None:
    """Nothing has changed since its last write: it finds out before the try, not after it."""
    with Webhook("refuse") as server:
        harness.addresses(f"oncall http://{server.place}/\n")
        first = harness.lead()
        submit(first, "a1")
        until(lambda: (x := first.status) and x.failed, "a try that failed is kept")
        # No sender of the one that leads now: what is accepted would be the first one's.
        harness.store.break_lease(LEASE, "s0")
        harness.store.acquire_lease(LEASE, "another", ttl_seconds=1000.0)
        server.behaviour = "accept"
        until(lambda: not first._thread.is_alive(), "the first one ends")
        assert not server.accepted


def test_a_page_is_sent_while_the_store_is_out_of_reach_and_kept_once_it_is_back(
    harness: SenderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is reported no sooner: until then the journal has it as open."""
    with Webhook() as server:
        harness.addresses(f"oncall http://{server.place}/\n")
        sender = harness.lead()
        until(lambda: sender.status, "it leads")
        put = harness.store.put

        def refuse(*_: Any, **__: Any) -> int:
            raise StoreUnavailable("gone", delay_seconds=0.1)

        monkeypatch.setattr(harness.store, "put", refuse)
        submit(sender, "a1")
        until(lambda: server.accepted, "the page")
        assert not harness.kept
        monkeypatch.setattr(harness.store, "put", put)
        until(lambda: harness.kept, "it is kept")
        assert ids(server.accepted) == ["a1"]


@pytest.mark.parametrize("fault", ["missing", "readable", "wrong"])
def test_pages_wait_for_a_file_of_addresses(
    harness: SenderHarness, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status says what is wrong with it; mended, it is read without a restart."""
    monkeypatch.setattr("runner.act.pager.sender.FILE_SECONDS", 0.1)
    with Webhook() as server:
        text = f"oncall http://{server.place}/S3CRET\n"
        if fault != "missing":
            harness.addresses(
                text if fault == "readable" else f"http://{server.place}/S3CRET\n", 0o644
            )
        if fault == "wrong":
            harness.file.chmod(0o600)
        sender = harness.lead()
        submit(sender, "a1")
        status = until(lambda: (x := sender.status) and x.waiting and x, "it waits")
        assert "pages.addresses_file" in status.problem
        assert "S3CRET" not in repr(status)
        harness.addresses(text)
        until(lambda: server.accepted, "the page")
        until(lambda: (x := sender.status) and not x.problem, "all is well")


def test_the_store_holds_no_address_and_no_forged_page_is_sent(
    harness: SenderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """What another process has put there is refused, with a line in the log, and pages go on."""
    with Webhook("refuse") as server:
        harness.addresses(f"oncall http://{server.place}/S3CRET\n")
        first = harness.lead()
        submit(first, "a1")
        until(lambda: server.refused, "a try")
        register = until(lambda: harness.store.get(PAGES), "the register")
        assert b"S3CRET" not in register.payload
        first.close(1.0)
        page = WaitingPage(id="forged", content=OperatorPage(text="forged"), at=0.0, to="oncall")
        harness.store.put(PAGES, wire.encode(OutboxState(waiting=[page])))
        third = harness.lead()
        server.behaviour = "accept"
        submit(third, "a2")
        until(lambda: server.accepted, "the page")
        until(lambda: (x := third.status) and x.waiting == 0, "none waits")
        assert ids(server.accepted) == ["a2"]
    assert "cannot be read, and are not sent" in caplog.text


@pytest.mark.costly
def test_acknowledged_repeats_end(harness: SenderHarness) -> None:
    """One page, its repeats, and none once its incident is acknowledged."""
    with Webhook() as server:
        harness.addresses(f"oncall http://{server.place}/\n")
        sender = harness.lead(repeat_seconds=0.5)
        submit(sender, "a1", incident="i1")
        until(lambda: len(server.accepted) >= 3, "two repeats")
        until(lambda: sender.incidents == {"i1"}, "it is followed")
        sender.settle_incidents({"i1": False})
        until(lambda: not sender.incidents, "it is not followed")
        until(lambda: (x := sender.status) and x.waiting == 0, "none waits")
        num = len(server.accepted)
        time.sleep(1.5)
        assert len(server.accepted) == num
        assert ids(server.accepted) == ["a1", *(f"a1+{n}" for n in range(1, num))]


def test_a_supervisor_that_ends_sends_what_is_new(harness: SenderHarness) -> None:
    """A run that fails ends its cluster at once: its page still leaves, and an address that fails delays nothing."""
    with Webhook() as server, Webhook("refuse") as failing:
        harness.addresses(f"oncall http://{server.place}/\noncall http://{failing.place}/\n")
        sender = harness.lead()
        until(lambda: sender.status, "it leads")
        submit(sender, "a1")
        began_at = time.monotonic()
        sender.close(WAIT_SECONDS)
        assert ids(server.accepted) == ["a1"]
        assert time.monotonic() - began_at < WAIT_SECONDS / 2
