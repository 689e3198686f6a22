"""What is said and written when the store came back with less than it acknowledged."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from runner.facts.wire import Value


class StoreStopped(Value, kind="store_stopped"):
    """A register's value: nobody acts on this store until a person accepts it as it is, or puts back a newer copy.

    `acknowledged`: the newest entry that whoever noticed had written or read. `epoch`: the highest it knew of.
    """

    reason: str
    holder: str
    # seconds since the epoch, by the clock of whoever noticed
    wall: float
    acknowledged: int = 0
    epoch: int = 0


class AcceptedRollbacks(Value, kind="accepted"):
    """A register's value: how often a person took the store as it is for the truth, and the newest entry that says so."""

    count: int = 0
    sequence: int = 0


class StoreAccepted(Value, kind="store_accepted"):
    """An input: a person took the store's present end for the truth. `lost`: entries that are known to be gone."""

    by: str
    reason: str
    lost: int = 0


class CountersRaised(Value, kind="numbers_raised"):
    """A record: what may have been given out before the store forgot is not given out again.

    Runs that go on are launched under a new configuration, so that no attempt has the name of a forgotten one. `cursors`: how far
    the streams reach now, for those that were read further.
    """

    next_epoch: int
    next_run: int
    cursors: Mapping[str, int] = field(default_factory=dict)
