"""How a run is shown: a screen that redraws itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from runner.cli import output
from runner.cli.foreground.changes import changes, find_run, progress
from runner.cli.nodes.tables import fleet_summary
from runner.cli.reports.tables import incidents_table, step_of
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

# Between two lines of progress.
PLAIN_SECONDS = 5.0
# Lines of the screen's log.
MAX_EVENTS = 8
MAX_INCIDENTS = 4
# Above that, nodes are shown as counts. Chosen, not measured.
MANY_NODES = 16
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


class Screen(Protocol):
    """What shows a run."""

    def __enter__(self) -> Self:
        """Start."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""

    def update(self, status: ClusterStatus) -> None:
        """Show a newer status."""

    def log(self, text: str) -> None:
        """Add a line to the log."""


def screen_for(run: int, *, as_json: bool = False) -> Screen:
    """Return the screen that fits standard output; with `as_json` lines go to standard error."""
    if as_json:
        return PlainScreen(run, out=output.print_note)
    return LiveScreen(run) if sys.stdout.isatty() else PlainScreen(run)


class PlainScreen:
    """One line per event, and one of progress every few seconds."""

    def __init__(self, run: int, *, out: Callable[[str], None] = output.print_text) -> None:
        self._run = run
        self._out = out
        self._before: ClusterStatus | None = None
        self._due = 0.0

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to undo."""

    def update(self, status: ClusterStatus) -> None:
        """Print what is new."""
        lines = changes(self._before, status, run=self._run)
        self._before = status
        for line in lines:
            self.log(line)
        run, now = find_run(status, self._run), time.monotonic()
        if run is not None and run.last is not None and now >= self._due:
            self.log(progress(run))
            self._due = now + PLAIN_SECONDS

    def log(self, text: str) -> None:
        """Print a line with the time of day."""
        self._out(f"{output.clock(time.time())[:8]}  {text}")


class LiveScreen:
    """A screen by rich: figures, loss curve, nodes, incidents, and the latest events."""

    def __init__(self, run: int) -> None:
        from rich.live import Live

        self._run = run
        self._view: ClusterStatus | None = None
        self._events: list[str] = []
        self._live = Live(get_renderable=self._draw, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        """Start to redraw."""
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop redrawing, and print the events, because the screen itself disappears."""
        self._live.__exit__(kind, error, trace)
        for event in self._events:
            output.print_text(event)

    def update(self, status: ClusterStatus) -> None:
        """Draw this status from now on."""
        for line in changes(self._view, status, run=self._run):
            self.log(line)
        self._view = status

    def log(self, text: str) -> None:
        """Add a line to the events."""
        self._events.append(f"{output.clock(time.time())[:8]}  {text}")

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        if self._view is None:
            return Text("starting ...", style="dim")
        run = find_run(self._view, self._run)
        parts: list[RenderableType] = []
        if run is not None:
            parts += [Text(headline(run), style="bold", no_wrap=True), *self._curve(run)]
        parts.append(self._node_line(self._view))
        recent = [i for i in self._view.incidents if i.run == self._run][:MAX_INCIDENTS]
        if recent:
            parts += [Text(), Text(incidents_table(recent), no_wrap=True, overflow="ellipsis")]
        events = "\n".join(self._events[-MAX_EVENTS:])
        return Group(*parts, Text(), Text(events, style="dim", no_wrap=True, overflow="ellipsis"))

    def _curve(self, run: RunStatus) -> list[RenderableType]:
        from rich.text import Text

        lines = [Text(figures(run), no_wrap=True)]
        if run.recent_losses:
            first = f"{run.first_loss:.3f} " if run.first_loss is not None else ""
            lines.append(
                Text(
                    f"loss  {first}{output.sparkline(run.recent_losses)}",
                    style="magenta",
                    no_wrap=True,
                )
            )
        return list(lines)

    def _node_line(self, status: ClusterStatus) -> RenderableType:
        from rich.text import Text

        line = Text("nodes ", no_wrap=True)
        if len(status.nodes) > MANY_NODES:
            line.append(fleet_summary(status).partition("\n")[0])
            return line
        for node in status.nodes:
            ranks = f" ranks {','.join(map(str, node.ranks_alive))}" if node.ranks_alive else ""
            line.append(
                f" {node.node} {node.state}{ranks} ", style=STATE_STYLES.get(node.state, "")
            )
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
