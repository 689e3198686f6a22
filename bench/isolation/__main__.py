"""Run isolation on the model: `python -m bench isolation`; `--trials 500` for a short one."""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.isolation import model
from bench.isolation.model import LINK_FAULTS, Scenario
from bench.isolation.trials import SEED, Counts, run
from bench.report import Report

TRIALS = 10_000
# Of the tables without limits, of all trials.
SIDE_SHARE = 0.1
SIZES = (12, 16, 32, 64, 128)
MAX_WRONG_PERCENT, MAX_UNDECIDED_PERCENT = 0.1, 5.0
ROUNDS_NODES, MAX_ROUNDS, MAX_ROUNDS_WITH_NOISE = 64, 4, 5
NUM_BAD = (0, 1, 2, 4, 8, 12, 16, 21)
SLOW_SHARES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
CHUNK = 250

Row = tuple[Counts, Counts, Counts]


def counted(scenario: Scenario, trials: int) -> Row:
    """Run the trials of a scenario on all cores, and add up."""
    chunks = [range(at, min(at + CHUNK, trials)) for at in range(0, trials, CHUNK)]
    sums = Counts(), Counts(), Counts()
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        for row in pool.imap_unordered(partial(run, scenario), chunks):
            for total, each in zip(sums, row, strict=True):
                total.add(each)
    return sums


def percent(share: float) -> str:
    """Format a share."""
    return f"{100 * share:.3g} %"


def scenarios() -> list[Scenario]:
    """Return the fleets with limits: faults always (some, or a third of the nodes), and in 30 % of the runs."""
    found = []
    for nodes in SIZES:
        some = Scenario(name=f"{nodes} nodes, 1 to {nodes // 3} bad", nodes=nodes)
        found += [
            some,
            replace(some, name=f"{nodes} nodes, {nodes // 3} bad", num_bad=nodes // 3),
            replace(some, name=f"{nodes} nodes, faults in 30 % of runs", fault_share=0.3),
        ]
    return found


def with_limits(report: Report, trials: int) -> None:
    """Print what has limits, and the tables of the same trials."""
    rows = []
    for scenario in scenarios():
        rows.append((scenario, counted(scenario, trials)))
        ours = rows[-1][1][0]
        name, shares = scenario.name, (ours.wrong_share, ours.undecided_share)
        for what, share, most in zip(
            ("wrongly blamed, of judged nodes", "undecided, of judged nodes"),
            shares,
            (MAX_WRONG_PERCENT, MAX_UNDECIDED_PERCENT),
            strict=True,
        ):
            report.figure(f"{name}: {what}", 100 * share, "%", at_most=most)
        if scenario.name == f"{ROUNDS_NODES} nodes, 1 to {ROUNDS_NODES // 3} bad":
            report.figure(
                f"{name}: median of rounds",
                ours.median_rounds,
                "rounds",
                at_most=MAX_ROUNDS_WITH_NOISE,
            )
    report.note(
        "ours on these trials | good nodes blamed | trials with any | bad nodes found, called good, undecided | wrong part | "
        "broken paths named, of those measured | sound paths named, of measured | rounds: median, 95 %, most"
    )
    for scenario, (ours, _, _) in rows:
        report.note(_ours(scenario, ours))
    report.note(
        "dlrover's two rounds on the same fleets | its own rule: nodes wrongly blamed, trials with any, bad nodes missed | "
        "our limit for rates: the same three"
    )
    for scenario, (_, theirs, by_our_limit) in rows:
        parts = [_theirs(each) for each in (theirs, by_our_limit)]
        report.note(f"{scenario.name} | {' | '.join(parts)}")


def _ours(scenario: Scenario, counts: Counts) -> str:
    found = ", ".join(percent(counts.of("bad", each)) for each in ("bad", "good", "undecided"))
    num_wrong = counts.nodes["good", "bad"]
    num_good = sum(count for (truth, _), count in counts.nodes.items() if truth == "good")
    rounds = sorted(counts.rounds.elements())
    return (
        f"{scenario.name} | {num_wrong} of {num_good} | {counts.trials_at_fault} of {counts.trials} "
        f"({percent(counts.trials_at_fault / counts.trials)}) | {found} | {counts.wrong_part} | "
        f"{counts.paths_found} of {counts.paths_seen} | {counts.wrong_paths} of {counts.num_paths} | "
        f"{counts.median_rounds:g}, {rounds[int(0.95 * len(rounds))]}, {rounds[-1]}"
    )


def _theirs(counts: Counts) -> str:
    shares = (
        counts.wrong_share,
        counts.trials_at_fault / counts.trials,
        counts.of("bad", "good"),
    )
    return ", ".join(percent(share) for share in shares)


def rounds(report: Report, trials: int) -> None:
    """Print medians of rounds among 64 nodes: without noise, and by the number of bad nodes."""
    clean = Scenario(name="64 nodes, 1 to 21 bad, no noise", nodes=ROUNDS_NODES, has_noise=False)
    ours, _, _ = counted(clean, trials)
    report.figure(
        f"{clean.name}: median of rounds", ours.median_rounds, "rounds", at_most=MAX_ROUNDS
    )
    report.note(
        "64 nodes, no broken path, by bad nodes | all faults: median without noise, with | links alone: the same"
    )
    for num_bad in NUM_BAD:
        medians = []
        for faults in (model.FAULTS, LINK_FAULTS):
            for has_noise in (False, True):
                scenario = Scenario(
                    name=f"64 nodes, {num_bad} bad, {len(faults)} faults, noise {has_noise}",
                    nodes=ROUNDS_NODES,
                    num_bad=num_bad,
                    faults=faults,
                    has_noise=has_noise,
                    has_paths=False,
                )
                ours, _, _ = counted(scenario, int(SIDE_SHARE * trials))
                medians.append(f"{ours.median_rounds:g}")
        report.note(f"{num_bad} | {', '.join(medians[:2])} | {', '.join(medians[2:])}")


def severities(report: Report, trials: int) -> None:
    """Print what is found of parts that are a little slow."""
    report.note(
        "64 nodes, 1 to 21 bad, by what is left of a rate | bad nodes found, called good, undecided | nodes wrongly blamed"
    )
    for share in SLOW_SHARES:
        scenario = Scenario(
            name=f"64 nodes, {share:g} left",
            nodes=ROUNDS_NODES,
            faults=("slow link", "slow compute"),
            slow_shares=(share, share),
        )
        ours, _, _ = counted(scenario, int(SIDE_SHARE * trials))
        found = ", ".join(percent(ours.of("bad", each)) for each in ("bad", "good", "undecided"))
        report.note(f"{share:g} | {found} | {percent(ours.wrong_share)}")


def small(report: Report, trials: int) -> None:
    """Print what becomes of fleets that are too small for peers at every distance."""
    report.note(
        "small fleets, no limit | nodes wrongly blamed | undecided | bad nodes found, called good, undecided"
    )
    for nodes in (4, 6, 8, 10):
        scenario = Scenario(name=f"{nodes} nodes, 1 to {nodes // 3} bad", nodes=nodes)
        ours, _, _ = counted(scenario, int(SIDE_SHARE * trials))
        found = ", ".join(percent(ours.of("bad", each)) for each in ("bad", "good", "undecided"))
        shares = f"{percent(ours.wrong_share)} | {percent(ours.undecided_share)}"
        report.note(f"{scenario.name} | {shares} | {found}")


def method(trials: int) -> str:
    """Describe the model and what is counted."""
    least, most = model.SLOW_SHARES
    return (
        f"{trials} trials a row ({int(SIDE_SHARE * trials)} in the tables by number, share and small size), each with the "
        f"seed '{SEED} ROW TRIAL'; leaves of {model.LEAF_NODES} nodes ({model.SMALL_LEAF_NODES} up to {model.SMALL_FLEET} "
        f"nodes), {model.ACROSS_SHARE:g} of the rate between leaves; noise: lognormal {100 * model.SPREAD:g} %, "
        f"{100 * model.HALVED_SHARE:g} % of measurements halved; bad nodes: {', '.join(model.FAULTS)} in equal parts, slow "
        f"ones with {least:g} to {most:g} of the rate left, dead ones fail, and in half of their failures the end shows; a "
        "third of runs with faults have a broken path, too: one pair, all between two leaves, or all out of one; no floor, "
        "no history. A round: every node is in at most one measurement; the round alone counts. 'Judged nodes' are all "
        "nodes of all trials. dlrover: bench/isolation/dlrover.py. The algorithm is decide.isolate.isolation.next_step"
    )


def main(arguments: Sequence[str]) -> int:
    """Run all, and return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.isolation", description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=TRIALS, help=f"of each row; {TRIALS} if left out"
    )
    trials = parser.parse_args(arguments).trials
    report = Report("isolation of bad nodes", method(trials))
    with_limits(report, trials)
    rounds(report, trials)
    severities(report, trials)
    small(report, trials)
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
