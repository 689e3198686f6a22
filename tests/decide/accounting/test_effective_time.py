"""ETTR and lost seconds, as status and metrics show them, agree with another fold of the journal to the second.

`tests/cli/report/test_simulated_day.py` plays a whole day.
"""

import pytest

from tests.decide.accounting.follower import Follower
from tests.decide.scenario import Scenario, scenarios


@pytest.mark.shared
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_in_every_scenario_another_fold_of_the_journal_agrees(scenario: Scenario) -> None:
    """At every entry ten seconds after the last one compared, and at the end."""
    follower = Follower(10.0)
    world = scenario.play(scenario.build(watcher=follower))
    if world.entries and world.supervisor.is_up:
        follower.compare(world)
