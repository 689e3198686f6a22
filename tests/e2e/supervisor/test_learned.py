"""What was learned outlives a supervisor that is killed in the middle of a slow drift: the next one finds its onset.

Also where its summary is lost: the run's step history has what it was made of.
"""

import random
import sys

import pytest

from runner.detect.numerics.numerics import Numerics
from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.messages.learned import LearnedSummary
from runner.facts.messages.signals import StepRecord
from runner.facts.store_names import learned_register
from runner.journal.journal import Journal
from runner.signer import signer_of
from runner.steps import folder_beside, read
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, run_of
from tests.e2e.minimal_run import finish
from tests.e2e.scripts import STEPPING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# From its onset on the loss rises by a tenth in 400 steps, which the detector finds some steps later.
ONSET, RISE = 300, 0.1 / 400
DRIFT = f"""
import random

def loss_of(step):
    noise = random.Random(step).gauss(0, 0.004)
    return 2.0 * (1 + noise + {RISE} * max(0, step - {ONSET}))
"""
# Half way up it waits, so that no step is made while no supervisor leads.
PAUSE_STEP = 450
DRIFTING = DRIFT + STEPPING.replace("loss=1.0 / step", "loss=loss_of(step)").replace(
    "        time.sleep(0.02)\n",
    f"""        time.sleep(0.02)
        while step == {PAUSE_STEP} and not os.path.exists("second"):
            time.sleep(0.02)
""",
)


def loss_of(step: int) -> float:
    """Return what the script reports."""
    noise = random.Random(step).gauss(0, 0.004)
    return 2.0 * (1 + noise + RISE * max(0, step - ONSET))


def kept_through(harness: ClusterHarness) -> int:
    """Return the newest step in the run's history; 0 without one."""
    rows = read(folder_beside(harness.state / "journal"), 1)
    return max((row.step for row in rows), default=0)


def learned_through(harness: ClusterHarness) -> int:
    """Return the newest step in the run's summary; 0 without one."""
    name = learned_register(1)
    register = harness.store.get(name)
    if register is None:
        return 0
    message, _ = signer_of(harness.spec).verify_kept(name, register.payload)
    summary = wire.decode(message.partition(b"\n")[2])
    assert isinstance(summary, LearnedSummary)
    numerics = summary.detectors.get("LiveNumerics", {}).get("numerics", {})
    return max(map(int, numerics.get("last_steps", [0])))


@pytest.mark.shared
@pytest.mark.parametrize("summary", ["kept", "lost"])
def test_supervisors_killed_in_the_middle_of_a_slow_drift_find_its_onset(
    harness: ClusterHarness, summary: str
) -> None:
    """SIGKILL half way up, SIGTERM after the finding: one incident, at the onset that one supervisor finds, which stays open.

    The second supervisor has the first one's summary, or the step history alone.
    """
    whole = Numerics()
    records = [StepRecord(step=step, loss=loss_of(step)) for step in range(1, 2_000)]
    found = [one for record in records for one in whole.judge(record)]
    expected = next(one for one in found if one.fault == "divergence")
    harness.write_cluster(nodes=1, slots=1)
    harness.write_script(DRIFTING)
    harness.write_run(command="{python} train.py", nodes=1, python=sys.executable)
    first = harness.start("supervise")
    harness.until(harness.view, "a first View")
    assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
    harness.until(
        lambda: learned_through(harness) == PAUSE_STEP, "a summary of the drift", seconds=300
    )
    if summary == "lost":
        harness.until(lambda: kept_through(harness) == PAUSE_STEP, "the steps in the history")
    first.kill()
    first.wait()
    if summary == "lost":
        harness.store.delete(learned_register(1))
    second = harness.start("supervise")
    holds = f":{second.pid}:"
    harness.wait(lambda view: holds in view.holder or None, "a second View")
    assert not incidents_of(harness.view())
    (harness.folder / "second").touch()
    harness.wait(lambda view: incidents_of(view) or None, "the drift", seconds=300)
    second.terminate()
    assert second.wait(60) == 0
    third = harness.start("supervise")
    holder = f":{third.pid}:"
    view = harness.wait(lambda seen: seen if holder in seen.holder else None, "a third View")
    assert [one.fault for one in incidents_of(view)] == ["divergence"]
    inputs = [entry.input for entry in Journal(harness.store).replay()]
    started = [one for one in inputs if isinstance(one, r.SupervisorStarted)]
    assert [one.learned_runs for one in started] == [(), (1,) if summary == "kept" else (), (1,)]
    opened = [
        record
        for entry in Journal(harness.store).replay()
        for record in entry.records
        if isinstance(record, r.IncidentOpened)
    ]
    (drift,) = opened
    assert drift.fault == "divergence"
    assert drift.onset == expected.onset_step
    assert drift.evidence.endswith(expected.evidence)
    finish(harness, third)
    # The last two seconds of the supervisor that was killed are lost, and rows of none that it had written.
    rows = {row.step: row.loss for row in read(folder_beside(harness.state / "journal"), 1)}
    last = max(rows)
    assert last >= expected.detected_step
    assert all(loss == loss_of(step) for step, loss in rows.items())
    assert len(rows) > 0.5 * last
    assert min(rows) < ONSET
    assert run_of(harness.view()).num_attempts == 1
