"""Scenarios of cluster faults, each compared with the transcript of the controller's decisions."""

import re

import pytest

from tests.decide.invariants import Watching, check_end
from tests.decide.scenario import FOLDER, MARK, Scenario, runbooks, scenarios
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


# Pages that no scenario plays: of a supervisor's own failure only a record is made; a store that was rolled back stops the
# supervisor before it decides (tests/e2e/supervisor/test_store_rollback.py); growth takes hours of heartbeats
# (tests/decide/incidents/test_non_fatal.py).
ELSEWHERE = ("stoker-itself", "store-rolled-back", "slow-growth")


def test_every_page_has_a_scenario() -> None:
    """Each page of Stoker's answers an incident in a transcript."""
    played = "".join(scenario.transcript for scenario in scenarios())
    for book in runbooks():
        names = "|".join(book.faults)
        is_played = re.search(rf"\bi\d+ (was )?({names})\b", played) is not None
        assert is_played is (book.name not in ELSEWHERE), book.name
