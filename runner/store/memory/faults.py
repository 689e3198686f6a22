"""What can go wrong between a process and its store, as a plan that a test makes and an in-memory store carries out."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


class Crash(BaseException):
    """The process died here. Not an Exception: no handler of the process itself may survive it."""


class StoreFault(enum.Enum):
    """What happens to one operation: REFUSE and LOSE raise StoreUnavailable, the others end the process.

    REFUSE and CRASH_BEFORE leave it undone. LOSE and CRASH_AFTER do it, but the caller does not learn so.
    """

    REFUSE = "refuse"
    LOSE = "lose"
    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"


@dataclass(slots=True, kw_only=True)
class Faults:
    """Counts the changing operations of a store's handle and says which of them fail.

    `plan` gives faults to operations by their number, from 1; `outages` are ranges of numbers that all get REFUSE.
    `operations` lists what was asked for so far, failed or not, as (method, name).
    """

    plan: Mapping[int, StoreFault] = field(default_factory=dict)
    outages: tuple[range, ...] = ()
    operations: list[tuple[str, str]] = field(default_factory=list)

    def next(self, method: str, name: str) -> StoreFault | None:
        """Count an operation and return its fault, if it is to have one."""
        self.operations.append((method, name))
        number = len(self.operations)
        if any(number in outage for outage in self.outages):
            return StoreFault.REFUSE
        return self.plan.get(number)


def single_faults(num_operations: int) -> Iterator[Faults]:
    """Make every plan with one fault at one of the first `num_operations` operations."""
    for number in range(1, num_operations + 1):
        for fault in StoreFault:
            yield Faults(plan={number: fault})
