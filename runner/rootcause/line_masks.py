"""Masks: a line without what differs between two lives of the same failure, so that its next occurrence gets the same name."""

from __future__ import annotations

import hashlib
import re

_MASKS = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"(/[\w.\-]+)+"), "<path>"),
    (re.compile(r"\d+"), "<n>"),
)


def masked(text: str) -> str:
    """Return a line with addresses, paths and numbers masked."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def digest(text: str) -> str:
    """Name a line by what is left of it when it is masked; "-" for none."""
    return hashlib.sha256(masked(text).encode()).hexdigest()[:8] if text else "-"
