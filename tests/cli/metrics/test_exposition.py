"""The text format is what Prometheus' own client writes and reads."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from runner.serve.exposition import counter, gauge, histogram, render

values = st.dictionaries(
    st.tuples(st.text(max_size=8), st.sampled_from(['a"b', "a\\n", "two\nlines", "x"])),
    st.floats() | st.integers(-(2**40), 2**40) | st.booleans(),
    max_size=6,
)


def parsed(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read samples with the official parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


class _Given(Collector):
    def __init__(self, *families: object) -> None:
        self._families = families

    def collect(self) -> tuple[object, ...]:  # type: ignore[override]  # families of the client
        return self._families


def official(*families: object) -> bytes:
    """Write families with the official client."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(*families))
    return generate_latest(registry)


def same(
    one: dict[tuple[str, tuple[tuple[str, str], ...]], float],
    other: dict[tuple[str, tuple[tuple[str, str], ...]], float],
) -> bool:
    """Compare samples, of which some are NaN."""
    return one.keys() == other.keys() and all(
        one[key] == other[key] or (math.isnan(one[key]) and math.isnan(other[key])) for key in one
    )


@pytest.mark.costly
@given(values)
def test_any_labels_and_values_are_written_as_the_official_client_writes_them(
    given_values: dict[tuple[str, str], float],
) -> None:
    """Quotes, backslashes, line ends and numbers that are not finite arrive as they are, under the same names."""
    help_text = 'a "help" text \\ of\ntwo lines'
    theirs_gauge = GaugeMetricFamily("g_seconds", help_text, labels=("a", "b"))
    theirs_counter = CounterMetricFamily("c", help_text, labels=("a", "b"))
    for labels, value in given_values.items():
        theirs_gauge.add_metric(labels, value)
        theirs_counter.add_metric(labels, value)
    ours = render(
        [
            gauge("g_seconds", help_text, given_values, "a", "b"),
            counter("c", help_text, given_values, "a", "b"),
        ]
    )
    theirs = official(theirs_gauge, theirs_counter)
    assert same(parsed(ours), parsed(theirs))
    comments = [line for line in theirs.splitlines() if line.startswith(b"#")]
    assert [line for line in ours.splitlines() if line.startswith(b"#")] == comments


def test_a_histogram_is_cumulative_as_the_official_one() -> None:
    """Counts of single buckets become cumulative ones up to +Inf, beside sum and count."""
    theirs = HistogramMetricFamily("h_seconds", "text", labels=("phase",))
    theirs.add_metric(("stop",), buckets=[("0.5", 1), ("2.5", 3), ("+Inf", 6)], sum_value=40.5)
    ours = histogram(
        "h_seconds", "text", {("stop",): ((1, 2, 3), 40.5)}, "phase", bounds=(0.5, 2.5)
    )
    assert parsed(render([ours])) == parsed(official(theirs))


def test_values_that_are_not_known_are_left_out() -> None:
    """None is no sample, with labels and without."""
    text = render([gauge("a", "text", None), gauge("b", "text", {"x": None, "y": 1.5}, "label")])
    assert parsed(text) == {("b", (("label", "y"),)): 1.5}
