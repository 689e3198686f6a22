"""Drills: the faults that an operator can order, what each takes, and its bounds. Trainer and command read this table."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

NodeDrill = Literal["kill-node", "kill-agent"]
SignalDrill = Literal["kill-rank", "stop-rank"]
# Ranks break themselves: their trainer lists the ones it knows in its hello (docs/contract.md).
RankDrill = Literal[
    "loss-spike",
    "nan",
    "grad-drift",
    "loss-scale",
    "bad-data",
    "corrupt-checkpoint",
    "disk-full",
    "slow-rank",
    "sdc",
    "hang",
]
Damage = Literal["byte", "nan"]

RANK_DRILLS: tuple[RankDrill, ...] = get_args(RankDrill)
DAMAGES: tuple[Damage, ...] = get_args(Damage)
# No training is longer. Chosen, not measured.
MAX_DRILL_STEP = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Least, most and default of a number that a drill takes."""

    least: float
    most: float
    default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillKind:
    """One drill by the ranks. All bounds are chosen, not measured.

    `rank`: which rank breaks without --rank ("all", "last", or "none": it takes no rank). `steps`: how long it lasts. `strength`:
    its size, in the unit of `about`. `settings`: what the ranks must have read back for the fault to exist.
    """

    about: str
    rank: Literal["all", "last", "first", "none"] = "last"
    steps: Bounds | None = None
    strength: Bounds | None = None
    takes_damage: bool = False
    needs_checkpoints: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


DRILL_KINDS: dict[RankDrill, DrillKind] = {
    "loss-spike": DrillKind(
        about="noise is added to the weights, STRENGTH standard deviations of each matrix",
        rank="all",
        steps=Bounds(least=1, most=50, default=2),
        strength=Bounds(least=0.05, most=20, default=3.0),
    ),
    "nan": DrillKind(
        about="one rank's gradient of one layer holds a NaN",
        steps=Bounds(least=1, most=10_000, default=60),
    ),
    "grad-drift": DrillKind(
        about="gradients grow by the factor STRENGTH with each step",
        rank="all",
        steps=Bounds(least=10, most=10_000, default=200),
        strength=Bounds(least=1.001, most=2, default=1.03),
    ),
    "loss-scale": DrillKind(
        about="one rank's gradient overflows, until the loss scale is at its floor (fp16 only)",
        steps=Bounds(least=1, most=1_000, default=60),
        settings={"precision": "fp16"},
    ),
    "bad-data": DrillKind(
        about="data positions are poisoned, also for later attempts, until they are skipped",
        rank="none",
        steps=Bounds(least=1, most=1_000, default=12),
        needs_checkpoints=True,
    ),
    "corrupt-checkpoint": DrillKind(
        about="a byte of the newest checkpoint flips (--damage byte), or the next one is sealed with a NaN in its weights (nan)",
        rank="first",
        takes_damage=True,
        needs_checkpoints=True,
    ),
    "disk-full": DrillKind(
        about="the checkpoints' disk is full, or one rank's quota of it",
        rank="first",
        needs_checkpoints=True,
    ),
    "slow-rank": DrillKind(
        about="one rank computes STRENGTH times slower",
        steps=Bounds(least=1, most=100_000, default=300),
        strength=Bounds(least=1.2, most=100, default=4.0),
    ),
    "sdc": DrillKind(
        about="one replica's weight has a flipped bit, again in each step",
        steps=Bounds(least=1, most=1_000, default=25),
    ),
    "hang": DrillKind(about="one rank stops for good in the middle of a step"),
}
assert tuple(DRILL_KINDS) == RANK_DRILLS


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """What an operator gives beside the name of a drill; None or "": the default."""

    rank: int | None = None
    step: int | None = None
    steps: int | None = None
    strength: float | None = None
    damage: str = ""


def problem_of(fault: RankDrill, options: DrillOptions, *, world_size: int) -> str:
    """Return why a drill cannot be as given; "" when it can."""
    kind = DRILL_KINDS[fault]
    if kind.rank == "none" and options.rank is not None:
        return f"{fault} takes no rank: it strikes all of them"
    if options.rank is not None and not 0 <= options.rank < world_size:
        return f"no rank {options.rank}; ranks are 0 to {world_size - 1}"
    if options.damage not in (("", *DAMAGES) if kind.takes_damage else ("",)):
        known = f"one of {', '.join(DAMAGES)}" if kind.takes_damage else "none"
        return f"{fault} takes no damage {options.damage[:40]!r}; known: {known}"
    if options.step is not None and not 1 <= options.step <= MAX_DRILL_STEP:
        return f"step {options.step} is not between 1 and {MAX_DRILL_STEP}"
    if options.step is not None and kind.steps is None:
        return f"{fault} takes no step: it begins at once"
    return _out_of_bounds(fault, "steps", options.steps, kind.steps) or _out_of_bounds(
        fault, "strength", options.strength, kind.strength
    )


def _out_of_bounds(fault: str, name: str, value: float | None, bounds: Bounds | None) -> str:
    if value is None:
        return ""
    if bounds is None:
        return f"{fault} takes no {name}"
    if math.isfinite(value) and bounds.least <= value <= bounds.most:
        return ""
    return f"{fault}: {name} {value:g} is not between {bounds.least:g} and {bounds.most:g}"


def filled(fault: RankDrill, options: DrillOptions, *, world_size: int) -> dict[str, object]:
    """Return the fields of the ranks' request for a options without problem: all that the drill takes; `rank` -1 is all ranks."""
    kind = DRILL_KINDS[fault]
    usual = {"all": -1, "none": -1, "first": 0, "last": world_size - 1}[kind.rank]
    fields: dict[str, object] = {
        "fault": fault,
        "rank": usual if options.rank is None else options.rank,
    }
    if options.step is not None:
        fields["first"] = options.step
    if kind.steps is not None:
        fields["steps"] = int(kind.steps.default) if options.steps is None else options.steps
    if kind.strength is not None:
        fields["strength"] = kind.strength.default if options.strength is None else options.strength
    if kind.takes_damage:
        fields["damage"] = options.damage or DAMAGES[0]
    return fields
