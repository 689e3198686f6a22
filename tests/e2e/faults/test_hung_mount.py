"""A mount below a run's folder hangs for a while: the run goes on, no node is silent, and the incident names the mount."""

import os
import sys
import time

import pytest

from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, run_of
from tests.e2e.minimal_run import finish
from tests.e2e.scripts import STEPPING
from tests.hanging_folder import hanging_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# At least; the finding takes twelve. With STOKER_SOAK the log reader is ended meanwhile, and replaced.
HANG_SECONDS = 60.0 if "STOKER_SOAK" in os.environ else 15.0


def incident_on(view: ClusterStatus, *, state: str) -> IncidentStatus | None:
    """Return the incident about the mount, once it is in this state."""
    found = [each for each in view.incidents if each.fault == "folder_hangs"]
    return found[0] if found and found[0].state == state else None


def test_a_mount_that_hangs_stops_no_node_and_is_named(harness: ClusterHarness) -> None:
    """Steps go on all the time, both nodes stay in service, and the incident ends when the mount answers."""
    harness.write_cluster(nodes=2, slots=1, limits={"heartbeat_timeout_seconds": 5})
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    attempts = harness.state / "runs" / f"1-{harness.name}" / "attempts"
    with hanging_folder(attempts, harness.folder / "behind") as hanging:
        supervisor = harness.start("supervise")
        harness.until(harness.view, "a first status")
        handed = harness.stoker("run", "run.yaml", "--detach")
        assert handed.returncode == 0, handed
        harness.training(past_step=20)
        hanging.hang()
        began_at, began_step = time.monotonic(), harness.training().step
        incident = harness.wait(lambda view: incident_on(view, state="proving"), "the incident")
        assert f"{attempts} (fuse of stoker-test) has not answered" in incident.evidence[0]
        assert "look at its server" in incident.evidence[0]
        until_step = harness.training(past_step=began_step + 100).step + 100
        seen = set[str]()

        def is_far(view: ClusterStatus) -> bool:
            seen.update(node.state for node in view.nodes)
            has_lasted = time.monotonic() - began_at > HANG_SECONDS
            return has_lasted and run_of(view).step > until_step

        harness.wait(is_far, "steps while the mount hangs")
        assert seen == {"active"}
        story = harness.stoker("explain", incident.incident)
        assert str(attempts) in story.stdout, story
        hanging.answer()
        harness.wait(lambda view: incident_on(view, state="resolved"), "the end of the incident")
        finish(harness, supervisor)
        assert [each.fault for each in incidents_of(harness.view())] == ["folder_hangs"]
        assert harness.observer.starts() == {"1.1.0": 2}
