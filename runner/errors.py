"""Every error Stoker raises on purpose.

    StokerError
    ├── UserError            bad input from a person: printed as one message, exit code 2
    │   └── SpecError        a file or setting that does not describe something we can run
    ├── TemporaryError       it may pass: try again after `delay_seconds`
    │   └── StoreUnavailable the store did not answer in time
    ├── IllegalMove          a decision moves something in a way that its life cycle lacks
    ├── PermanentError       trying again cannot help
    │   ├── Fenced           a process with a newer token or generation has taken over
    │   ├── StoreCorrupt     the store returned less than, or something other than, it acknowledged
    │   │   └── StoreRolledBack  it came back with less: everything stops until a person decides
    │   └── CheckpointRefused a checkpoint folder that does not verify
    │       ├── CheckpointForeign  its manifest carries no code of the run's secret
    │       └── CheckpointUnreadable  a file of it cannot be opened or read here
    └── WireError            bytes that are no message of ours (becomes a finding, never a crash)
        └── Forged           bytes that are not signed with the cluster's token

A message names the thing, the value and the way out.
"""


class StokerError(Exception):
    """Root of the tree."""


class UserError(StokerError):
    """Bad input from a person."""


class SpecError(UserError):
    """A run.yaml, cluster.yaml, runbook or recipe that cannot be used; names the field."""


class IllegalMove(StokerError):
    """A bug in a decision: it moves something in a way that its life cycle lacks (`facts/lifecycles.py`)."""


class TemporaryError(StokerError):
    """It may pass: try again after `delay_seconds`."""

    def __init__(self, message: str, *, delay_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.delay_seconds = delay_seconds


class StoreUnavailable(TemporaryError):
    """The store did not answer in time."""


class PermanentError(StokerError):
    """Trying again cannot help."""


class Fenced(PermanentError):
    """A newer token or generation exists; the caller must stop acting."""


class StoreCorrupt(PermanentError):
    """The store holds less than it acknowledged, or something else."""


class StoreRolledBack(StoreCorrupt):
    """The store came back with less than it acknowledged; `stoker store accept` is the way out."""


class CheckpointRefused(PermanentError):
    """A checkpoint folder that does not verify, or a commit with an old generation."""


class CheckpointForeign(CheckpointRefused):
    """A manifest without a code of its run's secret; `stoker adopt` is the way out."""


class CheckpointUnreadable(CheckpointRefused):
    """A file that cannot be opened or read here: not there, not permitted. It says nothing against the bytes."""


class WireError(StokerError):
    """Bytes that are not a message of ours."""


class Forged(WireError):
    """Bytes that are not signed with the cluster's token, or for another place than where they were found."""
