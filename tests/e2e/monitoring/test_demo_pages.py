"""`stoker demo --pages FILE`: the rank that the demo loses reaches a real webhook, with the command that helps."""

import signal
from typing import Any

import pytest

from runner.cli import exit_codes
from tests.act.webhook import Webhook
from tests.e2e.cluster_harness import ClusterHarness

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, pytest.mark.trainer]


def test_the_rank_that_the_demo_loses_is_paged(harness: ClusterHarness) -> None:
    """Run, incident, cause, evidence, what Stoker does next, and the command; then Ctrl-C ends the demo in order."""
    with Webhook() as server:
        path = harness.folder / "pages.addresses"
        path.write_text(f"oncall http://{server.place}/S3CRET\n")
        path.chmod(0o600)
        demo = harness.start("demo", "--pages", path.name)

        def pages() -> list[Any] | None:
            assert demo.poll() is None, harness.output()
            return list(server.accepted) or None

        (page, *_) = harness.until(pages, "a page about the rank", seconds=400.0)
        demo.send_signal(signal.SIGINT)
        assert demo.wait() == exit_codes.INTERRUPTED, harness.output()
    assert (page["cluster"], page["run"], page["incident"]) == ("demo", "demo", "i1")
    assert (page["severity"], page["fault"]) == ("warning", "rank_crash")
    assert page["text"].startswith("i1 rank_crash: restart")
    assert any("signal 9" in line or "SIGKILL" in line for line in page["evidence"])
    assert page["next"].startswith("restart (")
    assert page["command"] == "stoker explain i1"
    explained = harness.stoker("explain", "i1", "--cluster", ".stoker/demo")
    assert "page: sent to oncall/1" in explained.stdout
    assert "S3CRET" not in harness.output() + explained.stdout + explained.stderr
