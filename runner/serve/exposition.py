"""Prometheus' text format, written fast: a fleet of thousands has tens of thousands of series, and all of them in each scrape.

The official client takes four times as long for them as a scrape may take. It writes the few families of the serving process
itself, and is what the tests compare with.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import pos
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# By how Python writes them.
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
# The value of a family without labels, or values by label; by a tuple if there are several labels.
Values = float | None | Mapping[Any, float | None]


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """Samples of one name and the same labels; keys of `values` are label values, those that are None are left out."""

    name: str
    labels: tuple[str, ...]
    values: Mapping[Any, float | None]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A family of metrics. `name` as in its samples, without the endings of a histogram."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    series: list[SampleSeries] = field(default_factory=list)

    @property
    def num_samples(self) -> int:
        """Return how many samples it has."""
        return sum(value is not None for each in self.series for value in each.values.values())


def gauge(name: str, text: str, values: Values, *labels: str) -> MetricFamily:
    """Make a family of gauges; values that are None are left out."""
    return MetricFamily(name, "gauge", text, [SampleSeries(name, labels, _by_labels(values))])


def counter(name: str, text: str, values: Values, *labels: str) -> MetricFamily:
    """Make a family of counters, whose samples end in `_total`; values that are None are left out."""
    name = f"{name}_total"
    return MetricFamily(name, "counter", text, [SampleSeries(name, labels, _by_labels(values))])


def histogram(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], tuple[Sequence[int], float]],
    *labels: str,
    bounds: Sequence[float],
) -> MetricFamily:
    """Make a family of histograms. `values`: labels -> counts of each bucket alone, one more than bounds, and the sum."""
    names = [*_numbers(bounds), "+Inf"]
    buckets = {
        (*key, bound): count
        for key, (counts, _) in values.items()
        for bound, count in zip(names, accumulate(counts), strict=True)
    }
    return MetricFamily(
        name,
        "histogram",
        text,
        [
            SampleSeries(f"{name}_bucket", (*labels, "le"), buckets),
            SampleSeries(f"{name}_sum", labels, {key: total for key, (_, total) in values.items()}),
            SampleSeries(
                f"{name}_count", labels, {key: sum(each) for key, (each, _) in values.items()}
            ),
        ],
    )


def render(families: Iterable[MetricFamily]) -> bytes:
    """Write families as text; each name must come once."""
    return "".join(_lines(families)).encode()


def _by_labels(values: Values) -> Mapping[Any, float | None]:
    return values if isinstance(values, Mapping) else {(): values}


def _lines(families: Iterable[MetricFamily]) -> Iterator[str]:
    escaped = _EscapedLabels()
    for family in families:
        text = family.text.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"
        for series in family.series:
            yield from _samples(series, escaped)


class _EscapedLabels(dict[str, str]):
    """Label values as they are written, by label value: most come again and again."""

    def __missing__(self, label: str) -> str:
        self[label] = text = label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return text


def _samples(series: SampleSeries, escaped: _EscapedLabels) -> Iterator[str]:
    """Write one line for each sample; most of a fleet's have one label, so these have a way of their own."""
    name, labels = series.name, series.labels
    known: list[tuple[Any, float]] = [
        (key, value) for key, value in series.values.items() if value is not None
    ]
    numbers = _numbers([value for _, value in known])
    if not labels:
        return (f"{name} {number}\n" for number in numbers)
    if len(labels) == 1:
        # A key with one label may be the label's value itself.
        keys = [key if type(key) is str else key[0] for key, _ in known]
        begin = f'{name}{{{labels[0]}="'
        return (
            f'{begin}{escaped[key]}"}} {number}\n'
            for key, number in zip(keys, numbers, strict=True)
        )
    pairs = ",".join(f'{label}="%s"' for label in labels)
    template = f"{name}{{{pairs}}} %s\n"
    columns = zip(*[key for key, _ in known], strict=True)
    texts = [map(escaped.__getitem__, column) for column in columns]
    return map(template.__mod__, zip(*texts, numbers, strict=True))


def _numbers(values: Iterable[float]) -> list[str]:
    """Write numbers; `+` makes an integer of a boolean."""
    return [_NOT_FINITE.get(text, text) for text in map(repr, map(pos, values))]
