"""`python -P -m healthchecks`: run checks in their order; print a JSON object as each ends, and the overall result last.

Neighbours that declare `runs_beside` run at the same time, all others alone. With --progress, a line as each begins, too.

Exit codes: 0 PASS, 1 FAIL, 2 UNKNOWN, 64 refused (bad arguments; nothing was checked).
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NoReturn

from healthchecks.causes import checks_of_cause
from healthchecks.check import NodeFacts, Outcome, Verdict, to_plain
from healthchecks.coverage import overall, pick
from healthchecks.deadline import deadline_of, run_checks
from healthchecks.devices.presence import gpus_of
from healthchecks.levels import LEVELS, Level, seconds_at
from healthchecks.limits import nearest, parse_overrides
from healthchecks.registry import all_checks, declared_limits
from runner.errors import UserError
from runner.facts.faults import FAULTS

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 2}
# EX_USAGE of sysexits.h, distinct from the verdicts.
REFUSED = 64
# Of slots or GPUs: more is a mistake. Chosen.
MAX_COUNT = 10_000


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def main(arguments: list[str] | None = None) -> int:
    """Run the requested checks; return the exit code."""
    try:
        options = _parser().parse_args(arguments)
        node = _node(options)
        names, required = _picked(options, node)
        limits = parse_overrides(options.limit, declared_limits())
    except UserError as error:
        print(f"healthchecks: {error}", file=sys.stderr)
        return REFUSED
    verdicts: list[Verdict] = []
    try:
        for verdict in _verdicts(names, node, limits=limits, options=options):
            verdicts.append(verdict)
            _print(to_plain(verdict))
        total = overall(verdicts, required=required, node=node)
        _print(total)
    except BrokenPipeError:
        # The reader is gone. Send what is buffered to nowhere, so that the interpreter's own flush does not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODES[Outcome.UNKNOWN]
    return EXIT_CODES[Outcome(total["outcome"])]


def _verdicts(
    names: Sequence[str],
    node: NodeFacts,
    *,
    limits: Mapping[str, float],
    options: argparse.Namespace,
) -> Iterator[Verdict]:
    """Run the checks, those side by side that may; yield their verdicts in order, as each group ends."""
    numbers = {name: number for number, name in enumerate(names, 1)}
    for group in _side_by_side(names):
        facts = {}
        for name in group:
            seconds = _seconds(name, node.level)
            deadline_seconds = options.seconds or deadline_of(seconds)
            facts[name] = replace(node, seconds=seconds, deadline_seconds=deadline_seconds)
            if options.progress:
                begins = {"check": name, "number": numbers[name], "of": len(names)}
                _print({"kind": "begins", **begins, "seconds": seconds})
        ended = run_checks(facts, limits=limits, shortage_serves=options.shortage_serves)
        by_name = {verdict.check: verdict for verdict in ended}
        yield from (by_name[name] for name in group)


def _side_by_side(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names of checks that run at the same time."""
    checks = all_checks()
    for runs_beside, group in groupby(names, lambda name: checks[name].runs_beside):
        if runs_beside:
            yield list(group)
        else:
            yield from ([name] for name in group)


def _picked(
    options: argparse.Namespace, node: NodeFacts
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which checks to run and which of these are required. Raises UserError for an unknown name."""
    if not options.cause:
        return pick(options.check, node, also=options.require)
    if options.cause not in FAULTS:
        raise UserError(f"--cause: no fault {options.cause!r}; {nearest(options.cause, FAULTS)}")
    names = checks_of_cause(options.cause, node)
    return names, names


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -P -m healthchecks", description="Check this node.")
    parser.add_argument("--check", action="append", default=[], metavar="NAME")
    parser.add_argument("--folder", action="append", default=[], metavar="DIR")
    parser.add_argument("--require", action="append", default=[], metavar="NAME")
    parser.add_argument("--cause", default="", metavar="FAULT")
    parser.add_argument("--level", choices=LEVELS, default=LEVELS[0])
    parser.add_argument("--python", default="", metavar="FILE")
    parser.add_argument("--seconds", type=_positive, metavar="N")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--kernel-log", metavar="FILE")
    parser.add_argument("--shared-memory", metavar="DIR")
    parser.add_argument("--slots", type=_count, metavar="N")
    parser.add_argument("--gpus", type=_count, metavar="N")
    parser.add_argument("--cores", type=_count, default=0, metavar="N")
    parser.add_argument("--memory-bytes", type=_positive, default=0, metavar="N")
    parser.add_argument("--ports", type=_count, default=0, metavar="N")
    parser.add_argument("--storage", action="append", default=[], metavar="PATH")
    parser.add_argument("--site-script", metavar="FILE")
    parser.add_argument("--sysfs", metavar="DIR")
    parser.add_argument("--shortage-serves", action="store_true")
    parser.add_argument("--progress", action="store_true")
    return parser


def _seconds(name: str, level: Level) -> float:
    """Return the time that a check has at a level; one that is named has at least its shortest time."""
    declared = all_checks()[name].seconds
    return seconds_at(declared, level) or min(declared.values(), default=1.0)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to {MAX_COUNT}")
    return int(text)


def _positive(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds


def _node(options: argparse.Namespace) -> NodeFacts:
    folders = options.folder or [os.getcwd(), tempfile.gettempdir()]
    paths: dict[str, Any] = {}
    for name in ("kernel_log", "shared_memory", "site_script", "sysfs"):
        if getattr(options, name) is not None:
            paths[name] = os.path.abspath(getattr(options, name))
    vendor, found = gpus_of(options.sysfs or NodeFacts().sysfs)
    num_gpus = found if options.gpus is None else options.gpus
    return NodeFacts(
        folders=tuple(dict.fromkeys(map(os.path.abspath, folders))),
        slots=options.slots or max(1, num_gpus),
        num_gpus=num_gpus,
        gpu_vendor=vendor,
        num_cores=options.cores,
        memory_bytes=int(options.memory_bytes),
        num_ports=options.ports,
        storage=tuple(dict.fromkeys(map(os.path.abspath, options.storage))),
        python=options.python,
        level=options.level,
        **paths,
    )


def _print(plain: dict[str, Any]) -> None:
    print(json.dumps(plain, allow_nan=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
