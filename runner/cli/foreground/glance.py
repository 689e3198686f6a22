"""A run or a fleet at a glance, as lines for a screen: what the live screen of `stoker run` and `stoker watch` draw."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runner.cli import clusters, output
from runner.cli.nodes.tables import fleet_summary, node_attention, unusual_nodes
from runner.cli.reports.forecasts import forecast_lines
from runner.cli.reports.tables import incident_fault, incident_place, is_open, step_of
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    RunStatus,
)
from runner.facts.wording import printable, printable_words, visible

if TYPE_CHECKING:
    from rich.text import Text

MAX_NODES_SHOWN = 16
# A status that is older is shown as such; chosen.
STALE_SECONDS = 5.0
STATE_STYLES = {
    "active": "green",
    "spare": "cyan",
    "checking": "blue",
    "suspect": "yellow",
    "lost": "red",
    "quarantined": "red",
    "maintenance": "yellow",
    "left": "dim",
    "retired": "dim",
}
RUN_STYLES = {"waiting": "yellow", "paused": "yellow", "failed": "red", "active": "green"}
_BAR_CHARACTERS = 30


def safe_text(content: str, **form: Any) -> "Text":
    """Return text whose words may come from outside: rich passes on what a terminal obeys."""
    from rich.text import Text

    return Text(visible(content), **form)


def one_line(content: str, style: str = "") -> "Text":
    """Return a line that is cut at the edge of the screen."""
    return safe_text(
        content.replace("\n", " "), style=style, no_wrap=True, overflow="ellipsis", end="\n"
    )


def folded(content: str, width: int, style: str = "") -> list["Text"]:
    """Return text as lines of the screen's width, all but the first indented."""
    lines = textwrap.wrap(visible(content), max(20, width - 1), subsequent_indent="    ")
    return [one_line(line, style) for line in lines]


def headline(run: RunStatus) -> str:
    """Return the first line: the run, its attempt, state and progress."""
    bar = ""
    if run.total_steps:
        done = min(_BAR_CHARACTERS, _BAR_CHARACTERS * run.step // run.total_steps)
        bar = f"  {'█' * done}{'·' * (_BAR_CHARACTERS - done)}"
    return f"{run.name}  attempt {run.attempt or '-'}  {activity(run)}{bar}  step {step_of(run)}"


def activity(run: RunStatus) -> str:
    """Return what a run does now: "running (step)", "waiting"."""
    doing = (run.attempt_state or run.state) if run.state == "active" else run.state
    return f"running ({run.phase})" if doing == "running" and run.phase else doing


def figures(run: RunStatus) -> str:
    """Return the figures of the last step."""
    last = run.last
    parts = [f"loss {output.number(last.loss if last else None)}"]
    if last is not None:
        parts.append(f"{output.number(last.tokens_per_second, 3)} tok/s")
        parts.append(f"grad norm {output.number(last.grad_norm, 3)}")
        parts += [f"lr {last.lr:.2e}"] if last.lr is not None else []
    parts.append(f"checkpoint {'-' if run.checkpoint_step is None else run.checkpoint_step}")
    parts.append(f"ETTR {output.ratio(run.ettr_ratio)}")
    return "  ".join(parts)


def run_lines(run: RunStatus, now: float, width: int) -> list["Text"]:
    """Return a run at a glance: progress, figures, loss curve, why it does not run, when it will be done; `now`: the status's."""
    lines = [one_line(headline(run), "bold"), one_line(figures(run))]
    if run.recent_losses:
        first = f"{run.first_loss:.3f} " if run.first_loss is not None else ""
        curve = output.sparkline(run.recent_losses, max(10, min(60, width - 16)))
        lines.append(one_line(f"loss  {first}{curve}", "magenta"))
    if run.state != "active" and run.reason:
        lines += folded(
            f"{run.state}: {printable(run.reason)}", width, RUN_STYLES.get(run.state, "")
        )
    if run.state in clusters.LIVE_STATES:
        for text in forecast_lines(run, now):
            lines += folded(text, width)
    return lines


def node_line(status: ClusterStatus) -> "Text":
    """Return the nodes in one line: each of a few with its state, of many the counts."""
    line = one_line("nodes ")
    if len(status.nodes) > MAX_NODES_SHOWN:
        return line.append(fleet_summary(status).partition("\n")[0])
    for node in status.nodes:
        ranks = f" ranks {','.join(map(str, node.ranks_alive))}" if node.ranks_alive else ""
        line.append(visible(f" {node.node} {node.state}{ranks} "), STATE_STYLES.get(node.state, ""))
    return line


def cluster_lines(
    status: ClusterStatus, leader: clusters.Leader, age_seconds: float, width: int
) -> list["Text"]:
    """Return what a person must know first: who leads, how old all this is, and what is wrong with the cluster as a whole."""
    if leader.alive:
        host = ":".join(leader.holder.split(":")[:2])
        lines = [one_line(f"cluster {status.cluster}  supervisor {host}", "bold")]
    else:
        text = f"cluster {status.cluster}: NO SUPERVISOR LEADS, nothing is repaired; `stoker supervise` starts one"
        lines = folded(text, width, "bold red")
    if age_seconds > STALE_SECONDS or not leader.alive:
        lines += folded(
            f"what is shown is {output.seconds(age_seconds)} old, of {output.moment(status.wall)}",
            width,
            "bold red",
        )
    troubles = [f"store: {printable(status.store_note)}"] if status.store_note else []
    troubles += [
        f"{printable(name, 80)} IS DOWN, its nodes are not suspected: {printable_words(nodes)}"
        for name, nodes in status.domains_down.items()
    ]
    if status.decision_failures:
        troubles.append(
            f"{status.decision_failures} of Stoker's own decisions failed: `s` says which"
        )
    if status.closing and leader.alive:
        troubles.append("the cluster is shutting down")
    for trouble in troubles:
        lines += folded(trouble, width, "red")
    return lines


def waiting_lines(status: ClusterStatus, run: int | None, width: int) -> list["Text"]:
    """Return what waits for people: proposals, and what was asked for and is not done; of one run or (None) of all."""
    lines: list[Text] = []
    for known in status.proposals:
        if run in (None, known.run):
            text = (
                f"{known.action} for {known.incident} waits for approval: {printable(known.text)}"
            )
            lines += folded(text, width, "bold yellow")
    for each in status.runs:
        if run in (None, each.run):
            for asked in each.open_requests:
                lines += folded(f"{each.name}: asked for: {printable(asked)}", width, "yellow")
    return lines


def incident_lines(
    some: Sequence[IncidentStatus], now: float, *, most: int | None = None
) -> list["Text"]:
    """Return a line for each incident, the open ones first, the newest of each kind first."""
    ordered = sorted(some, key=lambda one: not is_open(one))
    lines = []
    for one in ordered if most is None else ordered[:most]:
        done = f"  done: {', '.join(one.rungs)}" if one.rungs else ""
        ago = output.seconds(max(0.0, now - one.opened_at))
        text = f"{one.incident}@{one.version} {one.state:<9} {incident_fault(one)}  {incident_place(one)}  {ago} ago{done}"
        why = one.reason or (one.evidence[0] if one.evidence else "")
        text += f"  {printable(why, 120)}" if why else ""
        lines.append(
            one_line(text, "dim" if not is_open(one) else "yellow" if one.non_fatal else "red")
        )
    return lines


def runs_lines(runs: Sequence[RunStatus], now: float, selected: int | None) -> list["Text"]:
    """Return the runs as a table, those that do not run first; the selected one has a mark."""
    from runner.cli.reports.forecasts import end_in_short

    ordered = order_runs(runs)
    if not ordered:
        return [one_line("no run yet")]
    columns = {
        " ": lambda run: ">" if run.run == selected else " ",
        "run": lambda run: str(run.run),
        "name": lambda run: printable(run.name, 24),
        "state": activity,
        "step": step_of,
        "loss": lambda run: output.number(run.last.loss if run.last else None),
        "ETTR": lambda run: output.ratio(run.ettr_ratio),
        "done in": lambda run: end_in_short(run, now),
        "why": lambda run: printable(run.reason, 60) if run.state != "active" else "",
    }
    head, *rows = output.table(columns, ordered).split("\n")
    styles = [RUN_STYLES.get(run.state, "dim") for run in ordered]
    return [
        one_line(head, "bold"),
        *(one_line(row, style) for row, style in zip(rows, styles, strict=True)),
    ]


def order_runs(runs: Sequence[RunStatus]) -> list[RunStatus]:
    """Order runs for a person: those that wait or are paused, those that run, then ended ones, the newest first."""
    order = {"waiting": 0, "paused": 1, "active": 2}
    return sorted(runs, key=lambda run: (order.get(run.state, 3), -run.run))


def unusual_node_lines(nodes: Sequence[NodeStatus], now: float) -> list["Text"]:
    """Return a line for each node that needs attention, the gravest first."""
    lines = []
    for node in unusual_nodes(nodes):
        age = output.seconds(max(0.0, now - node.since)) if node.since else "-"
        text = f"{printable(node.node, 40)}  {node.state} for {age}  {node_attention(node, now)}"
        lines.append(one_line(text, STATE_STYLES.get(node.state, "yellow")))
    return lines
