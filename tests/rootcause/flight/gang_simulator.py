"""Runs the programs of ranks on simulated processors and GPUs until nothing moves, with faults, and writes their flight records.

A processor enqueues what its program calls until it must wait. A GPU takes collectives in order; sends and receives have streams of
their own, and what follows a receive waits for it. A collective is over on all its ranks once each has come to it with the same
operation and size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.collect.flight_records.torch_records import entry, record
from tests.rootcause.flight.training_schedule import Layout, Op

# Entries that a rank's recorder keeps.
BUFFER = 300


@dataclass(slots=True)
class Faults:
    """What is wrong: rank -> the index of the call in its program."""

    # The processor stops before the call.
    stopped: dict[int, int] = field(default_factory=dict)
    # The call is over for the others, on the rank's own GPU it never is.
    stuck: dict[int, int] = field(default_factory=dict)
    # Calls of a group that are never over, though all ranks come: the network.
    broken: tuple[str, int] | None = None


@dataclass(slots=True)
class _Rank:
    program: Sequence[Op]
    queue_size: int
    numbers: list[int]
    dependencies: list[list[int]]
    num_enqueued: int = 0
    first_open: int = 0
    done: list[bool] = field(default_factory=list)

    @property
    def num_open(self) -> int:
        return sum(not over for over in self.done[self.first_open : self.num_enqueued])

    def is_ready(self, at: int) -> bool:
        """Whether the GPU has come to a call."""
        return at < self.num_enqueued and all(self.done[each] for each in self.dependencies[at])


class Gang:
    """Ranks that run their programs."""

    def __init__(
        self, layout: Layout, programs: Sequence[Sequence[Op]], faults: Faults, *, queue_size: int
    ) -> None:
        self.layout, self.faults = layout, faults
        self.groups = layout.groups()
        self.ranks = [
            _Rank(
                program,
                # The lengths of kernels differ a little.
                queue_size + rank % 3,
                _numbers(program),
                _dependencies(program),
                done=[False] * len(program),
            )
            for rank, program in enumerate(programs)
        ]
        # Number of a group's collective, or of what one rank sends another -> rank -> index of the call.
        self._calls: dict[tuple[object, ...], dict[int, int]] = {}
        self._keys = [_keys(rank, one.program) for rank, one in enumerate(self.ranks)]
        for rank, keys in enumerate(self._keys):
            for at, key in enumerate(keys):
                self._calls.setdefault(key, {})[rank] = at

    def run(self) -> None:
        """Run until nothing moves."""
        has_moved = True
        while has_moved:
            has_moved = False
            for rank in range(len(self.ranks)):
                has_moved |= self._advance(rank)

    def is_over(self) -> bool:
        """Whether all ranks have ended."""
        return all(all(one.done) for one in self.ranks)

    def _advance(self, rank: int) -> bool:
        one, has_moved = self.ranks[rank], False
        while self._may_enqueue(rank):
            one.num_enqueued += 1
            has_moved = True
        while one.first_open < one.num_enqueued and one.done[one.first_open]:
            one.first_open += 1
        for at in range(one.first_open, one.num_enqueued):
            if not one.done[at] and one.is_ready(at) and self._complete(rank, at):
                has_moved = True
        return has_moved

    def _may_enqueue(self, rank: int) -> bool:
        one, at = self.ranks[rank], self.ranks[rank].num_enqueued
        if at >= len(one.program) or at == self.faults.stopped.get(rank):
            return False
        awaits = at > 0 and one.program[at - 1].is_awaited and not one.done[at - 1]
        return not awaits and one.num_open < one.queue_size

    def _complete(self, rank: int, at: int) -> bool:
        """Complete a call on all ranks that take part, if all have come."""
        op = self.ranks[rank].program[at]
        calls = self._calls[self._keys[rank][at]]
        number = self.ranks[rank].numbers[at]
        if self.faults.broken is not None and not op.is_p2p:
            group, first = self.faults.broken
            if op.group == group and number >= first:
                return False
        needed = (rank, op.peer) if op.is_p2p else self.groups[op.group][1]
        ops = [self.ranks[each].program[calls[each]] for each in needed if each in calls]
        is_same = op.is_p2p or all((each.name, each.shape) == (op.name, op.shape) for each in ops)
        if len(ops) < len(needed) or not is_same:
            return False
        if not all(
            self.ranks[each].done[calls[each]] or self.ranks[each].is_ready(calls[each])
            for each in needed
        ):
            return False
        has_moved = False
        for each in needed:
            is_stuck = calls[each] >= self.faults.stuck.get(each, len(self.ranks[each].program))
            if not is_stuck and not self.ranks[each].done[calls[each]]:
                self.ranks[each].done[calls[each]] = has_moved = True
        return has_moved

    # ---- records

    def records(self, *, only_active: bool) -> dict[int, dict[str, Any]]:
        """Return what torch would write of each rank."""
        return {
            rank: self._record(rank, only_active=only_active) for rank in range(len(self.ranks))
        }

    def _record(self, rank: int, *, only_active: bool) -> dict[str, Any]:
        one = self.ranks[rank]
        own = [name for name, (_, ranks) in self.groups.items() if rank in ranks]
        ids = {name: number for number, name in enumerate(own)}
        status: dict[int, tuple[int, int]] = {}
        entries = []
        for at, op in enumerate(one.program[: one.num_enqueued]):
            completed = status.get(ids[op.group], (0, 0))[1]
            status[ids[op.group]] = one.numbers[at], one.numbers[at] if one.done[at] else completed
            if not (only_active and one.done[at]):
                entries.append(self._entry(rank, at, op, ids[op.group]))
        groups = {name: self.groups[name] for name in own}
        # A group that was never used has no counters.
        used = {name: of for name, of in groups.items() if not only_active or ids[name] in status}
        return record(*entries[-BUFFER:], groups=used, status=status)

    def _entry(self, rank: int, at: int, op: Op, pg_id: int) -> dict[str, Any]:
        one, (description, ranks) = self.ranks[rank], self.groups[op.group]
        name = op.name
        if op.is_p2p:
            arrow = "->" if op.name == "send" else "<-"
            name = f"{op.name} {ranks.index(rank)}{arrow}{ranks.index(op.peer)}"
        counted = (
            {"p2p_seq_id": one.numbers[at], "collective_seq_id": 0}
            if op.is_p2p
            else {"collective_seq_id": one.numbers[at]}
        )
        return entry(
            at,
            pg_id=pg_id,
            process_group=(op.group, description),
            profiling_name=f"nccl:{name}",
            input_sizes=[list(op.shape)],
            state="completed" if one.done[at] else "started" if one.is_ready(at) else "scheduled",
            retired=one.done[at],
            is_p2p=op.is_p2p,
            **counted,
        )


def _keys(rank: int, program: Sequence[Op]) -> list[tuple[object, ...]]:
    """Return for each call what it has in common with those of other ranks that take part."""
    counts: dict[tuple[object, ...], int] = {}
    found = list[tuple[object, ...]]()
    for op in program:
        ends = (rank, op.peer) if op.name == "send" else (op.peer, rank)
        key: tuple[object, ...] = ends if op.is_p2p else (op.group,)
        counts[key] = counts.get(key, 0) + 1
        found.append((*key, counts[key]))
    return found


def _numbers(program: Sequence[Op]) -> list[int]:
    """Return the sequence number of each call: of the group's collectives, or of the rank's sends and receives in it."""
    counts: dict[tuple[str, bool], int] = {}
    found = []
    for op in program:
        key = op.group, op.is_p2p
        counts[key] = counts.get(key, 0) + 1
        found.append(counts[key])
    return found


def _dependencies(program: Sequence[Op]) -> list[list[int]]:
    """Return the calls that must be over before each begins on the GPU."""
    found, main, received = list[list[int]](), list[int](), list[int]()
    streams: dict[tuple[int, str], int] = {}
    for at, op in enumerate(program):
        if op.is_p2p:
            key = op.peer, op.name
            found.append([*main[-1:], *([streams[key]] if key in streams else [])])
            streams[key] = at
            if op.name == "recv":
                received.append(at)
        else:
            found.append([*main[-1:], *received])
            main.append(at)
            received.clear()
    return found
