"""What would have helped a run, by its own numbers: spares, another interval between checkpoints, faster starts.

No simulation: each sentence is a sum over what happened, and says so. Where the run has too few failures for a rate, it says that.
"""

import math
from collections.abc import Iterator

from msgspec.structs import replace

from runner.cli import output
from runner.decide.nodes.spares import recommended_spares
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.wording import counted
from runner.history.run_figures import RunFigures

# Causes in hardware: another node would not have had them.
HARDWARE_SCOPES = ("gpu", "node", "fabric")
# Of the wall time: less is not worth a sentence. Chosen.
MIN_RATIO = 0.01
# A rate of fewer failures is no rate; chosen.
MIN_FAILURES = 2
_DAY_SECONDS = 86_400.0


def advice(
    figures: RunFigures,
    cluster: ClusterSpec,
    spec: RunSpec,
    *,
    num_checkpoints: int,
    num_shortages: int,
) -> list[str]:
    """Return the sentences, each about one thing. `num_shortages`: how often the run began to wait for nodes."""
    return [
        *_spares(figures, cluster, spec, num_shortages),
        *_interval(figures, num_checkpoints),
        *_starts(figures, spec),
        *_largest(figures),
    ]


def _spares(
    figures: RunFigures, cluster: ClusterSpec, spec: RunSpec, num_shortages: int
) -> Iterator[str]:
    waited = figures.lost_seconds.get("waiting", 0.0)
    if num_shortages and waited > 0:
        yield (
            f"Spares: it waited {output.seconds(waited)} for nodes ({_share(waited, figures)} of its time), "
            f"{counted(num_shortages, 'time')} after it had begun. As many spares as it lacked would have saved up to that."
        )
    else:
        yield "Spares: once it had begun it never waited for nodes; more spares would have saved nothing."
    broken = sum(each.count for each in figures.failures if each.scope in HARDWARE_SCOPES)
    days = spec.nodes * figures.wall_seconds / _DAY_SECONDS
    if broken < MIN_FAILURES or days <= 0:
        return
    rate = 1000 * broken / days
    enough = recommended_spares(
        replace(cluster, failures_per_1000_node_days=min(rate, 10_000.0)), spec.nodes
    )
    yield (
        f"Spares by its own rate: hardware ended its attempts {counted(broken, 'time')} in {days:.3g} node days, which is "
        f"{rate:.3g} in 1,000 (failures_per_1000_node_days in cluster.yaml is {cluster.failures_per_1000_node_days:g}). With "
        f"repairs of {cluster.repair_hours:g} h, {counted(enough, 'spare')} would be enough in 99 % of all cases."
    )


def _interval(figures: RunFigures, num_checkpoints: int) -> Iterator[str]:
    rework, every = figures.lost_seconds.get("rework", 0.0), figures.failures[0]
    if every.count == 0 or every.mtbf_seconds is None:
        yield "Checkpoints: no failure ended an attempt, so their interval cost no rework."
        return
    if num_checkpoints == 0:
        yield (
            f"Checkpoints: none of it was sealed, and {output.seconds(rework)} of steps were made twice over "
            f"{counted(every.count, 'failure')}: see `stoker docs checkpoints`."
        )
        return
    uptime = figures.productive_seconds + rework
    interval = uptime / num_checkpoints
    limit, best_at = rework / 2 / num_checkpoints, interval**2 / (2 * every.mtbf_seconds)
    yield (
        f"Checkpoints: one every {output.seconds(interval)} of steps, and {output.seconds(rework)} "
        f"({_share(rework, figures)} of its time) of steps made twice over {counted(every.count, 'failure')}. Half the interval "
        f"would have saved about {output.seconds(rework / 2)} of that, and is worth it where a save holds up the steps for less "
        f"than {output.seconds(limit)}. By Young's formula (1974), sqrt(2 x seconds of a save x mean time between failures), "
        f"this interval is right where that is {output.seconds(best_at)}."
    )


def _starts(figures: RunFigures, spec: RunSpec) -> Iterator[str]:
    seconds, restarts = figures.lost_seconds.get("start", 0.0), figures.num_attempts - 1
    if restarts < 1 or seconds < MIN_RATIO * figures.wall_seconds:
        return
    how = (
        "`preload` in run.yaml is set already"
        if spec.preload
        else "`preload` in run.yaml forks them from processes that have imported its modules"
    )
    yield (
        f"Starts: {counted(restarts, 'restart')} took {output.seconds(seconds / restarts)} each until their first step, "
        f"{output.seconds(seconds)} in all ({_share(seconds, figures)} of its time); {how}."
    )


def _largest(figures: RunFigures) -> Iterator[str]:
    known = {cause: seconds for cause, seconds in figures.lost_seconds.items() if cause != "paused"}
    if not known or not math.isfinite(figures.wall_seconds):
        return
    cause = max(known, key=lambda name: known[name])
    if known[cause] >= MIN_RATIO * figures.wall_seconds:
        from runner.cli.foreground.summary import CAUSE_NAMES

        yield (
            f"Most time was lost by {CAUSE_NAMES.get(cause, cause)}: {output.seconds(known[cause])}, "
            f"{_share(known[cause], figures)} of its time."
        )


def _share(seconds: float, figures: RunFigures) -> str:
    return f"{seconds / figures.wall_seconds:.1%}" if figures.wall_seconds > 0 else "-"
