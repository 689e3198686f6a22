"""What is said and written when the store came back with less than it acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.facts.wire import message


@message("store_stopped")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStopped:
    """A register's value: nobody acts on this store until a person accepts it as it is, or puts back a newer copy.

    `acknowledged`: the newest entry that whoever noticed had written or read. `epoch`: the highest it knew of.
    """

    reason: str
    holder: str
    # seconds since the epoch, by the clock of whoever noticed
    wall: float
    acknowledged: int = 0
    epoch: int = 0


@message("accepted")
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRollbacks:
    """A register's value: how often a person took the store as it is for the truth, and the newest entry that says so."""

    count: int = 0
    sequence: int = 0


@message("store_accepted")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccepted:
    """An input: a person took the store's present end for the truth. `lost`: entries that are known to be gone."""

    by: str
    reason: str
    lost: int = 0


@message("numbers_raised")
@dataclass(frozen=True, slots=True, kw_only=True)
class CountersRaised:
    """A record: what may have been given out before the store forgot is not given out again.

    Runs that go on are launched under a new configuration, so that no attempt has the name of a forgotten one. `cursors`: how far
    the streams reach now, for those that were read further.
    """

    next_epoch: int
    next_run: int
    cursors: Mapping[str, int] = field(default_factory=dict)
