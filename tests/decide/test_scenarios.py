"""Scenarios of cluster faults, each compared with the transcript of the controller's decisions."""

import pytest

from tests.decide.invariants import Watching, check_end
from tests.decide.scenario import FOLDER, MARK, Scenario, scenarios
from tests.decide.transcript import write

MAX_LINES = 44


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_scenario_leads_to_its_transcript(scenario: Scenario, rewrite: bool) -> None:
    """Each scenario leads to exactly the decisions its file shows, and breaks no invariant."""
    world = scenario.play(scenario.build(watcher=Watching(scenario.policy)))
    check_end(world)
    transcript = write(world)
    if rewrite:
        (FOLDER / f"{scenario.name}.txt").write_text(f"{scenario.head}{MARK}\n{transcript}")
    else:
        assert transcript == scenario.transcript
    lines = scenario.head.count("\n") + transcript.count("\n") + 1
    assert lines <= MAX_LINES, f"{lines} lines; one story each"


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_scenario_begins_with_a_sentence(scenario: Scenario) -> None:
    """Each scenario begins with a sentence for the reader."""
    assert scenario.title.endswith("."), f"{scenario.name}: begin with `# A sentence.`"
