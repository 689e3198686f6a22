"""Verdicts: the exception of a traceback that is the cause, and its fault."""

from dataclasses import dataclass

from runner.rootcause.tracebacks.exception_classes import Family
from runner.rootcause.tracebacks.families import family_of, is_wrapper
from runner.rootcause.tracebacks.objects import Frame, Raised, Traceback, by_cause, quoting
from runner.rootcause.tracebacks.phases import Phase, phase_of
from runner.rootcause.tracebacks.rules import UNKNOWN, By, ShownFault, finding_of
from runner.rootcause.tracebacks.stacks import Stack
from runner.rootcause.tracebacks.subjects import subjects

_ORDER: tuple[By, ...] = ("confirmed", "class", "package", "phase", "nothing")
# What JAX chains to the exception that it reports, so that its own frames are left out.
_NOTES = ("SimplifiedTraceback", "UnfilteredStackTrace")
# What programs raise and catch as a part of their control flow.
_CONTROL_FLOW: tuple[Family, ...] = ("lookup", "missing", "import", "timeout", "code")


@dataclass(frozen=True, slots=True)
class TracebackVerdict:
    """The cause within a traceback. `finding.fault` is "" where it reports no failure: a request to end, or tear-down."""

    raised: Raised
    finding: ShownFault
    phase: Phase


def verdict_on(traceback: Traceback, *, has_stepped: bool | None = None) -> TracebackVerdict:
    """Judge a traceback. `has_stepped`: whether a step is above it in its log; None: the log has no steps."""
    chained = by_cause(traceback.chain)
    ordered = [one for one in chained if one.name.rpartition(".")[2] not in _NOTES] or chained
    wrappers = [one for one in quoting(traceback.chain) if is_wrapper(one)]
    judged = [
        _judge(one, _frames_from(ordered, number), has_stepped, is_quoting=one in wrappers)
        for number, one in enumerate(ordered)
    ]
    best = 0
    for number in range(1, len(judged)):
        if _replaces(judged[number][0], judged[best][0], ordered, (number, best)):
            best = number
    if not ordered[best].name and not judged[best][0].fault:
        # Its exception is missing: one that quotes it shows at least that something failed.
        best = next((number for number, one in enumerate(ordered) if one.name), best)
    finding, phase = judged[best]
    if traceback.is_ignored or traceback.is_logged or phase == "tear-down":
        finding = ShownFault("", "nothing")
    if traceback.owner.startswith("Exception in thread") and finding.by == "nothing":
        # The program may have gone on without its thread.
        finding = finding._replace(layer="other")
    if traceback.kind == "fatal":
        finding = UNKNOWN._replace(layer="launcher")
    return TracebackVerdict(ordered[best], finding, phase)


def _judge(
    raised: Raised, frames: list[Frame], has_stepped: bool | None, *, is_quoting: bool
) -> tuple[ShownFault, Phase]:
    places = subjects(frames)
    phase = phase_of(frames, places, has_stepped=has_stepped)
    stack = Stack(frames=frames, places=places, phase=phase, has_stepped=has_stepped)
    # The class that a wrapper borrows is that of the exception that it quotes, which has its own frames.
    family = "launcher" if is_quoting else family_of(raised)
    return finding_of(raised, family, stack), phase


def _frames_from(ordered: list[Raised], number: int) -> list[Frame]:
    """Return the frames of an exception, and around them those of the exceptions that it led to."""
    return [frame for one in reversed(ordered[number:]) for frame in one.frames]


def _replaces(
    later: ShownFault, best: ShownFault, ordered: list[Raised], numbers: tuple[int, int]
) -> bool:
    """Whether a later exception of a chain shows more than the best before it. An earlier one counts first."""
    number, number_of_best = numbers
    if best.layer == "launcher" and later.layer != "launcher":
        return True
    handled = ordered[number_of_best]
    is_control_flow = family_of(handled) in _CONTROL_FLOW or handled.name == "StopIteration"
    if ordered[number].relation == "context" and is_control_flow:
        return later.by != "nothing" and later.layer != "launcher"
    return _ORDER.index(later.by) < _ORDER.index(best.by)
