"""The format of a fault plan (`trainer.faults.injection` executes it). Standard library only: tests read it without torch.

{"faults": [{"kind": "sleep", "rank": 1, "first": 20, "last": 60, "seconds": 0.3},
            {"kind": "kill", "rank": 0, "step": 70, "once": "/tmp/killed"}]}
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runner.errors import SpecError
from trainer.config.fields import about, build

VARIABLE = "TRAINER_FAULT_PLAN"
# Kind -> the fields it needs, beside rank and steps, and those it may have.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "poison": ((), ("seed",)),
    "scale": (("factor",), ("once",)),
    "grow": (("factor",), ("once",)),
    "overflow": ((), ("seed", "once")),
    "perturb": (("factor",), ("seed", "once")),
    "slow": (("factor",), ("once",)),
    "nan": ((), ("seed", "once")),
    "flip": (("site", "bit"), ("seed", "once")),
    "sleep": (("seconds",), ("once",)),
    "spin": ((), ("once",)),
    "absent": ((), ("once",)),
    "hoard": (("most_bytes",), ("once",)),
    "loader": ((), ("once",)),
    "shard": ((), ("once",)),
    "stop": ((), ("once",)),
    "kill": ((), ("once",)),
}
GRADIENT_KINDS = ("scale", "grow", "nan", "overflow")
ALL_RANKS = -1
HALF_BITS = 16
WAY_OUT = "correct the plan, or unset the variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One planned fault."""

    kind: Literal[
        "poison",
        "scale",
        "grow",
        "nan",
        "overflow",
        "perturb",
        "slow",
        "flip",
        "sleep",
        "spin",
        "absent",
        "hoard",
        "loader",
        "shard",
        "stop",
        "kill",
    ] = field(
        default="kill",
        metadata=about(
            "poison: tokens become noise, on all ranks; scale, grow (by the factor with each step), nan, overflow: this rank's "
            "gradient before reduction; perturb: noise on the matrices that this rank owns; flip: one bit; slow: computing; "
            "sleep, spin, absent: inside the step (absent: waits elsewhere while the others wait in a collective); hoard: "
            "takes memory; loader: a worker that reads data exits and prints nothing; shard: its file "
            "is cut off; stop: SIGSTOP to itself; kill: SIGKILL"
        ),
    )
    rank: int = field(default=ALL_RANKS, metadata=about("the rank that breaks", at_least=0))
    first: int = field(
        default=0, metadata=about("first step; of data positions for poison", "steps", at_least=1)
    )
    last: int = field(default=0, metadata=about("last step", "steps", at_least=1))
    seed: int = field(default=0, metadata=about("of noise, or of the element", at_least=0))
    factor: float = field(
        default=1.0,
        metadata=about("of a gradient, of computing time, or standard deviations of noise"),
    )
    site: Literal["weight", "gradient", "master", "exp_avg", "exp_avg_sq"] = field(
        default="weight",
        metadata=about(
            "the model's own copy, the gradient before reduction, or the owner's fp32 shards"
        ),
    )
    bit: int = field(
        default=0, metadata=about("0 is the lowest of the mantissa", at_least=0, at_most=31)
    )
    seconds: float = field(default=0.0, metadata=about("of each sleep", "seconds", more_than=0))
    most_bytes: int = field(
        default=0,
        metadata=about("taken at most, unless the rank is ended earlier", "bytes", at_least=1),
    )
    once: str = field(
        default="",
        metadata=about(
            "path of a mark: made when the fault begins, and while it is there no start begins it"
        ),
    )

    @property
    def changes_gradient(self) -> bool:
        """Whether it is done to gradients before they are reduced."""
        return self.kind in GRADIENT_KINDS or (self.kind == "flip" and self.site == "gradient")


def read_plan(environment: Mapping[str, str], world_size: int, *, half: bool) -> list[Fault]:
    """Read the plan that the environment names; empty without one.

    `half`: the model's numbers have 16 bits. Raises SpecError that names file, value and way out.
    """
    path = environment.get(VARIABLE, "")
    if not path:
        return []
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(f"{VARIABLE} = {path} cannot be read ({reason}): {WAY_OUT}") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{VARIABLE} = {path} is no JSON ({error}): {WAY_OUT}") from error
    entries = plain.get("faults") if isinstance(plain, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SpecError(f'{VARIABLE} = {path} holds no {{"faults": [{{...}}]}}: {WAY_OUT}')
    problems: list[str] = []
    faults = []
    for i, entry in enumerate(entries):
        wrong: dict[str, str] = {}
        fault = build(Fault, _spread(entry), wrong, prefix=f"faults[{i}].")
        found = list(wrong.values()) or list(_misfits(entry, fault, world_size, half=half))
        problems += [text if wrong else f"faults[{i}]: {text}" for text in found]
        faults.append(fault)
    if problems:
        raise SpecError(f"{VARIABLE} = {path}: {'; '.join(problems)}: {WAY_OUT}")
    return faults


def _spread(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Let `step` stand for `first` and `last`."""
    rest = dict(entry)
    if "step" in rest:
        step = rest.pop("step")
        rest = {"first": step, "last": step, **rest}
    return rest


def _misfits(
    entry: Mapping[str, Any], fault: Fault, world_size: int, *, half: bool
) -> Iterator[str]:
    if "kind" not in entry:
        yield f"no kind; known: {', '.join(KINDS)}"
        return
    needed, allowed = KINDS[fault.kind]
    for name in needed:
        if name not in entry:
            yield f"{fault.kind} needs {name}"
    steps = ("step",) if "step" in entry else ("first", "last")
    for name in sorted(set(entry) - {"kind", *steps, *needed, *allowed}):
        if name != "rank" or fault.kind == "poison":
            yield f"{name} = {entry[name]!r} means nothing to {fault.kind}"
    if not 1 <= fault.first <= fault.last:
        yield f"steps {fault.first} to {fault.last}: give step, or first and last, counted from 1"
    if fault.kind != "poison" and not 0 <= fault.rank < world_size:
        yield f"rank = {entry.get('rank')}: there are ranks 0 to {world_size - 1}"
    if fault.kind == "flip" and half and fault.site == "weight" and fault.bit >= HALF_BITS:
        yield f"bit = {fault.bit}: the model's numbers have {HALF_BITS} bits here"
