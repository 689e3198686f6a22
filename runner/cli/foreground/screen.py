"""How a run is shown: a screen that redraws itself on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from runner.cli import output
from runner.cli.foreground.changes import changes, find_run, progress
from runner.cli.nodes.tables import fleet_summary
from runner.cli.reports.tables import incidents_table, step_of
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.wording import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

# Chosen, not measured.
PROGRESS_LINE_SECONDS = 5.0
MAX_LOG_LINES = 8
MAX_INCIDENTS = 4
MAX_NODES_SHOWN = 16
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


class PlainScreen(ExitStack):
    """One line per event, and one of progress every few seconds."""

    def __init__(self, run: int, *, out: Callable[[str], None] = output.print_text) -> None:
        super().__init__()
        self._run = run
        self._out = out
        self._status: ClusterStatus | None = None
        self._progress_due = 0.0
        self._shown: object = None

    def update(self, status: ClusterStatus) -> None:
        """Print what is new."""
        for line in changes(self._status, status, run=self._run):
            self.log(line)
        self._status = status
        run, now = find_run(status, self._run), time.monotonic()
        if run is not None and run.last is not None and now >= self._progress_due:
            shown, self._shown = self._shown, (run.attempt, run.state, run.step)
            # The same step again is no news.
            if self._shown != shown:
                self.log(progress(run))
            self._progress_due = now + PROGRESS_LINE_SECONDS

    def log(self, text: str) -> None:
        """Print a line with the time of day."""
        self._out(f"{output.clock(time.time())[:8]}  {text}")


class LiveScreen(PlainScreen):
    """A screen by rich: figures, loss curve, nodes, incidents, and the latest events; progress is no event."""

    def __init__(self, run: int) -> None:
        from rich.live import Live

        self._events: list[str] = []
        super().__init__(run, out=self._events.append)
        self._progress_due = math.inf
        self._live = Live(get_renderable=self._draw, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        """Start to redraw; at the end print the events, because the screen itself disappears."""
        self.callback(self._print_events)
        self.enter_context(self._live)
        return self

    def _print_events(self) -> None:
        for event in self._events:
            output.print_text(event)

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        if self._status is None:
            return Text("starting ...", style="dim")
        run = find_run(self._status, self._run)
        parts: list[RenderableType] = []
        if run is not None:
            parts += [_text(headline(run), style="bold", no_wrap=True)]
            parts += [_text(figures(run), no_wrap=True)]
        if run is not None and run.recent_losses:
            first = f"{run.first_loss:.3f} " if run.first_loss is not None else ""
            curve = f"loss  {first}{output.sparkline(run.recent_losses)}"
            parts.append(Text(curve, style="magenta", no_wrap=True))
        parts.append(_node_line(self._status))
        recent = [i for i in self._status.incidents if i.run == self._run][:MAX_INCIDENTS]
        if recent:
            parts += [Text(), _text(incidents_table(recent), no_wrap=True, overflow="ellipsis")]
        events = "\n".join(self._events[-MAX_LOG_LINES:])
        return Group(*parts, Text(), _text(events, style="dim", no_wrap=True, overflow="ellipsis"))


def screen_for(run: int, *, as_json: bool = False) -> PlainScreen:
    """Return the screen that fits standard output; with `as_json` lines go to standard error."""
    if as_json:
        return PlainScreen(run, out=output.print_note)
    return LiveScreen(run) if sys.stdout.isatty() else PlainScreen(run)


def _text(content: str, **form: Any) -> "Text":
    """Return text whose words may come from outside: rich passes on what a terminal obeys."""
    from rich.text import Text

    return Text(visible(content), **form)


def _node_line(status: ClusterStatus) -> "RenderableType":
    from rich.text import Text

    line = Text("nodes ", no_wrap=True)
    if len(status.nodes) > MAX_NODES_SHOWN:
        return line.append(fleet_summary(status).partition("\n")[0])
    for node in status.nodes:
        ranks = f" ranks {','.join(map(str, node.ranks_alive))}" if node.ranks_alive else ""
        line.append(visible(f" {node.node} {node.state}{ranks} "), STATE_STYLES.get(node.state, ""))
    return line


def headline(run: RunStatus) -> str:
    """Return the first line: the run, its attempt, state and progress."""
    doing = (run.attempt_state or run.state) if run.state == "active" else run.state
    if doing == "running" and run.phase:
        doing = f"running ({run.phase})"
    bar = ""
    if run.total_steps:
        width = 30
        done = min(width, width * run.step // run.total_steps)
        bar = f"  {'█' * done}{'·' * (width - done)}"
    return f"{run.name}  attempt {run.attempt or '-'}  {doing}{bar}  step {step_of(run)}"


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
