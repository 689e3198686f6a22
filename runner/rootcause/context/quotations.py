"""Quotations: lines that only speak of faults: help texts, source code, tests that passed, alerts that are over."""

import re

_QUOTATION = re.compile(
    # An option with what it means, as argparse and its like print them.
    r"\s*(?:-\w,? )?--[a-z][\w-]+(?:[ =](?:[A-Z][A-Z_]+|<[^>]{1,40}>|\{[^}]{1,200}\}|\[[^\]]{1,80}\]))?\s{2,}\w"
    # Source code that a search or a linter found.
    r"|\S{1,200}\.(?:py|pyx|cc?|cpp|cxx|cu|cuh|hpp?|go|rs|java|sh)[:-]\d{1,6}[:-](?:\d{1,4}:)?\s*"
    r"(?:raise\b|throw\b|assert\b|def |class |return\b|if\b|elif\b|else\b|except\b|catch\b|case\b|import\b|from \S+ import\b"
    r"|print\(|log(?:ger|ging)?\.|LOG\(|#|//|/\*)"
    # Tests that ended as they should, of pytest, unittest, Go, Rust and googletest.
    r"|\S{1,200}::\S.{0,200}\b(?:PASSED|XFAIL|XPASS|SKIPPED)\b|test_\w+ \(.{1,200}\) \.\.\. (?:ok|skipped|expected failure)\b"
    r"|\s*--- (?:PASS|SKIP): |test \S{1,200} \.\.\. (?:ok|ignored)\b|\[ +(?:OK|RUN|SKIPPED) +\] "
    # One line for each commit of a history.
    r"|\W{0,6}[0-9a-f]{7,12} (?:\(.{1,60}\) )?(?:fix|feat|chore|docs?|merge|revert|refactor|tests?|perf|ci|build)\b"
    # Alerts that are over.
    r"|\W{0,3}RESOLVED\b|.{0,400}[\"']?\bstatus[\"']?\s*[:=]\s*[\"']?resolved\b"
)


def is_quotation(text: str) -> bool:
    """Whether a line, without its wrapping, speaks of a fault that it does not report."""
    return _QUOTATION.match(text) is not None
