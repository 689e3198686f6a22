"""How a run is shown: a screen that redraws itself on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from runner.cli import output
from runner.cli.foreground.changes import changes, find_run, progress
from runner.cli.foreground.glance import node_line, run_lines, safe_text
from runner.cli.reports.tables import incidents_table
from runner.facts.messages.cluster_status import ClusterStatus

if TYPE_CHECKING:
    from rich.console import RenderableType

# Chosen, not measured.
PROGRESS_LINE_SECONDS = 5.0
MAX_LOG_LINES = 8
MAX_INCIDENTS = 4


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
        run, now, width = (
            find_run(self._status, self._run),
            self._status.now,
            self._live.console.width,
        )
        parts: list[RenderableType] = []
        if run is not None:
            parts += run_lines(run, now, width)
        parts.append(node_line(self._status))
        recent = [i for i in self._status.incidents if i.run == self._run][:MAX_INCIDENTS]
        if recent:
            parts += [
                Text(),
                safe_text(incidents_table(recent), no_wrap=True, overflow="ellipsis"),
            ]
        events = "\n".join(self._events[-MAX_LOG_LINES:])
        return Group(
            *parts, Text(), safe_text(events, style="dim", no_wrap=True, overflow="ellipsis")
        )


def screen_for(run: int, *, as_json: bool = False) -> PlainScreen:
    """Return the screen that fits standard output; with `as_json` lines go to standard error."""
    if as_json:
        return PlainScreen(run, out=output.print_note)
    return LiveScreen(run) if sys.stdout.isatty() else PlainScreen(run)
