"""Lines that say that what a command begins with is not there: its program, its script, or a module. With the way out of each.

Where all nodes are one machine, another attempt lacks the same.
"""

import re

_MISSING = (
    (
        re.compile(r"cannot start '[^']{1,300}': \[Errno (?:2|8|13|20)\]"),
        "correct `command` or `working_directory` in run.yaml",
    ),
    (
        re.compile(r"can't open file '[^']{1,300}': \[Errno (?:2|13|20)\]"),
        "correct `command` or `working_directory` in run.yaml",
    ),
    (
        # The package is there, and lacks the module.
        re.compile(r"\bNo module named '?(?P<package>\w{1,200})\.[\w.]{1,200}'?"),
        "install a version of {package} that has it, or name another interpreter with `python` in run.yaml",
    ),
    (
        re.compile(r"\bNo module named '?(?P<module>[\w.]{1,200}\w)'?"),
        "install {module} for the interpreter of the ranks, or name another interpreter with `python` in run.yaml",
    ),
)


def way_out(line: str) -> str:
    """Return what to do about a line that says that a program, a script or a module is not there; "" for any other line."""
    for pattern, text in _MISSING:
        found = pattern.search(line)
        if found is not None:
            return text.format(**found.groupdict())
    return ""
