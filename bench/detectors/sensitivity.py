"""What becomes of recall and false alarms when a parameter of ours is a third larger or smaller."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from bench.detectors.runs import Labelled
from bench.detectors.scores import ours, score_curves, score_faults
from runner.detect.numerics import drift, gradient, loss
from runner.facts.messages.signals import StepRecord

PARAMETERS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (
        loss,
        (
            *("WINDOW", "LEAST", "RISE_RATIO", "SPREADS", "BACKED_TAIL_FACTOR", "TAIL_FACTOR"),
            *("CERTAIN_SAMPLES", "ALONE_FACTOR", "AGAINST_FACTOR", "LASTING_RATIO"),
            *("LASTING_SAMPLES", "BACK_SAMPLES", "PATIENCE", "MERGE_SAMPLES"),
        ),
    ),
    (
        drift,
        ("RISEN_RATIO", "SPREADS", "TAIL_FACTOR", "LASTING_SAMPLES", "HISTORY", "REST_SAMPLES"),
    ),
    (
        gradient,
        ("BACKING_FACTOR", "BACKING_SPREADS", "INCIDENT_FACTOR", "SPREADS", "LASTING_SAMPLES"),
    ),
)
FACTORS = (2 / 3, 4 / 3)


@contextmanager
def changed(module: ModuleType, name: str, factor: float) -> Iterator[float]:
    """Multiply one parameter for a while; a count stays a whole number, and changes by one at least."""
    usual = getattr(module, name)
    value = usual * factor
    if isinstance(usual, int):
        value = max(1, min(usual - 1, round(value)) if factor < 1 else max(usual + 1, round(value)))
    setattr(module, name, value)
    try:
        yield value
    finally:
        setattr(module, name, usual)


def outcomes(
    curves: Sequence[Labelled],
    faulty: dict[str, list[list[StepRecord]]],
    healthy: Sequence[Sequence[StepRecord]],
) -> Iterator[tuple[str, int, int, float, int]]:
    """Yield for each change: its name, events found, alarms on clean curves, recall of synthetic faults, false alarms."""
    yield ("as it is", *_outcome(curves, faulty, healthy))
    for module, names in PARAMETERS:
        for name in names:
            for factor in FACTORS:
                with changed(module, name, factor) as value:
                    which = f"{module.__name__.rpartition('_')[2]} {name} {value:.3g}"
                    yield (which, *_outcome(curves, faulty, healthy))


def _outcome(
    curves: Sequence[Labelled],
    faulty: dict[str, list[list[StepRecord]]],
    healthy: Sequence[Sequence[StepRecord]],
) -> tuple[int, int, float, int]:
    real, num_clean = score_curves(ours, curves)
    scores = [score_faults(ours, runs, fault) for fault, runs in faulty.items()]
    num_found = sum(len(score.delays) for score in scores)
    num_faults = sum(score.num_faults for score in scores)
    num_false = sum(len(ours(run)) for run in healthy)
    return len(real.delays), num_clean, num_found / num_faults, num_false
