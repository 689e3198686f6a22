"""Replicas that disagree: silent corruption of data, found because the same numbers exist more than once.

Compared between two steps, where every copy of a weight must be the same to the bit:
- each replica's copy of the weights, and the weights that every tensor rank holds whole;
- the owner's fp32 master weights, rounded to the model's format, and the copy gathered from them;
- now and then, gradients: all replicas compute the same micro-batch, and nothing is reduced or trained.
Compared with itself: what an owner alone holds, its master weights and Adam's moments, after one step and before the
next one uses it. Replicas cannot show that, for what is wrong there is gathered by all of them.

Every rank sends a few numbers, and all see the same table. Only when they disagree, fragments of parameters are compared,
which says who is odd and where; that look is rare and may cost more. Stages of a pipeline share no weights and are
compared with none but themselves. ZeRO-1 is what this is for, and the only stage that the trainer runs.

What it finds of one flipped bit, measured by tests/trainer/test_replicas.py (its table is in docs/replicas.md): all in a
weight, the master or a moment, while a comparison covers the step in which it happens; the next step gathers the weights anew,
so that what happens in the others goes unseen, and a fault that happens once is found once in `sdc_every` times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from trainer.integrity.digests import bits, digest, digests, fold
from trainer.integrity.majority import (
    GRADIENT,
    MASTER,
    MOMENT,
    WEIGHT,
    Verdict,
    Vote,
    odd_ranks,
    verdicts_of,
)
from trainer.parallel.engine import Engine, MicroBatch
from trainer.parallel.layout import RankCoords, coords_of
from trainer.parallel.parameters import Sharding, kind_of

# Of so many comparisons one compares gradients too, which costs a micro-batch. Chosen; `Settings.sdc_every` has the cost.
GRADIENTS_EVERY = 10
# Closer looks in one start: replicas that have come apart stay so, and one look told of it. Chosen, not measured.
MAX_LOOKS = 8
# More odd ranks than that are no matter of ranks: none is named. Chosen; the contract's limit.
MAX_ODD_RANKS = 64
NO_RANK_KNOWN = "no majority says which copy is wrong"

# Digests of the weights and of those that are whole on every tensor rank, wrong elements of the own part, what changed of what
# is owned (one bit each of OWNED), digest of the gradients.
Summary: TypeAlias = list[int]
COPIES, WHOLE, WRONG, CHANGED, GRADIENTS = range(5)
OWNED: tuple[tuple[str | None, str], ...] = (
    (None, MASTER),
    ("exp_avg", MOMENT),
    ("exp_avg_sq", MOMENT),
)
# parameter, first element, elements
Address: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What disagrees (`weight`, `master`, `moment` or `gradient`), on which ranks (none: nobody can say), and where first."""

    what: str
    ranks: tuple[int, ...]
    detail: str


class ReplicaCheck:
    """Compares the replicas of one run. Every rank calls it in the same steps and comes to the same findings."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._world = engine.world
        layout = engine.world.layout
        self._all_coords = [coords_of(rank, layout) for rank in range(layout.world_size)]
        self._whole = [
            i
            for i, name in enumerate(engine.parameters)
            if kind_of(name).sharding is Sharding.REPLICATED
        ]
        # Kernels on a GPU add in whatever order unless told otherwise: there, bits say nothing about health.
        same_bits = engine.world.device.type == "cpu" or engine.settings.repeatable
        self._gradients = layout.data > 1 and same_bits
        self._remembered: torch.Tensor | None = None
        self._changed: torch.Tensor | None = None
        self._told: set[tuple[str, tuple[int, ...]]] = set()
        self._num_looks = 0

    def due(self, done: int) -> bool:
        """Whether replicas are to be compared after `done` steps."""
        every = self._engine.settings.sdc_every
        return bool(every) and done % every == 0

    def remember(self, done: int) -> None:
        """After step `done`: take digests of what this rank owns, to be compared when the next step is about to use it."""
        if self.due(done):
            self._remembered = self._owned_digests()
            self._engine.watch.before_reduction.append(self._look_at_owned)

    def compare(self, done: int, micro_batch: Callable[[], list[MicroBatch]]) -> list[Finding]:
        """Compare after `done` steps; return what was not found before in this start.

        `micro_batch` reads one micro-batch, the same on all replicas; empty on a stage that reads no data.
        """
        gradients = 0
        per_name: dict[str, int] = {}
        rehearse = (
            self._gradients and done % (self._engine.settings.sdc_every * GRADIENTS_EVERY) == 0
        )
        batch: list[MicroBatch] = []
        if rehearse:
            batch = micro_batch()
            per_name = self._gradient_digests(batch)
            gradients = _fold(per_name.values())
        table = self._exchange([*self._weight_digests(), gradients])
        found = self._changed_alone(table)
        weights, apart = self._weights_differ(table), self._apart(table, GRADIENTS)
        if (weights or apart) and self._num_looks < MAX_LOOKS:
            self._num_looks += 1
            if weights:
                found += self._look_at_weights()
            if apart:
                found += self._look_at_gradients(per_name, batch)
        fresh = [f for f in found if (f.what, f.ranks) not in self._told]
        self._told |= {(f.what, f.ranks) for f in fresh}
        return fresh

    # ---- the first look -----------------------------------------------------------------------

    def _weight_digests(self) -> Summary:
        engine = self._engine
        copies = digests(list(engine.parameters.values()))
        wrong = torch.zeros((), dtype=torch.int64, device=copies.device)
        for name, parameter in engine.parameters.items():
            for address, master in self._own_part(name):
                wrong += (bits(_part(parameter, address)) != bits(master)).sum()
        changed = torch.zeros_like(wrong) if self._changed is None else self._changed
        self._changed = None
        numbers = torch.stack([fold(copies), fold(copies[self._whole]), wrong, changed])
        return [int(number) for number in numbers.tolist()]

    def _owned_digests(self) -> torch.Tensor:
        return torch.stack([fold(digests(self._engine.owned(key))) for key, _ in OWNED])

    def _look_at_owned(self) -> None:
        # The answer stays on the device: asking for it here would make the step wait.
        marks = torch.tensor([1 << i for i in range(len(OWNED))], device=self._world.device)
        self._changed = ((self._owned_digests() != self._remembered) * marks).sum()

    def _changed_alone(self, table: Sequence[Summary]) -> list[Finding]:
        found = []
        for i, (key, what) in enumerate(OWNED):
            ranks = tuple(r for r, row in enumerate(table) if row[CHANGED] >> i & 1)
            if ranks:
                detail = f"{key or 'fp32 weights'}: changed after one step and before the next one used it"
                found.append(_bounded(Verdict(what, ranks), detail))
        return found

    def _own_part(self, name: str) -> list[tuple[Address, torch.Tensor]]:
        """Return where this rank owns a part of a parameter and its master values in the model's format, if it does."""
        parameter = self._engine.parameters[name]
        fragment = self._engine.fragment(parameter, None)
        if fragment is None or not fragment[1].numel():
            return []
        start, values = fragment
        return [((name, start, values.numel()), values.to(parameter.dtype))]

    def _exchange(self, summary: Summary) -> list[Summary]:
        if len(self._all_coords) == 1:
            return [summary]
        mine = torch.tensor(summary, dtype=torch.int64)
        table = [torch.empty_like(mine) for _ in self._all_coords]
        dist.all_gather(table, mine, group=self._world.side_group)
        return [row.tolist() for row in table]

    def _weights_differ(self, table: Sequence[Summary]) -> bool:
        wrong = any(row[WRONG] for row in table)
        return wrong or self._apart(table, COPIES) or self._apart(table, WHOLE, across_tensor=True)

    def _apart(self, table: Sequence[Summary], column: int, *, across_tensor: bool = False) -> bool:
        """Whether ranks that must have the same number in a column do not."""
        said: dict[RankCoords, set[int]] = {}
        for coords, row in zip(self._all_coords, table, strict=True):
            said.setdefault(_family(coords, across_tensor=across_tensor), set()).add(row[column])
        return any(len(numbers) > 1 for numbers in said.values())

    # ---- the closer look ----------------------------------------------------------------------

    def _look_at_weights(self) -> list[Finding]:
        """Compare fragment by fragment: every owner's master, and every copy of what that owner owns."""
        own = {
            address: int(digest(master))
            for name in self._engine.parameters
            for address, master in self._own_part(name)
        }
        owned = self._gather(own)
        stage = self._world.coords.pipeline
        parameters = self._engine.parameters
        copies = {
            address: int(digest(_part(parameters[address[0]], address)))
            for coords, theirs in zip(self._all_coords, owned, strict=True)
            if coords.pipeline == stage
            for address in theirs
        }
        held = self._gather(copies)
        votes: dict[tuple[RankCoords, Address], list[Vote]] = {}
        for coords, *both in zip(self._all_coords, owned, held, strict=True):
            for is_master, said in zip((True, False), both, strict=True):
                for address, number in said.items():
                    whole = kind_of(address[0]).sharding is Sharding.REPLICATED
                    family = _family(coords, across_tensor=whole)
                    vote = Vote(coords.rank, coords.tensor, is_master, number)
                    votes.setdefault((family, address), []).append(vote)
        places: dict[Verdict, list[Address]] = {}
        for (_, address), cast in votes.items():
            for verdict in verdicts_of(cast):
                places.setdefault(verdict, []).append(address)
        if not places:
            return [
                Finding(what=WEIGHT, ranks=(), detail="a closer look found all copies equal again")
            ]
        return [_finding(verdict, where) for verdict, where in sorted(places.items())]

    def _look_at_gradients(
        self, first: Mapping[str, int], batch: list[MicroBatch]
    ) -> list[Finding]:
        """Compute the micro-batch once more: who contradicts himself is odd, even of two."""
        rounds = [self._gather(dict(said)) for said in (first, self._gradient_digests(batch))]
        families: dict[RankCoords, list[int]] = {}
        for coords in self._all_coords:
            families.setdefault(_family(coords, across_tensor=False), []).append(coords.rank)
        found = []
        for ranks in families.values():
            odd = odd_ranks((r, tuple(said[r].values())) for said in rounds for r in ranks)
            if odd is not None:
                apart = [
                    n
                    for n in rounds[0][ranks[0]]
                    if len({s[r][n] for s in rounds for r in ranks}) > 1
                ]
                found.append(_finding(Verdict(GRADIENT, odd), [(name, 0, 0) for name in apart]))
        return found

    def _gradient_digests(self, batch: Iterable[MicroBatch]) -> dict[str, int]:
        def look(gradients: Mapping[str, torch.Tensor]) -> list[int]:
            numbers: list[int] = digests(list(gradients.values())).tolist()
            return numbers

        numbers = self._engine.rehearse(batch, look)
        return dict(zip(self._engine.parameters, numbers, strict=True))

    def _gather(self, mine: Any) -> list[Any]:
        everyone: list[Any] = [mine] * len(self._all_coords)
        if len(self._all_coords) > 1:
            dist.all_gather_object(everyone, mine, group=self._world.side_group)
        return everyone


def _family(coords: RankCoords, *, across_tensor: bool) -> RankCoords:
    """Name the ranks that hold the same numbers as the one at `coords`."""
    return replace(coords, rank=0, data=0, tensor=0 if across_tensor else coords.tensor)


def _part(parameter: torch.Tensor, address: Address) -> torch.Tensor:
    _, start, length = address
    return parameter.detach().view(-1)[start : start + length]


def _fold(numbers: Iterable[int]) -> int:
    return int(fold(torch.tensor(list(numbers), dtype=torch.int64)))


def _finding(verdict: Verdict, where: Sequence[Address]) -> Finding:
    names = list(dict.fromkeys(address[0] for address in where))
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    reason = "" if verdict.ranks else f"; {NO_RANK_KNOWN}"
    return _bounded(verdict, f"{names[0]}{others}{reason}")


def _bounded(verdict: Verdict, detail: str) -> Finding:
    number = len(verdict.ranks)
    if number > MAX_ODD_RANKS:
        text = f"{detail}; {number} ranks are odd, {verdict.ranks[0]} first"
        return Finding(what=verdict.what, ranks=(), detail=text)
    return Finding(what=verdict.what, ranks=verdict.ranks, detail=detail)
