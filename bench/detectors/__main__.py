"""Our numeric detectors beside the rules of others: faults found, how late, and how often healthy runs alarm."""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from bench.detectors.plot import plot
from bench.detectors.rules import RULES
from bench.detectors.runs import DEVELOPMENT, FAULTS, Labelled, labelled_curves
from bench.detectors.scores import (
    Alarms,
    Score,
    faulty_runs,
    healthy_runs,
    limit_for,
    ours,
    score_curves,
    score_faults,
    theirs,
)
from bench.detectors.sensitivity import outcomes
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, microseconds
from runner.detect.numerics.numerics import Numerics
from runner.facts.messages.signals import StepRecord

SEED = "detectors"
ACTS = ("restart", "swap", "rewind", "stop")
# Healthy samples for each incident allowed.
PER_INCIDENT = 100_000
# On the first machine.
RECORD_MICROSECONDS = 50.0
TIMED_RECORDS = 100_000


def false_alarms(report: Report, curves: list[Labelled], num_samples: int) -> None:
    """Count findings on healthy samples that no parameter was chosen on."""
    counts: Counter[str] = Counter()
    num_acting = 0
    for run in healthy_runs(curves, num_samples, f"{SEED} judged"):
        numerics = Numerics()
        for record in run:
            for one in numerics.judge(record):
                counts[f"{one.fault}, {'recovered' if one.recovered else one.severity}"] += 1
                num_acting += one.action_class in ACTS
    num_incidents = sum(count for name, count in counts.items() if name.endswith("incident"))
    limit = num_samples / PER_INCIDENT
    report.figure(f"incidents on {num_samples:,} healthy samples", num_incidents, "", at_most=limit)
    report.figure("of them, that would act", num_acting, "", at_most=0)
    report.note(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) or "none")


def timing(report: Report, curves: list[Labelled]) -> None:
    """Measure the processor time of one record through all detectors."""
    runs = list(healthy_runs(curves, TIMED_RECORDS, f"{SEED} timed"))
    loop, spent = ReferenceLoop(is_hot=True), 0.0
    for run in runs:
        loop.sample()
        began = time.process_time()
        numerics = Numerics()
        for record in run:
            numerics.judge(record)
        spent += time.process_time() - began
    count = sum(len(run) for run in runs)
    report.cost(
        f"a record through all detectors, of {count:,}",
        microseconds(1e6 * spent / count),
        loop,
        at_most=RECORD_MICROSECONDS,
    )


def compare(
    report: Report, curves: list[Labelled], num_runs: int, num_healthy: int
) -> dict[str, dict[str, Score]]:
    """Print each rule with its own limit and with one that alarms equally seldom; return the scores of the latter."""
    quiet = list(healthy_runs(curves, num_healthy, f"{SEED} limits"))
    real = list(healthy_runs(curves, num_healthy, f"{SEED} limits", is_real=True)) if curves else []
    faulty = {
        fault: list(faulty_runs(curves, fault, num_runs, f"{SEED} judged")) for fault in FAULTS
    }
    budget = num_healthy // PER_INCIDENT
    rules: list[tuple[str, str, Alarms]] = [("ours", "as it is", ours)]
    for rule in RULES:
        rules.append((rule.name, f"{rule.limit:g}", theirs(rule, rule.limit)))
        limit = limit_for(rule, quiet, budget)
        rules.append((rule.name, f"{limit:.3g}, as seldom", theirs(rule, limit)))
        if real:
            limit = limit_for(rule, real, budget)
            text = f"{limit:.3g}, as seldom on real noise"
            rules.append((rule.name, text, theirs(rule, limit)))
    kinds = ["real events", *faulty] if curves else [*faulty]
    report.note(
        "rule | limit | alarms per 100,000 healthy | on clean curves | "
        + " | ".join(f"{kind}: found, median delay" for kind in kinds)
    )
    equal: dict[str, dict[str, Score]] = {kind: {} for kind in kinds}
    for name, limit_words, alarms in rules:
        scores = {fault: score_faults(alarms, runs, fault) for fault, runs in faulty.items()}
        num_clean = 0
        if curves:
            scores["real events"], num_clean = score_curves(alarms, curves)
        rate = 1e5 * sum(len(alarms(run)) for run in quiet) / sum(len(run) for run in quiet)
        found = " | ".join(
            f"{len(scores[kind].delays)} of {scores[kind].num_faults}, {scores[kind].median_delay:g}"
            for kind in kinds
        )
        report.note(f"{name} | {limit_words} | {rate:.3g} | {num_clean} | {found}")
        if name == "ours" or limit_words.endswith("seldom on real noise" if curves else "seldom"):
            for kind in kinds:
                equal[kind][name] = scores[kind]
    return equal


def halves(report: Report, curves: list[Labelled]) -> None:
    """Print what was found in the curves that parameters were chosen on, and in the others."""
    for text, half in (
        ("chosen on", [curve for curve in curves if curve.name in DEVELOPMENT]),
        (
            "not chosen on, though seen before",
            [curve for curve in curves if curve.name not in DEVELOPMENT],
        ),
    ):
        score, num_clean = score_curves(ours, half)
        # All eight tables had been read before any parameter was chosen: this is no test on unseen data.
        report.note(
            f"{text}: {len(score.delays)} of {score.num_faults} events found, median delay {score.median_delay:g} samples, "
            f"{num_clean} alarms on clean curves ({', '.join(curve.name for curve in half)})"
        )


def sensitivity(report: Report, curves: list[Labelled], num_runs: int, num_healthy: int) -> None:
    """Print what a third more or less of each parameter changes."""
    faulty: dict[str, list[list[StepRecord]]] = {
        fault: list(faulty_runs(curves, fault, num_runs, f"{SEED} varied")) for fault in FAULTS
    }
    quiet = list(healthy_runs(curves, num_healthy, f"{SEED} varied"))
    report.note(
        f"parameter | real events found | alarms on clean curves | recall of {len(faulty) * num_runs} synthetic faults | "
        f"incidents on {num_healthy:,} healthy samples"
    )
    for name, num_found, num_clean, recall, num_false in outcomes(curves, faulty, quiet):
        report.note(f"{name} | {num_found} | {num_clean} | {recall:.3f} | {num_false}")


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 when a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000, help="healthy samples to judge")
    parser.add_argument("--runs", type=int, default=70, help="runs with each kind of fault")
    parser.add_argument("--svg", type=Path, help="where to draw recall at equal false alarms")
    asked = parser.parse_args(arguments)
    curves = labelled_curves()
    report = Report(
        "numeric detectors",
        "healthy runs: warm-up and power law with noise of four synthetic families and, where they are at hand, of three clean "
        "curves of others (stationary block bootstrap); faults put in at sample 700; an alarm counts within 30 samples of a spike, "
        "100 of a blow-up, 450 of a drift, 10 of a labelled event; 'as seldom': the limit moved until it alarms once per 100,000 "
        "healthy samples, of all noise (heavy tails push limits up) or of the clean curves' noise alone; everything seeded, one "
        f"process; {SCALE}",
    )
    if not curves:
        report.note("the curves of others are not at hand: only synthetic runs are judged")
    num_healthy = max(asked.samples // 5, PER_INCIDENT)
    equal = compare(report, curves, asked.runs, num_healthy)
    if curves:
        halves(report, curves)
    sensitivity(report, curves, asked.runs // 3, num_healthy // 4)
    false_alarms(report, curves, asked.samples)
    timing(report, curves)
    if asked.svg is not None:
        noise = "with the noise of clean curves" if curves else "with synthetic noise"
        text = f"limits of others moved until they alarm once per 100,000 healthy samples {noise}"
        asked.svg.write_text(plot(equal, text))
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
