"""Messages of Python's own exceptions that programs print without their class, as `print(error)` does, and the class of each.

Sources: CPython's Objects/*.c and Python/ceval.c. Only messages whose words no other class has.
"""

import re

from runner.rootcause.tracebacks.objects import Raised

_NAME = r"['\"‘`]?[A-Za-z_][\w.<>\[\]]{0,120}['\"’`]?"
_CALLED = r"(?:[A-Za-z_][\w.<>]{0,120}\(\)|<?\w[\w.<>]{0,120}>?\(\)|function|method)"
_TYPE = r"'[A-Za-z_][\w.]{0,80}'"
_MESSAGES: tuple[tuple[str, str], ...] = (
    (
        "UnboundLocalError",
        rf"(?:local |free )?variable {_NAME} referenced before assignment(?: in enclosing scope)?"
        rf"|cannot access local variable {_NAME} where it is not associated with a value",
    ),
    (
        "NameError",
        rf"(?:global )?name {_NAME} is not defined(?:\. Did you (?:mean|forget).{{1,120}})?"
        rf"|cannot access free variable {_NAME} where it is not associated with a value in enclosing scope",
    ),
    (
        "AttributeError",
        rf"(?:{_TYPE} object|type object {_NAME}|(?:partially initialized )?module {_TYPE}|super object) has no attribute"
        rf" {_NAME}.{{0,200}}"
        rf"|{_TYPE} object attribute {_NAME} is read-only|can't set attribute(?: {_NAME})?|property {_NAME} of {_TYPE} object"
        rf" has no setter",
    ),
    (
        "TypeError",
        rf"{_CALLED} (?:got (?:an unexpected keyword argument|multiple values for (?:keyword )?argument|some positional-only"
        rf" arguments)"
        r"|missing \d{1,3} required (?:positional|keyword-only) arguments?|takes (?:exactly |at (?:least|most) |from )?\w{1,4}"
        r"(?: to \d{1,3})? (?:positional )?arguments?|takes no (?:keyword )?arguments?)\b.{0,200}"
        rf"|{_TYPE} object (?:is not (?:subscriptable|iterable|callable|reversible|an iterator|a mapping)|does not support"
        rf" (?:item|slice)"
        r" (?:assignment|deletion)|cannot be interpreted as an integer|does not support (?:the )?\w{1,40}(?: \w{1,40}){0,3}"
        r" protocol)\b.{0,120}"
        rf"|unsupported operand type\(s\) for .{{1,60}}|{_TYPE} not supported between instances of {_TYPE} and {_TYPE}"
        rf"|.{{1,6}} not supported between instances of {_TYPE} and {_TYPE}"
        rf"|(?:cannot|can't) unpack non-iterable \S{{1,80}} object|unhashable type: {_TYPE}|Object of type \S{{1,80}} is not"
        rf" JSON serializable"
        r"|(?:string|list|tuple|byte) indices must be integers.{0,80}|can only concatenate \w{1,20} \(not .{1,40}\) to \w{1,20}"
        r"|can only (?:join|iterate)\b.{1,80}|expected str, bytes or os\.PathLike object, not \w{1,60}"
        r"|argument of type .{1,60} is not (?:iterable|a container or iterable)|must be real number, not \w{1,60}"
        r"|bad operand type for .{1,60}|cannot pickle .{1,80} object|catching classes that do not inherit from BaseException is"
        r" not allowed",
    ),
    (
        "ZeroDivisionError",
        r"(?:(?:integer|float|complex|Decimal) )?(?:division|modulo|floor division|integer division or modulo)(?: or modulo)?"
        r" by zero"
        r"|(?:integer|float) (?:floor division|modulo|division or modulo) by zero|float divmod\(\)",
    ),
    (
        "IndexError",
        r"(?:list|tuple|string|range object|bytearray|deque|pop|array|list assignment|assignment) index out of range"
        r"|pop from (?:an )?empty (?:list|deque)|invalid index of a 0-dim tensor\b.{0,120}|too many indices for (?:array"
        r"|tensor)\b.{0,120}"
        r"|index \d{1,12} is out of bounds for (?:axis|dimension) \d{1,3} with size \d{1,12}",
    ),
    ("ModuleNotFoundError", r"No module named ['\"]?[A-Za-z_][\w.]{0,200}['\"]?.{0,120}"),
    (
        "ImportError",
        rf"cannot import name {_NAME} from .{{1,200}}|attempted relative import .{{1,80}}|DLL load failed.{{0,200}}",
    ),
    ("RecursionError", r"maximum recursion depth exceeded.{0,120}"),
    ("KeyError", r"KeyError\(['\"]?.{1,120}['\"]?,?\)"),
)
_BY_CLASS = tuple((name, re.compile(rf"(?:{pattern})[.!]?")) for name, pattern in _MESSAGES)
# What a program or a logger puts before a message: "Exception in background worker 3: ", "Error: ".
_PARTS = re.compile(r"(?<=[:>\]|-])\s+(?=\S)|^\s*")
MAX_PARTS = 12


def unclassed(text: str) -> Raised | None:
    """Return the exception whose message a line without its class ends with; None: there is none."""
    text = text.rstrip()
    for number, part in enumerate(_PARTS.finditer(text)):
        if number >= MAX_PARTS:
            break
        message = text[part.end() :]
        for name, pattern in _BY_CLASS:
            if pattern.fullmatch(message):
                return Raised(name=name, message=message, line=0, text=text)
    return None


def is_message(text: str) -> bool:
    """Whether a line is such a message and nothing else."""
    found = unclassed(text)
    return found is not None and found.message == text.strip()
