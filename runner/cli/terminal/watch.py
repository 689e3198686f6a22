"""`stoker watch`: the terminal, the threads and the store behind the screen."""

import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from runner.cli import clusters, exit_codes
from runner.cli.foreground.changes import find_run
from runner.cli.options import cluster_option, command
from runner.errors import StokerError, UserError
from runner.facts.specs.cluster import ClusterSpec

if TYPE_CHECKING:
    from rich.live import Live

    from runner.cli.terminal.watch_screen import Order

# The age of what is shown goes on, and logs grow. Chosen, not measured.
REDRAW_SECONDS = 1.0
# Seconds to wait for the answer to a request; it may be carried out later. Chosen.
ANSWER_SECONDS = 60.0


@command(
    "stoker watch            the run of this folder's cluster, or the fleet where several are live",
    "stoker watch tiny       this run; f shows the fleet, h the other keys",
    "stoker watch-only ...   another command: judges a run that Stoker did not launch",
)
@click.argument("run", required=False)
@cluster_option
def watch(run: str | None, where: str | None) -> None:
    """Show a run or the whole fleet on the terminal, what is unusual first, until q or Ctrl-C.

    Keys open the story, the explanation of an incident and the logs, approve or deny what is proposed, and pause a run. It works
    while no supervisor leads, too, and says how old what it shows is. Needs a terminal: `stoker status` prints the same once.
    """
    terminal = os.environ.get("TERM", "")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or terminal in ("", "dumb"):
        raise UserError(
            f"watch needs a terminal, and this is none (TERM={terminal or 'unset'}); "
            "`stoker status` prints the same once, `stoker attach` follows a run in lines"
        )
    cluster = clusters.find_cluster(where, only_reads=True)
    with clusters.store_of(cluster) as store:
        status = clusters.status_in(store, cluster)
    shown: int | None = None
    if run is not None:
        if status is None:
            raise UserError(f"cluster {cluster.name!r} has no run yet: nothing was published")
        shown = clusters.pick_run(status, run).run
    elif status is not None:
        live = [known for known in status.runs if known.state in clusters.LIVE_STATES]
        shown = live[0].run if len(live) == 1 else None
    code = _Watch(cluster, shown).follow()
    if code:
        click.get_current_context().exit(code)


class _Watch:
    """The loop around the screen: keys and statuses go in, lines come out."""

    def __init__(self, cluster: ClusterSpec, run: int | None) -> None:
        from runner.cli.terminal.keyboard import Keyboard
        from runner.cli.terminal.pages import LogsPage
        from runner.cli.terminal.status_reader import StatusReader
        from runner.cli.terminal.watch_screen import WatchScreen

        self._cluster = cluster
        self._keyboard = Keyboard(sys.stdin.fileno())
        self._reader = StatusReader(cluster, self._keyboard.wake)
        self._screen = WatchScreen(on_order=self._carry_out, run=run)
        # The page of logs is read again a second after it was read, never twice at a time.
        self._logs = LogsPage(cluster)
        self._is_reading, self._logs_due = False, 0.0

    def follow(self) -> int:
        """Show it until a key or a signal ends it; return the exit code."""
        from rich.console import Console
        from rich.live import Live

        console = Console()
        with ExitStack() as stack:
            keyboard = stack.enter_context(self._keyboard)
            stack.callback(self._reader.stop)
            live = stack.enter_context(
                Live(
                    console=console,
                    screen=True,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
            )
            self._reader.start()
            while keyboard.ended_by is None:
                self._draw(live)
                # A status, a text that was read and another size of the terminal end the wait, too.
                for key in keyboard.wait(REDRAW_SECONDS):
                    if not self._screen.press(key, console.height):
                        return exit_codes.DONE
        return 128 + keyboard.ended_by

    def _draw(self, live: "Live") -> None:
        from rich.console import Group

        newest, wall = self._reader.newest, time.time()
        self._screen.update(newest, wall)
        status = newest.status
        age = 0.0 if status is None else clusters.status_age_seconds(status)
        self._refresh_logs()
        # Of the terminal now: COLUMNS and LINES, where a shell exports them, are those of the command's begin.
        size = os.get_terminal_size(sys.stdout.fileno())
        live.console.size = size
        live.update(Group(*self._screen.lines(size.columns, size.lines, age)), refresh=True)

    def _refresh_logs(self) -> None:
        """Read the logs again while they are shown, once a second."""
        page = self._screen.page
        order = page.order if page is not None and page.lines is not None else None
        is_due = not self._is_reading and time.monotonic() >= self._logs_due
        if order is not None and order.task == "logs" and is_due:
            self._carry_out(order)

    def _carry_out(self, order: "Order") -> None:
        """Begin what a key asked for; its result comes later, and the screen goes on meanwhile."""
        is_text = order.task in ("story", "explain", "logs")
        target = self._read_page if is_text else self._ask
        self._is_reading = is_text or self._is_reading
        threading.Thread(target=target, args=(order,), name=order.task, daemon=True).start()

    def _read_page(self, order: "Order") -> None:
        from runner.cli.terminal import pages

        status = self._screen.newest.status
        lines: Sequence[str]
        try:
            if order.task == "story":
                lines = pages.story_page(self._cluster, order.run)
            elif order.incident is not None and status is not None:
                lines = pages.explain_page(self._cluster, status, order.incident)
            elif order.run is not None and status is not None:
                lines = self._logs.lines(find_run(status, order.run.run) or order.run)
            else:
                lines = ["nothing to show"]
        except StokerError as error:
            lines = str(error).splitlines()
        except Exception as error:  # noqa: BLE001 - bulkhead: the page has it, and the screen goes on
            lines = [f"{type(error).__name__}: {error}"]
        page = self._screen.page
        if page is not None and page.order is order:
            page.lines = lines
        self._is_reading, self._logs_due = False, time.monotonic() + REDRAW_SECONDS
        self._keyboard.wake()

    def _ask(self, order: "Order") -> None:
        from runner.cli.terminal.requests import request_of
        from runner.serve.requests import ask

        status = self._screen.newest.status
        try:
            assert status is not None
            request = request_of(order, status)
            with clusters.store_of(self._cluster) as store:
                answer = ask(store, self._cluster, request, timeout_seconds=ANSWER_SECONDS)
            self._screen.note = f"{order.task} {answer.state}: {answer.message or 'as asked'}"
        except StokerError as error:
            self._screen.note = f"{order.task}: {error}"
        except Exception as error:  # noqa: BLE001 - bulkhead: the note has it, and the screen goes on
            self._screen.note = f"{order.task}: {type(error).__name__}: {error}"
        self._keyboard.wake()
