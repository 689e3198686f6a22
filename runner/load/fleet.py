"""Fleet: what cluster.yaml says of its nodes: which of them fail together, and what they must pass.

Ranges are written as people do (`n1-n8`) or as Slurm does (`n[1-8,10]`, `rack[1-2]n[01-08]`); the spec holds plain names.
"""

import re
from typing import Any

from runner.errors import UserError
from runner.facts.wording import known_words
from runner.load.documents import Where
from runner.load.problems import Problems, check_names, shown

# Chosen, not measured.
MAX_DOMAIN_NODES = 100_000
MAX_DIGITS = 9
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62})")
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,40}")
_PLAIN_RANGE = re.compile(r"(?P<prefix>.*[^0-9])(?P<first>[0-9]+)-(?P=prefix)(?P<last>[0-9]+)")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


class _Refused(ValueError):
    """Why a text names no nodes, and what to do."""


def domains(given: Any, problems: Problems) -> Any:
    """Return kind -> name -> nodes with all ranges written out; note what is wrong with them."""
    where: Where = ("domains",)
    if given is None or not isinstance(given, dict):
        return {} if given is None else given
    settled: dict[str, Any] = {}
    for kind, names in given.items():
        _check_label(kind, "a kind of domain", (*where, kind), problems)
        if not isinstance(names, dict) or not names:
            example = f"such as {kind}: {{{kind[:1]}1: [n1-n8]}}"
            problems.add((*where, kind), f"expected names and their nodes, {example}")
            continue
        owners: dict[str, str] = {}
        settled[kind] = {
            name: _members(nodes, owners, (*where, kind, name), problems)
            for name, nodes in names.items()
        }
    return settled


def _check_label(label: str, what: str, where: Where, problems: Problems) -> None:
    if not _LABEL.fullmatch(label):
        way_out = "give 1 to 40 characters of A-Z, a-z, 0-9, ., _ and -"
        problems.add(where, f"{shown(label)} is not a valid name of {what}; {way_out}")


def _members(given: Any, owners: dict[str, str], where: Where, problems: Problems) -> list[str]:
    """Return the nodes of one domain. `owners` knows the nodes of its kind seen so far, and whose they are."""
    name = str(where[-1])
    _check_label(name, f"a {where[-2]}", where, problems)
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        problems.add(where, "no nodes; name them, such as [n1-n8, n11], or remove the domain")
        return []
    nodes: list[str] = []
    for index, item in enumerate(items):
        place = where if isinstance(given, str) else (*where, index)
        try:
            nodes += _expanded(item)
        except _Refused as refusal:
            problems.add(place, str(refusal))
            continue
        if len(nodes) > MAX_DOMAIN_NODES:
            way_out = "give smaller ranges"
            problems.add(place, f"more than {MAX_DOMAIN_NODES:,} nodes in {name!r}; {way_out}")
            return []
    _check_owners(nodes, owners, where, problems)
    return nodes


def _check_owners(
    nodes: list[str], owners: dict[str, str], where: Where, problems: Problems
) -> None:
    kind, name = str(where[-2]), str(where[-1])
    for node in nodes:
        other = owners.setdefault(node, name)
        if other != name:
            way_out = f"a node has one {kind}: keep it in one of them"
            problems.add(where, f"{node} is in {other!r} already; {way_out}")
            # One report per overlapping range is enough.
            return
    seen: set[str] = set()
    for node in nodes:
        if node in seen:
            problems.add(where, f"{node} is named twice; name it once")
            return
        seen.add(node)


def _expanded(item: Any) -> list[str]:
    """Return the names that one item means; raise _Refused."""
    if not isinstance(item, str):
        raise _Refused(
            f"{shown(item)} is not the name of a node; write it as text, such as n1 or n1-n8"
        )
    nodes: list[str] = []
    for part in (part.strip() for part in _COMMA_OUTSIDE_BRACKETS.split(item)):
        if not part:
            raise _Refused(f"{shown(item)} names a node without a name; remove the comma too many")
        nodes += _bracketed(part) if "[" in part or "]" in part else _plain(part)
        if len(nodes) > MAX_DOMAIN_NODES:
            raise _Refused(_too_many(item))
    return nodes


def _too_many(text: str) -> str:
    return f"{shown(text)} names more than {MAX_DOMAIN_NODES:,} nodes; give a smaller range"


def _plain(text: str) -> list[str]:
    """`n1-n8`, or one node."""
    match = _PLAIN_RANGE.fullmatch(text)
    if match is None:
        return [_checked(text)]
    numbers = _numbers_from(match["first"], match["last"], text)
    return [_checked(match["prefix"] + number) for number in numbers]


def _bracketed(text: str) -> list[str]:
    """`n[1-8,10]`, and more than one pair of brackets: all combinations, the last counts fastest."""
    names = [""]
    end = 0
    for match in _BRACKETS.finditer(text):
        numbers = _listed(match[1], text)
        names = [name + text[end : match.start()] for name in names]
        if len(names) * len(numbers) > MAX_DOMAIN_NODES:
            raise _Refused(_too_many(text))
        names = [name + number for name in names for number in numbers]
        end = match.end()
    return [_checked(name + text[end:]) for name in names]


def _listed(text: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        match = _NUMBERS.fullmatch(part)
        if match is None:
            example = "write numbers and ranges, such as n[1-8,10]"
            raise _Refused(
                f"{shown(whole)}: {shown(part)} in brackets is neither a number nor a range; {example}"
            )
        numbers += _numbers_from(match[1], match[2] or match[1], whole)
    return numbers


def _numbers_from(first: str, last: str, text: str) -> list[str]:
    """Return first to last; leading zeros of the first are kept, as Slurm does."""
    if max(len(first), len(last)) > MAX_DIGITS:
        raise _Refused(f"{shown(text)} has a number of more than {MAX_DIGITS} digits; shorten it")
    low, high = int(first), int(last)
    if high < low:
        raise _Refused(f"{shown(text)} runs from {first} down to {last}; swap the two")
    if high - low >= MAX_DOMAIN_NODES:
        raise _Refused(_too_many(text))
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(low, high + 1)]


def _checked(name: str) -> str:
    if not _NODE.fullmatch(name):
        way_out = "letters, digits, ., _ and -, such as n1; a range is n1-n8 or n[1-8]"
        raise _Refused(f"{shown(name)} is not the name of a node; use {way_out}")
    return name


def checks(given: Any, problems: Problems, *, only_reads: bool) -> Any:
    """Return the checks a node must pass as a list; one name may stand alone, `[]` means none.

    `only_reads`: whether they exist is not asked, which takes a command that orders none longer than all else.
    """
    if only_reads:
        return check_names("checks", given, problems, lambda name: None)
    from healthchecks import registry

    known = registry.check_names()
    return check_names(
        "checks",
        given,
        problems,
        lambda name: (
            None if name in known else f"not a check; {known_words(name, known, most=len(known))}"
        ),
    )


def check_limits(given: Any, problems: Problems) -> None:
    """Note limits of checks that do not exist, or that every value would pass, or none."""
    if not isinstance(given, dict) or not given:
        return
    # Imports all checks.
    from healthchecks import limits, registry

    declared = registry.declared_limits()
    for name, value in given.items():
        if isinstance(name, str) and isinstance(value, int | float):
            try:
                limits.refuse_dead(name, value, declared)
            except UserError as error:
                problems.add(("check_limits", name), str(error))


def check_hardware(plain: dict[str, Any], problems: Problems) -> None:
    """Note paths of nodes that are not absolute; one path of storage may stand alone."""
    if isinstance(plain.get("storage"), str):
        plain["storage"] = [plain["storage"]]
    storage = plain["storage"] if isinstance(plain.get("storage"), list) else []
    for name, path in (
        *(("storage", each) for each in storage),
        ("site_script", plain.get("site_script")),
    ):
        if isinstance(path, str) and path and not path.startswith("/"):
            problem = f"{shown(path)} is on the nodes, whatever their folder: give an absolute path"
            problems.add(("hardware", name), problem)
