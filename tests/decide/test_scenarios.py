"""Stories of what can happen to a cluster, told by what the controller made of it."""

from __future__ import annotations

import pytest

from tests.decide.invariants import Watching, check_end
from tests.decide.scenario import FOLDER, MARK, Scenario, scenarios
from tests.decide.transcript import write

MAX_LINES = 40


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_story_is_told_as_before(scenario: Scenario, rewrite: bool) -> None:
    """Each scenario leads to exactly the decisions its file shows, and breaks nothing that must hold."""
    world = scenario.play(scenario.build(watcher=Watching(scenario.policy)))
    check_end(world)
    told = write(world)
    if rewrite:
        (FOLDER / f"{scenario.name}.txt").write_text(f"{scenario.head}{MARK}\n{told}")
    else:
        assert told == scenario.transcript
    lines = scenario.head.count("\n") + told.count("\n") + 1
    assert lines <= MAX_LINES, f"{lines} lines; one story each"


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_story_says_what_it_shows(scenario: Scenario) -> None:
    """Each scenario begins with a sentence for the reader."""
    assert scenario.title.endswith("."), f"{scenario.name}: begin with `# A sentence.`"
