"""Fingerprints: the same failure, when it occurs again, gets the same name."""

import hashlib
import re

_MASKS = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"(/[\w.\-]+)+"), "<path>"),
    (re.compile(r"\d+"), "<n>"),
)
# Characters of the last line that count; chosen.
MAX_LINE = 400


def masked(line: str) -> str:
    """Return a line with addresses, paths and numbers masked: they differ between occurrences."""
    for pattern, mask in _MASKS:
        line = pattern.sub(mask, line)
    return line


def fingerprint(fault: str, *, exit_code: int | None = None, stderr_tail: str = "") -> str:
    """Return the name of a failure: its fault, exit code, and a digest of the last line, masked ("-" without one)."""
    lines = [line.strip() for line in stderr_tail.splitlines() if line.strip()]
    digest = hashlib.sha256(masked(lines[-1][:MAX_LINE]).encode()).hexdigest()[:8] if lines else "-"
    return f"{fault}:{exit_code}:{digest}"
