"""What `stoker watch` shows, and what its keys do: no terminal, no thread and no store of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from runner.cli import clusters
from runner.cli.foreground.changes import changes, find_run
from runner.cli.foreground.glance import (
    cluster_lines,
    folded,
    incident_lines,
    node_line,
    one_line,
    order_runs,
    run_lines,
    runs_lines,
    unusual_node_lines,
    waiting_lines,
)
from runner.cli.nodes.tables import fleet_summary
from runner.cli.output import clock
from runner.cli.reports.tables import is_open
from runner.cli.terminal.status_reader import Newest
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.wording import printable

if TYPE_CHECKING:
    from rich.text import Text

# Of what happened to the run since the watch began; chosen.
MAX_EVENTS = 200
MAX_INCIDENTS = 20
_KEYS = "q quit  h help  s story  e explain  l logs  a approve  p pause"

# What a key asks for that the screen itself cannot do.
Task = Literal["story", "explain", "logs", "approve", "deny", "pause", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Something to be done for a key: a text to be read, or a request to be sent, about this run, incident or proposal."""

    task: Task
    run: RunStatus | None = None
    incident: IncidentStatus | None = None
    action: str = ""


@dataclass(slots=True, kw_only=True)
class TextPage:
    """A text on the screen. `lines`: None while it is read. `top`: the first one that is shown."""

    title: str
    lines: Sequence[str] | None = None
    top: int = 0
    # It begins at its end, and stays there while it grows.
    is_tail: bool = False
    order: Order | None = None


@dataclass(slots=True, kw_only=True)
class WatchScreen:
    """The state of the screen. `on_order` gets what a key asks for. `run`: the run that is shown, None for the fleet."""

    on_order: Callable[[Order], None]
    run: int | None = None
    newest: Newest = field(default_factory=Newest)
    page: TextPage | None = None
    note: str = ""
    _question: Order | None = None
    _selected: int | None = None
    _events: list[str] = field(default_factory=list)
    _explained: int = 0

    def update(self, newest: Newest, now: float) -> None:
        """Take in what was read; `now`: by the wall clock."""
        before, after = self.newest.status, newest.status
        if after is not None and before is not after:
            for each in after.runs:
                if each.run == self._shown_run(after):
                    new = changes(before, after, run=each.run) if before is not None else []
                    self._events += [f"{clock(now)[:8]}  {text}" for text in new]
            del self._events[:-MAX_EVENTS]
        self.newest = newest

    # ---- keys -----------------------------------------------------------------------------------------------------

    def press(self, key: str, height: int) -> bool:
        """Do what a key means; `height`: lines of the screen. Return False to quit."""
        if key == "q":
            return False
        if self._question is not None:
            self._answer(key)
        elif self.page is not None:
            self._scroll(self.page, key, height)
        elif self.newest.status is not None:
            self.note = ""
            self._choose(key, self.newest.status)
        return True

    def _answer(self, key: str) -> None:
        order, self._question = self._question, None
        if order is not None and key in ("y", "Y"):
            self.note = f"{order.task}: sent, waiting for the supervisor"
            self.on_order(order)
        else:
            self.note = "nothing was done"

    def _scroll(self, page: TextPage, key: str, height: int) -> None:
        rows = max(1, height - 2)
        last = max(0, len(page.lines or ()) - rows)
        moves = {
            "up": -1,
            "k": -1,
            "down": 1,
            "j": 1,
            "page up": -rows,
            "page down": rows,
            "home": -last - rows,
            "end": last + rows,
        }
        if key in ("escape", "enter"):
            self.page = None
        elif key in moves:
            page.top = max(0, min(last, min(page.top, last) + moves[key]))
            page.is_tail = page.top >= last and page.is_tail

    def _choose(self, key: str, status: ClusterStatus) -> None:
        run = self._picked(status)
        match key:
            case "up" | "down" | "k" | "j":
                self._move(status, 1 if key in ("down", "j") else -1)
            case "enter" if run is not None:
                self.run, self._events = run.run, []
            case "f" | "escape":
                self.run, self._events = None, []
            case "s":
                self._open(f"story of {_name(run)}", Order(task="story", run=run), is_tail=True)
            case "e" | "E":
                self._explain(status, is_before=key == "E")
            case "l" if run is not None:
                self._open(f"output of {_name(run)}", Order(task="logs", run=run), is_tail=True)
            case "a" | "d":
                self._decide(status, "approve" if key == "a" else "deny")
            case "p" if run is not None:
                self._pause(run)
            case "h" | "?":
                from runner.cli.terminal.pages import HELP

                self.page = TextPage(title="help", lines=HELP.splitlines())
            case "l" | "p" | "enter":
                self.note = "no run yet"

    def _move(self, status: ClusterStatus, by: int) -> None:
        ordered = [run.run for run in order_runs(status.runs)]
        if not ordered:
            return
        current = self._shown_run(status)
        at = ordered.index(current) + by if current in ordered else 0
        self._selected = ordered[max(0, min(len(ordered) - 1, at))]
        if self.run is not None:
            self.run, self._events = self._selected, []

    def _explain(self, status: ClusterStatus, *, is_before: bool) -> None:
        wanted = self.run
        known = [one for one in status.incidents if wanted in (None, one.run) or one.run is None]
        known.sort(key=lambda one: not is_open(one))
        if not known:
            self.note = "no incident"
            return
        self._explained = min(self._explained + 1, len(known) - 1) if is_before else 0
        incident = known[self._explained]
        order = Order(task="explain", incident=incident)
        self._open(f"{incident.incident} {incident.fault}", order, is_tail=False)

    def _open(self, title: str, order: Order, *, is_tail: bool) -> None:
        self.page = TextPage(title=title, order=order, is_tail=is_tail)
        self.on_order(order)

    def _decide(self, status: ClusterStatus, task: Literal["approve", "deny"]) -> None:
        found = [one for one in status.proposals if self.run in (None, one.run)]
        if not found:
            self.note = "nothing is proposed"
            return
        first = found[0]
        run = find_run(status, first.run)
        self._question = Order(task=task, run=run, action=first.action)
        more = f" ({len(found) - 1} more wait)" if len(found) > 1 else ""
        self.note = (
            f"{task} {first.action} for {first.incident}: {printable(first.text, 80)}{more}? y/n"
        )

    def _pause(self, run: RunStatus) -> None:
        if run.state not in clusters.LIVE_STATES:
            self.note = f"run {run.name} is {run.state}: it cannot be paused"
            return
        is_paused = run.state == "paused" or run.hold is not None
        self._question = Order(task="resume" if is_paused else "pause", run=run)
        self.note = f"{self._question.task} run {run.name} ({run.run})? y/n"

    # ---- what is shown --------------------------------------------------------------------------------------------

    def lines(self, width: int, height: int, age_seconds: float) -> list["Text"]:
        """Return the screen, at most `height` lines; `age_seconds`: of the status."""
        status = self.newest.status
        if status is None:
            trouble = self.newest.trouble or "waiting for the first status ..."
            return [*folded(trouble, width)[: height - 1], self._foot(width)]
        if self.page is not None:
            return self._page_lines(self.page, width, height)
        head = cluster_lines(status, self.newest.leader, age_seconds, width)
        if self.newest.trouble:
            head += folded(self.newest.trouble, width, "red")
        sections = self._sections(status, width)
        shown = _fitted([head, *sections], height - 1)
        return [*shown, *[one_line("")] * (height - 1 - len(shown)), self._foot(width)]

    def _sections(self, status: ClusterStatus, width: int) -> list[list["Text"]]:
        run = find_run(status, self.run) if self.run is not None else None
        incidents = [
            one
            for one in status.incidents
            if (run is not None and one.run in (None, run.run)) or (run is None and is_open(one))
        ]
        asked = waiting_lines(status, None if run is None else run.run, width)
        happened = incident_lines(incidents, status.now, most=MAX_INCIDENTS)
        unusual = unusual_node_lines(status.nodes, status.now)
        if run is None:
            fleet = [one_line(line) for line in fleet_summary(status).splitlines()]
            table = runs_lines(status.runs, status.now, self._shown_run(status))
            return [asked, happened, table, fleet + unusual]
        events = [one_line(event, "dim") for event in reversed(self._events)]
        nodes = [node_line(status), *unusual]
        return [run_lines(run, status.now, width), asked, happened, nodes, events]

    def _page_lines(self, page: TextPage, width: int, height: int) -> list["Text"]:
        rows = max(1, height - 2)
        lines = page.lines if page.lines is not None else ["reading ..."]
        last = max(0, len(lines) - rows)
        if page.is_tail:
            page.top = last
        top = min(page.top, last)
        shown = [one_line(line) for line in lines[top : top + rows]]
        place = f"lines {top + 1}-{top + len(shown)} of {len(lines)}"
        foot = one_line(f"{place}   up, down, space, Home, End; Escape goes back", "reverse")
        padding = [one_line("")] * (height - 2 - len(shown))
        return [one_line(page.title, "bold"), *shown, *padding, foot]

    def _foot(self, width: int) -> "Text":
        if self.note:
            style = "bold reverse" if self._question is not None else "bold"
            return one_line(self.note[: max(1, width - 1)], style)
        more = "  f fleet" if self.run is not None else "  Enter show"
        return one_line(f"{_KEYS}{more}", "reverse")

    def _shown_run(self, status: ClusterStatus) -> int | None:
        if self.run is not None:
            return self.run
        known = [run.run for run in order_runs(status.runs)]
        return self._selected if self._selected in known else next(iter(known), None)

    def _picked(self, status: ClusterStatus) -> RunStatus | None:
        number = self._shown_run(status)
        return None if number is None else find_run(status, number)


def _name(run: RunStatus | None) -> str:
    return "the cluster" if run is None else f"run {run.run} {run.name}"


def _fitted(sections: Sequence[list["Text"]], height: int) -> list["Text"]:
    """Return the sections one below the other, an empty line between any two, the longest cut until all fit."""
    shown = [section for section in sections if section]
    room = max(len(shown), height - (len(shown) - 1))
    sizes = [len(section) for section in shown]
    while sum(sizes) > room:
        longest = max(range(len(sizes)), key=lambda at: sizes[at])
        sizes[longest] -= 1
    lines: list[Text] = []
    for section, size in zip(shown, sizes, strict=True):
        cut = len(section) - size
        lines += [one_line("")] if lines else []
        kept = section[: size - 1] if cut and size > 1 else section[:size]
        lines += kept
        if cut and size > 1:
            lines.append(one_line(f"... and {len(section) - len(kept)} more", "dim"))
    return lines[:height]
