"""A report as values for programs: `stoker report --json`. Every text in it went through the redaction of the document."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from runner.cli import output
from runner.cli.report.content import RunReport
from runner.cli.report.redaction import Redaction

# The spec holds environment and command; the history of steps has a command of its own, `stoker steps --json`.
_NOT_WRITTEN = ("spec", "steps")


def values(report: RunReport, *, with_paths: bool) -> dict[str, Any]:
    """Return all of a report but its steps, by the names of its fields; times are seconds since 1970 by the controller's clock."""
    redaction, spec = Redaction(report.spec.environment, with_paths=with_paths), report.spec
    found = {
        "name": spec.name,
        "nodes": spec.nodes,
        "ranks_per_node": spec.ranks_per_node,
        **{
            field.name: getattr(report, field.name)
            for field in fields(report)
            if field.name not in _NOT_WRITTEN
        },
    }
    return {name: _cleaned(value, redaction.text) for name, value in output.plain(found).items()}


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): _cleaned(each, clean) for name, each in value.items()}
    return [_cleaned(each, clean) for each in value] if isinstance(value, list) else value
