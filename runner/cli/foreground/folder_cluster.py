"""The cluster that the runs of a folder share: made to fit the first, joined by others, made again when all have ended."""

import contextlib
import time
from pathlib import Path

from runner.cli import made_clusters, output
from runner.cli.clusters import LIVE_STATES, has_leader, leader_of, status_in, store_of
from runner.cli.foreground.presence import Presence, is_attended
from runner.cli.request_client import new_request_id, requester, send
from runner.errors import TemporaryError, UserError
from runner.facts.messages.requests import ShutDown
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec

# Chosen, not measured.
LOOK_SECONDS = 0.25
END_SECONDS = 90.0
WAY_OUT = "to run both at once, give them folders of their own, or name a cluster with --cluster"


def enter_folder_cluster(
    stack: contextlib.ExitStack, state: Path, spec: RunSpec, *, spares: int, may_wait: bool
) -> tuple[ClusterSpec, Presence]:
    """Return the cluster, which fits the run, and this command's presence there, which `stack` ends.

    No other command makes or starts it before `Presence.started`. One that is led and too small is ended if nothing needs it,
    and otherwise waited for; without `may_wait` UserError is raised.
    """
    made_clusters.make_state_folder(state)
    while True:
        presence = Presence(state, log=output.print_note)
        with contextlib.ExitStack() as attempt:
            attempt.enter_context(presence)
            presence.begin_start()
            cluster = made_clusters.make_cluster(state, spec, spares=spares)
            lack = made_clusters.lack_of_room(cluster, spec)
            if not lack:
                stack.push(attempt.pop_all())
                return cluster, presence
            is_last = presence.is_last()
            if is_last and _ended_unneeded(cluster):
                continue
            if is_last or not may_wait:
                raise UserError(f"{lack}; end those with `stoker shutdown`; {WAY_OUT}")
        output.print_note(f"{lack}; it starts when those have ended; {WAY_OUT}")
        while has_leader(cluster):
            time.sleep(LOOK_SECONDS)


def _ended_unneeded(cluster: ClusterSpec) -> bool:
    """End a cluster that no command and no live run needs, such as one whose command was killed; False for any other."""
    deadline = time.monotonic() + END_SECONDS
    with store_of(cluster) as store:
        status = status_in(store, cluster)
        is_busy = status is None or any(run.state in LIVE_STATES for run in status.runs)
        if leader_of(store).alive and (is_busy or not is_attended(store, cluster)):
            return False
        with contextlib.suppress(TemporaryError):
            send(store, cluster, ShutDown(id=new_request_id(), by=requester()))
        while leader_of(store).alive and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return not leader_of(store).alive
