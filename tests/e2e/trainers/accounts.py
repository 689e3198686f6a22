"""What a run's figures are to be, by the stamps of its script alone, and the comparison with those that Stoker shows."""

import itertools
import json
import os
import re

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.trainers.scripts import Stamp

# Output is read as it comes.
TOLERANCE_SECONDS = 1.0


def tolerance_under_load() -> float:
    """Return the tolerance in seconds: where processes wait for cores, the log reader, which is of low priority, waits longest."""
    return TOLERANCE_SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def figures_must_follow(
    harness: ClusterHarness,
    made: list[Stamp],
    output: str,
    *,
    num_unread: int | None = None,
    within_seconds: float = TOLERANCE_SECONDS,
) -> None:
    """Compare lineage, start of each attempt, steps lost and productive time of run 1 with what the stamps say.

    `output`: with the summary that `stoker run` printed at its end. `num_unread`: the most steps that may not have been read when
    attempts ended; None: those of a second each. `within_seconds`: the tolerance of each time.
    """
    attempts = list(dict.fromkeys(stamp.attempt for stamp in made))
    lineage = json.loads(harness.stoker("lineage", "--json").stdout)
    print(lineage, output)
    assert [row["attempt"] for row in lineage] == attempts
    expected = kept_steps(made)
    lost = 0
    for number, (row, (first, last)) in enumerate(zip(lineage, expected, strict=True)):
        # Steps within a second of one another count as the same.
        for step, due in zip(row["contributes"], (first, last), strict=True):
            assert abs(seconds(made, step, row["attempt"]) - due.at) <= within_seconds
        lost += max(s.step for s in made if s.attempt == row["attempt"]) - last.step
        if number:
            assert abs(row["first_step_at"] - first.at) <= within_seconds, (row, first)
    shown = json.loads(harness.stoker("lineage", "--figures", "--json").stdout)
    productive = sum(last.at - first.at for first, last in expected)
    tolerance = within_seconds * len(attempts)
    assert abs(shown["productive_seconds"] - productive) <= tolerance, (shown, productive)
    if num_unread is None:
        pace = (expected[0][1].step - expected[0][0].step) / (expected[0][1].at - expected[0][0].at)
        num_unread = int(pace * tolerance)
    (read_lost,) = re.findall(r"^  steps lost +(\d+)$", output, re.MULTILINE)
    assert abs(int(read_lost) - lost) <= num_unread, (read_lost, lost)
    assert shown["lost_steps"] == int(read_lost)


def kept_steps(made: list[Stamp]) -> list[tuple[Stamp, Stamp]]:
    """Fold the stamps: of each attempt the first and the last step that the next one did not make again."""
    by_attempt = [list(group) for _, group in itertools.groupby(made, key=lambda one: one.attempt)]
    kept = []
    for own, after in itertools.zip_longest(by_attempt, by_attempt[1:]):
        end = after[0].step if after else own[-1].step + 1
        kept.append((own[0], [one for one in own if one.step < end][-1]))
    return kept


def seconds(made: list[Stamp], step: int, attempt: str) -> float:
    """Return when an attempt made a step, or the one nearest to it."""
    own = [one for one in made if one.attempt == attempt]
    return min(own, key=lambda one: abs(one.step - step)).at
