"""Quotations: lines that only speak of faults: help texts, source code, tests that passed, alerts that are over."""

import re
from collections.abc import Mapping

_QUOTATION = re.compile(
    # An option with what it means, as argparse and its like print them.
    r"\s*(?:-\w,? ?)?--[a-z][\w-]+(?:[ =,](?:[A-Z][A-Z_]+|<[^>]{1,40}>|\{[^}]{1,200}\}|\[[^\]]{1,80}\]))?\s{2,}\w"
    # Source code that a search or a linter found, and classes of errors.
    r"|\S{1,200}\.(?:py|pyx|cc?|cpp|cxx|cu|cuh|hpp?|go|rs|java|sh)[:-]\d{1,6}[:-](?:\d{1,4}:)?\s*"
    r"(?:raise\b|throw\b|assert\b|def |class |return\b|if\b|elif\b|else\b|except\b|catch\b|case\b|import\b|from \S+ import\b"
    r"|print\(|log(?:ger|ging)?\.|LOG\(|#|//|/\*|\"{3})"
    r"|\s*class \w+(?:Error|Exception)\("
    # Tests that ended as they should, of pytest, unittest, Go, Rust and googletest.
    r"|.{0,200}\S::\S.{0,300}? (?:\.\.\. )?(?:PASSED|XFAIL|XPASS|SKIPPED)\b|(?:PASSED|XFAIL|XPASS|SKIPPED) \S"
    r"|test_\w+ \(.{1,200}\) \.\.\. (?:ok|skipped|expected failure)\b|\s*--- (?:PASS|SKIP): "
    r"|test \S{1,200} \.\.\. (?:ok|ignored)\b|\[ +(?:OK|RUN|SKIPPED|DISABLED) +\] "
    # One line for each commit of a history; notes of a release; instructions.
    r"|\W{0,6}[0-9a-f]{7,40} (?:\(.{1,80}\) )?(?:fix|feat|chore|docs?|merge|revert|refactor|tests?|perf|ci|build|style|add)\b"
    r"|(?:.{0,60}[:*-] )?[Ff]ix(?:ed|es)?(?: in [\w.]+)?: |(?:.{0,60}[:*-] )?[Ff]ix(?:ed|es) an? (?:issue|bug|problem)\b"
    r"|.{0,60}\b[Rr]unbook:"
    # States of containers that were not ended for their memory; an error with the number 0.
    r"|.{0,200}\b[Oo][Oo][Mm]Killed\W{1,4}[Ff]alse\b|.{0,80}\b(?:CUDA|cuda|HIP|hip) ?(?:[Ee]rror|failure)(?: code)?[ :=(]{1,3}0\b"
    # Rules for restarts, counts of nothing, and remarks on what ends a job.
    r"|.{0,200}\b(?:retry|restart|requeue|relaunch|resubmit)[_ ](?:on|if|when|for)\b ?[=:\[]"
    r"|.{0,200}\b(?:[Cc]ounts?|alerts?|events?|occurrences?)\b[^:.]{0,40}: 0\b"
    r"|.{0,200}\b(?:[Aa]n?|[Aa]ny|[Ee]ach|[Ee]very) \w+ that (?:was|is|has been) \w+ed by\b"
    # Alerts that are over, or did not begin, and their definitions; what dcgmi watches.
    r"|\W{0,3}RESOLVED\b|.{0,400}[\"']?\bstatus[\"']?\s*[:=]\s*[\"']?resolved\b|.{0,200}\bHealth check cleared: "
    r"|.{0,400}\balertstate=\"(?:pending|inactive)\""
    r"|.{0,400}\{\{ ?\$(?:labels|value)\b|.{0,400}\| Violation conditions +\|"
)
_HANG_SUPPOSED = re.compile(
    r"\b(?:if|when|whenever|unless|until|in case|avoids?|prevents?|to detect|detects|simulat\w+|fix(?:ed|es)?) (?:\w+ ){0,6}"
    r"(?:hangs?|hung|hanging|stuck|stall(?:s|ed)?|deadlock(?:s|ed)?|frozen|no (?:progress|output|logs?|heartbeats?|steps?))\b"
    r"|\b(?:no|not|never|0|without) (?:a |any )?(?:hangs?|hung|hanging|stuck|stalled|deadlocks?)\b"
)
# Conditions; formats in source code.
_DEVICE_SUPPOSED = re.compile(
    r"(?:^|[:;*-] )[Ii]f (?:(?:a|an|the|any|one|you see|you get|you hit|there is|there are) )?(?:\w+ ){0,2}(?:GPUs?|Xid|XID|ECC)\b"
    r'|"[^"]{0,100}%[dusx][^"]{0,100}\b(?:ECC|Xid|XID|NvLink|NVLink)\b|"[^"]{0,100}\b(?:ECC|Xid|NvLink)\b[^"]{0,60}%[dusx]'
)
_SUPPOSED: Mapping[str, re.Pattern[str]] = {
    "hang_no_error": _HANG_SUPPOSED,
    "gpu_ecc": _DEVICE_SUPPOSED,
    "gpu_lost": _DEVICE_SUPPOSED,
    "gpu_xid_other": _DEVICE_SUPPOSED,
    "nvlink_error": _DEVICE_SUPPOSED,
    "cuda_illegal_access": _DEVICE_SUPPOSED,
}


def is_quotation(text: str, fault: str = "") -> bool:
    """Whether a line, without its wrapping, speaks of a fault that it does not report. `fault`: the one that it names."""
    if _QUOTATION.match(text):
        return True
    supposed = _SUPPOSED.get(fault)
    return supposed is not None and supposed.search(text) is not None
