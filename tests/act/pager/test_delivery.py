"""The program that sends, against real servers: what arrives, and what is said of servers that refuse, hang or are gone."""

import time
from typing import Any

import pytest

from runner.act.pager import text
from runner.act.pager.addresses import Address
from runner.act.pager.dispatch import Delivery
from runner.act.pager.sender import send
from runner.facts.actions import OperatorPage
from tests.act.webhook import Behaviour, Webhook

CONTENT = OperatorPage(
    text="i1 rank_crash: gave up: <b>x</b>",
    urgent=True,
    run="tiny",
    incident="i1",
    fault="rank_crash",
    place="n2 rank 1",
    evidence=("<script>alert(1)</script>", "x" * 240),
    next="nothing",
    command="stoker explain i1",
)


def delivery(url: str, content: OperatorPage = CONTENT) -> Delivery:
    """Return a page for an address."""
    address = Address("oncall", 1, url)
    return Delivery(
        address,
        ("a1",),
        text.job(address, "c", "a1", content, at=1e9, team="oncall", ends_at=1e9 + 60),
    )


def sent(url: str, seconds: float = 20.0) -> str:
    """Send a page; return the error."""
    return send(delivery(url), seconds)


def test_a_webhook_gets_all_that_a_page_says() -> None:
    """With the page's id as a key, so that it can tell a second time, and the password of the address as a header."""
    with Webhook() as server:
        assert not sent(f"http://user:pass%20word@{server.place}/hook?x=1")
        (got,) = server.accepted
        assert server.paths == ["/hook?x=1"]
        header = server.headers[0]
    assert header["Idempotency-Key"] == got["id"] == "c/a1"
    assert header["Authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="
    assert (got["severity"], got["run"], got["incident"]) == ("critical", "tiny", "i1")
    assert (got["command"], got["ack"]) == ("stoker explain i1", "stoker ack i1")
    assert got["evidence"] == list(CONTENT.evidence)
    for line in ("type: stoker explain i1", "run tiny, incident i1, rank_crash at n2 rank 1"):
        assert line in got["text"].splitlines()


def test_alertmanager_gets_alerts() -> None:
    """Labels to route by, and the text as annotations."""
    with Webhook() as server:
        assert not sent(f"alertmanager://{server.place}/prefix/")
        (alerts,) = server.accepted
        assert server.paths == ["/prefix/api/v2/alerts"]
    (alert,) = alerts
    assert alert["labels"] == {
        "alertname": "StokerPage",
        "cluster": "c",
        "run": "tiny",
        "incident": "i1",
        "fault": "rank_crash",
        "team": "oncall",
        "severity": "critical",
        "page": "a1",
    }
    assert alert["annotations"]["command"] == "stoker explain i1"
    assert (alert["startsAt"], alert["endsAt"]) == ("2001-09-09T01:46:40Z", "2001-09-09T01:47:40Z")


def test_apprise_gets_title_and_text() -> None:
    """As for all the services that it knows, here by its own webhook."""
    with Webhook() as server:
        assert not sent(f"json://{server.place}/hook")
        (got,) = server.accepted
    assert got["title"] == "Stoker c: i1 rank_crash: gave up: <b>x</b>"
    assert "type: stoker explain i1" in got["message"]


def test_a_sign_of_life_is_a_get() -> None:
    """Without a body."""
    with Webhook() as server:
        address = Address("heartbeat", 1, f"http://{server.place}/ping/SECRET")
        assert not send(Delivery(address, (), {}), 20.0)
        assert (server.paths, server.accepted) == (["/ping/SECRET"], [None])


@pytest.mark.parametrize("scheme", ["http", "alertmanager", "json"])
@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("refuse", "it answered HTTP 500 Internal Server Error"),
        ("redirect", "it answered HTTP 302 Found"),
        ("no_http", "it did not answer in HTTP"),
    ],
)
def test_an_address_that_accepts_nothing_is_an_error_without_the_address(
    scheme: str, behaviour: Behaviour, words: str
) -> None:
    """Nor has it a text of the server, which may repeat the address."""
    with Webhook(behaviour) as server:
        error = sent(f"{scheme}://{server.place}/S3CRET")
        assert error
        assert "S3CRET" not in error
        assert "\x1b" not in error
        # apprise follows redirects, and does not say what it could not read.
        if scheme != "json":
            assert error == words
        assert server.refused


@pytest.mark.costly
def test_a_server_that_hangs_ends_the_try() -> None:
    """After the time that is given to it, not after the patience of a library."""
    with Webhook("hang") as server:
        for scheme in ("http", "json"):
            began_at = time.monotonic()
            error = sent(f"{scheme}://{server.place}/", seconds=3.0)
            assert error in ("it did not answer in time", "apprise could not send it")
            assert time.monotonic() - began_at < 30
        assert len(server.refused) == 2


@pytest.mark.costly
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:{port}/S3CRET", "Connection refused"),
        ("http://127.0.0.1:nonsense/S3CRET", "its address is no URL"),
        ("https://127.0.0.1:{tls}/S3CRET", "TLS failed: "),
        ("nonsense://S3CRET", "apprise knows no such address"),
        ("json://127.0.0.1:{port}/S3CRET", "apprise could not send it"),
    ],
)
def test_an_address_that_is_gone_is_named_by_its_reason(url: str, words: str) -> None:
    """Without the address."""
    gone = Webhook()
    gone.close()
    with Webhook() as plain:
        error = sent(url.format(port=gone.port, tls=plain.port))
    assert words in error
    assert "S3CRET" not in error


def test_texts_of_a_megabyte_arrive() -> None:
    """What is shortened is shortened where a page is made; nothing breaks here."""
    content: Any = OperatorPage(text="x" * 1_000_000, evidence=("\x1b[31m<b>",))
    with Webhook() as server:
        assert not send(delivery(f"http://{server.place}/", content), 30.0)
        (got,) = server.accepted
    assert len(got["text"]) > 1_000_000
    assert len(got["title"]) <= text.MAX_TITLE_CHARACTERS
