"""Families of metrics of runs: how far each is, where its time went, and what was done about it.

A run has a bounded number of series, whatever the number of its ranks, nodes and attempts; faults and remedies are labels of few
values.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

from runner.facts.messages.cluster_status import (
    ClusterStatus,
    RunForecast,
    RunSpending,
    RunStatus,
)
from runner.facts.messages.records import RunStateName
from runner.facts.messages.signals import StepRecord
from runner.facts.remedies.skipped_steps import num_skipped
from runner.history.run_accounting import CAUSES
from runner.history.run_counters import BUCKET_SECONDS
from runner.serve.exposition import MetricFamily, counter, gauge, histogram

MODES = ("act", "advise", "off")

# Of each run: name, help and value.
_RUN_GAUGES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("stoker_run_step", "Last finished step of the newest attempt.", lambda r: r.step),
    (
        "stoker_run_best_step",
        "Furthest step reached, since the run last went back.",
        lambda r: r.best_step,
    ),
    ("stoker_run_goal_steps", "Steps at which the run ends.", lambda r: r.total_steps),
    ("stoker_run_attempts", "Attempts planned so far.", lambda r: r.num_attempts),
    (
        "stoker_run_checkpoint_step",
        "Step of the newest trusted checkpoint.",
        lambda r: r.checkpoint_step,
    ),
    (
        "stoker_run_ettr_ratio",
        "Productive time / wall time since admission.",
        lambda r: r.ettr_ratio,
    ),
    (
        "stoker_run_ettr_hour_ratio",
        "Productive time / wall time of the last hour, or since admission.",
        lambda r: r.ettr_hour_ratio,
    ),
    (
        "stoker_run_ettr_day_ratio",
        "Productive time / wall time of the last day, or since admission.",
        lambda r: r.ettr_day_ratio,
    ),
    (
        "stoker_run_progress_age_seconds",
        "Time since the last finished step.",
        lambda r: r.phase_seconds,
    ),
    ("stoker_run_held", "1: paused, or it waits for a person.", lambda r: r.hold is not None),
    (
        "stoker_run_attempts_left",
        "Attempts in a row without a new step, before the run is given up.",
        lambda r: r.attempts_left,
    ),
    (
        "stoker_run_learning_rate_factor",
        "By what remedies multiply the learning rate; 1: by nothing.",
        lambda r: _number(r.remedies.get("lr_factor"), 1.0),
    ),
    (
        "stoker_run_data_steps_left_out",
        "Data steps that remedies leave out.",
        lambda r: num_skipped(r.remedies.get("skip_steps", ())),
    ),
)
# Of the last step of each run that has one.
_STEP_GAUGES: tuple[tuple[str, str, Callable[[StepRecord], float | None]], ...] = (
    ("stoker_run_loss", "Loss of the last step.", lambda s: s.loss),
    ("stoker_run_grad_norm", "Gradient norm before clipping.", lambda s: s.grad_norm),
    ("stoker_run_learning_rate", "Learning rate of the last step.", lambda s: s.lr),
    ("stoker_run_loss_scale", "Loss scale of the last step.", lambda s: s.loss_scale),
    (
        "stoker_run_tokens_per_second",
        "Tokens per second, whole run.",
        lambda s: s.tokens_per_second,
    ),
    (
        "stoker_run_model_tflops_per_second",
        "Model TFLOP/s as the trainer reports or prints them.",
        lambda s: s.model_tflops_per_second,
    ),
    ("stoker_run_mfu_ratio", "Model FLOPs utilisation.", lambda s: s.mfu_ratio),
    ("stoker_run_step_seconds", "Seconds of the last step.", lambda s: s.step_seconds_max),
    (
        "stoker_run_peak_memory_bytes",
        "Largest peak memory of a rank.",
        lambda s: s.peak_memory_bytes_max,
    ),
)
# Of each run whose status has a forecast, and of what it has used.
_FORECAST_GAUGES: tuple[tuple[str, str, Callable[[RunForecast], float | None]], ...] = (
    (
        "stoker_run_end_timestamp_seconds",
        "Expected end, by the run's own rate, lost time included.",
        lambda f: f.ends_at,
    ),
    (
        "stoker_run_deadline_margin_seconds",
        "From the expected end to the deadline; below 0 it is too late.",
        lambda f: f.margin_seconds,
    ),
)
_SPENDING_GAUGES: tuple[tuple[str, str, Callable[[RunSpending], float | None]], ...] = (
    (
        "stoker_run_compute_budget_rank_hours",
        "Rank hours that the run may use.",
        lambda s: s.budget_rank_hours,
    ),
    (
        "stoker_run_expected_rank_hours",
        "Rank hours that it will have used at its expected end.",
        lambda s: s.rank_hours_at_end,
    ),
    ("stoker_run_cost", "Cost so far, in the unit of the run's rate.", lambda s: s.cost),
    ("stoker_run_lost_cost", "Of it, the cost of lost time.", lambda s: s.lost_cost),
    ("stoker_run_expected_cost", "Cost at the expected end.", lambda s: s.cost_at_end),
)
# Of each run; none falls, not even at a take-over: they are sums of the journal.
_RUN_COUNTERS: tuple[tuple[str, str, Callable[[RunStatus], float]], ...] = (
    (
        "stoker_run_productive_seconds",
        "Time on steps that count; it rests until steps that were overwritten are made again.",
        lambda r: r.totals.productive_seconds,
    ),
    (
        "stoker_run_steps",
        "Steps made, those that were overwritten included.",
        lambda r: r.totals.steps,
    ),
    (
        "stoker_run_tokens",
        "Tokens trained on, by the throughput that ranks report or print.",
        lambda r: r.totals.tokens,
    ),
    (
        "stoker_run_skipped_steps",
        "Steps that the optimizer skipped, of ranks that report it.",
        lambda r: r.totals.skipped_steps,
    ),
)


def runs(runs: Sequence[RunStatus]) -> Iterator[MetricFamily]:
    """Describe how far each run is, and where its time went."""
    labelled = {(str(run.run), run.name): run for run in runs}
    for name, text, value in _RUN_GAUGES:
        values = {labels: value(run) for labels, run in labelled.items()}
        yield gauge(name, text, values, "run", "name")
    steps = {labels: run.last for labels, run in labelled.items() if run.last is not None}
    for name, text, figure in _STEP_GAUGES:
        values = {labels: figure(step) for labels, step in steps.items()}
        yield gauge(name, text, values, "run", "name")
    for name, text, expected in _FORECAST_GAUGES:
        values = {key: expected(run.forecast) for key, run in labelled.items() if run.forecast}
        yield gauge(name, text, values, "run", "name")
    for name, text, used in _SPENDING_GAUGES:
        values = {key: used(run.spending) for key, run in labelled.items() if run.spending}
        yield gauge(name, text, values, "run", "name")
    rank_hours = {
        (*labels, use): hours
        for labels, run in labelled.items()
        if run.spending is not None
        for use, hours in (
            ("useful", run.spending.useful_rank_hours),
            ("lost", run.spending.lost_rank_hours),
        )
    }
    text = "Rank hours used so far; useful and lost add up to all."
    yield gauge("stoker_run_rank_hours", text, rank_hours, "run", "name", "use")
    for name, text, total in _RUN_COUNTERS:
        values = {labels: total(run) for labels, run in labelled.items()}
        yield counter(name, text, values, "run", "name")
    states = {
        (*labels, state): run.state == state
        for labels, run in labelled.items()
        for state in get_args(RunStateName)
    }
    yield gauge("stoker_run_state", "1 for the state a run is in.", states, "run", "name", "state")
    modes = {
        (*labels, mode): run.mode == mode for labels, run in labelled.items() for mode in MODES
    }
    text = "1 for what Stoker does by itself about a run; pages may be more cautious."
    yield gauge("stoker_run_mode", text, modes, "run", "name", "mode")
    yield from _lost_time(labelled)
    yield from _answers(labelled)
    yield from _checkpoints(labelled)


def _lost_time(labelled: Mapping[tuple[str, str], RunStatus]) -> Iterator[MetricFamily]:
    def lost(seconds: Callable[[RunStatus], Mapping[str, float]]) -> dict[tuple[str, ...], float]:
        return {
            (*labels, cause): seconds(run).get(cause, 0.0)
            for labels, run in labelled.items()
            for cause in CAUSES
        }

    text = "Time that went into no contributing step, by cause; a second that is classified again counts under both."
    values = lost(lambda run: run.totals.lost_seconds)
    yield counter("stoker_run_lost_seconds", text, values, "run", "name", "cause")
    text = "Time that went into no contributing step, by cause. Its successor is stoker_run_lost_seconds_total."
    exact = lost(lambda run: run.lost_seconds)
    yield gauge("stoker_run_lost_seconds", text, exact, "run", "name", "cause")
    phases: dict[tuple[str, ...], tuple[Sequence[int], float]] = {
        (*labels, phase): (each.counts, each.total_seconds)
        for labels, run in labelled.items()
        for phase, each in run.totals.recovery.items()
    }
    text = "Seconds that each recovery of a run spent in each phase."
    name, labels = "stoker_run_recovery_phase_seconds", ("run", "name", "phase")
    yield histogram(name, text, phases, *labels, bounds=BUCKET_SECONDS)


def _answers(labelled: Mapping[tuple[str, str], RunStatus]) -> Iterator[MetricFamily]:
    restarts = {
        (*labels, fault): count
        for labels, run in labelled.items()
        for fault, count in run.totals.restarts.items()
    }
    text = "Launches after the first, by the fault that ended the attempt before; requested: a person did."
    yield counter("stoker_run_restarts", text, restarts, "run", "name", "fault")
    remedies = {
        (*labels, remedy, state): count
        for labels, run in labelled.items()
        for (remedy, state), count in Counter(
            (each.name, each.state) for each in run.applied_remedies
        ).items()
    }
    text = "Remedies of a run by name and state, the newest fifty."
    yield gauge("stoker_run_remedies", text, remedies, "run", "name", "remedy", "state")
    rungs = {
        (*labels, page): left
        for labels, run in labelled.items()
        for page, left in run.rungs_left.items()
    }
    text = "Rungs that a page may still take within 24 hours, of pages that have taken one."
    yield gauge("stoker_run_rungs_left", text, rungs, "run", "name", "runbook")


def _checkpoints(labelled: Mapping[tuple[str, str], RunStatus]) -> Iterator[MetricFamily]:
    counts = {
        (*labels, trust): count
        for labels, run in labelled.items()
        for trust, count in run.checkpoints_by_trust.items()
    }
    text = "Checkpoints by how far they are trusted, without those that the run has left behind."
    yield gauge("stoker_run_checkpoints", text, counts, "run", "name", "trust")
    ages = {
        (*labels, trust): seconds
        for labels, run in labelled.items()
        for trust, seconds in run.checkpoint_age_seconds.items()
    }
    text = "Time since the seal of the newest checkpoint that is trusted at least so far, until the run ends."
    yield gauge("stoker_run_checkpoint_age_seconds", text, ages, "run", "name", "trust")


def proposals(status: ClusterStatus) -> Iterator[MetricFamily]:
    """Yield how many rungs wait for a person, and for how long the first has."""
    text = "Rungs that wait for `stoker approve` or `deny`."
    yield gauge("stoker_open_proposals", text, len(status.proposals))
    waiting = Counter(each.run for each in status.proposals)
    since = {each.run: each.since for each in reversed(status.proposals)}
    labelled = {(str(run.run), run.name): run.run for run in status.runs}
    text = "Rungs of a run that wait for `stoker approve` or `deny`."
    counts = {labels: waiting[run] for labels, run in labelled.items()}
    yield gauge("stoker_run_open_proposals", text, counts, "run", "name")
    text = "For how long the oldest of them waits."
    ages = {
        labels: max(0.0, status.now - since[run])
        for labels, run in labelled.items()
        if run in since
    }
    yield gauge("stoker_run_proposal_age_seconds", text, ages, "run", "name")


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise
