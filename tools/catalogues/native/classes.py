"""Classes of native messages: which layer and scope go with a fault, and what words in a text decide before its file does."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from runner.facts.matches import Layer, Scope
from tools.catalogues.rows import MAX_FORMAT, Level, Row, Style

_PLACES: dict[str, tuple[Layer, Scope]] = {
    "gpu_ecc": ("device", "gpu"),
    "gpu_lost": ("device", "gpu"),
    "gpu_xid_other": ("device", "gpu"),
    "nvlink_error": ("link", "gpu"),
    "thermal_power": ("device", "node"),
    "host_hardware": ("device", "node"),
    "device_vanished": ("device", "node"),
    "node_failure": ("machine", "node"),
    "host_oom": ("machine", "node"),
    "filesystem": ("machine", "storage"),
    "nccl_network": ("network", "fabric"),
    "rendezvous": ("network", "fabric"),
    "nccl_timeout": ("collective", "rank"),
    "cuda_oom": ("program", "user"),
    "config_error": ("program", "user"),
    "data_error": ("program", "user"),
    "cuda_illegal_access": ("program", "rank"),
    "nan_loss": ("program", "rank"),
    "checkpoint_io": ("program", "storage"),
}
# Literal letters that a text needs to be found by itself; chosen.
_FEW_LETTERS = 14
_PRINTF = re.compile(r"%(?:[-+ #0']*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t|q|L)?[a-zA-Z]|%)")
_BRACES = re.compile(r"\{[^{}]*\}")
# An end of a sentence, with the next one behind it.
_SENTENCE = re.compile(r"[.!?](?=\s+\S)")
_FIELDS = re.compile(r"\{[^{}]*\}|%[-+ #0-9.*]*[a-zA-Z]+")
# Letters of a sentence from which on it needs no second one; chosen.
_KNOWN_LETTERS = 30
_LETTERS = re.compile(r"[A-Za-z]")


class Rule(NamedTuple):
    """A pattern over a text (any case), the fault that it decides, and the reason."""

    pattern: re.Pattern[str]
    fault: str
    why: str


def rules(*rows: tuple[str, str, str]) -> tuple[Rule, ...]:
    """Compile rules, the first of which that matches decides."""
    return tuple(Rule(re.compile(one, re.IGNORECASE), fault, why) for one, fault, why in rows)


# Words that mean the same in every library.
EVERYWHERE = rules(
    (r"out of (?:gpu|device|cuda) memory|cuda(?:_| )?malloc\w* failed", "cuda_oom", "GPU memory"),
    (
        r"uncorrectable (?:ecc|memory|dram|sram)|double[- ]bit|\bDBE\b|uncorrected ecc",
        "gpu_ecc",
        "an ECC error of the device",
    ),
    (
        r"out of memory|cannot allocate memory|(?:fail(?:ed|ure)?|unable|could ?n[o']t|can ?not) to "
        r"(?:m|re|c)?alloc(?:ate)?\b(?! .*(?:queue|pair|\bqp\b|\bcq\b|\bpd\b|domain|port|context))"
        r"|(?:alloc(?:ation)?|malloc|calloc|realloc|memalign)\w*\(?\)? (?:of .{1,40} )?fail(?:ed|ure)"
        r"|alloc\(.*\) returned null|not enough memory|insufficient memory|no memory",
        "host_oom",
        "an allocation of host memory failed",
    ),
)


def classify(text: str, own: Sequence[Rule], otherwise: str) -> tuple[str, str]:
    """Return (fault, why) of a text: by the emitter's own rules, by words of every library, else by its file, without a reason."""
    for rule in (*own, *EVERYWHERE):
        if rule.pattern.search(text):
            return rule.fault, rule.why
    return otherwise, ""


def row(at: str, text: str, level: Level, fault: str = "", **more: object) -> Row:
    """Return a row whose layer and scope go with its fault; `more` as in `Row`. The text is one line."""
    layer, scope = _PLACES.get(fault, (None, None))
    fields = {"layer": layer, "scope": scope, **more}
    fault = fault if level in ("error", "warning") else ""
    return Row(at, text.strip()[:MAX_FORMAT], level, fault, **fields)  # type: ignore[arg-type]


def first_sentence(text: str) -> str:
    """Return the sentences of a text up to the first that makes it known: what follows differs between versions."""
    for one in _SENTENCE.finditer(text):
        head = text[: one.start() + 1]
        if len(_LETTERS.findall(_FIELDS.sub("", head))) >= _KNOWN_LETTERS:
            return head
    return text


def literals(text: str, style: Style) -> list[str]:
    """Return the literal pieces between conversions or fields."""
    if style == "plain":
        return [text]
    if style == "printf":
        return _PRINTF.split(text)
    return _BRACES.split(text.replace("{{", "").replace("}}", ""))


def letters(text: str, style: Style) -> int:
    """Return how many letters the longest literal piece of a format has."""
    return max(len(_LETTERS.findall(piece)) for piece in literals(text, style))


def required(text: str, style: Style, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that a line must have beside a format that is too short to be known by itself."""
    return words if letters(text, style) < _FEW_LETTERS else ()
