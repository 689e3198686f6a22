"""The end of a watch in figures: the run's own summary, and what Stoker would have done."""

from collections.abc import Sequence

from msgspec.structs import replace

from runner.cli.foreground.changes import find_run
from runner.cli.foreground.summary import Summary, summarize, summary_text
from runner.cli.watch.screens import as_watched
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.watch.proposals import Proposed


def summary_of(status: ClusterStatus, run: int, *, files: str, has_ended: bool) -> Summary | None:
    """Sum up the newest run of a watch; None: no rank was ever found. `has_ended`: what was watched is gone."""
    shown = as_watched(status, files)
    found = find_run(shown, run)
    return (
        None if found is None else summarize(shown, _at_the_end(found, shown, has_ended=has_ended))
    )


def text_of(summary: Summary, proposals: Sequence[Proposed]) -> str:
    """Lay a summary out for people."""
    would = [f"  {proposed.text}" for proposed in proposals]
    asked = ["", "what Stoker would have done:", *would] if would else []
    return "\n".join([summary_text(summary, is_watched=True), *asked])


def _at_the_end(run: RunStatus, status: ClusterStatus, *, has_ended: bool) -> RunStatus:
    """Say how a run is that waits to be started again, or goes on without being watched."""
    if run.state == "waiting" and has_ended:
        why = [one.evidence[0] for one in status.incidents if one.run == run.run and one.evidence]
        return replace(run, state="failed", reason=why[0] if why else "its ranks have ended")
    if run.state == "active" and not has_ended:
        return replace(run, reason="it goes on; the watch has ended")
    return run
