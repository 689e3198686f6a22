"""The statuses of a cluster as they are published, for a command that follows a run."""

import time
from collections.abc import Callable

from runner.cli.clusters import LIVE_STATES
from runner.errors import Forged, StoreUnavailable
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import STATUS
from runner.serve.status_reader import decode_status
from runner.signer import signer_of
from runner.store.protocol import Store


class StatusFeed:
    """Gives each status once. `log` gets what keeps it from that, for a person."""

    def __init__(self, store: Store, cluster: ClusterSpec, log: Callable[[str], None]) -> None:
        self.log = log
        self._store, self._signer = store, signer_of(cluster)
        self._version = 0

    def next(self, timeout_seconds: float) -> ClusterStatus | None:
        """Return the status published since the last call; None if there is none within so many seconds."""
        try:
            batch = self._store.read(
                streams={}, registers={STATUS: self._version}, timeout_seconds=timeout_seconds
            )
        except StoreUnavailable as error:
            self.log(f"the store does not answer: {error}")
            time.sleep(min(error.delay_seconds, timeout_seconds))
            return None
        register = batch.registers.get(STATUS)
        if register is None:
            return None
        try:
            status = decode_status(register.payload, self._signer)
        except Forged as error:
            self.log(f"a status that does not verify is passed over: {error}")
            return None
        self._version = register.version
        return status


def is_over(run: RunStatus | None) -> bool:
    """Whether a run has ended and none of its ranks is left."""
    return run is not None and run.state not in LIVE_STATES and run.attempt_state in ("", "ended")
