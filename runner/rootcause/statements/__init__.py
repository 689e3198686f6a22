"""Statements: sentences of programs without a list of their own, which say in plain words what is wrong, without a level.

A statement counts near the end of a log, where no progress follows it and no line is known that tells more. Pure tables:
`runner.collect.log_ends` reads the lines.
"""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import Match
from runner.rootcause.statements.machines import MACHINES
from runner.rootcause.statements.numbers import NUMBERS
from runner.rootcause.statements.programs import PROGRAMS
from runner.rootcause.statements.statement import Statement

STATEMENTS: tuple[Statement, ...] = (*NUMBERS, *MACHINES, *PROGRAMS)

# So many times is often; chosen. So many times the usual is slow, and such a part of it low; chosen.
LEAST_MANY, LEAST_SLOW, MOST_LOW = 3, 1.5, 0.5
# What is asked, supposed, announced, denied or over; formats, and lines of drivers in the kernel, which are known by themselves.
_NOT_STATED = re.compile(
    r"(?i)\b(?:if|whether|unless|in case|to avoid|to prevent|to detect|so that|may|might|can be|could be|would|should|e\.g\."
    r"|for example"
    r"|check(?:ing|s|ed)? (?:for|that|whether|if)|watch(?:ing)? for|wait(?:ing)? for|monitoring for|test(?:ing|s)? (?:for|that)"
    r"|no longer than|no (?:\w+ )?mismatch\w*|passed|succeeded|successful(?:ly)?|recovered|resolved|restored|back to normal"
    r"|retry(?:ing)?|will retry|harmless"
    r"|ignor(?:ed|ing)|continu(?:e|ed|ing)|fall(?:ing|s)? ?back|proceed(?:s|ing)?|non-fatal|warn(?:ing)?|optional|disabled"
    r"|enabled|default(?:s|ing)?|help|usage|none of|trying|not? (?:\w+ ){0,2}(?:detected|found|needed"
    r"|errors?"
    r"|failures?|faults?)|without (?:any )?(?:errors?|failures?|faults?))\b|\?\s*$"
    r"|\bdropp(?:ed|ing) \d+ (?:\w+ )?(?:examples|samples|rows|records|documents)|\bfilter(?:ed|ing)\b|%[-\d.]*l{0,2}[sdufxg]\b"
    r"|\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\b|\(total events\b|\bnfs: server\b|\b(?:errors?|links?|counts?|total"
    r"|failures?|events?)\W{1,3}0\b|\b0/s\b"
)


# The first four letters of words of which one is in every sentence that a table knows: most lines have none of them.
_STEMS = frozenset(
    (  # noqa: SIM905 - a table of words
        "abov achi allo asse bad band beco beh bel blew blow brok budg can canc cann chec coll conn corr coul cras crit "
        "dama dead deca decl decr defe degr devi did died diff disa dive divi doub down drop enga enou ente evic exce "
        "exha expe expi expl fail fata faul fell flap flip full garb giv givi gone hang high hung ille imba inac inco "
        "incr inf infi inst inte inva jump kill lost malf mark maxi meas mism miss much must mutu nan nans need neve no "
        "non not only over pack past peak pend plat pree quot ran reac read reba rebo recl redu remo repl requ rise runt "
        "segm shut skip slow spik stag stal stop stra stuc term thro trip trun try turn unab unav unco unde unkn unre "
        "aver mean unus usab usua vani wait wall want went wron zero "
    ).split()
)
# The same, of words that are in other sentences too.
_PHRASES = ("timed out", "out of", "baseline", " vs", "versus", "median")
_WORD = re.compile(r"[a-z]+")
# How often such a line is right about its fault; chosen, below what lines of catalogues show.
CONFIDENCE = "0.70"
# Longer lines are no sentences; chosen.
MAX_SENTENCE = 400


def statement_of(text: str) -> Statement | None:
    """Return what a line states, in plain words; None: nothing, or only as a possibility, or as something that is over."""
    if len(text) > MAX_SENTENCE or not _has_stem(text.lower()) or _NOT_STATED.search(text):
        return None
    for statement in STATEMENTS:
        found = statement.regex.search(text)
        if found is not None and _is_enough(found.groupdict()):
            return statement
    return None


def with_statement(match: Match, statement: Statement) -> Match:
    """Return the match of a line with the fault that the line states."""
    named = {**match.named, "confidence": CONFIDENCE, "why": "the plain words of the line"}
    return replace(
        match,
        fault=statement.fault,
        layer=statement.layer,
        scope=FAULTS[statement.fault].scope,
        known_by="family",
        named=named,
    )


def _has_stem(lower: str) -> bool:
    starts = {word[:4] for word in _WORD.findall(lower)}
    return not _STEMS.isdisjoint(starts) or any(phrase in lower for phrase in _PHRASES)


def _is_enough(groups: Mapping[str, str | None]) -> bool:
    """Whether the numbers of a sentence bear it out."""
    values = {name.rstrip("23"): float(text.rstrip(".")) for name, text in groups.items() if text}
    if "all" in values and values["few"] >= values["all"]:
        return False
    if "high" in values and values["low"] > MOST_LOW * values["high"]:
        return False
    if "slow" in values and values["slow"] < LEAST_SLOW * values.get("usual", 1.0):
        return False
    return "many" not in values or values["many"] >= LEAST_MANY


__all__ = ["STATEMENTS", "Statement", "statement_of", "with_statement"]
