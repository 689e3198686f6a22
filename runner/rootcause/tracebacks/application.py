"""Application: tracebacks take the place of the lines that were matched one by one within them."""

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import MAX_TEXT, Match, Role, Scope
from runner.rootcause.tracebacks.objects import Raised, Traceback, quoting
from runner.rootcause.tracebacks.verdicts import TracebackVerdict, verdict_on

# Roles of lines that mean something beside other lines only.
CONTEXTUAL: tuple[Role, ...] = (
    "traceback",
    "frame",
    "frame-of-data",
    "frame-of-checkpoints",
    "frame-of-serialization",
    "frame-of-imports",
    "frame-of-tear-down",
    "exception",
    "exception-of-code",
    "missing-file",
    "disk-full",
    "error-of-any-kind",
    "ignored",
)
# Faults of bytes that were read: what is wrong with them looks alike.
_OF_FILES = ("data_error", "checkpoint_io")
# Catalogues of words that programs of any kind raise.
_GENERAL = ("python_interpreter", "python_library", "numpy")
# Scopes that differ from those of the faults.
_SCOPES: Mapping[str, Scope] = {
    "cuda_oom": "user",
    "nccl_timeout": "rank",
    "nccl_network": "fabric",
}


def with_tracebacks(
    matches: Sequence[Match], tracebacks: Iterable[Traceback], *, first_step: int = 0
) -> list[Match]:
    """Return the matches of one log, in order of their lines, with one match for each traceback that shows a fault.

    Lines within it that other lines give their meaning are left out; what a signature or a catalogue knows of it stays.
    `first_step`: the line of the log's first step; 0: it has none.
    """
    ordered = sorted((one for one in matches if one.role != "frame"), key=lambda one: one.line)
    lines = [match.line for match in ordered]
    # What becomes of each match; None: it is left out.
    remaining: list[Match | None] = list(ordered)
    added: list[Match] = []
    for traceback in tracebacks:
        has_stepped = first_step < traceback.first if first_step else None
        verdict = verdict_on(traceback, has_stepped=has_stepped)
        if not verdict.raised.name and not verdict.finding.fault:
            # Its exception is missing, and its frames show nothing.
            continue
        if traceback.is_torn and verdict.finding.by in ("phase", "nothing"):
            # The lines around it show more.
            continue
        places = range(bisect_left(lines, traceback.first), bisect_right(lines, traceback.last))
        is_known = False
        if _is_confirmed(ordered[places.start : places.stop], traceback, verdict):
            finding = verdict.finding._replace(by="confirmed")
            verdict = dataclasses.replace(verdict, finding=finding)
        for place in places:
            match = remaining[place]
            if match is None or _is_replaced(match, traceback, verdict):
                remaining[place] = None
                continue
            if _is_specific(match, verdict):
                is_known = True
                # It was raised: no further line has to show that.
                remaining[place] = replace(match, role="") if match.role == "raised" else match
        if verdict.finding.fault and not is_known:
            added.append(_match(traceback, verdict))
    left = [match for match in remaining if match is not None]
    return sorted([*left, *_without_hangs(added)], key=lambda match: match.line)


def _without_hangs(added: Sequence[Match]) -> list[Match]:
    """Return matches in which no process waited without end where another one, interrupted at the same time, was at work."""
    is_at_work = any(
        match.fault == "preemption" and match.named.get("exception") == "KeyboardInterrupt"
        for match in added
    )
    return [
        replace(match, fault="preemption", layer="launcher", scope=FAULTS["preemption"].scope)
        if is_at_work and match.fault == "hang_no_error" and match.named.get("shown") == "phase"
        else match
        for match in added
    ]


def _is_specific(match: Match, verdict: TracebackVerdict) -> bool:
    """Whether a signature or a catalogue knows the exception that is the cause."""
    is_there = match.line == verdict.raised.line and bool(match.fault)
    return is_there and match.weight == "primary" and match.role not in CONTEXTUAL


def _is_replaced(match: Match, traceback: Traceback, verdict: TracebackVerdict) -> bool:
    """Whether a match in the lines of a traceback is left out."""
    if match.role == "traceback" and verdict.phase == "tear-down" and not traceback.is_ignored:
        # If nothing else is there, it is all that is known.
        return False
    if _is_source(match, traceback):
        return True
    is_raised = any(match.line == raised.line for raised in traceback.chain)
    if not verdict.finding.fault and is_raised:
        # It reports no failure, whatever its words.
        return match.layer in ("program", "collective", "network", "launcher", "other", "machine")
    if match.rank != traceback.rank and not is_raised:
        return False
    if match.role in CONTEXTUAL:
        return True
    if match.layer == "program" and match.line in _quoting_lines(traceback):
        # The error that it quotes shows more.
        return match.line != verdict.raised.line
    return match.line == verdict.raised.line and _shows_less(match, verdict)


def _is_source(match: Match, traceback: Traceback) -> bool:
    """Whether a match is in a line of source, which only mentions what may be raised."""
    return any(match.line == frame.code_at for raised in traceback.chain for frame in raised.frames)


def _shows_less(match: Match, verdict: TracebackVerdict) -> bool:
    """Whether the code around an exception shows more than what is known of its words."""
    finding = verdict.finding
    if finding.by == "confirmed" and match.known_by == "catalogue":
        return match.fault != finding.fault
    if match.fault == finding.fault or finding.by not in ("confirmed", "class", "package"):
        return match.known_by == "catalogue" and match.fault == "unknown"
    emitter = match.signature.partition(":")[0]
    if match.known_by == "catalogue" and (emitter in _GENERAL or match.fault == "unknown"):
        return True
    if match.layer == "collective":
        # Lost was a remote file, or the store at a start, and no peer.
        return finding.fault in (*_OF_FILES, "filesystem", "rendezvous")
    # The code that read a file shows whether it was data, a checkpoint or settings.
    return match.fault in _OF_FILES and finding.fault in (*_OF_FILES, "config_error")


def _is_confirmed(inside: Sequence[Match], traceback: Traceback, verdict: TracebackVerdict) -> bool:
    """Whether a signature that knows the exception around a quoted one names the same fault as its code does."""
    lines = _quoting_lines(traceback)
    return verdict.finding.by in ("class", "package") and any(
        match.line in lines
        and match.line != verdict.raised.line
        and match.fault == verdict.finding.fault
        and match.role not in CONTEXTUAL
        for match in inside
    )


def _quoting_lines(traceback: Traceback) -> list[int]:
    """Return the lines of exceptions that quote another process's."""
    return [one.line for one in quoting(traceback.chain)]


def _text(raised: Raised) -> str:
    """Return the line of an exception; where its message begins on the next line, with that."""
    first, _, rest = raised.message.partition("\n")
    if first.strip() or not raised.name:
        return raised.text[:MAX_TEXT]
    more = next((line.strip() for line in rest.split("\n") if line.strip()), "")
    return f"{raised.text.rstrip()} {more}"[:MAX_TEXT].strip()


def _match(traceback: Traceback, verdict: TracebackVerdict) -> Match:
    finding, raised = verdict.finding, verdict.raised
    innermost = raised.frames[-1] if raised.frames else None
    named = {
        "exception": raised.name[:120],
        "phase": verdict.phase,
        "shown": verdict.finding.by,
    }
    if innermost is not None:
        named["frame"] = f"{innermost.file[-80:]}:{innermost.line}"
    return Match(
        signature=f"traceback-{raised.name.rpartition('.')[2][:60] or 'cut'}",
        fault=finding.fault,
        layer=finding.layer,
        scope=_SCOPES.get(finding.fault, FAULTS[finding.fault].scope),
        role="exception",
        is_lasting=finding.fault in ("config_error", "data_error"),
        known_by="traceback",
        file=traceback.file,
        line=raised.line,
        text=_text(raised),
        rank=traceback.rank,
        node=traceback.node,
        at=traceback.at,
        named=named,
    )
