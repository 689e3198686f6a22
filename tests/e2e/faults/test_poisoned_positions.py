"""Poisoned positions, with the real trainer: the run goes back and leaves them out, and ends as if they had not been there."""

import pytest

pytest.importorskip("numpy")

from tests.drills.bare_runs import bare_runs
from tests.drills.poisoned_run import TRAINER, play_poisoned
from tests.e2e.cluster_harness import ClusterHarness
from tests.suite.share import current

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(600)]

# tiny_cpu, made narrow for the minutes of CI; `python -m tests.drills poisoned` plays it whole, with five seeds.
SMALL = {
    **TRAINER,
    "steps": 170,
    "validate_every": 170,
    "model": {"width": 32, "ffn_width": 88, "layers": 2},
    "optimizer": {"lr": 5e-3},
}
LENGTH = 40
# Of the harm that the poison does without Stoker; chosen.
MOST_LEFT = 0.25


def test_a_poisoned_run_goes_back_and_leaves_out_the_poisoned_data(harness: ClusterHarness) -> None:
    """A skip that is too short is reverted, the next one helps; ranks have read the clean order without exactly what is left out.

    The run is short, so it has pages of its own (`runbooks_folder`).
    """
    first = 60 + current().dice("poisoned").randrange(20)
    print(f"data steps {first} to {first + LENGTH - 1} are poisoned")
    healed = play_poisoned(harness, SMALL, first=first, length=LENGTH)
    outcome = healed.outcome
    assert (outcome.state, outcome.note) == ("finished", ""), harness.report()
    (incident,) = outcome.incidents
    assert incident.state == "resolved"
    assert incident.rungs == ("wait", "rewind", "rewind")
    assert [(one.name, one.state) for one in outcome.remedies] == [
        ("skip_steps", "reverted"),
        ("skip_steps", "in_effect"),
    ]
    assert healed.num_read(first, LENGTH) == 0
    assert healed.read == healed.due
    for text in ("wait (rung 1 ", "(r1)", "r1 is reverted", "(r2)", "i1: helped at step"):
        assert text in outcome.logbook, outcome.logbook

    with bare_runs() as bare:
        clean = bare.run(SMALL).validation_loss
        sick = bare.run(SMALL, poisoned=(first, first + LENGTH - 1)).validation_loss
    assert outcome.loss is not None
    assert sick > clean
    assert outcome.loss - clean < MOST_LEFT * (sick - clean), (clean, outcome.loss, sick)
