"""Runbooks: the front matter of `<fault>.md` pages -> ladders. The prose below it stays for people."""

import importlib.resources
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.decide.incidents.conditions import CONDITIONS
from runner.errors import SpecError
from runner.facts.faults import FAULTS
from runner.facts.specs.runbook import (
    MAX_TRIES,
    NON_FATAL_VERBS,
    VERBS,
    Parameter,
    Runbook,
    Rung,
)
from runner.facts.wording import known_words
from runner.load.documents import Document, Where, parse, read_text
from runner.load.fields import build, check_fields
from runner.load.problems import Problems, shown

_FENCE = "---"


class Page(NamedTuple):
    """One page: its file, its text, and its ladder (None: people follow it by hand)."""

    name: str
    title: str
    file: str
    text: str
    runbook: Runbook | None

    @property
    def prose(self) -> str:
        """What stands below the front matter, for people."""
        return self.text.split(_FENCE, 2)[2].strip()


def load_runbooks(folder: str | Path | None = None, *, site: str = "") -> dict[str, Runbook]:
    """Return the ladders of all pages by name, sorted. Arguments and errors are those of `load_pages`."""
    pages = load_pages(folder, site=site)
    return {page.name: page.runbook for page in pages.values() if page.runbook is not None}


def load_pages(folder: str | Path | None = None, *, site: str = "") -> dict[str, Page]:
    """Read every page of a folder, or those that come with Stoker; return them by name, sorted.

    `site`: a folder whose pages replace those of the same name, and may be further ones; "": none. Raises SpecError that names all
    problems of all pages, each fault that two pages claim, and each that a site's pages leave without one.
    """
    files = {path.stem: path for path in _files(folder)}
    shipped = set(files)
    files |= {path.stem: path for path in _files(site)} if site else {}
    pages: dict[str, Page] = {}
    refusals: list[str] = []
    claimed: dict[str, str] = {}
    for name, path in sorted(files.items()):
        try:
            page = _read(path)
        except SpecError as error:
            refusals.append(str(error))
            continue
        for fault in page.runbook.faults if page.runbook is not None else ():
            if fault in claimed:
                refusals.append(
                    f"{path}: faults: {fault!r} belongs to the page {claimed[fault]!r} already; keep it in one of them"
                )
            claimed.setdefault(fault, name)
        pages[name] = page
    if site and not refusals:
        replaced = sorted(name for name in shipped if files[name].parent == Path(site))
        refusals += _unanswered(claimed, replaced, site)
    if refusals:
        raise SpecError("\n".join(refusals))
    return pages


def _read(path: Path) -> Page:
    text = read_text(path)
    document = _front_matter(text, str(path))
    plain = document.plain
    if isinstance(plain, dict) and plain.get("by_hand") is True:
        # A page about something that the daemon cannot have an incident for.
        title = str(plain.get("title", path.stem))
        return Page(path.stem, title, str(path), text, None)
    runbook = _runbook(path.stem, document)
    return Page(path.stem, runbook.title, str(path), text, runbook)


def _unanswered(claimed: Mapping[str, str], replaced: Sequence[str], site: str) -> list[str]:
    """Name the faults that no page answers any more."""
    here = ", ".join(replaced)
    return [
        f"{site}: no page answers {fault!r} any more; add it to `faults:` of one of the pages here ({here})"
        for fault in FAULTS
        if fault not in claimed
    ]


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
        _check_end(plain, problems)
    return build(Runbook, plain, problems)


def _check_non_fatal_verbs(plain: dict[str, Any], problems: Problems) -> None:
    """Refuse a verb that leaves the gang alone for faults that end it: no rung would start it again."""
    rungs = [rung if isinstance(rung, dict) else {} for rung in plain["ladder"]]
    verbs = [None if _is_watched(rung) else rung.get("do") for rung in rungs]
    non_fatal = [index for index, verb in enumerate(verbs) if verb in NON_FATAL_VERBS]
    faults = plain["faults"] if isinstance(plain.get("faults"), list) else []
    known = [fault for fault in faults if isinstance(fault, str) and fault in FAULTS]
    ending = [fault for fault in known if FAULTS[fault].is_fatal]
    if non_fatal and ending:
        where, verb = ("ladder", non_fatal[0], "do"), shown(verbs[non_fatal[0]])
        what = f"{verb} leaves the run alone, and {shown(ending[0])} has ended it; say restart, swap or stop"
        problems.add(where, what)


def _is_watched(rung: Mapping[str, Any]) -> bool:
    """Whether a rung is only taken while the gang runs."""
    when = rung.get("when")
    return isinstance(when, dict) and when.get("gang_died") is False


def _check_end(plain: dict[str, Any], problems: Problems) -> None:
    """Refuse a ladder without an end: one that would try for ever, or one of a run's gang that does not say what comes last."""
    rungs = [rung for rung in plain["ladder"] if isinstance(rung, dict)]
    faults = plain["faults"] if isinstance(plain.get("faults"), list) else []
    known = [FAULTS[name] for name in faults if isinstance(name, str) and name in FAULTS]
    if len(rungs) != len(plain["ladder"]) or not rungs or not known:
        return
    tries = [rung.get("tries", 1) for rung in rungs]
    if all(isinstance(number, int) for number in tries) and sum(tries) > MAX_TRIES:
        what = f"the ladder has no end: {sum(tries)} tries in all; give {MAX_TRIES} at most"
        problems.add(("ladder",), what)
    last, where = rungs[-1], ("ladder", len(rungs) - 1)
    # Of a node that no run needs, there is nothing to stop.
    is_about_gang = all(kind.judged_by not in ("probe", "domain", "checks") for kind in known)
    ends = last.get("do") in ("stop", *NON_FATAL_VERBS) and not last.get("when")
    if is_about_gang and last.get("do") in VERBS and not ends:
        way = "add `- do: stop`, without conditions, as the last rung"
        problems.add(where, f"the ladder has no end: {shown(last['do'])} is its last rung; {way}")


def _rung(rung: object, index: int, problems: Problems) -> object:
    where = ("ladder", index)
    if isinstance(rung, str):
        # `- restart` is the same as `- do: restart`
        return {"do": rung}
    known = check_fields(Rung, rung, problems, where)
    conditions = {name: condition.parameter for name, condition in CONDITIONS.items()}
    _check_named(known.get("when"), conditions, problems, (*where, "when"))
    if (verb := VERBS.get(str(known.get("do")))) is not None:
        _check_named(known.get("args"), verb.args, problems, (*where, "args"))
    return known


def _check_named(
    given: object, allowed: Mapping[str, Parameter], problems: Problems, where: Where
) -> None:
    """Note each name that is not allowed here, and each value that may not stand behind it."""
    if not isinstance(given, dict):
        # Refused for its type, as a whole.
        return
    for name, value in given.items():
        if name not in allowed:
            way_out = known_words(name, allowed, most=len(allowed)) if allowed else "there is none"
            problems.add((*where, name), f"unknown {where[-1]} {shown(name)}; {way_out}")
        elif not allowed[name].fits(value):
            what = f"{shown(value)} is not valid; give {allowed[name].expected}"
            problems.add((*where, name), what)


def _files(folder: str | Path | None) -> list[Path]:
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


def ladder_lines(book: Runbook) -> list[str]:
    """Write a ladder as people read it: the faults that it answers, then a rung a line."""
    lines = [f"answers: {', '.join(book.faults)}"]
    return lines + [f"  {number}. {_rung_text(rung)}" for number, rung in enumerate(book.ladder, 1)]


def _rung_text(rung: Rung) -> str:
    tries = f", {rung.tries} times" if rung.tries > 1 else ""
    args = "".join(f", {name} {value}" for name, value in rung.args.items())
    when = " and ".join(f"{name} {_value_text(value)}" for name, value in rung.when.items())
    page = ", pages" if rung.page else ""
    return f"{rung.do}{tries}{args}{page}{f', when {when}' if when else ''}"


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "is true" if value else "is false"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
