"""A crash of the supervisor or a failure of its store, at any moment of any scenario, does not change how it ends."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from runner.facts.messages import records as r
from tests.decide.crash_injection import Report, inject_all, shape
from tests.decide.invariants import Watching
from tests.decide.scenario import Scenario, scenarios
from tests.suite.share import NUM_PARTS, current

# Every kind at every place is 28,000 plays: `make soak` has the time for them. Else it is one kind at every third place, and a
# commit plays its share of these.
WITH_EVERYTHING = "STOKER_SOAK" in os.environ
LIMIT_SECONDS = 3600 if WITH_EVERYTHING else 600
# Fewer in all four parts together would be no injection; each part has about a quarter, and a tenth less at the least.
MIN_FAULTS, MIN_RECOVERIES = 3500, 2500
LEAST_OF_A_PART = 0.9 / NUM_PARTS
# Failures of one scenario that are printed.
SHOWN = 3


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Play every scenario with its faults, on all cores: forked, so that nothing is imported twice."""
    stories = sorted(scenarios(), key=lambda scenario: -scenario.until)
    shapes: dict[str, str] = {}
    for story in stories:
        shapes.setdefault(shape(story), story.name)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        jobs = [
            pool.submit(
                inject_all,
                story,
                share=current(),
                with_start=shapes[shape(story)] == story.name,
                with_everything=WITH_EVERYTHING,
            )
            for story in stories
        ]
        return {job.result().scenario: job.result() for job in jobs}


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_one_fault_at_any_place_changes_no_ending(
    scenario: Scenario, reports: dict[str, Report]
) -> None:
    """Each play has one fault, in a persist, an act or an outcome: the run ends as undisturbed, and all that must hold holds."""
    report = reports[scenario.name]
    more = len(report.failures) - SHOWN
    text = "\n".join((*report.failures[:SHOWN], f"... and {more} more" if more > 0 else ""))
    assert not report.failures, text


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS)
def test_the_injection_is_not_empty(reports: dict[str, Report]) -> None:
    """Thousands of faults were tried, and most of them made another supervisor recover."""
    least = 1.0 if current().part is None else LEAST_OF_A_PART
    assert sum(report.num_faults for report in reports.values()) > MIN_FAULTS * least
    assert sum(report.num_recoveries for report in reports.values()) > MIN_RECOVERIES * least


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in scenarios() if not scenario.has_faults],
    ids=lambda scenario: scenario.name,
)
def test_a_scenario_without_faults_has_one_attempt(scenario: Scenario) -> None:
    """Where only the supervisor fails and no operator asks for a change, no gang is ever restarted."""
    world = scenario.play(scenario.build(watcher=Watching(scenario.policy)))
    planned = [
        record.attempt
        for entry in world.entries
        for record in entry.records
        if isinstance(record, r.AttemptPlanned)
    ]
    for run in world.state.runs:
        restarted = [attempt for attempt in planned if attempt.run == run and attempt.restart]
        assert not restarted
