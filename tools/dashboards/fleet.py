"""The dashboard of a cluster."""

from tools.dashboards.panels import Dashboard, Panel
from tools.dashboards.queries import INCIDENTS, INSTANCE, LEADERS, OF_CLUSTER

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
        "Store answers",
        "1: it does.",
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
        "ETTR, last day",
        "Productive time / wall time of the last day, or since each run was admitted.",
        {"{{name}}": f"stoker_run_ettr_day_ratio{{{OF_CLUSTER}}}"},
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
        {"{{cause}}": f"sum by (cause) (stoker_run_lost_seconds_total{{{OF_CLUSTER}}})"},
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

PAGES = (
    Panel(
        "Pages",
        "Sent, tries that failed, given up, and not sent because their cause is paged.",
        {
            "sent": f"stoker_pages_sent_total{{{OF_CLUSTER}}}",
            "failed tries": f"stoker_page_failures_total{{{OF_CLUSTER}}}",
            "given up": f"stoker_pages_dropped_total{{{OF_CLUSTER}}}",
            "inhibited": f"stoker_pages_inhibited_total{{{OF_CLUSTER}}}",
        },
        width=12,
    ),
    Panel(
        "Pages that wait",
        "To be sent.",
        {"waiting": f"stoker_pages_waiting{{{OF_CLUSTER}}}"},
        kind="number",
        width=6,
        bad=1,
    ),
    Panel(
        "Paging fails",
        "1: the newest tries failed, or the file of addresses is wrong. `stoker status` has the reason.",
        {"fails": f"stoker_pages_failing{{{OF_CLUSTER}}}"},
        kind="number",
        width=6,
        bad=1,
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
        "Store",
        "Seconds that an append to the journal and a scrape wait for it.",
        {
            "append": f"rate(stoker_journal_append_seconds_total{{{OF_CLUSTER}}}[$__rate_interval])"
            f" / rate(stoker_journal_appends_total{{{OF_CLUSTER}}}[$__rate_interval])",
            "scrape": f"stoker_store_read_seconds{{{OF_CLUSTER}}}",
        },
        unit="s",
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
        width=9,
    ),
    Panel(
        "Refused messages",
        "By reason. `replayed` and `unknown_sender` are routine.",
        {"{{reason}}": f"stoker_messages_refused_total{{{OF_CLUSTER}}}"},
        width=9,
    ),
)

FLEET_BOARD = Dashboard(
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
        "Pages": PAGES,
        "Costs": COSTS,
    },
)
