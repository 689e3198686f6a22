"""Texts that a key opens: the story of a run, the explanation of an incident, what its ranks wrote. Each is a list of lines."""

from collections.abc import Iterator, Mapping

from runner.cli import clusters
from runner.cli.logs.attempt_output import (
    Chosen,
    attempt_to_show,
    elsewhere,
    files_here,
    ranks_by_attempt,
)
from runner.cli.logs.kept_output import kept_text
from runner.cli.reports.tables import explanation
from runner.cli.reports.timeline import story_lines
from runner.errors import StokerError
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.history.incident_output import incident_output
from runner.history.timeline import story
from runner.serve.past import read_past

# Lines of one file of a rank, and files, in the page of logs; chosen.
LOG_LINES, MAX_LOG_FILES = 200, 32
# The newest lines of a story that are kept; chosen.
MAX_STORY_LINES = 5000
HELP = """\
stoker watch: a run or the fleet, once a second, as the supervisor published it last

  up, down     choose a run              Enter   show it           f   show the fleet
  s            story of the run          e       explain its newest incident
  l            what its ranks wrote      E       explain the incident before that
  a            approve what is proposed  d       deny it
  p            pause the run, or let a paused one go on
  q, Ctrl-C    quit; nothing that runs is touched

In a text: up, down, space, page up, page down, Home and End; Escape or Enter go back.
What is unusual comes first: no supervisor leads, what waits for approval, open incidents, runs that do not run, nodes that are
not well. `stoker watch-only` is another command: it judges a run that Stoker did not launch.
"""


def story_page(cluster: ClusterSpec, run: RunStatus | None) -> list[str]:
    """Return what happened, of a run or in all, the newest last."""
    with clusters.store_of(cluster) as store:
        past = read_past(store, cluster)
        lines = list(story_lines(story(past.entries, run=None if run is None else run.run)))
    head = [past.missing] if past.missing else []
    return [*head, *(lines[-MAX_STORY_LINES:] or ["nothing happened"])]


def explain_page(
    cluster: ClusterSpec, status: ClusterStatus, incident: IncidentStatus
) -> list[str]:
    """Return why an incident is one, and what was kept with it."""
    with clusters.store_of(cluster) as store:
        entries = read_past(store, cluster).entries
        kept = incident_output(entries, incident.incident, incident.attempt)
    text = kept_text(kept, incident, status.runs)
    return [*explanation(incident).splitlines(), "", *text]


class LogsPage:
    """The last lines of each file of a run's newest attempt, and where the files of other nodes are; read again and again."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        self._attempt: AttemptId | None = None
        self._nodes: Mapping[AttemptId, Mapping[int, str]] = {}

    def lines(self, run: RunStatus) -> list[str]:
        """Return the lines as they are now; `run`: as of the newest status."""
        self._find_nodes(run)
        try:
            return list(_log_lines(Chosen(run=run, nodes=self._nodes)))
        except StokerError as error:
            return [str(error)]

    def _find_nodes(self, run: RunStatus) -> None:
        """Read the journal for where ranks are, once for each attempt, and only where output may be on other machines."""
        is_alone = self._cluster.local.nodes > 0 and not self._cluster.spans_machines
        if is_alone or (self._nodes and self._attempt == run.attempt):
            return
        with clusters.store_of(self._cluster) as store:
            self._nodes = ranks_by_attempt(read_past(store, self._cluster).entries, run.run)
        self._attempt = run.attempt


def _log_lines(chosen: Chosen) -> Iterator[str]:
    attempt = attempt_to_show(chosen)
    files = files_here(chosen, attempt)
    yield f"attempt {attempt} of run {chosen.run.run} {chosen.run.name}"
    yield from elsewhere(chosen, attempt, [file.rank for file in files])
    for file in files[:MAX_LOG_FILES]:
        file.seek_last_lines(LOG_LINES)
        lines = list(file.read(is_last=True))
        if lines:
            yield ""
            yield f"{file.path}:"
            yield from lines
    if len(files) > MAX_LOG_FILES:
        yield f"and {len(files) - MAX_LOG_FILES} files more: `stoker logs {chosen.run.name} --rank N`"
