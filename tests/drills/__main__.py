"""`python -m tests.drills [NAME ...]`: all drills and an undisturbed control, one after the other, and a table of the outcomes.

`poisoned` and `divergence` are programs of their own, which print figures: what the closed loop makes of data that is bad for long,
and of a learning rate that is too high. The seed, which draws step and rank, is printed; STOKER_SEED=... plays it again. The table
goes to bench/results/drills.txt too, if all were played; the figures to poisoned.txt and divergence.txt beside it.
"""

import contextlib
import io
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.drills import divergence, poisoned
from tests.drills.cases import CASES
from tests.drills.table import play_drills

RESULTS = Path(__file__).parents[2] / "bench/results"
PROGRAMS: Mapping[str, Callable[[int], int]] = {
    "poisoned": poisoned.main,
    "divergence": divergence.main,
}


class _Copy(io.StringIO):
    """Keeps what is printed, and prints it."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        return super().write(text)


def main(names: list[str]) -> int:
    """Play what is named, or all drills; return 0 if nothing is missed."""
    known = [*(case.name for case in CASES), *PROGRAMS]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no drill {unknown[0]!r}; known: {', '.join(known)}")
    seed = int(os.environ.get("STOKER_SEED", random.randrange(10**6)))
    drills, missed = [name for name in names if name not in PROGRAMS], 0
    if drills:
        missed += play_drills(drills, seed)
    elif not names:
        missed += _recorded("drills", lambda: play_drills((), seed))
    for name in names:
        if name in PROGRAMS:
            missed += _recorded(name, lambda program=PROGRAMS[name]: program(seed))  # type: ignore[misc]
    return 1 if missed else 0


def _recorded(name: str, play: Callable[[], int]) -> int:
    """Play, and write what was printed to the results."""
    with contextlib.redirect_stdout(_Copy()) as copy:
        missed = play()
    (RESULTS / f"{name}.txt").write_text(copy.getvalue().lstrip())
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
