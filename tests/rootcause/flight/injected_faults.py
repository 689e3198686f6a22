"""Faults of a simulated gang, drawn by a seed: which ranks are injured, how, and what a verdict may name."""

import random
from dataclasses import dataclass
from typing import Any

from runner.facts.messages.rank_stacks import Collective
from tests.collect.flight_records.torch_records import places
from tests.rootcause.flight.gang_simulator import Faults, Gang
from tests.rootcause.flight.training_schedule import Layout, Op

LAYOUTS = (
    Layout(2, 2, 2),
    Layout(4, 2, 1),
    Layout(1, 8, 1),
    Layout(2, 2, 4, awaits_receives=True),
    Layout(2, 4, 2, has_experts=True),
    Layout(2, 2, 4, has_experts=True, layers=3),
    Layout(1, 2, 4),
    Layout(4, 4, 1, has_experts=True),
    Layout(4, 1, 2),
)
KINDS = ("stopped", "stuck", "two stopped", "two stuck", "left out", "swapped", "size", "broken")


@dataclass(frozen=True, slots=True)
class Case:
    """What happened, and the places that the records show; `culprits` empty: no rank is at fault."""

    kind: str
    culprits: tuple[int, ...]
    places: dict[int, tuple[Collective, ...]]
    records: dict[int, dict[str, Any]]
    num_ranks: int
    # Whether it hangs at all: a collective that one rank leaves out may pass for the next one.
    is_hang: bool


def draw(seed: int, layout: Layout | None = None) -> Case:
    """Return the case of a seed, in a gang of this layout or of one that is drawn."""
    dice = random.Random(seed)
    kind, drawn = KINDS[seed % len(KINDS)], dice.choice(LAYOUTS)
    layout = layout or drawn
    programs = [list(program) for program in layout.programs()]
    num_culprits = 2 if kind.startswith("two") else 1
    culprits = tuple(sorted(dice.sample(range(layout.num_ranks), num_culprits)))
    faults = Faults()
    for rank in culprits:
        # Not in the first steps: what the rank did before is evidence.
        at = dice.randrange(len(programs[rank]) * 7 // 10, len(programs[rank]))
        injure(kind.rpartition(" ")[2], rank, at, programs[rank], faults, dice)
    if kind == "broken":
        at = faults.stopped.pop(culprits[0])
        faults.broken = _collective_from(programs[culprits[0]], at)
        if len(layout.groups()[faults.broken[0]][1]) > 1:
            culprits = ()
    gang = Gang(layout, programs, faults, queue_size=dice.choice((6, 20, 60)))
    gang.run()
    records = gang.records(only_active=dice.random() < 0.5)
    shown = {rank: places(one) for rank, one in records.items()}
    return Case(kind, culprits, shown, records, layout.num_ranks, not gang.is_over())


def injure(
    kind: str, rank: int, at: int, program: list[Op], faults: Faults, dice: random.Random
) -> None:
    """Injure a rank at a call of its program, or at the first one after it that fits."""
    if kind in ("stopped", "broken"):
        faults.stopped[rank] = at
        return
    collectives = [
        each for each in range(len(program) // 2, len(program)) if not program[each].is_p2p
    ]
    at = min(collectives, key=lambda each: (abs(each - at), each))
    if kind == "stuck":
        faults.stuck[rank] = at
    elif kind == "out":
        del program[at]
    elif kind == "size":
        op = program[at]
        program[at] = op._replace(shape=(op.shape[0] + dice.choice((1, 7)), *op.shape[1:]))
    elif kind == "swapped":
        other = next((each for each in collectives if each > at), at - 1)
        program[at], program[other] = program[other], program[at]


def _collective_from(program: list[Op], at: int) -> tuple[str, int]:
    """Return the group and number of the first collective at or after a call."""
    at = next(
        (each for each in range(at, len(program)) if not program[each].is_p2p), len(program) - 1
    )
    group = program[at].group
    return group, sum(op.group == group and not op.is_p2p for op in program[: at + 1])
