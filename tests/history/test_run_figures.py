"""A run in figures: stretches, failures by class, lost steps, cost; and the tree of its attempts."""

import pytest
from msgspec.structs import replace

from runner.facts.causes import Cause
from runner.facts.launch_conditions import LaunchConditions, leave_out, of_data
from runner.facts.messages import records as r
from runner.facts.messages.records_drift import ConditionsRecorded
from runner.history.lineage import lineage
from runner.history.run_figures import branches, poisson_bounds, run_figures
from tests.history.journal_script import (
    ONE,
    THREE,
    TWO,
    advanced,
    attempt_is,
    checkpoint,
    crash_and_restart,
    planned,
    prepared,
)


def test_figures_of_a_crash() -> None:
    """11 steps lost; the second attempt ran longest; one failure in all the time that ranks made steps; cost by ranks and hours."""
    figures = run_figures(crash_and_restart().entries, 1, rate_per_hour=36.0)
    assert (figures.steps, figures.lost_steps, figures.num_attempts) == (100, 11, 2)
    assert [(s.attempt, round(s.seconds)) for s in figures.longest] == [(TWO, 59), (ONE, 50)]
    assert [(f.scope, f.count, f.faults) for f in figures.failures] == [
        ("all", 1, ("rank_crash",)),
        ("rank", 1, ("rank_crash",)),
    ]
    uptime = figures.productive_seconds + figures.lost_seconds["rework"]
    assert figures.failures[0].mtbf_seconds == pytest.approx(uptime)
    # Two ranks for 131 s, at 36 an hour: one cent a second each.
    assert figures.num_ranks == 2
    assert figures.cost == pytest.approx(2 * 1.31)
    assert figures.lost_cost == pytest.approx(0.02 * sum(figures.lost_seconds.values()))


def test_a_failure_counts_for_the_scope_of_its_cause() -> None:
    """Once the cause of an incident is known, its failure is one of that cause's class."""
    cause = Cause(
        fault="gpu_ecc", scope="gpu", culprit=None, node="n1", confidence=0.9, action_class="swap"
    )
    entries = crash_and_restart().at(132, r.IncidentDiagnosed(incident="i1", cause=cause)).entries
    scopes = {each.scope: each.faults for each in run_figures(entries, 1).failures}
    assert scopes == {"all": ("gpu_ecc",), "gpu": ("gpu_ecc",)}


@pytest.mark.parametrize(
    ("count", "least", "most"),
    # Table of Garwood's 95 % limits (1936).
    [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (30, 20.241, 42.827)],
)
def test_bounds_of_a_count_are_exact(count: int, least: float, most: float) -> None:
    """The interval is that of the literature."""
    assert poisson_bounds(count) == pytest.approx((least, most), abs=2e-3)


def test_the_lineage_shows_what_each_attempt_ran_with() -> None:
    """What a node leaves out is as the run was known; what was refused counts for that attempt; other nodes change none."""
    whole = LaunchConditions(git_commit="a" * 40, python="3.11.7", packages={"x": "1"})
    changed = leave_out(replace(whole, git_commit="b" * 40), ("packages", "variables"))
    script = crash_and_restart()
    for attempt, node, conditions, differs in (
        (ONE, "n1", whole, ()),
        (ONE, "n1", of_data("sha256:1"), ()),
        (TWO, "n2", whole, ("commit",)),
        (TWO, "n1", changed, ("commit",)),
    ):
        script.at(
            140,
            ConditionsRecorded(
                attempt=attempt, node=node, conditions=conditions, differences=differs
            ),
        )
    first = {"commit": "a" * 12, "Python": "3.11.7", "packages": "1", "data": "sha256:1"}
    found = [row.runs_with for row in lineage(script.entries, 1)]
    assert found == [first, {**first, "commit": "b" * 12}]


def test_a_rewind_leaves_a_branch_behind() -> None:
    """An attempt that goes back to the first one's checkpoint makes the second a branch that contributes nothing."""
    script = crash_and_restart()
    del script.entries[-1]
    script.at(130, checkpoint(TWO, 90)).at(131, attempt_is(TWO, "ended", outcome="rewound"))
    script.at(131, planned(THREE)).at(132, prepared(THREE, resume_step=40, maker=ONE))
    script.at(133, attempt_is(THREE, "launching")).at(140, advanced(THREE, 41))
    rows = lineage(script.entries, 1)
    assert branches(rows) == {ONE: "*", TWO: "| o", THREE: "*"}
    # 11 steps of the first, and all 60 of the second.
    assert run_figures(script.entries, 1).lost_steps == 71
