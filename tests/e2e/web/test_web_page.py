"""The web page of a real cluster in a real browser: a killed rank, a pause, and a supervisor that dies."""

import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.scripts import STEPPING
from tests.serve.web.browser import WAIT_MILLISECONDS, chromium


@pytest.mark.slow
def test_a_killed_rank_appears_a_pause_is_obeyed_and_a_dead_supervisor_is_told(
    harness: ClusterHarness,
) -> None:
    """All in one document that is never loaded again, until the supervisor, which started the page's process, is gone with it."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    harness.write_cluster(nodes=2, slots=1, limits={"web_port": port})
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first status")
    assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
    training = harness.training(past_step=5)
    token = Path(harness.spec.state) / "web-operator.token"
    harness.until(lambda: token.exists() and _answers(port), "the web page")
    with chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(WAIT_MILLISECONDS)
        page.goto(f"http://127.0.0.1:{port}/")
        page.fill("#name", "ann")
        page.fill("#token", token.read_text().strip())
        page.click("button[type=submit]")
        expect(page.locator("#runs .badge")).to_have_text("● running", timeout=WAIT_MILLISECONDS)
        page.evaluate("window.isSameDocument = true")
        kill(training.pids[1])
        expect(page.locator("#i1")).to_contain_text("rank_crash", timeout=WAIT_MILLISECONDS)
        expect(page.locator("#runs")).to_contain_text(
            "Restarted last: i1", timeout=WAIT_MILLISECONDS
        )
        page.click("#i1 summary")
        expect(page.locator("#i1 .story")).to_contain_text("attempt 1.1.1 planned")
        harness.training(past_step=training.step + 20, after=training.attempt)
        # The supervisor refuses a pause whose sender has not seen how the incident ended.
        expect(page.locator("#i1")).to_contain_text("✓ resolved", timeout=WAIT_MILLISECONDS)
        page.get_by_role("button", name="Pause…").click()
        page.fill("#ask-reason", "the disks move")
        page.click("#ask-go")
        expect(page.locator("#runs")).to_contain_text(
            "Paused by ann (web): the disks move", timeout=WAIT_MILLISECONDS
        )
        held = harness.wait(lambda view: run_of(view).hold, "the pause")
        assert (held.by, held.reason) == ("ann (web)", "the disks move")
        expect(page.locator("#runs .badge")).to_have_text("‖ paused", timeout=WAIT_MILLISECONDS)
        assert page.evaluate("window.isSameDocument")
        kill(supervisor.pid)
        harness.until(lambda: not _answers(port) or None, "the end of the page's process")
        of_operator = harness.start("web", "--port", str(port))
        expect(page.locator("#alerts")).to_contain_text(
            "No supervisor holds the lease", timeout=WAIT_MILLISECONDS
        )
        expect(page.locator("#runs .badge")).to_have_text("‖ paused")
        supervisor = harness.start("supervise")
        expect(page.locator("#alerts .problem")).to_have_count(0, timeout=WAIT_MILLISECONDS)
        assert page.evaluate("window.isSameDocument")
    # The page of the new supervisor found no port, and that is no concern of its runs.
    harness.until(lambda: f"web_port: {port} is in use" in harness.output(), "the message")
    assert [incident.fault for incident in incidents_of(harness.view())] == ["rank_crash"]
    assert harness.stoker("shutdown").returncode == 0
    assert supervisor.wait(60) == 0
    of_operator.terminate()
    assert of_operator.wait(60) == 0


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10.0).close()
    except OSError:
        return False
    return True
