"""Runbooks: the front matter of `<fault>.md` pages -> ladders. The prose below it stays for people."""

import importlib.resources
from pathlib import Path
from typing import Any

from runner.errors import SpecError
from runner.facts.faults import FAULTS
from runner.facts.specs.runbook import NON_FATAL_VERBS, Runbook, Rung
from runner.load.documents import Document, parse, read_text
from runner.load.fields import build, check_fields
from runner.load.problems import Problems, shown

_FENCE = "---"


def load_runbooks(folder: str | Path | None = None) -> dict[str, Runbook]:
    """Read every page of a folder, or those that come with Stoker; return them by name, sorted.

    Raises SpecError that names all problems of all pages, and each fault that two pages claim.
    """
    runbooks: dict[str, Runbook] = {}
    refusals: list[str] = []
    claimed: dict[str, str] = {}
    for path in _pages(folder):
        try:
            document = _front_matter(read_text(path), str(path))
            if isinstance(document.plain, dict) and document.plain.get("by_hand") is True:
                # A page about something that the daemon cannot have an incident for.
                continue
            runbook = _runbook(path.stem, document)
        except SpecError as error:
            refusals.append(str(error))
            continue
        for fault in runbook.faults:
            if fault in claimed:
                refusals.append(
                    f"{path}: faults: {fault!r} belongs to the page {claimed[fault]!r} already; keep it in one of them"
                )
            claimed.setdefault(fault, runbook.name)
        runbooks[runbook.name] = runbook
    if refusals:
        raise SpecError("\n".join(refusals))
    return runbooks


def _runbook(page: str, document: Document) -> Runbook:
    problems = Problems(document)
    plain = check_fields(Runbook, document.plain, problems)
    name, ladder = plain.get("name"), plain.get("ladder")
    if isinstance(name, str) and name != page:
        problems.add(("name",), f"{shown(name)} is not the name of the file; call it {page!r}")
    for field in ("faults", "ladder"):
        if plain.get(field) == []:
            problems.add((field,), f"empty; give at least one of its {field}")
    if isinstance(ladder, list):
        plain["ladder"] = [_rung(rung, index, problems) for index, rung in enumerate(ladder)]
        _check_non_fatal_verbs(plain, problems)
    return build(Runbook, plain, problems)


def _check_non_fatal_verbs(plain: dict[str, Any], problems: Problems) -> None:
    """Refuse a verb that leaves the gang alone for faults that end it: no rung would start it again."""
    rungs = [rung.get("do") if isinstance(rung, dict) else None for rung in plain["ladder"]]
    non_fatal = [index for index, rung in enumerate(rungs) if rung in NON_FATAL_VERBS]
    faults = plain["faults"] if isinstance(plain.get("faults"), list) else []
    known = [fault for fault in faults if isinstance(fault, str) and fault in FAULTS]
    ending = [fault for fault in known if FAULTS[fault].is_fatal]
    if non_fatal and ending:
        where, verb = ("ladder", non_fatal[0], "do"), shown(rungs[non_fatal[0]])
        what = f"{verb} leaves the run alone, and {shown(ending[0])} has ended it; say restart, swap or stop"
        problems.add(where, what)


def _rung(rung: object, index: int, problems: Problems) -> object:
    where = ("ladder", index)
    if isinstance(rung, str):
        # `- restart` is the same as `- do: restart`
        return {"do": rung}
    known = check_fields(Rung, rung, problems, where)
    tries = known.get("tries")
    if isinstance(tries, int) and not isinstance(tries, bool) and tries < 1:
        problems.add((*where, "tries"), f"{tries} tries is not valid; give 1 or more")
    return known


def _pages(folder: str | Path | None) -> list[Path]:
    # An installed wheel is unpacked, so the package's resources are files.
    root = Path(folder or str(importlib.resources.files("runbooks")))
    pages = sorted(root.glob("*.md"))
    if not pages:
        raise SpecError(
            f"{root}: no runbook (<fault>.md) in this folder; name a folder that holds them"
        )
    return pages


def _front_matter(text: str, file: str) -> Document:
    """Parse the YAML between the first line `---` and the next one."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        raise SpecError(
            f"{file}:1: a runbook begins with a line {_FENCE!r} and its front matter; add it"
        )
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _FENCE:
            return parse("\n".join(lines[1:number]), file, first_line=2)
    raise SpecError(f"{file}:1: the front matter has no end; close it with a line {_FENCE!r}")
