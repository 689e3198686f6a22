"""Who may read the page, who may write, and what a page of another site cannot have a browser do."""

import json
import os
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.errors import UserError
from runner.facts.messages.requests import (
    AcknowledgeIncident,
    ApproveAction,
    DenyAction,
    PauseRun,
    Request,
    ResumeRun,
)
from runner.serve.web import access, app, writes
from runner.serve.web.server import WebServer
from runner.token_file import replace_token, web_token_file
from tests.cli.conftest import Answering, Cluster, example_view, stoker
from tests.serve.web.conftest import Site, Visit

READS = ("/api/session", "/api/incidents/i1", "/api/runs/2/curves", "/runbooks", "/runbooks/hang")


def test_without_a_token_there_is_only_the_login(site: Site) -> None:
    """The overview leads to the form, everything else is refused with what would help; files of the page are no secret."""
    visit = site.visit()
    assert visit.ask("/").headers["location"] == "/login"
    assert b"Token of a viewer or of an operator" in visit.ask("/login").body
    for path in (*READS, "/api/events"):
        answer = visit.ask(path)
        assert answer.code == 401
        assert "log in first" in answer.plain["error"]
    assert visit.ask("/static/page.js").code == 200
    assert site.visit(authorization="Bearer wrong").ask("/api/session").code == 401


def test_a_viewer_reads_and_does_not_write(site: Site) -> None:
    """Each page answers a viewer; a write is refused, and no request reaches the store."""
    for visit in (site.viewer(), site.browser("viewer")):
        assert [visit.ask(path).code for path in ("/", *READS)] == [200] * (1 + len(READS))
        refused = visit.write(do="pause", about="2")
        assert refused.code == 403
        assert "token of an operator" in refused.plain["error"]
    assert site.cluster.requests() == []


def test_an_operator_s_write_is_a_signed_request_with_a_name(site: Site) -> None:
    """The supervisor gets what the command of that name sends: who, why, and the incident that was looked at."""
    site.cluster.lead()
    visit = site.browser(name="ann")
    answering = Answering(site.cluster, ("done", "a9 is approved"))
    answer = visit.write(do="approve", about="a9", reason="as on Friday")
    answering.join()
    assert answer.plain["state"] == "done"
    assert answer.plain["message"] == "a9 is approved"
    (request,) = site.cluster.requests()
    assert isinstance(request, ApproveAction)
    assert (request.action, request.by, request.reason) == ("a9", "ann (web)", "as on Friday")
    assert request.expires_at > request.sent_at > 0
    program = site.visit(authorization=f"Bearer {site.token('operator')}")
    answering = Answering(site.cluster, ("open", "ends at a step boundary"), ("done", "paused"))
    answer = program.write({"origin": ""}, do="pause", about="2", incident="i1", seen=4)
    answering.join()
    assert answer.plain["state"] == "done"
    last = site.cluster.requests()[-1]
    assert isinstance(last, PauseRun)
    assert (last.run, last.incident, last.seen, last.by) == ("2", "i1", 4, "program (web)")


@pytest.mark.parametrize(
    ("verb", "about", "kind"),
    [
        ("approve", "a9", ApproveAction),
        ("deny", "a9", DenyAction),
        ("pause", "2", PauseRun),
        ("resume", "2", ResumeRun),
        ("ack", "i1", AcknowledgeIncident),
    ],
)
def test_each_button_sends_the_request_of_its_command(
    cluster: Cluster, verb: str, about: str, kind: type[Request]
) -> None:
    """What it is about is where that command puts it; a refusal comes back with its reason."""
    cluster.lead()
    answering = Answering(cluster, ("refused", "not now"))
    asked = writes.decode_wanted(json.dumps({"do": verb, "about": about}).encode())
    answer = writes.carry_out(cluster.store, cluster.spec, asked, by="ann")
    answering.join()
    assert (answer["state"], answer["message"]) == ("refused", "not now")
    (request,) = cluster.requests()
    assert type(request) is kind
    assert about in (
        getattr(request, "action", ""),
        getattr(request, "run", ""),
        request.incident,
    )


def test_an_open_page_of_a_replaced_token_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events stop, and the next connection is refused."""
    monkeypatch.setattr(app, "CHECK_SECONDS", 0.0)
    events = site.browser("viewer").events()
    next(events)
    assert stoker("token", "--web", "viewer", "--replace").exit_code == 0
    site.cluster.publish(example_view(closing=True))
    for _ in events:
        pass
    assert site.viewer().ask("/api/session").code == 200


def test_without_a_supervisor_a_write_is_refused_with_the_way_out(site: Site) -> None:
    """Nothing would act on it, so that nothing is left in the store for later."""
    answer = site.browser().write(do="resume", about="2")
    assert answer.code == 503
    assert "`stoker supervise`" in answer.plain["error"]
    assert site.cluster.requests() == []


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"origin": "https://evil.example"}, "this comes from 'https://evil.example'"),
        ({"origin": "null"}, "this comes from 'null'"),
        ({"sec-fetch-site": "cross-site"}, "a page of another site"),
        ({"sec-fetch-site": "same-site"}, "a page of another site"),
        ({"x-stoker-check": ""}, "lacks the page's own code"),
        ({"x-stoker-check": "0" * 64}, "lacks the page's own code"),
    ],
)
def test_a_page_of_another_site_writes_nothing(
    site: Site, headers: dict[str, str], reason: str
) -> None:
    """A browser sends the cookie along, and names the page that asked; no other page can read the code that a write repeats."""
    site.cluster.lead()
    answer = site.browser().write(headers, do="pause", about="2")
    assert answer.code == 403
    assert reason in answer.plain["error"]
    assert site.cluster.requests() == []


def test_a_page_of_another_site_logs_nobody_in(site: Site) -> None:
    """It would have a visitor act under another name."""
    form = f"token={site.token('operator')}&name=eve".encode()
    answer = site.visit().ask("/login", form, {"origin": "https://evil.example"})
    assert answer.code == 403
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_for_this_page_alone(site: Site) -> None:
    """No script reads it, no other site has it sent, and another cluster's on this host has another name."""
    cookie = site.visit().log_in(site.token("viewer")).headers["set-cookie"].lower()
    assert cookie.startswith("stoker-tiny=viewer.")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert site.token("viewer") not in cookie


def test_a_wrong_token_is_refused_with_a_message(site: Site) -> None:
    """The form comes back, and says that the token is not known; markup in a name stays text."""
    visit = site.visit()
    answer = visit.log_in("x" * 64, "<script>alert(1)</script>")
    assert answer.code == 403
    assert b"this token is not known here" in answer.body
    assert b"<script" not in answer.body
    assert "cookie" not in visit.headers


def test_a_token_that_was_replaced_counts_until_the_rotation_ends(site: Site) -> None:
    """The one before is accepted meanwhile; after it, the message says since when it is not, and sessions with it end."""
    path, before = web_token_file(site.cluster.spec, "operator"), site.token("operator")
    browser = site.browser()
    replace_token(path, 3600.0)
    assert site.visit().log_in(before).code == 303
    assert browser.ask("/api/session").code == 200
    _, *tokens = Path(path).read_text().splitlines()
    ended = (
        "# signs from 2020-01-01T00:00:00Z, the token below it is valid until 2020-01-02T00:00:00Z"
    )
    Path(path).write_text("\n".join((ended, *tokens, "")))
    refused = site.visit().log_in(before)
    assert refused.code == 403
    assert b"this operator&#x27;s token is no longer valid, since 2020-01-02" in refused.body
    assert "log in again" in browser.ask("/api/session").plain["error"]
    assert site.visit().log_in(site.token("operator")).code == 303


def test_a_session_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time a cookie is worth nothing, however often it is sent; a changed one neither."""
    monkeypatch.setitem(access.SESSION_SECONDS, "viewer", -60.0)
    browser = site.browser("viewer")
    assert "this session has ended" in browser.ask("/api/session").plain["error"]
    cookie = site.browser("operator").headers["cookie"]
    for changed in (
        cookie.replace("operator.", "viewer."),
        cookie[:-1] + "x",
        "stoker-tiny=",
        "a=b",
    ):
        assert site.visit(cookie=changed).ask("/api/session").code == 401


def test_a_unix_socket_is_its_owner_s_who_reads_without_a_token(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Mode 0600; under another name than this machine's own it answers nothing, so that no page can point its name here."""
    path = str(tmp_path / "web.sock")
    with WebServer(cluster.store, cluster.spec, path=path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert b"200 OK" in _raw(path, "GET /api/session", "localhost:8470")
        assert b'"role":"viewer"' in _raw(path, "GET /api/session", "localhost:8470")
        assert b"401 Unauthorized" in _raw(path, "GET /api/session", "evil.example:8470")
        assert b"403 Forbidden" in _raw(path, "POST /api/requests", "localhost:8470")
        with pytest.raises(UserError, match=r"web\.sock is in use by another process"):
            WebServer(cluster.store, cluster.spec, path=path)
    assert not Path(path).exists()


def _raw(path: str, line: str, host: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60.0)
        connection.connect(path)
        connection.sendall(
            f"{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
        )
        found = b""
        while part := connection.recv(65536):
            found += part
    return found


def test_a_token_s_file_is_its_owner_s_and_no_other_token_s(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One that others may read is refused, and so is the cluster's own token, which signs."""
    path = Path(web_token_file(cluster.spec, "viewer"))
    with WebServer(cluster.store, cluster.spec, address="127.0.0.1"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(UserError, match=r"web-viewer.token has mode 644: others may use it"):
        WebServer(cluster.store, cluster.spec, address="127.0.0.1")
    path.chmod(0o600)
    own = tmp_path / "cluster.token"
    own.write_text(path.read_text())
    own.chmod(0o600)
    with pytest.raises(
        UserError, match=r"cluster.token holds a token that .*web-viewer.token holds"
    ):
        WebServer(cluster.store, replace(cluster.spec, token_file=str(own)), address="127.0.0.1")


def test_the_page_is_served_by_https_with_files_as_the_store_s(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A client that trusts the certificate reads it, and the cookie is for https alone; a file that is no key is refused."""
    certificate, key = tmp_path / "web.crt", tmp_path / "web.key"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
    spec = replace(cluster.spec, web_certificate_file=str(certificate), web_key_file=str(key))
    with WebServer(cluster.store, spec, address="127.0.0.1") as server:
        assert server.place == f"https://127.0.0.1:{server.port}/"
        visit = Visit(server.port, tls=ssl.create_default_context(cafile=str(certificate)))
        token = Path(web_token_file(spec, "viewer")).read_text().strip()
        answer = visit.ask("/login", f"token={token}".encode())
        assert answer.code == 303
        assert "secure" in answer.headers["set-cookie"].lower()
    with pytest.raises(UserError, match=r"web_certificate_file: .* cannot be used"):
        WebServer(cluster.store, replace(spec, web_key_file=str(certificate)), address="127.0.0.1")
