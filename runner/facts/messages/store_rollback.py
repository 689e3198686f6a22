"""Messages about a store that came back with less than it acknowledged."""

from collections.abc import Mapping

from msgspec import field

from runner.facts.wire import Value


class StoreStopped(Value, kind="store_stopped"):
    """A register's value: nothing acts on this store until an operator accepts it as it is or restores a newer copy.

    `acknowledged`: the newest entry that the detecting process had written or read. `generation`: the highest it knew.
    `wall`: its clock.
    """

    reason: str
    holder: str
    wall: float
    acknowledged: int = 0
    generation: int = 0


class AcceptedRollbacks(Value, kind="accepted_rollbacks"):
    """A register's value: how often an operator accepted the store as it is, and the newest entry that records it.

    Entries up to `unsigned_through` were written before entries had codes, and are read for history alone.
    """

    count: int = 0
    sequence: int = 0
    unsigned_through: int = 0


class StoreAccepted(Value, kind="store_accepted"):
    """An input: an operator accepted the store's present end. `lost`: entries that are known to be gone."""

    by: str
    reason: str
    lost: int = 0


class CountersRaised(Value, kind="counters_raised"):
    """A record: numbers that may have been used before the rollback are not used again.

    Runs that go on are launched under a new configuration, so that no attempt has the name of a lost one. `cursors`: how far
    the streams reach now, for those that were read further.
    """

    next_generation: int
    next_run: int
    cursors: Mapping[str, int] = field(default_factory=dict)
