"""`stoker attach`: show a run that goes on, from another terminal."""

import contextlib

import click

from runner.cli import clusters, exit_codes, output
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.screen import PlainScreen, screen_for
from runner.cli.foreground.status_feed import StatusFeed, is_over
from runner.cli.foreground.summary import summarize, summary_text
from runner.cli.options import cluster_option, command, json_option
from runner.errors import StoreUnavailable, UserError
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store

# Chosen, not measured.
LOOK_SECONDS = 0.5


@command("stoker attach", "stoker attach train", more=exit_codes.HELP)
@click.argument("run", required=False)
@cluster_option
@json_option
def attach(run: str | None, where: str | None, *, as_json: bool) -> None:
    """Show a run that goes on, as `stoker run` does; Ctrl-C leaves it alone.

    Without RUN: the only live run, or else the newest. It ends with the run and its summary; of a run that has ended it prints the
    summary at once. It starts and restarts nothing.
    """
    with clusters.open_cluster(where) as (cluster, store):
        chosen = clusters.newest_run(clusters.require_status(store, cluster), run)
        try:
            status = _followed(store, cluster, chosen, as_json=as_json)
        except KeyboardInterrupt:
            output.print_note(
                f"run {chosen.run} {chosen.name} goes on; `stoker attach` shows it again, `stoker stop {chosen.name}` ends it"
            )
            click.get_current_context().exit(exit_codes.INTERRUPTED)
    ended = find_run(status, chosen.run)
    assert ended is not None
    summary = summarize(status, ended)
    output.print_answer(summary, summary_text(summary), as_json=as_json)
    click.get_current_context().exit(exit_codes.of_run(ended.state))


def _followed(
    store: Store, cluster: ClusterSpec, run: RunStatus, *, as_json: bool
) -> ClusterStatus:
    """Show a run until it has ended; return the status then. Raises UserError when the cluster has dropped it."""
    status = clusters.require_status(store, cluster)
    if is_over(find_run(status, run.run)):
        return status
    with screen_for(run.run, as_json=as_json) as screen:
        feed = StatusFeed(store, cluster, screen.log)
        leadership = _Leadership(store, screen)
        while True:
            fresh = feed.next(LOOK_SECONDS)
            leadership.check()
            if fresh is None:
                continue
            found = find_run(fresh, run.run)
            if found is None:
                raise UserError(f"run {run.run} {run.name} is no longer in the cluster's status")
            screen.update(fresh)
            if is_over(found):
                return fresh


class _Leadership:
    """Notes on the screen when no supervisor leads the cluster, and when one does again."""

    def __init__(self, store: Store, screen: PlainScreen) -> None:
        self._store, self._screen = store, screen
        self._is_led = True

    def check(self) -> None:
        """Look at the lease."""
        with contextlib.suppress(StoreUnavailable):
            is_led = clusters.leader_of(self._store).alive
            if is_led != self._is_led:
                self._screen.log(
                    "a supervisor leads again"
                    if is_led
                    else "no supervisor holds the lease: nothing is decided, the ranks go on; `stoker supervise` starts one"
                )
            self._is_led = is_led
