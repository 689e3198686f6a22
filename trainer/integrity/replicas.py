"""Replica comparison: silent data corruption is found because several ranks hold the same numbers.

Compared between two steps, when every copy of a weight must be the same to the bit:
- each replica's copy of the weights, and the weights that every tensor rank holds whole;
- the owner's fp32 master weights, rounded to the model's format, and the copy gathered from them;
- every GRADIENTS_EVERY comparisons, gradients: all replicas compute the same micro-batch; none is reduced or used.
Compared with itself: what an owner alone holds, its master weights and Adam's moments, after one step and before the
next one uses it. Replicas cannot show that, since all of them gather the wrong values.

Every rank sends a few numbers, and all ranks see the same table. Only when they disagree, a closer comparison of fragments
names the ranks in the minority and the parameters; it is rare and may cost more. Pipeline stages share no weights, so
each is compared within itself. All this is made for ZeRO-1, the only stage that the trainer runs.

Of flipped bits, as tests/trainer/integrity/test_replicas.py measures it (table in docs/replicas.md), it finds all in a
weight, the master or a moment if a comparison covers the step in which the flip happens. The next step gathers the weights
again, so a flip in another step goes unseen: a fault that happens once is found once in `sdc_every` times.
"""

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
    minority_ranks,
    verdicts_of,
)
from trainer.parallel.engine import Engine, MicroBatch
from trainer.parallel.layout import RankCoords, coords_of
from trainer.parallel.parameters import Sharding, kind_of

# Of so many comparisons one compares gradients too, which costs a micro-batch. Chosen; `Settings.sdc_every` has the cost.
GRADIENTS_EVERY = 10
# Closer comparisons in one start: replicas that differ go on differing, and one report is enough. Chosen, not measured.
MAX_CLOSE_COMPARISONS = 8
# A larger minority has no cause in single ranks: none is named. Chosen; the contract's limit.
MAX_NAMED_RANKS = 64
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
    """What disagrees (`weight`, `master`, `moment` or `gradient`), on which ranks (none: unknown), and the first parameter.

    `suspects`: without a majority, the ranks of which one is wrong.
    """

    what: str
    ranks: tuple[int, ...]
    detail: str
    suspects: tuple[int, ...] = ()


class ReplicaCheck:
    """Compares the replicas of one run. Every rank calls it in the same steps and returns the same findings."""

    def __init__(self, engine: Engine, *, agreed_step: int = 0) -> None:
        """`agreed_step`: of the checkpoint that the ranks have loaded and compared with its manifest; 0: there is none."""
        self._engine = engine
        self._world = engine.world
        layout = engine.world.layout
        self._all_coords = [coords_of(rank, layout) for rank in range(layout.world_size)]
        self._whole = [
            i
            for i, name in enumerate(engine.parameters)
            if kind_of(name).sharding is Sharding.REPLICATED
        ]
        # By default, GPU kernels add in varying order: differing bits prove no fault there.
        same_bits = engine.world.device.type == "cpu" or engine.settings.repeatable
        self._gradients = layout.data > 1 and same_bits
        self._remembered: torch.Tensor | None = None
        self._changed: torch.Tensor | None = None
        self._reported: set[tuple[str, tuple[int, ...]]] = set()
        self._num_close_comparisons = 0
        # After it all that was compared agreed.
        self.agreed_step = agreed_step

    def due(self, done: int) -> bool:
        """Whether replicas are to be compared after `done` steps."""
        every = self._engine.settings.sdc_every
        return bool(every) and done % every == 0

    def remember(self, done: int) -> None:
        """After step `done`, if due: digest what this rank owns, and compare it just before the next step uses it."""
        if self.due(done):
            self._remembered = self._owned_digests()
            self._engine.watch.before_reduction.append(self._compare_owned)

    def compare(self, done: int, micro_batch: Callable[[], list[MicroBatch]]) -> list[Finding]:
        """Compare after `done` steps; return the findings that this start has not reported yet.

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
        findings = self._changed_alone(table)
        weights_differ, gradients_differ = (
            self._weights_differ(table),
            self._differs(table, GRADIENTS),
        )
        if not (findings or weights_differ or gradients_differ):
            self.agreed_step = done
        if (
            weights_differ or gradients_differ
        ) and self._num_close_comparisons < MAX_CLOSE_COMPARISONS:
            self._num_close_comparisons += 1
            if weights_differ:
                findings += self._compare_weights()
            if gradients_differ:
                findings += self._compare_gradients(per_name, batch)
        fresh = [f for f in findings if (f.what, f.ranks) not in self._reported]
        self._reported |= {(f.what, f.ranks) for f in fresh}
        return fresh

    # ---- one exchange of digests --------------------------------------------------------------

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

    def _compare_owned(self) -> None:
        # The result stays on the device: reading it here would delay the step.
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
        return (
            wrong or self._differs(table, COPIES) or self._differs(table, WHOLE, across_tensor=True)
        )

    def _differs(
        self, table: Sequence[Summary], column: int, *, across_tensor: bool = False
    ) -> bool:
        """Whether ranks that must have the same number in a column do not."""
        numbers_of: dict[RankCoords, set[int]] = {}
        for coords, row in zip(self._all_coords, table, strict=True):
            numbers_of.setdefault(_family(coords, across_tensor=across_tensor), set()).add(
                row[column]
            )
        return any(len(numbers) > 1 for numbers in numbers_of.values())

    # ---- the closer comparison ----------------------------------------------------------------

    def _compare_weights(self) -> list[Finding]:
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
            for is_master, digest_of in zip((True, False), both, strict=True):
                for address, number in digest_of.items():
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
                Finding(
                    what=WEIGHT, ranks=(), detail="a closer comparison found all copies equal again"
                )
            ]
        return [_finding(verdict, where) for verdict, where in sorted(places.items())]

    def _compare_gradients(
        self, first: Mapping[str, int], batch: list[MicroBatch]
    ) -> list[Finding]:
        """Compute the micro-batch again: a rank that contradicts itself is wrong, even where there are only two."""
        rounds = [
            self._gather(dict(digest_of)) for digest_of in (first, self._gradient_digests(batch))
        ]
        families: dict[RankCoords, list[int]] = {}
        for coords in self._all_coords:
            families.setdefault(_family(coords, across_tensor=False), []).append(coords.rank)
        found = []
        for ranks in families.values():
            minority = minority_ranks((r, tuple(s[r].values())) for s in rounds for r in ranks)
            if minority is not None:
                apart = [
                    n
                    for n in rounds[0][ranks[0]]
                    if len({s[r][n] for s in rounds for r in ranks}) > 1
                ]
                verdict = Verdict(GRADIENT, minority, () if minority else tuple(ranks))
                found.append(_finding(verdict, [(name, 0, 0) for name in apart]))
        return found

    def _gradient_digests(self, batch: Iterable[MicroBatch]) -> dict[str, int]:
        def digest_all(gradients: Mapping[str, torch.Tensor]) -> list[int]:
            numbers: list[int] = digests(list(gradients.values())).tolist()
            return numbers

        numbers = self._engine.rehearse(batch, digest_all)
        return dict(zip(self._engine.parameters, numbers, strict=True))

    def _gather(self, mine: Any) -> list[Any]:
        everyone: list[Any] = [mine] * len(self._all_coords)
        if len(self._all_coords) > 1:
            dist.all_gather_object(everyone, mine, group=self._world.side_group)
        return everyone


def _family(coords: RankCoords, *, across_tensor: bool) -> RankCoords:
    """Return coordinates shared by all ranks that hold the same numbers as the one at `coords`."""
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
    if number > MAX_NAMED_RANKS:
        text = f"{detail}; {number} ranks are in the minority, {verdict.ranks[0]} first"
        return Finding(what=verdict.what, ranks=(), detail=text)
    suspects = verdict.suspects if len(verdict.suspects) <= MAX_NAMED_RANKS else ()
    return Finding(what=verdict.what, ranks=verdict.ranks, detail=detail, suspects=suspects)
