"""Runbooks: the front matter of `<fault>.md` pages -> ladders. The prose below it stays for people."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

from runner.errors import SpecError
from runner.facts.faults import FAULTS
from runner.facts.specs.runbook import Runbook
from runner.load.documents import Document, parse, read_text
from runner.load.fields import build, check_fields, check_limits
from runner.load.problems import Problems, shown

_FENCE = "---"


def load_runbooks(folder: str | Path | None = None) -> dict[str, Runbook]:
    """Read every page of a folder, or those that come with Stoker; return them by name, sorted.

    Raises SpecError that names all problems of all pages, and each fault that two pages claim.
    """
    pages = _pages(folder)
    runbooks: dict[str, Runbook] = {}
    refusals: list[str] = []
    claimed: dict[str, str] = {}
    for path in pages:
        try:
            if _is_for_people(path):
                continue
            runbook = load_runbook(path)
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


def load_runbook(path: Path) -> Runbook:
    """Read one page; raise SpecError that names every problem in its front matter."""
    document = _front_matter(read_text(path), str(path))
    problems = Problems(document)
    plain = check_fields(Runbook, document.plain, problems)
    check_limits(Runbook, plain, problems)
    name, ladder = plain.get("name"), plain.get("ladder")
    if isinstance(name, str) and name != path.stem:
        problems.add(("name",), f"{shown(name)} is not the name of the file; call it {path.stem!r}")
    for field in ("faults", "ladder"):
        if plain.get(field) == []:
            problems.add((field,), f"empty; give at least one of its {field}")
    if isinstance(ladder, list):
        plain["ladder"] = [_rung(rung, index, problems) for index, rung in enumerate(ladder)]
        _check_watch(plain, problems)
    return build(Runbook, plain, problems)


def _check_watch(plain: dict[str, Any], problems: Problems) -> None:
    """Refuse `watch` for faults that end a gang: no rung would start it again."""
    watches = [
        index
        for index, rung in enumerate(plain["ladder"])
        if isinstance(rung, dict) and rung.get("do") == "watch"
    ]
    faults = plain.get("faults")
    ending = [
        fault
        for fault in (faults if isinstance(faults, list) else [])
        if isinstance(fault, str) and fault in FAULTS and FAULTS[fault].is_fatal
    ]
    if watches and ending:
        where = ("ladder", watches[0], "do")
        what = f"'watch' leaves the run alone, and {shown(ending[0])} has ended it; say restart, swap or stop"
        problems.add(where, what)


def _is_for_people(path: Path) -> bool:
    """Whether a page is about something that the daemon cannot have an incident for: its front matter says `by_hand: true`."""
    plain = _front_matter(read_text(path), str(path)).plain
    return isinstance(plain, dict) and plain.get("by_hand") is True


def _rung(rung: object, index: int, problems: Problems) -> object:
    from runner.facts.specs.runbook import Rung

    where = ("ladder", index)
    if isinstance(rung, str):
        # `- restart` is the same as `- do: restart`
        return {"do": rung}
    known = check_fields(Rung, rung, problems, where)
    check_limits(Rung, known, problems, where)
    tries = known.get("tries")
    if isinstance(tries, int) and not isinstance(tries, bool) and tries < 1:
        problems.add((*where, "tries"), f"{tries} tries is not valid; give 1 or more")
    return known


def _pages(folder: str | Path | None) -> list[Path]:
    if folder is None:
        # An installed wheel is unpacked, so the package's resources are files.
        root = Path(str(importlib.resources.files("runbooks")))
    else:
        root = Path(folder)
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
