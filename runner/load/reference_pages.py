"""Pages: what docs/ says of run.yaml, cluster.yaml and runbooks, printed from the fields of the specs themselves."""

import collections.abc
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from runner.decide.incidents.conditions import CONDITIONS
from runner.facts.faults import FAULTS
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.placeholders import PLACEHOLDERS
from runner.facts.specs.run import RunSpec
from runner.facts.specs.runbook import VERBS, Runbook, Rung, Verb
from runner.load.fault_meanings import ACTION_MEANINGS, MEANINGS
from runner.load.fields import Field, fields_of
from runner.load.runbooks import load_runbooks

RUN_EXAMPLE = """\
name: my-first-run
command: "{python} train.py --resume={resume}"
nodes: 2
ranks_per_node: 4
checkpoints: checkpoints
"""

TRAINER_EXAMPLE = """\
name: tiny
trainer:
  recipe: tiny_cpu
  steps: 500
nodes: 2
ranks_per_node: 2
"""

CLUSTER_EXAMPLE = """\
name: laptop
local:
  nodes: 2
  slots: 2
  spares: 1
"""

RUNBOOK_EXAMPLE = """\
---
name: rank-crash
title: A rank crashed
faults: [rank_crash]
ladder:
  - restart
  - do: swap
    when: {same_node: 1, spare_is_idle: true}
    page: true
  - stop
---
# A rank crashed
"""

_RULES = """\
Values are those of YAML 1.2: `true` and `false` are the truth values, `yes`, `on` and `1:30` are text, `1e-4` is a number.
A key may be given once; anchors, aliases and tags are refused. A field that is not in the table is refused with the nearest
one that is. All errors of a file are reported in one message, before anything starts.
"""

_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def run_page() -> str:
    """Return docs/run_yaml.md."""
    placeholders = "\n".join(f"| `{{{name}}}` | {what} |" for name, what in PLACEHOLDERS.items())
    return f"""\
# run.yaml

One training goal: what to run, on how much, and how long to wait for it. A run keeps the spec it was started with; what
changes later (a learning rate, say) is a remedy in the journal.

{_RULES}
A script of your own, started once for each rank:

```yaml
{RUN_EXAMPLE}```

The built-in trainer:

```yaml
{TRAINER_EXAMPLE}```

## Fields

{_table(RunSpec)}
## Placeholders in a command

| written | means |
|---|---|
{placeholders}

The same facts, and more, are in each rank's environment: see the [contract of a rank](contract.md).
"""


def cluster_page() -> str:
    """Return docs/cluster_yaml.md."""
    return f"""\
# cluster.yaml

Nodes, spares and limits. A cluster has one journal, one lease and one fleet, and many runs; what was learnt of its nodes
outlives a run.

{_RULES}
```yaml
{CLUSTER_EXAMPLE}```

## Fields

{_table(ClusterSpec)}"""


def runbooks_page() -> str:
    """Return docs/runbooks.md."""
    verbs = "\n".join(
        f"| `{name}` | {verb.meaning} | {_args(verb)} | {'goes on' if verb.leaves_gang else 'ends'} |"
        for name, verb in VERBS.items()
    )
    conditions = "\n".join(
        f"| `{name}` | {condition.parameter.expected} | {condition.meaning} |"
        for name, condition in CONDITIONS.items()
    )
    return f"""\
# Runbooks

A page says which faults it answers, and how: the front matter is executed, the prose below it is for people. An incident is
answered by the page of its cause, once one is known well enough, else by that of the fault that opened it. Another page begins at
its top. The first rung that applies and has a try left is taken; when none is left, Stoker gives up and pages.

```yaml
{RUNBOOK_EXAMPLE}```

## Fields of a page

{_table(Runbook)}
## Rungs

`- restart` is short for `- do: restart`.

{_table(Rung)}
## Verbs

| verb | what is done | arguments | the gang |
|---|---|---|---|
{verbs}

## Conditions

All conditions of a rung must hold. They judge the incident and the cluster at the moment when a rung is to be taken.

| condition | parameter | holds when |
|---|---|---|
{conditions}
"""


def faults_page() -> str:
    """Return docs/faults.md."""
    actions = "\n".join(f"| `{name}` | {what} |" for name, what in ACTION_MEANINGS.items())
    by_lines = _faults("lines", "metrics")
    others = _faults("agent", "probe", "domain", "checks", "progress", "peers", "self")
    return f"""\
# Faults

The names of what goes wrong: what `stoker diagnose` prints as `fault`, what incidents and their causes are called, and what pages
under `faults:` answer. `stoker runbook NAME` prints the page.

## Classes of action

| class | means |
|---|---|
{actions}

`swap` is the class of a fault whose line says that it will be the same again on this hardware (a *lasting* sign); without such a
line it is `restart`.

## Found in lines and numbers

`stoker diagnose` prints these names, and the incidents of a live run have them as fault or as cause.

| fault | what it means | affects | class | what a person does | page |
|---|---|---|---|---|---|
{by_lines}

## Found in a live run only

| fault | what it means | affects | class | what a person does | page |
|---|---|---|---|---|---|
{others}
"""


def _faults(*judged_by: str) -> str:
    pages = {fault: book.name for book in load_runbooks().values() for fault in book.faults}
    return "\n".join(
        f"| `{name}` | {MEANINGS[name].what} | {kind.scope} | `{kind.action}` | {MEANINGS[name].advice} | {pages[name]} |"
        for name, kind in FAULTS.items()
        if kind.judged_by in judged_by
    )


def _args(verb: Verb) -> str:
    return "; ".join(f"`{name}`: {one.expected}" for name, one in verb.args.items())


PAGES = {
    "run_yaml.md": run_page,
    "cluster_yaml.md": cluster_page,
    "runbooks.md": runbooks_page,
    "faults.md": faults_page,
}


def _table(cls: type) -> str:
    rows = "\n".join(_rows(cls, ""))
    return f"| field | value | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _rows(cls: type, prefix: str) -> Iterator[str]:
    for field in fields_of(cls):
        if field.nested:
            yield f"| `{prefix}{field.name}` | fields below | | {field.meaning} |"
            yield from _rows(field.nested, f"{prefix}{field.name}.")
        else:
            cells = (f"`{prefix}{field.name}`", _value(field), _default(field), field.meaning)
            yield f"| {' | '.join(cells)} |"


def _value(field: Field) -> str:
    """Describe what may be written: type, unit and limits."""
    limits = field.limits
    words = [_type(field.value_type)]
    if limits.unit:
        words.append(f"of {limits.unit}" if field.value_type is int else f"({limits.unit})")
    if limits.least:
        words.append(f"from {limits.least:g}")
    if limits.above is not None:
        words.append(f"above {limits.above:g}")
    return " ".join(words)


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if origin is tuple:
        inner = get_args(annotation)[0]
        if isinstance(inner, msgspec.StructMeta):
            return f"list of `{{{', '.join(inner.__struct_fields__)}}}`"
        return "text or list of text"
    if origin is collections.abc.Mapping:
        inner = get_args(annotation)[1]
        return "fields and their values" if inner is Any else "names and their texts"
    return _NAMES[annotation]


def _default(field: Field) -> str:
    if field.default_words:
        return field.default_words
    if field.required:
        return "must be given"
    value = field.default
    if isinstance(value, float):
        value = f"{value:g}"
    return f"`{value}`"
