"""Metrics: what run.yaml says of them: changes that are planned, and a pattern for lines that no known trainer writes."""

from typing import Any, TypeGuard

from runner.facts.specs.metric_pattern import pattern_problem
from runner.facts.specs.planned_changes import MAX_STEP, PlannedChange
from runner.load.documents import Where
from runner.load.fields import check_fields
from runner.load.problems import Problems, shown

# Chosen, not measured.
MAX_PLANNED = 200
MAX_WHAT_CHARACTERS = 100
EXAMPLE = "such as {from_step: 5000, to_step: 5200, what: lr}"


def planned(given: Any, problems: Problems) -> Any:
    """Return the planned changes as a list of plain entries; note what is wrong with them."""
    where: Where = ("planned",)
    if given is None:
        # Refused for its type, as a whole
        return None
    if not isinstance(given, list):
        problems.add(where, f"{shown(given)}: expected a list of entries, {EXAMPLE}")
        return []
    if len(given) > MAX_PLANNED:
        problems.add(
            where, f"{len(given)} entries; give {MAX_PLANNED:,} or fewer, each for more steps"
        )
        return []
    return [_entry(entry, (*where, index), problems) for index, entry in enumerate(given)]


def _entry(given: Any, where: Where, problems: Problems) -> Any:
    if not isinstance(given, dict):
        problems.add(where, f"{shown(given)}: expected fields and their values, {EXAMPLE}")
        return given
    entry = check_fields(PlannedChange, given, problems, where)
    first, last, what = (entry.get(name) for name in ("from_step", "to_step", "what"))
    if _is_step(first) and _is_step(last) and last < first:
        problems.add(
            (*where, "to_step"),
            f"{last} is before from_step {first}; give {first} or more, or swap the two",
        )
    if isinstance(what, str) and not 1 <= len(what) <= MAX_WHAT_CHARACTERS:
        kinds = "lr, data, nodes, batch, sequence_length, or other words"
        problems.add(
            (*where, "what"),
            f"{shown(what)} is not valid; describe in 1 to {MAX_WHAT_CHARACTERS} characters what changes: {kinds}",
        )
    return entry


def _is_step(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_STEP


def check_pattern(given: Any, problems: Problems) -> None:
    """Note what is wrong with a pattern; one of a wrong type is refused with the other types."""
    if isinstance(given, str) and given and (wrong := pattern_problem(given)):
        problems.add(("metric_pattern",), f"{shown(given)} {wrong}")
