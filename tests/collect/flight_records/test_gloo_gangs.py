"""Real torch ranks over gloo that hang, a fault in one of them: the records that torch writes name that rank, and no other."""

import os
from pathlib import Path

import pytest

from runner.collect.flight_records.diagnosis import diagnose_records
from tests.collect.flight_records.gloo_gangs import draw, record_gangs
from tests.suite.share import current

pytestmark = pytest.mark.trainer

CASES = 56
# Of the gangs that hang, those of which no rank may be named: one in twenty, or one.
MAX_UNNAMED_RATIO = 0.05


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_rank_that_hangs_a_real_gang_is_named(tmp_path: Path) -> None:
    """It leaves a call out, is stopped, sleeps, holds the interpreter's lock, exchanges two calls, gives another size, or exits."""
    seeds = [seed for seed in range(CASES) if current().has(f"gloo {seed}")]
    record_gangs(seeds, tmp_path)
    num_hangs, unnamed = 0, list[int]()
    for seed in seeds:
        gang, folder = draw(seed), tmp_path / str(seed)
        if not os.listdir(folder):
            # gloo ends ranks that receive more than they asked for, and the others end with them.
            continue
        verdict = diagnose_records([str(folder)], expected=gang.num_ranks).verdict
        assert set(verdict.ranks) <= {gang.culprit}, f"seed {seed}, {gang.kind}: {verdict}"
        num_hangs += verdict.is_hang
        unnamed += [seed] if verdict.is_hang and not verdict.ranks else []
    assert num_hangs > len(seeds) / 2
    assert len(unnamed) <= max(1, MAX_UNNAMED_RATIO * num_hangs), unnamed
