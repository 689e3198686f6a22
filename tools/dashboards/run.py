"""The dashboard of one run."""

from tools.dashboards.panels import Dashboard, Panel
from tools.dashboards.queries import (
    ATTEMPTS,
    INCIDENTS,
    INSTANCE,
    LEADERS,
    OF_RUN,
    REMEDIES,
    RESTARTS,
    RUN,
)

GLANCE = (
    Panel(
        "State",
        "State of the run.",
        {"{{state}}": f"stoker_run_state{{{OF_RUN}}} == 1"},
        kind="name",
        width=3,
    ),
    Panel(
        "Step",
        "Last finished step of the newest attempt.",
        {"step": f"stoker_run_step{{{OF_RUN}}}"},
        kind="number",
        width=3,
    ),
    Panel(
        "Of its goal",
        "Last finished step / the step at which the run ends.",
        {"done": f"stoker_run_step{{{OF_RUN}}} / stoker_run_goal_steps{{{OF_RUN}}}"},
        kind="number",
        unit="percentunit",
        width=3,
    ),
    Panel(
        "Since the last step",
        "Red after ten minutes without a finished step.",
        {"age": f"stoker_run_progress_age_seconds{{{OF_RUN}}}"},
        kind="number",
        unit="s",
        width=3,
        bad=600,
    ),
    Panel(
        "ETTR, last hour",
        "Productive time / wall time of the last hour, or since the run was admitted.",
        {"ETTR": f"stoker_run_ettr_hour_ratio{{{OF_RUN}}}"},
        kind="number",
        unit="percentunit",
        width=3,
        bad=0.9,
        is_low_bad=True,
        decimals=1,
    ),
    Panel(
        "Attempts",
        "Attempts planned so far: one and its restarts.",
        {"attempts": f"stoker_run_attempts{{{OF_RUN}}}"},
        kind="number",
        width=3,
    ),
    Panel(
        "Trusted checkpoint",
        "Step of the newest checkpoint from which the run would resume.",
        {"step": f"stoker_run_checkpoint_step{{{OF_RUN}}}"},
        kind="number",
        width=3,
    ),
    Panel(
        "Steps behind it",
        "Steps that a restart now would make again.",
        {"steps": f"stoker_run_step{{{OF_RUN}}} - stoker_run_checkpoint_step{{{OF_RUN}}}"},
        kind="number",
        width=3,
    ),
    Panel(
        "Mode",
        "What Stoker does by itself about the run.",
        {"{{mode}}": f"stoker_run_mode{{{OF_RUN}}} == 1"},
        kind="name",
        width=3,
    ),
    Panel(
        "Waits for a person",
        "Rungs that wait for `stoker approve` or `deny`; 1 more if the run is held.",
        {"waits": f"stoker_run_open_proposals{{{OF_RUN}}} + stoker_run_held{{{OF_RUN}}}"},
        kind="number",
        width=3,
        bad=1,
    ),
    Panel(
        "Attempts left",
        "In a row without a new step, before the run is given up.",
        {"attempts": f"stoker_run_attempts_left{{{OF_RUN}}}"},
        kind="number",
        width=3,
        bad=2,
        is_low_bad=True,
    ),
    Panel(
        "Learning rate factor",
        "By what remedies multiply the rate; 1: by nothing.",
        {"factor": f"stoker_run_learning_rate_factor{{{OF_RUN}}}"},
        kind="number",
        width=3,
    ),
    Panel(
        "Expected end",
        "In how long, by the run's own rate, lost time included.",
        {"left": f"stoker_run_end_timestamp_seconds{{{OF_RUN}}} - time()"},
        kind="number",
        unit="s",
        width=3,
    ),
    Panel(
        "Before its deadline",
        "From the expected end to the deadline; below 0 the run is too late.",
        {"margin": f"stoker_run_deadline_margin_seconds{{{OF_RUN}}}"},
        kind="number",
        unit="s",
        width=3,
        bad=0,
        is_low_bad=True,
    ),
    Panel(
        "Rank hours",
        "Used so far: useful, and lost.",
        {"{{use}}": f"stoker_run_rank_hours{{{OF_RUN}}}"},
        kind="number",
        width=3,
        decimals=2,
    ),
    Panel(
        "Cost",
        "So far, in the unit of the run's rate.",
        {"cost": f"stoker_run_cost{{{OF_RUN}}}", "of it lost": f"stoker_run_lost_cost{{{OF_RUN}}}"},
        kind="number",
        width=3,
    ),
)

NUMBERS = (
    Panel(
        "Loss",
        "Loss of the last step. Red marks: incidents; blue: launches.",
        {"{{name}}": f"stoker_run_loss{{{OF_RUN}}}"},
        width=12,
    ),
    Panel(
        "Gradient norm",
        "Before clipping.",
        {"{{name}}": f"stoker_run_grad_norm{{{OF_RUN}}}"},
        width=12,
    ),
    Panel(
        "Learning rate", "Of the last step.", {"{{name}}": f"stoker_run_learning_rate{{{OF_RUN}}}"}
    ),
    Panel(
        "Throughput",
        "Tokens per second of the whole run.",
        {"{{name}}": f"stoker_run_tokens_per_second{{{OF_RUN}}}"},
    ),
    Panel(
        "Steps per minute",
        "Where it falls below zero, the run went back.",
        {"{{name}}": f"deriv(stoker_run_step{{{OF_RUN}}}[$__rate_interval]) * 60"},
    ),
    Panel(
        "MFU",
        "Model FLOPs utilisation.",
        {"{{name}}": f"stoker_run_mfu_ratio{{{OF_RUN}}}"},
        unit="percentunit",
    ),
    Panel(
        "Peak memory",
        "The largest of a rank.",
        {"{{name}}": f"stoker_run_peak_memory_bytes{{{OF_RUN}}}"},
        unit="bytes",
    ),
    Panel(
        "Model TFLOP/s",
        "As the trainer reports or prints them.",
        {"{{name}}": f"stoker_run_model_tflops_per_second{{{OF_RUN}}}"},
    ),
    Panel(
        "Tokens",
        "Trained on so far, steps that were made again included.",
        {"{{name}}": f"stoker_run_tokens_total{{{OF_RUN}}}"},
    ),
    Panel(
        "Skipped steps",
        "Steps that the optimizer skipped, of ranks that report it.",
        {"{{name}}": f"stoker_run_skipped_steps_total{{{OF_RUN}}}"},
    ),
    Panel(
        "Loss scale",
        "Of training in float16.",
        {"{{name}}": f"stoker_run_loss_scale{{{OF_RUN}}}"},
    ),
)

TIME = (
    Panel(
        "Lost time by cause",
        "Since the run was admitted: what of its wall time went into no contributing step.",
        {"{{cause}}": f"stoker_run_lost_seconds_total{{{OF_RUN}}}"},
        kind="stack",
        unit="s",
        width=12,
    ),
    Panel(
        "ETTR",
        "Productive time / wall time: since the run was admitted, of the last day, of the last hour.",
        {
            "since admission": f"stoker_run_ettr_ratio{{{OF_RUN}}}",
            "last day": f"stoker_run_ettr_day_ratio{{{OF_RUN}}}",
            "last hour": f"stoker_run_ettr_hour_ratio{{{OF_RUN}}}",
        },
        unit="percentunit",
        width=12,
    ),
    Panel(
        "State over time",
        "1 (coloured) for the state that the run is in.",
        {"{{state}}": f"stoker_run_state{{{OF_RUN}}}"},
        kind="states",
        bad=1,
        width=12,
    ),
    Panel(
        "Furthest step and trusted checkpoint",
        "What lies between the step and the furthest one is made again.",
        {
            "step": f"stoker_run_step{{{OF_RUN}}}",
            "furthest": f"stoker_run_best_step{{{OF_RUN}}}",
            "checkpoint": f"stoker_run_checkpoint_step{{{OF_RUN}}}",
        },
        width=12,
    ),
    Panel(
        "Restarts",
        "By the fault that ended the attempt before.",
        {"{{fault}}": f"stoker_run_restarts_total{{{OF_RUN}}}"},
        kind="stack",
    ),
    Panel(
        "Phases of a recovery",
        "Seconds of each phase, the mean of all recoveries.",
        {
            "{{phase}}": f"stoker_run_recovery_phase_seconds_sum{{{OF_RUN}}}"
            f" / stoker_run_recovery_phase_seconds_count{{{OF_RUN}}}"
        },
        kind="stack",
        unit="s",
    ),
    Panel(
        "Age of checkpoints",
        "Since the seal of the newest one that is trusted at least so far.",
        {"{{trust}}": f"stoker_run_checkpoint_age_seconds{{{OF_RUN}}}"},
        unit="s",
    ),
)

RUN_BOARD = Dashboard(
    uid="stoker-run",
    title="Stoker: run",
    about="One run: where it is, its numbers, and where its time went.",
    variables=(INSTANCE, RUN),
    annotations=(INCIDENTS, RESTARTS, ATTEMPTS, REMEDIES, LEADERS),
    rows={"At a glance": GLANCE, "Numbers": NUMBERS, "Time": TIME},
)
