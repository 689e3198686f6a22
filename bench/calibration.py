"""How often verdicts are right, by the confidence they carry: `python -m bench.calibration [--cases FILE] [--plot FILE.svg]`.

Three sources: logs that people labelled, in a file of JSON lines; programs that really raise; and error lines of emitters that
were left out of what families and wordings are learned from.
"""

import argparse
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.report import Report
from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from tests.collect.tracebacks.executed import logs_of, raised
from tests.collect.tracebacks.injected import INJECTED
from tests.suite.share import Share
from tools.catalogues.rows import FOLDER
from tools.catalogues.wordings import Learner, left_out, read_examples

# Bounds of the confidence, and the one from which a verdict counts as sure.
BOUNDS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.01)
SURE = 0.9
# Verdicts below which a share means nothing.
LEAST_COUNTED = 10
# Lines of each emitter that is left out.
MOST_LINES = 60
# For a normal distribution, of an interval that holds the share with 95 %.
Z = 1.96


class Verdict(NamedTuple):
    """The confidence that a verdict carries, and whether it was right."""

    confidence: float
    is_right: bool


class Bin(NamedTuple):
    """Verdicts of similar confidence. `low`, `high`: Wilson's interval of the share that is right."""

    num: int
    confidence: float
    share: float
    low: float
    high: float


def judge(log: bytes, right: Iterable[str], engine: Engine) -> Verdict | None:
    """Judge one log; None: no verdict, or one without a fault, which claims nothing."""
    diagnosis = Diagnosis(engine=engine)
    file = diagnosis.log("log")
    file.feed(log)
    file.finish()
    found = diagnosis.verdicts()
    if not found or found[0].cause.fault == "unknown":
        return None
    return Verdict(found[0].cause.confidence, found[0].cause.fault in right)


def of_cases(path: Path, engine: Engine) -> Iterator[Verdict]:
    """Yield the verdicts on labelled logs, one JSON object a line with `log`, `label`, and `accept`: other right answers."""
    for line in path.read_text().splitlines():
        case = json.loads(line)
        verdict = judge(case["log"].encode(), (case["label"], *case.get("accept", ())), engine)
        if verdict is not None:
            yield verdict


def of_programs(engine: Engine) -> Iterator[Verdict]:
    """Yield the verdicts on the logs of programs that raised; every cause by every launcher."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        texts = raised(Path(folder), INJECTED)
    for log in logs_of(texts, Share(None)):
        verdict = judge(log.text, (log.injected.label, log.injected.accepted), engine)
        if verdict is not None:
            yield verdict


def of_unknown_emitters() -> Iterator[Verdict]:
    """Yield how error lines are judged by what other emitters taught: right is the right class of action."""
    learner = Learner(read_examples(sorted(FOLDER.glob("*.jsonl"))))
    for outcome in left_out(learner, most=MOST_LINES):
        yield from (Verdict(*one) for one in outcome.confidences)


def bins_of(verdicts: Sequence[Verdict]) -> list[Bin]:
    """Return verdicts by confidence, where there are enough of them."""
    found = []
    for low, high in itertools.pairwise(BOUNDS):
        of_bin = [one for one in verdicts if low <= one.confidence < high]
        if len(of_bin) >= LEAST_COUNTED:
            share = sum(one.is_right for one in of_bin) / len(of_bin)
            mean = sum(one.confidence for one in of_bin) / len(of_bin)
            found.append(Bin(len(of_bin), mean, share, *wilson(share, len(of_bin))))
    return found


def wilson(share: float, num: int) -> tuple[float, float]:
    """Return the interval that holds a share of `num` with 95 %."""
    middle = (share + Z * Z / (2 * num)) / (1 + Z * Z / num)
    half = Z * math.sqrt(share * (1 - share) / num + Z * Z / (4 * num * num)) / (1 + Z * Z / num)
    return max(0.0, middle - half), min(1.0, middle + half)


def measure(report: Report, name: str, verdicts: Sequence[Verdict]) -> list[Bin]:
    """Print the share that is right by confidence; return it."""
    bins = bins_of(verdicts)
    report.note(f"{name}: {len(verdicts)} verdicts that name a fault")
    for one in bins:
        report.note(
            f"  confidence {one.confidence:.2f}: {one.share:.3f} of {one.num} right "
            f"({one.low:.3f} to {one.high:.3f})"
        )
    sure = [one for one in verdicts if one.confidence >= SURE]
    if sure:
        share = sum(one.is_right for one in sure) / len(sure)
        what = f"{name}: right of {len(sure)} verdicts with {SURE:.0%} and more"
        report.figure(what, share, "of 1", at_least=SURE)
    return bins


def plot(path: Path, measured: dict[str, list[Bin]]) -> None:
    """Draw the share that is right over the confidence. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="right as often as the confidence")
    for name, bins in measured.items():
        shares = [one.share for one in bins]
        around = [
            [one.share - one.low for one in bins],
            [one.high - one.share for one in bins],
        ]
        axes.errorbar([one.confidence for one in bins], shares, around, marker="o", label=name)
    axes.set(xlabel="confidence of the verdict", ylabel="share that is right", xlim=(0.25, 1))
    axes.legend(loc="lower right")
    figure.savefig(path)


def main() -> int:
    """Measure; return 1 if a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, action="append", default=[], help="labelled logs")
    parser.add_argument("--plot", type=Path, help="where to draw it")
    given = parser.parse_args()
    report = Report(
        "confidence and truth",
        "the first verdict on each log that names a fault, by the confidence it carries; of lines of emitters that were left out, "
        f"the class of action; intervals are Wilson's, bins of fewer than {LEAST_COUNTED} are not shown",
    )
    engine, measured = engine_for(), {}
    for path in given.cases:
        measured[path.name] = measure(report, path.name, list(of_cases(path, engine)))
    programs = list(of_programs(engine))
    measured["programs that raise"] = measure(report, "programs that raise", programs)
    lines = list(of_unknown_emitters())
    measured["emitters left out"] = measure(report, "emitters left out", lines)
    if given.plot is not None:
        plot(given.plot, measured)
        report.note(f"drawn in {given.plot.name}")
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
