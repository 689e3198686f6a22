"""The wordings model knows emitters of which it has seen no string, and the strings of a version that came later."""

from collections.abc import Iterable
from pathlib import Path
from statistics import mean

import pytest

from tests.suite.share import current
from tools.catalogues.rows import FOLDER
from tools.catalogues.wordings import (
    LEAST_MEASURED,
    Example,
    Learner,
    Outcome,
    left_out,
    outcome,
    read_examples,
    report,
    share_right,
)

pytestmark = pytest.mark.costly

# Lines of an emitter that are judged; all of them take a minute on an idle core (`python -m tools.catalogues.wordings`).
MOST_LINES = 40
VERSIONS = Path(__file__).parent / "versions"


@pytest.fixture(scope="module")
def learner() -> Learner:
    """Return what is learned of all catalogues."""
    return Learner(read_examples(sorted(FOLDER.glob("*.jsonl"))))


def test_emitters_that_are_left_out_get_the_right_class_of_action(
    learner: Learner, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least 0.7 of their lines, each emitter counting as much, and none is nothing."""
    outcomes = list(left_out(learner, most=MOST_LINES))
    with capsys.disabled():
        print("\n" + "\n".join(list(report(outcomes))[len(outcomes) :]))
    assert sum(one.nothing for one in outcomes) == 0
    assert share_right(outcomes) >= 0.7


def test_an_older_version_of_an_emitter_judges_the_strings_of_a_newer_one(
    learner: Learner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Strings that came after the older catalogue get the right class of action in at least 0.7, and none is nothing."""
    paths = sorted(VERSIONS.glob("*.jsonl"))
    outcomes = [_newer(learner, path) for path in paths if current().has(path.stem)]
    with capsys.disabled():
        for one in outcomes:
            print(
                f"\n{one.emitter} -> today: of {one.num} new strings {one.right_action:.2f} get the "
                f"right action, {one.right_fault:.2f} the right fault"
            )
    assert len(paths) == 3
    assert all(one.num >= LEAST_MEASURED and one.nothing == 0 for one in outcomes)
    # Of libraries that read data, half of what is wrong is data, and half settings.
    assert not outcomes or share_right(outcomes) >= (0.7 if len(outcomes) == len(paths) else 0.65)


def _newer(learner: Learner, path: Path) -> Outcome:
    """Return how strings of today that an older version lacks are judged by that version and by other emitters."""
    older = read_examples([path])
    emitter = older[0].emitter
    known = {one.text for one in older}
    newer = [one for one in learner.examples if one.emitter == emitter and one.text not in known]
    others = [one for one in learner.examples if one.emitter != emitter]
    return outcome(path.stem, _spread(newer), Learner([*others, *older]).table())


def _spread(examples: Iterable[Example]) -> list[Example]:
    found = list(examples)
    return found[:: -(-len(found) // 300)]


def test_rows_are_written_as_their_emitters_write_lines(learner: Learner) -> None:
    """Exceptions stand before their message."""
    lengths = [len(one.text) for one in learner.examples]
    assert mean(lengths) > 20
    assert any(one.text.startswith("ValueError: ") for one in learner.examples)
