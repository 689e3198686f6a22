"""How a watch is shown: lines for people, as `stoker run` prints them, or one JSON document a line for programs."""

import json
import time
from collections.abc import Callable

from msgspec.structs import replace

from runner.cli import output
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.screen import PROGRESS_LINE_SECONDS, PlainScreen
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.watch.core import OWNER
from runner.watch.proposals import Proposed


def as_watched(status: ClusterStatus, files: str) -> ClusterStatus:
    """Put a status in the words of a watch: a run that waits for a person waits to be started again by its own people."""
    runs = tuple(_as_watched(run, files) for run in status.runs)
    return replace(status, runs=runs)


def _as_watched(run: RunStatus, files: str) -> RunStatus:
    if run.state == "waiting":
        return replace(
            run, folder=files, reason=f"watch-only starts nothing; {OWNER} may start it again"
        )
    if run.state == "active" and OWNER in run.reason:
        return replace(run, folder=files, reason="it was started again")
    return replace(run, folder=files)


class Lines:
    """One line per event, one of progress every few seconds."""

    def __init__(self, out: Callable[[str], None], files: Callable[[], str]) -> None:
        """`files`: what is followed, in words."""
        self._out, self._files = out, files
        self._screen = PlainScreen(-1, out=out)

    def begin(self, run: int) -> None:
        """Show this run from now on."""
        self._screen = PlainScreen(run, out=self._out)

    def update(self, status: ClusterStatus) -> None:
        """Print what is new."""
        self._screen.update(as_watched(status, self._files()))

    def propose(self, proposed: Proposed) -> None:
        """Print what Stoker would do."""
        self._screen.log(proposed.text)

    def note(self, text: str) -> None:
        """Print what is about the watch itself."""
        self._screen.log(text)


class JsonLines:
    """One document a line. `kind`: progress, run, incident, proposal, note, and summary at the end."""

    def __init__(self, out: Callable[[str], None], files: Callable[[], str]) -> None:
        self._out, self._files = out, files
        self._run = -1
        self._incidents: dict[str, IncidentStatus] = {}
        self._shown: tuple[object, ...] = ()
        self._progress: tuple[object, ...] = ()
        self._progress_due = 0.0

    def begin(self, run: int) -> None:
        """Show this run from now on."""
        self._run = run

    def update(self, status: ClusterStatus) -> None:
        """Print what is new."""
        run = find_run(as_watched(status, self._files()), self._run)
        if run is None:
            return
        shown = (run.run, run.attempt, run.attempt_state, run.state, run.reason)
        if shown != self._shown:
            self._shown = shown
            self.emit("run", run)
        for incident in reversed(status.incidents):
            if (
                incident.run in (self._run, None)
                and self._incidents.get(incident.incident) != incident
            ):
                self._incidents[incident.incident] = incident
                self.emit("incident", incident)
        now, progress = time.monotonic(), (run.attempt, run.step)
        if run.last is not None and progress != self._progress and now >= self._progress_due:
            self._progress, self._progress_due = progress, now + PROGRESS_LINE_SECONDS
            what = {"run": run.run, "attempt": run.attempt, "ettr_ratio": run.ettr_ratio}
            self.emit("progress", {**what, "step": run.step, "last": run.last})

    def propose(self, proposed: Proposed) -> None:
        """Print what Stoker would do."""
        self.emit("proposal", proposed)

    def note(self, text: str) -> None:
        """Print what is about the watch itself."""
        self.emit("note", {"text": text})

    def emit(self, kind: str, value: object) -> None:
        """Print one document."""
        plain = output.plain(value)
        document = {"kind": kind, "at": time.time(), **plain}
        self._out(json.dumps(document, allow_nan=False))
