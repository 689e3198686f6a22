"""Fingerprints: the same failure, when it occurs again, gets the same name."""

import hashlib
import re

from runner.rootcause.error_output import RootError, root_error

_MASKS = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"(/[\w.\-]+)+"), "<path>"),
    (re.compile(r"\d+"), "<n>"),
)
# Characters of an error's line that count; chosen.
MAX_LINE = 400

# What differs between two occurrences of one failure; paths, hosts and names of checkpoints say what it is about, and stay.
_VOLATILE = (
    (
        re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?"),
        "<time>",
    ),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?"), "<time>"),
    (
        re.compile(
            r"0x[0-9a-fA-F]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b"
        ),
        "<hex>",
    ),
    (re.compile(r"(/(?:tmp|var/tmp|dev/shm)/)[^/\s'\"]+"), r"\1<name>"),
    (re.compile(r"(/proc/)\d+"), r"\1<n>"),
    (re.compile(r"\b(attempts/)\d+\.\d+\.\d+"), r"\1<attempt>"),
)
# A number by itself, with its unit; not one of an address, a version or a name.
_NUMBER = re.compile(
    r"(?<![\w./\-])[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:\s?(?:[KMGTP]i?B|[mun]?s|seconds)\b|(?=$|[\s,;:)\]}'\"%]|\.(?:\s|$)))"
)
# Before a number that names an error.
_CODE = re.compile(
    r"(?:error|errno|code|status|signal|xid|http|ret|retcode|returned)\W{0,3}$", re.IGNORECASE
)
# Work on a GPU is asynchronous: the frames only show where the program was when it learned of the error.
_ASYNCHRONOUS = re.compile(
    r"\b(?:CUDA|HIP|CUBLAS|CUDNN|NCCL|RCCL)\w* (?:kernel )?error\b|_STATUS_\w+", re.IGNORECASE
)


def masked(line: str) -> str:
    """Return a line with addresses, paths and numbers masked: they differ between occurrences."""
    for pattern, mask in _MASKS:
        line = pattern.sub(mask, line)
    return line


def fingerprint(fault: str, *, exit_code: int | None = None, stderr_tail: str = "") -> str:
    """Return the name of a failure: its fault, exit code, and a digest of the error that ended the program ("-" without one).

    The error is the one that `error_output.root_error` finds: its own line with what it is about, and its innermost frames.
    """
    error = root_error(stderr_tail)
    digest = hashlib.sha256(_identity(error).encode()).hexdigest()[:8] if error else "-"
    return f"{fault}:{exit_code}:{digest}"


def describe_fingerprint(mark: str) -> str:
    """Return what people read of a fingerprint: the fault, and the exit code where there was one."""
    fault, _, rest = mark.partition(":")
    exit_code = rest.partition(":")[0]
    return fault if exit_code in ("", "None") else f"{fault} with exit code {exit_code}"


def _identity(error: RootError) -> str:
    """Return an error's line without what differs between its occurrences, and its frames where these belong to it."""
    line = error.line[:MAX_LINE]
    for pattern, mask in _VOLATILE:
        line = pattern.sub(mask, line)
    line = _NUMBER.sub(lambda one: one[0] if _CODE.search(line[: one.start()]) else "<n>", line)
    frames = () if _ASYNCHRONOUS.search(line) else error.frames
    return "\n".join((line, *frames))
