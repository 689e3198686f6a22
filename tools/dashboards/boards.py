"""The two dashboards: a run, and the fleet."""

from tools.dashboards.panels import Annotation, Dashboard, Panel, Variable

OF_CLUSTER = 'instance="$instance"'
OF_RUN = 'instance="$instance", run="$run"'

INSTANCE = Variable("instance", "Cluster", "label_values(stoker_up, instance)")
# Text is the run's name, value its number: names are given again.
RUN = Variable(
    "run",
    "Run",
    f"query_result(stoker_run_state{{{OF_CLUSTER}}} == 1)",
    r'/[{,]name="(?<text>[^"]+)".*[{,]run="(?<value>[^"]+)"/',
)


def rises(name: str, selected: str) -> str:
    """Return a query that has a value at each moment when a total has just risen, also while nothing was scraped."""
    now = f"{name}{{{selected}}}"
    return f"{now} - {before(now)} > 0"


def before(series: str) -> str:
    """Return the largest value of the last hour, as of one interval ago."""
    return f"max_over_time({series}[1h] offset $__interval)"


# A counter that appears with its first event has not risen: it is new, unless all that this target serves is.
OPENED = f"stoker_incidents_total{{{OF_CLUSTER}}}"
NEW_INCIDENTS = (
    f"{rises('stoker_incidents_total', OF_CLUSTER)} or ({OPENED} unless {before(OPENED)})"
    f" and on (instance) {before(f'stoker_up{{{OF_CLUSTER}}}')} == 1"
)
INCIDENTS = Annotation("Incidents", NEW_INCIDENTS, "incident: {{fault}}", "red")
ATTEMPTS = Annotation(
    "Launches", rises("stoker_run_attempts", OF_RUN), "{{name}}: new attempt", "blue"
)
LEADERS = Annotation(
    "Supervisors", rises("stoker_lease_token", OF_CLUSTER), "another supervisor leads", "purple"
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
        "ETTR",
        "Productive time / wall time since the run was admitted.",
        {"ETTR": f"stoker_run_ettr_ratio{{{OF_RUN}}}"},
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
        "Loss scale",
        "Of training in float16.",
        {"{{name}}": f"stoker_run_loss_scale{{{OF_RUN}}}"},
    ),
)

TIME = (
    Panel(
        "Lost time by cause",
        "Since the run was admitted: what of its wall time went into no contributing step.",
        {"{{cause}}": f"stoker_run_lost_seconds{{{OF_RUN}}}"},
        kind="stack",
        unit="s",
        width=12,
    ),
    Panel(
        "ETTR so far",
        "Productive time / wall time since the run was admitted.",
        {"{{name}}": f"stoker_run_ettr_ratio{{{OF_RUN}}}"},
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
)

SUPERVISION = (
    Panel(
        "Leader",
        "The supervisor that holds the lease: host, pid and time of start.",
        {"{{cluster}}: {{holder}}": f"stoker_cluster_info{{{OF_CLUSTER}}}"},
        kind="name",
        width=6,
    ),
    Panel(
        "Lease",
        "Until the lease runs out unless it is renewed. 0: no supervisor leads, and nothing is repaired.",
        {"left": f"stoker_lease_remaining_seconds{{{OF_CLUSTER}}}"},
        kind="number",
        unit="s",
        width=3,
        bad=0.001,
        is_low_bad=True,
    ),
    Panel(
        "Status",
        "Age of the status behind these dashboards.",
        {"age": f"stoker_status_age_seconds{{{OF_CLUSTER}}}"},
        kind="number",
        unit="s",
        width=3,
        bad=60,
    ),
    Panel(
        "Store",
        "1: the store answers.",
        {"up": f"stoker_store_up{{{OF_CLUSTER}}}"},
        kind="number",
        width=3,
        bad=1,
        is_low_bad=True,
    ),
    Panel(
        "Standbys",
        "Supervisors that would take over.",
        {"standbys": f"stoker_standby_supervisors{{{OF_CLUSTER}}}"},
        kind="number",
        width=3,
    ),
    Panel(
        "Waits for a person",
        "Rungs that wait for `stoker approve` or `deny`.",
        {"proposals": f"stoker_open_proposals{{{OF_CLUSTER}}}"},
        kind="number",
        width=3,
        bad=1,
    ),
    Panel(
        "Open actions",
        "Actions without an outcome.",
        {"actions": f"stoker_open_actions{{{OF_CLUSTER}}}"},
        kind="number",
        width=3,
    ),
)

RUNS = (
    Panel(
        "Runs",
        "Each run of the cluster, with its state.",
        {"": f"stoker_run_state{{{OF_CLUSTER}}} == 1"},
        kind="table",
        width=12,
    ),
    Panel(
        "ETTR",
        "Productive time / wall time since each run was admitted.",
        {"{{name}}": f"stoker_run_ettr_ratio{{{OF_CLUSTER}}}"},
        unit="percentunit",
        width=12,
    ),
    Panel(
        "Since the last step",
        "A line that rises belongs to a run that makes no steps.",
        {
            "{{name}}": f"stoker_run_progress_age_seconds{{{OF_CLUSTER}}}"
            f' and on (instance, run) stoker_run_state{{{OF_CLUSTER}, state="active"}} == 1'
        },
        unit="s",
        width=12,
    ),
    Panel(
        "Lost time by cause",
        "Of all runs together.",
        {"{{cause}}": f"sum by (cause) (stoker_run_lost_seconds{{{OF_CLUSTER}}})"},
        kind="stack",
        unit="s",
        width=12,
    ),
)

NODES = (
    Panel(
        "Nodes by state",
        "States that no node is in are left out.",
        {"{{state}}": f"stoker_nodes{{{OF_CLUSTER}}} > 0"},
        kind="stack",
        width=12,
    ),
    Panel(
        "Spares",
        "Spare nodes, and how many are enough in 99 % of all cases.",
        {
            "spares": f"stoker_spare_nodes{{{OF_CLUSTER}}}",
            "recommended": f"stoker_recommended_spares{{{OF_CLUSTER}}}",
        },
        width=6,
    ),
    Panel(
        "Failure domains down",
        "Racks, switches or supplies whose nodes all fell silent at once.",
        {"domains": f"stoker_domains_down{{{OF_CLUSTER}}}"},
        width=6,
    ),
    Panel(
        "Not in service",
        "Nodes that neither train nor are spare. `stoker nodes` says why.",
        {"": f'stoker_node_state{{{OF_CLUSTER}, state!~"active|spare|absent"}}'},
        kind="table",
        width=12,
    ),
    Panel(
        "Longest without a heartbeat",
        "The ten nodes whose last heartbeat is oldest.",
        {"{{node}}": f"topk(10, stoker_node_heartbeat_age_seconds{{{OF_CLUSTER}}})"},
        unit="s",
        width=12,
    ),
    Panel(
        "Results of checks",
        "Checks of all nodes, by their last outcome.",
        {"{{outcome}}": f"sum by (outcome) (stoker_check_nodes{{{OF_CLUSTER}}})"},
        kind="stack",
        width=8,
    ),
    Panel(
        "Checks that do not pass",
        "By node. `stoker nodes NODE` has what was measured.",
        {"": f'stoker_node_check{{{OF_CLUSTER}, outcome!="PASS"}}'},
        kind="table",
        width=8,
    ),
    Panel(
        "Hardware",
        "Faults that still count, and hardware that may not serve.",
        {
            "faults": f"stoker_hardware_faults{{{OF_CLUSTER}}}",
            "{{verdict}}": f"stoker_hardware_refused{{{OF_CLUSTER}}}",
        },
        width=8,
    ),
)

EVENTS = (
    Panel(
        "Incidents",
        "Incidents opened so far, by the fault that opened them.",
        {"{{fault}}": f"stoker_incidents_total{{{OF_CLUSTER}}}"},
        width=12,
    ),
    Panel(
        "Open incidents",
        "Of the newest hundred, by fault and state.",
        {
            "{{fault}} {{state}}": "stoker_recent_incidents"
            f'{{{OF_CLUSTER}, state!~"resolved|gave_up"}}'
        },
        width=12,
    ),
)

COSTS = (
    Panel(
        "Supervisor's processor time",
        "Cores.",
        {"cores": f"rate(stoker_supervisor_cpu_seconds_total{{{OF_CLUSTER}}}[$__rate_interval])"},
        width=6,
    ),
    Panel(
        "Supervisor's memory",
        "Resident.",
        {"bytes": f"stoker_supervisor_resident_bytes{{{OF_CLUSTER}}}"},
        unit="bytes",
        width=6,
    ),
    Panel(
        "Journal",
        "Entries per second.",
        {"entries": f"rate(stoker_journal_entries_total{{{OF_CLUSTER}}}[$__rate_interval])"},
        width=6,
    ),
    Panel(
        "Decisions that failed",
        "Each is a defect in Stoker.",
        {"failed": f"stoker_decision_failures_total{{{OF_CLUSTER}}}"},
        width=6,
    ),
    Panel(
        "Agents' memory",
        "The largest ten.",
        {"{{node}}": f"topk(10, stoker_agent_resident_bytes{{{OF_CLUSTER}}})"},
        unit="bytes",
        width=12,
    ),
    Panel(
        "Refused messages",
        "By reason. `replayed` and `unknown_sender` are routine.",
        {"{{reason}}": f"stoker_messages_refused_total{{{OF_CLUSTER}}}"},
        width=12,
    ),
)

BOARDS = (
    Dashboard(
        uid="stoker-run",
        title="Stoker: run",
        about="One run: where it is, its numbers, and where its time went.",
        variables=(INSTANCE, RUN),
        annotations=(INCIDENTS, ATTEMPTS, LEADERS),
        rows={"At a glance": GLANCE, "Numbers": NUMBERS, "Time": TIME},
    ),
    Dashboard(
        uid="stoker-fleet",
        title="Stoker: fleet",
        about="One cluster: its supervisor, runs, nodes and incidents.",
        variables=(INSTANCE,),
        annotations=(INCIDENTS, LEADERS),
        rows={
            "Supervision": SUPERVISION,
            "Runs": RUNS,
            "Nodes": NODES,
            "Incidents": EVENTS,
            "Costs": COSTS,
        },
    ),
)
