"""The page in a real browser: who may press what, hostile text, other sites, keys, and pictures to look at (.cache/web)."""

import math
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from runner.facts.causes import Cause, Culprit
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    HoldStatus,
    IncidentStatus,
    NodeStatus,
    ProposalStatus,
    RunForecast,
    RunStatus,
    SparesStatus,
)
from runner.facts.messages.requests import ApproveAction, PauseRun
from runner.journal.archive import archive_of
from runner.steps import RunFiles, StepRow, folder_beside
from runner.token_file import WebRole
from tests.cli.conftest import Answering, Cluster, example_view
from tests.serve.web.browser import WAIT_MILLISECONDS, chromium
from tests.serve.web.conftest import Site
from tests.serve.web.test_page import HOSTILE, hostile_view

pytestmark = pytest.mark.costly

PICTURES = Path(__file__).parents[3] / ".cache" / "web"
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
}
DARK: dict[str, Any] = {**DESKTOP, "color_scheme": "dark"}
IS_WIDER_THAN_WINDOW = "document.documentElement.scrollWidth > innerWidth"
PROPOSAL = ProposalStatus(
    action="a9",
    run=2,
    incident="i3",
    text="go back to the checkpoint of step 40, and skip the data of steps 41 to 44",
    since=1.0,
    reason="loss_spike: the loss does not come back",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for these tests; each opens windows of its own."""
    with chromium() as found:
        yield found


@contextmanager
def opened(browser: Browser, site: Site, role: WebRole = "operator", **look: Any) -> Iterator[Page]:
    """Log in as a person does, and wait for the first state; a script's error fails the test."""
    context = browser.new_context(**(look or DESKTOP))
    context.set_default_timeout(WAIT_MILLISECONDS)
    page, problems = context.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
    try:
        page.goto(site.server.place)
        page.fill("#name", "ann")
        page.fill("#token", site.token(role))
        page.click("button[type=submit]")
        page.wait_for_selector("#grid .cell")
        yield page
        assert problems == []
    finally:
        context.close()


def test_a_story_opens_and_only_an_operator_approves(browser: Browser, site: Site) -> None:
    """A viewer sees the same, with buttons that cannot be pressed; an operator's press is a request with name and reason."""
    site.cluster.lead()
    site.cluster.publish(example_view(proposals=(PROPOSAL,)))
    with opened(browser, site, "viewer") as page:
        expect(page.get_by_role("button", name="Approve…")).to_be_disabled()
        expect(page.get_by_role("button", name="Pause…")).to_be_disabled()
        page.click("#i1 summary")
        expect(page.locator("#i1 .story")).to_contain_text("i1 is resolved: new step reached")
        expect(page.locator("#i1")).to_contain_text("rank 1 on n1 ended with signal 9")
    with opened(browser, site) as page:
        answering = Answering(site.cluster, ("done", "a9 is approved"))
        page.get_by_role("button", name="Approve…").click()
        page.fill("#ask-reason", "as on Friday")
        page.keyboard.press("Enter")
        expect(page.locator("#ask-answer")).to_have_text("done: a9 is approved")
        answering.join()
    (request,) = site.cluster.requests()
    assert isinstance(request, ApproveAction)
    assert (request.action, request.by, request.reason) == ("a9", "ann (web)", "as on Friday")


def test_a_pause_that_an_incident_overtook_is_asked_again_with_what_is_known_now(
    browser: Browser, site: Site
) -> None:
    """The dialog shows the refusal, and its button asks again about the version that the page has by then."""
    view = example_view()
    incident = IncidentStatus(incident="i2", state="open", fault="rank_crash", run=2, version=3)
    site.cluster.lead()
    site.cluster.publish(replace(view, incidents=(incident, *view.incidents)))
    with opened(browser, site) as page:
        page.get_by_role("button", name="Pause…").click()
        page.fill("#ask-reason", "the disks move")
        resolved = replace(incident, state="resolved", version=4)
        site.cluster.publish(replace(view, incidents=(resolved, *view.incidents)))
        expect(page.locator("#i2")).to_contain_text("✓ resolved")
        answering = Answering(site.cluster, ("refused", "i2 has changed since you looked"))
        page.click("#ask-go")
        expect(page.locator("#ask-answer")).to_have_text("refused: i2 has changed since you looked")
        answering.join()
        answering = Answering(site.cluster, ("done", "run 2 is paused"))
        page.click("#ask-go")
        expect(page.locator("#ask-answer")).to_have_text("done: run 2 is paused")
        expect(page.locator("#ask-go")).to_be_hidden()
        answering.join()
    asked = site.cluster.requests()
    assert [(type(request), request.incident, request.seen) for request in asked] == [
        (PauseRun, "i2", 3),
        (PauseRun, "i2", 4),
    ]
    assert {request.reason for request in asked} == {"the disks move"}


def test_what_changes_is_shown_without_a_reload(browser: Browser, site: Site) -> None:
    """A node is lost, an incident opens, a run ends; the page is the same document all the time."""
    with opened(browser, site) as page:
        page.evaluate("window.isSameDocument = true")
        view = example_view()
        incident = IncidentStatus(incident="i2", state="open", fault="node_lost", node="n2")
        nodes = (view.nodes[0], NodeStatus(node="n2", state="lost", reason="silent"), view.nodes[2])
        runs = (view.runs[0], replace(view.runs[1], state="finished", attempt_state="ended"))
        site.cluster.publish(
            replace(view, nodes=nodes, runs=runs, incidents=(incident, *view.incidents))
        )
        expect(page.locator("#i2")).to_contain_text("! open")
        expect(page.locator("#unusual")).to_contain_text("n2✕ lost")
        expect(page.locator("#ended")).to_contain_text("tiny (run 2)")
        expect(page.locator("#announce")).to_have_text("New incident i2: node_lost n2")
        expect(page.locator("#incidents > details").first).to_have_id("i2")
        assert page.evaluate("window.isSameDocument")


@pytest.mark.parametrize("text", HOSTILE, ids=("markup", "terminal", "braces", "long"))
def test_hostile_text_runs_nothing_and_breaks_no_layout(
    browser: Browser, site: Site, text: str
) -> None:
    """In every field that a rank, a node's name or a request can fill: no script, no request elsewhere, no wide line."""
    site.cluster.publish(hostile_view(text))
    asked = list[str]()
    for look in (DESKTOP, PHONE):
        with opened(browser, site, **look) as page:
            page.on("request", lambda request: asked.append(request.url))
            page.click("#i1 summary")
            page.wait_for_selector("#i1 .lines")
            page.locator("summary", has_text="Lineage").click()
            page.focus("#grid .cell")
            expect(page.locator("#node-detail")).not_to_be_empty()
            assert page.title() == "! tiny"
            assert page.locator("main script, main img, main iframe").count() == 0
            assert not page.evaluate(IS_WIDER_THAN_WINDOW)
    assert asked
    assert [url for url in asked if not url.startswith(site.server.place)] == []


class _OtherSite(BaseHTTPRequestHandler):
    """A page on another port of this machine, which has a visitor's browser send forms, and shows the page in a frame."""

    target = ""

    def do_GET(self) -> None:
        body = f"""<iframe id="frame" src="{self.target}"></iframe>
            <form id="write" method="post" enctype="text/plain" action="{self.target}api/requests" target="sink">
            <input name='{{"do":"pause","about":"2","reason":"' value='"}}'></form><iframe name="sink"></iframe>
            <script>
            document.getElementById("write").submit();
            const note = (title) => () => (document.title = title);
            fetch("{self.target}api/events", {{credentials: "include"}}).then(note("read"), note("refused"));
            </script>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of http.server
        pass


def test_another_site_neither_frames_reads_nor_writes(browser: Browser, site: Site) -> None:
    """In the browser of an operator who is logged in: its form is refused, its fetch is blocked, its frame stays empty."""
    site.cluster.lead()
    handler = type("Handler", (_OtherSite,), {"target": site.server.place})
    other = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    try:
        with opened(browser, site) as page:
            evil = page.context.new_page()
            with evil.expect_response("**/api/requests") as answered:
                evil.goto(f"http://127.0.0.1:{other.server_address[1]}/")
            assert answered.value.status == 403
            expect(evil).to_have_title("refused")
            frame = evil.locator("#frame").content_frame
            assert frame.locator("#cluster").count() == 0
    finally:
        other.shutdown()
        other.server_close()
    assert site.cluster.requests() == []


def test_everything_is_reached_by_keys(browser: Browser, site: Site) -> None:
    """The first stop skips to the content; an incident opens with Enter; arrows move through the grid, which is one stop."""
    with opened(browser, site) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.closest('#i1') !== null"):
                break
        page.keyboard.press("Enter")
        expect(page.locator("#i1 .story")).to_be_visible()
        page.focus("#grid .cell")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#node-detail")).to_contain_text("n1: active")
        assert page.locator("#grid [tabindex='0']").count() == 1


def test_pictures_of_a_large_fleet_are_kept(browser: Browser, site: Site) -> None:
    """Desktop, phone and dark, with 2,000 nodes: the unusual come first, and nothing is wider than the window."""
    write_steps(site.cluster)
    site.cluster.lead()
    site.cluster.publish(busy_view())
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, look in {"desktop": DESKTOP, "phone": PHONE, "dark": DARK}.items():
        with opened(browser, site, **look) as page:
            expect(page.locator("#unusual tbody tr").first).to_contain_text("n5✕ lost")
            assert page.locator("#grid .cell").count() == 2000
            expect(page.locator("#grid .cell").first).to_have_text("✕")
            page.click("#i1 summary")
            page.wait_for_selector("#i1 .story")
            page.wait_for_selector("#runs canvas")
            expect(page.locator("#runs")).to_contain_text("Done in 2 h 30 min")
            expect(page.locator("#runs")).to_contain_text("will be missed by 30 min")
            assert not page.evaluate(IS_WIDER_THAN_WINDOW)
            page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def write_steps(cluster: Cluster) -> None:
    """Keep a history of steps with a spike."""
    archive, noise = archive_of(cluster.spec), random.Random(1)
    archive.prepare()
    files = RunFiles(
        folder_beside(archive.folder), run=2, run_name="tiny", admitted_at=1.0, token=1
    )
    rows = [
        StepRow(
            step,
            1.7e9 + step,
            AttemptId(2, 1, 0 if step <= 45 else 1),
            loss=2 + 4 * math.exp(-step / 40) + noise.random() * 0.1 + (1.5 if step == 44 else 0),
            grad_norm=0.8 + noise.random() * 0.3 + (3 if step == 44 else 0),
        )
        for step in range(1, 121)
    ]
    files.append(rows)


def busy_view() -> ClusterStatus:
    """Make the status of 2,000 nodes with three runs, of which one waits for a person, and a proposal."""
    view, now = example_view(), example_view().now
    nodes = [
        NodeStatus(
            node=f"n{i}",
            state="spare" if i % 50 == 0 else "active",
            since=now - 3600,
            attempt=AttemptId(2, 1, 1),
            ranks_alive=tuple(range(i * 8 - 8, i * 8)),
            domain=f"switch s{i // 16}",
        )
        for i in range(1, 2001)
    ]
    nodes[4] = replace(
        nodes[4], state="lost", reason="no heartbeat for 5.0 s; a probe found it dead"
    )
    nodes[7] = replace(nodes[7], state="quarantined", reason="gpu_lost", hardware_faults=3)
    nodes[2] = replace(nodes[2], hardware_faults=1)
    nodes[9] = replace(nodes[9], state="checking", since=now - 40)
    cause = Cause(
        fault="cuda_oom",
        scope="rank",
        culprit=Culprit(kind="rank", id="3"),
        node="n2",
        confidence=0.85,
        action_class="page",
        lines=("n2 rank3.err:22: torch.cuda.OutOfMemoryError: CUDA out of memory.",),
    )
    spike = IncidentStatus(
        incident="i3",
        state="open",
        fault="loss_spike",
        run=2,
        opened_at=now - 60,
        step=44,
        evidence=("loss 4.2 at step 44, 9 sigmas above its level",),
        non_fatal=True,
        version=3,
        reason="a9 waits for a person",
    )
    given_up = IncidentStatus(
        incident="i2",
        state="gave_up",
        fault="rank_crash",
        run=3,
        node="n2",
        rank=3,
        opened_at=now - 600,
        cause=cause,
        evidence=("rank 3 on n2 ended with exit code 1",),
        rungs=("restart", "swap"),
        closed_at=now - 500,
        reason="two tries made no step",
    )
    hold = HoldStatus(hold="person", since=now - 100, reason="three restarts made no step")
    waiting = RunStatus(
        run=3,
        name="finetune",
        state="waiting",
        reason="it waits for a person",
        hold=hold,
        num_attempts=4,
        attempt=AttemptId(3, 2, 1),
        step=900,
        total_steps=5000,
        ettr_ratio=0.41,
        lost_seconds={"rework": 300.0, "waiting": 1200.0},
    )
    late = RunForecast(
        ends_at=now + 9000,
        earliest=now + 8000,
        latest=now + 11_000,
        deadline=now + 7200,
        margin_seconds=-1800.0,
    )
    first = replace(view.incidents[0], step=40, cause=cause)
    return replace(
        view,
        nodes=tuple(nodes),
        incidents=(spike, given_up, first),
        runs=(view.runs[0], replace(view.runs[1], step=120, forecast=late), waiting),
        proposals=(replace(PROPOSAL, since=now - 50),),
        pool=SparesStatus(spares=40, low_mark=1, recommended=42),
    )
