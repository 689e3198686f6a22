"""Pages of a real cluster at a real webhook: a rank is lost, supervisors are killed, a person looks."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.act.webhook import Webhook
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill
from tests.e2e.minimal_run import finish, led_run

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[Webhook]:
    """A webhook that accepts pages."""
    with Webhook() as made:
        yield made


def settings(folder: Path, server: Webhook, **more: Any) -> dict[str, Any]:
    """Write the file of addresses; return the limits of a cluster that pages."""
    path = folder / "pages.addresses"
    path.write_text(f"oncall http://{server.place}/S3CRET\n")
    path.chmod(0o600)
    pages = {"addresses_file": path.name, "every_rung": True, **more}
    return {"pages": pages, "lease_seconds": 2.0, "checks": []}


def about(server: Webhook, incident: str) -> list[Any]:
    """Return the pages about an incident that were accepted, in order."""
    return [body for body in server.accepted if body["incident"] == incident]


def once(bodies: list[Any]) -> list[str]:
    """Return the ids of pages; each is there once, in the order of their numbers."""
    ids = [body["id"] for body in bodies]
    assert len(ids) == len({*ids})
    numbers = [int(each.rpartition("/a")[2].partition("+")[0]) for each in ids]
    assert numbers == sorted(numbers)
    return ids


def kill_rank(harness: ClusterHarness) -> None:
    """Kill one rank of the run that trains."""
    training = harness.training(past_step=2)
    kill(training.pids[0], signal.SIGKILL)


def when(harness: ClusterHarness, holds: Callable[[], Any], what: str) -> None:
    """Wait for the webhook."""
    harness.until(lambda: holds() or None, what)


def test_a_lost_rank_reaches_the_webhook_with_the_command_that_helps(
    harness: ClusterHarness, server: Webhook
) -> None:
    """Run, incident, cause, evidence, what Stoker does next; the address is in no output, and the status counts the page."""
    supervisor = led_run(harness, **settings(harness.folder, server))
    kill_rank(harness)
    when(harness, lambda: about(server, "i1"), "a page about the rank")
    (page,) = about(server, "i1")
    assert page["run"] == harness.name
    assert (page["fault"], page["command"]) == ("rank_crash", "stoker explain i1")
    assert page["next"].startswith("restart (")
    assert any("signal 9" in line or "SIGKILL" in line for line in page["evidence"])
    view = harness.wait(
        lambda view: (
            view if any(each.page.startswith("sent to") for each in incidents_of(view)) else None
        ),
        "it is shown",
    )
    assert view.pages is not None
    assert (view.pages.sent, view.pages.waiting, view.pages.problem) == (1, 0, "")
    explained = harness.stoker("explain", "i1")
    assert "page: sent to oncall/1" in explained.stdout
    assert "sent: 1" in harness.stoker("page").stdout
    tested = harness.stoker("page", "--test")
    assert (tested.returncode, "accepted" in tested.stdout) == (0, True)
    assert server.accepted[-1]["text"].startswith("a test of pages")
    finish(harness, supervisor)
    assert "S3CRET" not in harness.output() + explained.stdout + tested.stdout + tested.stderr


def test_a_supervisor_that_is_killed_leaves_its_pages_to_the_next_one(
    harness: ClusterHarness, server: Webhook
) -> None:
    """The webhook refuses until then: each page arrives once and in order, and an acknowledged incident repeats no more."""
    server.behaviour = "refuse"
    supervisor = led_run(harness, **settings(harness.folder, server))
    kill_rank(harness)
    harness.wait(lambda view: (view.pages and view.pages.failed) or None, "a page fails")
    waiting = harness.stoker("status").stdout
    assert "pages: 1 page not delivered" in waiting
    assert "oncall/1: it answered HTTP 500" in waiting
    supervisor.kill()
    supervisor.wait()
    assert not server.accepted
    server.behaviour = "accept"
    following = harness.start("supervise")
    when(harness, lambda: about(server, "i1"), "the page of the first supervisor")
    harness.wait(
        lambda view: (view.pages is not None and view.pages.waiting == 0) or None, "none waits"
    )
    assert len(once(server.accepted)) == len(server.accepted)
    assert harness.stoker("page", "--test").returncode == 0
    finish(harness, following)
    once([body for body in server.accepted if "test" not in body["id"]])


def test_a_run_that_fails_repeats_its_page_until_a_person_acknowledges_it(
    harness: ClusterHarness, server: Webhook
) -> None:
    """The page is urgent and names the command that stops it."""
    limits = settings(harness.folder, server, repeat_seconds=1.0)
    harness.write_cluster(nodes=1, slots=1, limits=limits)
    harness.write_run(command="false", nodes=1)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
    urgent: Callable[[], list[Any]] = lambda: [  # noqa: E731
        body for body in server.accepted if body["severity"] == "critical"
    ]
    when(harness, lambda: len(urgent()) >= 2, "a repeat")
    page = urgent()[0]
    assert page["ack"] == f"stoker ack {page['incident']}"
    acknowledged = harness.stoker("ack", page["incident"], "--why", "I look")
    assert acknowledged.returncode == 0, acknowledged
    harness.wait(
        lambda view: (view.pages is not None and view.pages.waiting == 0) or None, "none waits"
    )
    assert harness.stoker("shutdown").returncode == 0
    assert supervisor.wait(60) == 0
    ids = [body["id"] for body in urgent()]
    assert len(ids) == len({*ids})
    assert ids[1].endswith("+1")
