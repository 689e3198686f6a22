"""Ninety virtual days without one false hang, for each way in which ranks report; real hangs in them are found."""

import random
from dataclasses import replace

import pytest

from runner.detect.learned_timeout import COMPILE_FACTOR, RULES
from tests.detect.virtual_run import HEARTBEAT_SECONDS, Habits, VirtualRun

# BLOOM-176B: 105 s a step, 40 s a checkpoint, 12 minutes of evaluation every 1,000 steps; 7.9 h between failures of 1,024 GPUs
# (published in its chronicles, and for RSC-1). What run.yaml sets exceeds its evaluations.
LARGE = Habits(
    step_seconds=105.0,
    save_seconds=40.0,
    save_steps=100,
    evaluation_seconds=720.0,
    evaluation_steps=1000,
    progress_limit=3600.0,
)
# Quicker steps are what a learned limit is most tempted by; chosen.
QUICK = replace(
    LARGE, step_seconds=20.0, save_seconds=10.0, evaluation_seconds=120.0, progress_limit=1800.0
)
DAYS = 90.0
FEW_DAYS = 4.0


@pytest.mark.costly
@pytest.mark.parametrize(
    ("habits", "days", "seed"),
    [
        pytest.param(LARGE, DAYS, 1, id="90 days, 105 s a step"),
        pytest.param(replace(LARGE, reports="steps"), DAYS / 6, 2, id="15 days, no phases"),
        pytest.param(replace(LARGE, reports="lines"), DAYS / 6, 3, id="15 days, lines only"),
        pytest.param(QUICK, FEW_DAYS, 4, id="4 days, 20 s a step"),
        pytest.param(replace(QUICK, reports="steps"), FEW_DAYS, 5, id="4 days, 20 s, no phases"),
        pytest.param(replace(QUICK, reports="lines"), FEW_DAYS, 6, id="4 days, 20 s, lines only"),
    ],
)
def test_no_hang_is_found_where_there_is_none(habits: Habits, days: float, seed: int) -> None:
    """Slow steps, saves, evaluations, compiles, starts, crashes, new supervisors and lost heartbeats make no finding."""
    run = VirtualRun(habits, random.Random(seed))
    run.play(days)
    print(
        f"{days:.0f} days as {habits.reports}: {run.num_gaps:,} gaps, the longest {run.longest_seconds:.0f} s"
    )
    assert run.findings == []
    # there was something to be taken for one
    assert run.longest_seconds > 10 * habits.save_seconds


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reports", ["phases", "steps", "lines"])
def test_a_hang_is_found_within_its_limit(reports: str, seed: int) -> None:
    """After a day of all that a hang is found by what was learned, or by run.yaml at the latest, and not at once."""
    # Of lines there is no limit where ten times their longest gap is more than that of run.yaml.
    habits = replace(QUICK, reports=reports, crash_seconds=1e9)
    if reports == "lines":
        habits = replace(habits, evaluation_seconds=20.0, compiles_a_day=0.0)
    run = VirtualRun(habits, random.Random(seed))
    run.play(0.5)
    assert run.findings == []
    began, step = run.now, run.step
    run.unreachable_until.clear()
    run.gap(2 * habits.progress_limit)
    (first, finding), *_ = run.findings
    assert finding.fault == "no_progress"
    assert run.step == step
    after = first - began
    assert after <= habits.progress_limit + HEARTBEAT_SECONDS
    least = RULES["step"].floor_seconds if "learned" in finding.evidence else habits.progress_limit
    assert finding.silent_seconds is not None
    assert finding.silent_seconds >= least


def test_a_steady_run_has_its_hang_found_much_sooner() -> None:
    """Where steps, saves and starts are short, ten times the longest of them is what a hang costs, not run.yaml's limit."""
    habits = replace(
        QUICK,
        step_seconds=2.0,
        load_seconds=10.0,
        compile_seconds=10.0,
        compiles_a_day=0.0,
        outages_a_day=0.0,
        new_supervisors_a_day=0.0,
        crash_seconds=1e9,
        evaluation_seconds=20.0,
    )
    run = VirtualRun(habits, random.Random(7))
    run.play(0.2)
    began = run.now
    run.gap(habits.progress_limit)
    (found_at, finding), *_ = run.findings
    after = found_at - began
    print(
        f"found after {after:.0f} s, limit in run.yaml {habits.progress_limit:.0f} s: {finding.evidence}"
    )
    assert "learned" in finding.evidence
    assert after <= 10 * 60.0 / COMPILE_FACTOR


def test_a_hang_that_begins_while_a_node_is_unreachable_waits_for_it() -> None:
    """No learned limit passes while a node sends no heartbeats; run.yaml's does."""
    habits = replace(QUICK, crash_seconds=1e9, new_supervisors_a_day=0.0, compiles_a_day=0.0)
    run = VirtualRun(habits, random.Random(8))
    run.play(0.5)
    run.unreachable_until = {"n2": run.now + 10 * habits.progress_limit}
    run.gap(2 * habits.progress_limit)
    ((_, finding),) = run.findings
    assert finding.silent_seconds == pytest.approx(habits.progress_limit, abs=HEARTBEAT_SECONDS)
    assert "set in run.yaml" in finding.evidence
