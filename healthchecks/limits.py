"""Limits in effect: what the checks declare, and what the command line overrides."""

import math
from collections.abc import Iterable, Mapping

from healthchecks.check import Evidence, Judge, NodeFacts
from healthchecks.declaration import Limit
from runner.errors import UserError
from runner.facts.wording import closest


def judge_of(
    limits: Mapping[str, Limit],
    overrides: Mapping[str, float],
    *,
    node: NodeFacts | None = None,
    shortage_serves: bool = False,
) -> Judge:
    """Return a judge by `limits` as they are on `node`, some replaced.

    With `shortage_serves` a limit with a way out is advice. Raises UserError for an unknown name or a value that makes a dead
    rule.
    """
    for name, value in overrides.items():
        refuse_dead(name, value, limits)
    limits = {name: limit.on(node or NodeFacts()) for name, limit in limits.items()}
    return Judge(
        {
            name: Evidence(
                name=name,
                value=None,
                unit=limit.unit,
                rule=limit.rule,
                limit=overrides.get(name, limit.value),
                source="command line" if name in overrides else limit.source,
                way_out=limit.way_out,
                is_advice=shortage_serves and limit.way_out != "",
                better=limit.better,
            )
            for name, limit in limits.items()
        }
    )


def parse_overrides(texts: Iterable[str], limits: Mapping[str, Limit]) -> dict[str, float]:
    """Read `NAME=VALUE` arguments. Raises UserError that names the argument and the way out."""
    overrides: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            overrides[name] = float(number)
        except ValueError:
            way_out = "write NAME=NUMBER" if equals else "write NAME=NUMBER, with the equals sign"
            raise UserError(f"--limit {text!r}: {number!r} is no number; {way_out}") from None
        refuse_dead(name, overrides[name], limits)
    return overrides


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the name that was probably meant, or list all."""
    names = list(known)
    close = closest(word, names)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(names)}"


def refuse_dead(name: str, value: float, limits: Mapping[str, Limit]) -> None:
    """Raise UserError for a limit that does not exist, or a value that every value would pass, or none."""
    if name not in limits:
        raise UserError(f"no limit {name!r}; {nearest(name, limits)}")
    limit = limits[name]
    if not (math.isfinite(value) and limit.least <= value <= limit.most):
        raise UserError(
            f"limit {name} = {value:g} means nothing: give {limit.least:g} to {limit.most:g} {limit.unit}"
        )
