"""The restarter: the parent of the supervisor that `stoker run --detach` leaves behind (`python -m ... STATE`, the state folder).

It starts the supervisor again when it dies, within the budget of `SupervisorChild`. It ends when the supervisor ends in order (by
`stoker shutdown` or SIGTERM), when another one leads, and when the budget is spent. A supervisor that a `stoker run` in the
foreground started is watched likewise, since that command may end before the detached run. Its file in the state folder has its
pid.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from runner.atomic_files import write_atomically
from runner.cli import clusters, exit_codes, output
from runner.cli.foreground.leftovers import RESTARTER, restarter_of
from runner.cli.foreground.presence import is_attended
from runner.cli.foreground.supervisor_child import (
    SupervisorChild,
    SupervisorLost,
    SupervisorRefused,
    last_words,
    opened_log,
)
from runner.errors import StokerError, StoreUnavailable
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.programs import module_command
from runner.keeper import procfs
from runner.store.protocol import Store

# Chosen, not measured.
LOOK_SECONDS = 0.1


def leave_supervisor(store: Store, cluster: ClusterSpec) -> None:
    """Start a supervisor with its restarter if none holds the lease, and wait until it leads; one in the foreground gets one, too.

    Raises SupervisorRefused with its message if it refuses the cluster's settings, SupervisorLost if it fails to start for another
    reason.
    """
    is_led = clusters.leader_of(store).alive
    if is_led and (any(restarter_of(cluster)) or not is_attended(store, cluster)):
        return
    command = module_command("runner.cli.foreground.restarter", cluster.state)
    with opened_log(cluster) as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    # It ends by itself if the supervisor does not start in time.
    while (code := process.poll()) is None and not (
        any(restarter_of(cluster)) if is_led else clusters.leader_of(store).alive
    ):
        time.sleep(0.02)
    if code == exit_codes.BAD_INPUT:
        raise SupervisorRefused(last_words(cluster).removeprefix("stoker: "))
    if code:
        raise SupervisorLost(f"the supervisor did not start: {last_words(cluster)}")


def keep_supervisor(store: Store, cluster: ClusterSpec) -> int:
    """Start a supervisor, again whenever it dies, until it ends in order or another one leads; return the exit code.

    Raises SupervisorRefused and SupervisorLost.
    """
    child = SupervisorChild(cluster, store, log=output.print_note, attended=False)
    child.start()
    while not child.is_ours and _is_attended_for(store, cluster):
        time.sleep(LOOK_SECONDS)
    if not child.is_ours and _is_dead(store):
        child.restart_if_needed()
    while child.is_ours and child.exit_code != exit_codes.DONE:
        if not child.wait(1.0):
            continue
        time.sleep(LOOK_SECONDS)
        with contextlib.suppress(StoreUnavailable):
            if child.exit_code == exit_codes.DONE or clusters.leader_of(store).alive:
                break
            child.restart_if_needed()
    return exit_codes.DONE


def _is_attended_for(store: Store, cluster: ClusterSpec) -> bool:
    """Whether a supervisor that a command in the foreground started leads, or may do so."""
    try:
        return is_attended(store, cluster)
    except StoreUnavailable:
        return True


def _is_dead(store: Store) -> bool:
    """Whether the supervisor died with its lease: one that ends in order releases it."""
    leader = clusters.leader_of(store)
    return leader.holder != "" and not leader.alive


def _write_pid(cluster: ClusterSpec) -> None:
    """Name this process in the state folder. The file stays: the start time in it tells a later process with this pid apart."""
    pid = os.getpid()
    seen = procfs.read_process(pid)
    assert seen is not None
    note = json.dumps({"pid": pid, "start_ticks": seen.start_ticks})
    write_atomically(Path(cluster.state) / RESTARTER, note)


def main(state: str) -> int:
    """Run until there is nothing to restart; return the exit code."""
    cluster = clusters.find_cluster(state)
    try:
        _write_pid(cluster)
        with clusters.store_of(cluster) as store:
            return keep_supervisor(store, cluster)
    except SupervisorRefused:
        # Its own words are the last in the log.
        return exit_codes.BAD_INPUT
    except StokerError as error:
        output.print_note(str(error))
        return exit_codes.FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
