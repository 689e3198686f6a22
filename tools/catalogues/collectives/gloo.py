"""gloo: what it enforces, throws and logs. Messages are joined of several arguments."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.native.archives import c_files, debian
from tools.catalogues.native.call_sites import CallSite, call_sites
from tools.catalogues.native.classes import classify, letters, required, row, rules
from tools.catalogues.native.texts import joined, lines
from tools.catalogues.rows import Header, Level, Row, write

NAMES = ("gloo",)
_VERSION = "0.0~git20250912"
_CALLS = re.compile(
    r"GLOO_(?:ENFORCE\w*|THROW\w*|ERROR|WARN|INFO|DEBUG)|(?:::)?(?:gloo::)?\w*(?:Exception|_error)"
)
_RULES = rules(
    (r"timed? ?out|timeout", "nccl_timeout", "a rank waited for another"),
    (
        r"connect\b.*(?:fullmesh|fail|refused|retr|timeout)|rank \{\} failed to connect|rendezvous",
        "rendezvous",
        "connections are made when ranks meet",
    ),
    (
        r"connection (?:closed|reset)|socket|\brecv|\bsend|\bread\b|\bwrite|peer|broken|ibv_|poll|epoll",
        "nccl_network",
        "a connection between ranks",
    ),
    (
        r"unable to (?:find|resolve)|unsupported|unknown|invalid|must|not (?:supported|found|implement)"
        r"|expected|no (?:address|such|device|interface)|hostname|getaddrinfo|gethostname",
        "config_error",
        "a setting or a wrong call",
    ),
)
_FOLDERS = (
    (re.compile(r"rendezvous"), "rendezvous"),
    (re.compile(r"transport|common/linux"), "nccl_network"),
    (re.compile(r"cuda|hip|nccl"), ""),
    (re.compile(r"."), "config_error"),
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    with debian("gloo", "gloo-*") as root:
        rows = list(_rows(root))
    header = Header(
        "gloo",
        _VERSION,
        made="2026-11-26",
        program=__name__,
        source=f"Debian source package gloo {_VERSION}",
        style="braces",
        layer="collective",
        scope="rank",
    )
    return write(name, header, rows)


def _rows(root: Path) -> Iterator[Row]:
    for at, text in c_files(root, "gloo"):
        by_file = next(fault for pattern, fault in _FOLDERS if pattern.search(at))
        for call in call_sites(text, _CALLS):
            level, given = _level(call), _message(call)
            for line in lines(joined(given)):
                if letters(line, "braces") < 4:
                    continue
                fault, why = classify(line, _RULES, by_file) if level == "error" else ("", "")
                requires = required(line, "braces", ("gloo",))
                yield row(at, line, level, fault, requires=requires, why=why)


def _level(call: CallSite) -> Level:
    name = call.name.removeprefix("GLOO_")
    levels: dict[str, Level] = {"WARN": "warning", "INFO": "info", "DEBUG": "debug"}
    return levels.get(name, "error")


def _message(call: CallSite) -> list[str]:
    """Return the arguments that are joined to the message; what is enforced stands before it."""
    given = list(call.arguments)
    if "ENFORCE" in call.name:
        return (
            given[2:]
            if call.name.endswith(("_EQ", "_NE", "_LE", "_LT", "_GE", "_GT"))
            else given[1:]
        )
    return given
