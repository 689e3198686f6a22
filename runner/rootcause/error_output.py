"""Error output: the error that ended a program, found in what it wrote to standard error.

The last line is rarely the cause: advice, warnings, stacks of C++ and the errors of a shutdown follow it. Of tracebacks that Python
chained, the first one is the cause. The text is hostile: nothing is evaluated, and every text has an answer.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

# Innermost frames that identify an error: the outer ones differ with how the program was started. Chosen.
MAX_FRAMES = 3

# What launchers and loggers put before a line: [rank3]:, [default3]:, 3:, [1,3]<stderr>:, a time.
_PREFIX = re.compile(
    r"(?:\[(?:rank|default)\d+\]:|\[\d+,\d+\]<std(?:err|out)>:|\d{1,6}:(?=\s)|"
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?)\s?"
)
_HEADER = re.compile(r"[\s|+]*(?:Original )?Traceback \(most recent call last\):")
_FRAME = re.compile(r'\s*File "([^"]*)", line \d+(?:, in (\S+))?')
_CHAINED = re.compile(
    r"The above exception was the direct cause|During handling of the above exception"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:$|:|\()")
_IGNORED = re.compile(
    r"Exception ignored in|Error in atexit|Exception in thread .*(?:pin_memory|Watch)"
)

# Lines that follow an error and say nothing about it, or are no errors.
_NOISE = re.compile(
    r"\w*Warning:|\bwarnings\.warn\(|^\s*\[?[WID]\d{4}[ \]]|\[W\d{3,}|^\s*(?:\[?(?:WARNING|WARN|INFO|DEBUG)\b)|"
    r"^\s*frame #\d+|Exception raised from |<unknown function>|^\s*\^+\s*$|^\s*~*\^+~*\s*$|"
    r"CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|HIP_LAUNCH_BLOCKING|AMD_SERIALIZE_KERNEL|"
    r"asynchronously reported|stacktrace below might be incorrect|"
    r"TORCH_SHOW_CPP_STACKTRACES|RUST_BACKTRACE|HYDRA_FULL_ERROR|JAX_TRACEBACK_FILTERING|"
    r"destroy_process_group|resource_tracker|leaked (?:semaphore|shared_memory)|"
    r"[Ff]or (?:more|debugging|details|further)\b|[Ss]ee (?:also )?https?://|^\s*https?://|^\s*(?:Please|Consider|Try|Note:|note:|Hint:|hint:)\b|"
    r"Fatal Python error: Aborted|^Thread 0x|^Current thread 0x|^Extension modules:|"
    r"core dumped|^\s*what\(\):\s*$|"
    # Rules of summaries, and bars of progress.
    r"^[^A-Za-z0-9]*$|\d+%\|[^|]*\||^.{0,60}\d+/\d+ \[\d\d:\d\d"
)
# Functions of interpreters and libraries that run while a program ends.
_TEAR_DOWN = frozenset(
    {
        *(
            "_run_finalizers",
            "_exit_function",
            "_run_exitfuncs",
            "_python_exit",
            "__del__",
            "_cleanup",
        ),
        *(
            "destroy_process_group",
            "_shutdown",
            "_shutdown_workers",
            "_clean_up_worker",
            "atexit_callback",
        ),
    }
)
# Of torchrun: it reports that a rank failed, with a traceback of its own.
_LAUNCHER = re.compile(r"torch[/\\]distributed[/\\](?:run|launcher|elastic)\b|ChildFailedError")
_ERROR = re.compile(
    r"\b[\w.]*(?:Error|Exception)\b|what\(\):|\b(?:error|fatal|failed|failure|cannot|assertion|abort(?:ed)?|panicked|"
    r"segmentation fault|bus error|killed|denied|no such|not found|refused|timed out|out of memory)\b",
    re.IGNORECASE,
)


class RootError(NamedTuple):
    """The error that ended a program: its own line, and `file:function` of its innermost frames, outermost first."""

    line: str
    frames: tuple[str, ...] = ()
    # Of its lines in the text, counted from 0.
    first: int = 0
    last: int = 0


class _Traceback(NamedTuple):
    error: RootError
    # It follows from the one before it in the text.
    is_chained: bool
    is_original: bool
    is_tear_down: bool
    is_of_launcher: bool


def root_error(text: str) -> RootError | None:
    """Return the error that a program's error output ends with; None where it has no line but advice and warnings."""
    lines = [_without_prefix(line) for line in text.splitlines()]
    tracebacks = _tracebacks(lines)
    of_program = [one for one in tracebacks if not one.is_tear_down and not one.is_of_launcher]
    if of_program:
        return _root_of(of_program)
    above = lines[: tracebacks[0].error.first] if tracebacks else lines
    line = _last_line(above, only_errors=bool(tracebacks))
    return line or _root_of(tracebacks)


def essential(text: str, *, max_lines: int, max_bytes: int) -> str:
    """Return error output cut to this size: the error that ended the program, with its frames, and what fits from its end."""
    lines = text.splitlines()
    root = root_error(text)
    shown = "\n".join(lines[-max_lines:])
    if root is None or (root.first >= len(lines) - max_lines and _num_bytes(shown) <= max_bytes):
        return _end_of(shown, max_bytes)
    error = lines[root.first : root.last + 1]
    if len(error) > max_lines:
        error = [error[0], *error[1 - max_lines :]]
    first_part = _end_of("\n".join(error), max_bytes * 3 // 4)
    rest = "\n".join(lines[root.last + 1 :][-max_lines:])
    second_part = _end_of(rest, max_bytes - _num_bytes(first_part) - 1)
    return "\n".join(part for part in (first_part, second_part) if part)


def _num_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _end_of(text: str, max_bytes: int) -> str:
    data = text.encode(errors="replace")
    return data[max(0, len(data) - max_bytes) :].decode(errors="ignore") if max_bytes > 0 else ""


def _without_prefix(line: str) -> str:
    """Return a line without what launchers and loggers put before it, twice at most."""
    for _ in range(2):
        found = _PREFIX.match(line)
        line = line[found.end() :] if found else line
    return line.rstrip()


# ---- tracebacks


def _tracebacks(lines: Sequence[str]) -> list[_Traceback]:
    """Return the tracebacks of a text, those that the interpreter ignored left out."""
    found: list[_Traceback] = []
    is_chained = is_ignored = False
    number = 0
    while number < len(lines):
        line = lines[number]
        if _CHAINED.search(line):
            is_chained = True
        elif _IGNORED.search(line):
            is_ignored = True
        elif _HEADER.match(line):
            one = _traceback_at(lines, number, is_chained=is_chained)
            number = number if one is None else one.error.last
            if one is not None and not is_ignored:
                found.append(one)
            is_chained = is_ignored = False
        number += 1
    return found


def _traceback_at(lines: Sequence[str], start: int, *, is_chained: bool) -> _Traceback | None:
    """Return the traceback whose header is on this line; None if its last line, the exception, is missing."""
    files, functions = list[str](), list[str]()
    for number in range(start + 1, len(lines)):
        line = lines[number]
        frame = _FRAME.match(line)
        if frame is not None:
            files.append(frame[1])
            functions.append(frame[2] or "")
        elif (files or number > start + 1) and _EXCEPTION.match(line.lstrip(" |+")):
            if line[:1].isspace() and not line.startswith(("  |", "    |")):
                # A line of source code below its frame.
                continue
            text = _with_next(lines, number)
            places = [f"{_base(file)}:{name}" for file, name in zip(files, functions, strict=True)]
            return _Traceback(
                error=RootError(text, tuple(places[-MAX_FRAMES:]), start, number),
                is_chained=is_chained,
                is_original="Original" in lines[start],
                is_tear_down=any(name in _TEAR_DOWN for name in functions),
                is_of_launcher=bool(files) and _LAUNCHER.search(f"{files[-1]} {text}") is not None,
            )
        elif _HEADER.match(line):
            return None
    return None


def _with_next(lines: Sequence[str], number: int) -> str:
    """Return a line; one that ends with a colon says what it means on the next."""
    text = lines[number].strip(" |+")
    after = lines[number + 1].strip() if number + 1 < len(lines) else ""
    is_continued = (
        text.endswith((":", "c10::Error'", "std::runtime_error'"))
        and after
        and not _NOISE.search(after)
    )
    return f"{text} {after}" if is_continued else text


def _base(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]


def _root_of(tracebacks: Sequence[_Traceback]) -> RootError | None:
    """Return the first error of the last chain; None without tracebacks. An error may quote that of a worker."""
    if not tracebacks:
        return None
    start = len(tracebacks) - 1
    if tracebacks[start].is_original:
        return tracebacks[start].error
    while start > 0 and tracebacks[start].is_chained:
        start -= 1
    return tracebacks[start].error


# ---- without a traceback


def _last_line(lines: Sequence[str], *, only_errors: bool) -> RootError | None:
    """Return the last line that reads like an error; unless only such count, else the last that is no advice."""
    candidates = [
        (number, line)
        for number, line in enumerate(lines)
        if line.strip() and not _NOISE.search(line)
    ]
    errors = [(number, line) for number, line in candidates if _ERROR.search(line)]
    chosen = errors if errors or only_errors else candidates
    if not chosen:
        return None
    number = chosen[-1][0]
    return RootError(_with_next(lines, number), (), number, number)
