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


# ---- shells

# What dash, bash, busybox, zsh, ksh, fish, csh, cmd and PowerShell print of commands that they cannot run, or of text that they
# cannot read; `env`, `nohup`, `timeout`, `xargs` and container runtimes, of the program that they were to start. Scripts may go on.
_SHELL = r"(?:\S*/|-)?(?:ba|da|z|k|mk|a|c|tc|fi)?sh"
_STARTERS = r"(?:env|nohup|timeout|nice|ionice|stdbuf|setsid|taskset|numactl|xargs|exec|sudo|time|chroot|unshare)"
# A script, or a shell, with the line that it is at: dash writes the number alone.
_AT_LINE = r"^(?:\S.{0,120}: )?(?:line )?\d{1,6}: "
_SUFFIX = r"(?:sh|bash|zsh|ksh|slurm|sbatch|job|pbs|run)"
_SCRIPT = (
    rf"(?:^(?:\S*/)?[\w.\-]{{1,80}}\.{_SUFFIX}: (?:line )?(?:\d{{1,6}}: )?|^{_SHELL}: |{_AT_LINE})"
)
REFUSED = (
    # The program, or the file, is not there, or is none that can be run.
    rf"^{_SHELL}: (?:(?:line )?\d{{1,6}}: )?\S{{1,200}}: (?:command )?not found\s*$"
    rf"|{_AT_LINE}\S{{1,200}}: (?:command )?not found\s*$"
    r"|^\S{1,200}: [Cc]ommand not found\.?\s*$"
    r"|^(?:\S*/)?zsh:(?:\d{1,6}:)? (?:command not found|no such file or directory|permission denied|bad interpreter|exec format"
    r" error"
    r"|no matches found|parse error|bad pattern|event not found)"
    r"|^fish: (?:Unknown command|Expected|Could not|The file)\b"
    rf"|{_SCRIPT}.{{1,200}}: (?:No such file or directory|Is a directory|Not a directory|Permission denied|Argument list too long"
    r"|Text file busy|bad interpreter|cannot execute|ambiguous redirect|invalid option)"
    r"|\bbad interpreter: "
    rf"|^(?:\S*/)?{_STARTERS}: (?:failed to (?:run|execute)(?: command)? |cannot run |unable to execute"
    rf" )?['\"‘`]?\S{{1,200}}['\"’]?: "
    r"(?:No such file or directory|Permission denied|command not found|not found)\s*$"
    r"|\bexec: \\?\"[^\"]{1,200}\": (?:executable file not found|stat |permission denied)"
    r"|\bexec(?:v[pe]{0,2})?(?: of \S{1,200}| failed)?: (?:No such file or directory|Exec format error)\s*$"
    # The text is none that the shell can read, or it names what is not set.
    rf"|{_SCRIPT}.{{0,200}}\b(?:[Ss]yntax error\b|unexpected EOF while looking|unbound variable\s*$|parameter not set\s*$"
    r"|parameter null or not set\s*$|[Bb]ad substitution\s*$|bad array subscript)"
    # cmd and PowerShell.
    r"|' is not recognized as an internal or external command"
    r"|\bis not recognized as (?:the|a) name of a cmdlet\b|\bcannot be loaded because running scripts is disabled\b"
    r"|^The system cannot find the (?:file|path|drive|batch label) specified\b|^(?:System error \d+|Access is denied\.)\s*$"
    r"|^The syntax of the command is incorrect\.|^\S{1,80} was unexpected at this time\.|^A positional parameter cannot be found\b"
    r"|^'?\S{1,200}'? is not a valid Win32 application"
)
_REFUSED = re.compile(REFUSED)


def is_refused(text: str) -> bool:
    """Whether a line says that a shell could not run or read a command."""
    return _REFUSED.search(text) is not None
