"""The cache of line shapes changes nothing about what is read from lines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.collect.step_formats.formats import MetricLines
from runner.collect.step_formats.line_shapes import AGREED, CHECKED_EVERY, Shapes
from runner.collect.step_formats.table import FORMATS
from runner.facts.messages.signals import StepRecord

NUMBERS = st.sampled_from(("0", "1", "2.5", "1,024", "7.25E-05", "311541", "41.20", "nan", "-3"))
TEMPLATES = (
    "iter {}: loss {}, time {}ms, mfu {}%",
    "step {} | loss: {} | grad norm: {} | lr {}",
    " iteration {}/ 1000 | consumed samples: {} | elapsed time per iteration (ms): {} | lm loss: {} |",
)


@pytest.mark.costly
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TEMPLATES), st.lists(st.tuples(*[NUMBERS] * 4), max_size=40))
def test_a_shape_reads_what_the_format_reads(template: str, lines: list[tuple[str, ...]]) -> None:
    """Of any numbers, equal and unusual ones among them."""
    shapes, plain = Shapes(MetricLines().read), MetricLines()
    for numbers in lines:
        text = template.format(*numbers)
        assert repr(shapes.read(text)) == repr(plain.read(text))


def test_samples_of_all_formats_are_read_the_same_again_and_again() -> None:
    """For any fields and units."""
    for known in FORMATS:
        shapes, plain = Shapes(MetricLines().read), MetricLines()
        for _ in range(AGREED + 3):
            assert repr(shapes.read(known.sample)) == repr(plain.read(known.sample)), known.name


def test_lines_that_are_known_are_read_without_their_format_but_for_a_check_now_and_then() -> None:
    """That is what it is for."""
    asked = []
    plain = MetricLines()

    def read(text: str) -> StepRecord | None:
        asked.append(text)
        return plain.read(text)

    shapes = Shapes(read)
    for step in range(1000, 1000 + 10 * CHECKED_EVERY):
        record = shapes.read(f"iter {step}: loss 2.{step}, time 135.{step}ms, mfu 41.25%")
        assert record is not None
        assert record.step == step
    assert len(asked) <= AGREED + 12


def test_a_shape_that_is_wrong_once_is_never_used_again() -> None:
    """A format whose numbers mean different things at different times is read line by line."""

    def read(text: str) -> StepRecord | None:
        step, loss = text.split()
        return StepRecord(step=int(step), loss=float(loss) * (1.0 if int(step) < 200 else 2.0))

    shapes = Shapes(read)
    for step in range(100, 500):
        record = shapes.read(f"{step} 0.5{step}")
        assert record is not None
        if step >= 200 + CHECKED_EVERY:
            assert record.loss == float(f"0.5{step}") * 2.0
