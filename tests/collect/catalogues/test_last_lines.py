"""The last line of a log that simply stops: what emitters write below the level of errors is no end by a failure."""

import random

import pytest

from runner.collect.catalogues.cache import FOLDER
from runner.collect.catalogues.files import paths_in, read_catalogue
from runner.collect.diagnosis import Diagnosis
from runner.collect.scan import engine_for
from tests.collect.catalogues.rendered import rendered

# Lines that are drawn, and how many of them may be taken for a failure: the catalogues hold no prefixes, and some
# emitters call an error a warning. Chosen.
NUM_LINES, MOST_FAILURES = 600, 0.005
STEPS = "".join(f"step {400 + 10 * n} loss {3.1 - 0.02 * n:.4f} lr 3.00e-04\n" for n in range(8))


@pytest.mark.costly
def test_a_last_line_below_the_level_of_errors_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Infos, debug lines and warnings of all emitters, each behind the steps of a healthy run."""
    dice = random.Random(20261126)
    engine = engine_for()
    catalogues = [read_catalogue(path) for path in paths_in(FOLDER)]
    lower = [
        (catalogue.header, row)
        for catalogue in catalogues
        for row in catalogue.rows
        if catalogue.header is not None and row.level != "error"
    ]
    taken = []
    for header, row in dice.sample(lower, NUM_LINES):
        line = rendered(row.format, row.style or header.style, dice)
        word = next(iter((*row.requires, *header.requires)), "")
        diagnosis = Diagnosis(engine=engine)
        log = diagnosis.log("log")
        log.feed(f"{STEPS}{word}{': ' if word else ''}{line}\n".encode())
        log.finish()
        by_end = [one for one in log.judged_matches() if one.signature.startswith("log-ends")]
        taken += [f"{header.emitter}: {line} -> {one.fault}" for one in by_end]
    with capsys.disabled():
        print(f"\n{len(taken)} of {NUM_LINES} last lines of lower levels are taken for a failure")
    assert len(taken) <= MOST_FAILURES * NUM_LINES, taken
