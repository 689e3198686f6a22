"""Levels from the names of functions that log: `dev_err`, `netdev_warn_once`, `DMINFO`, `printk(KERN_ERR ...)`."""

import re
from collections.abc import Sequence

from tools.catalogues.rows import Level

BY_WORD: dict[str, Level] = {
    **dict.fromkeys(("emerg", "alert", "crit", "critical", "fatal", "err", "error"), "error"),
    **dict.fromkeys(("warn", "warning"), "warning"),
    **dict.fromkeys(("notice", "info"), "info"),
    **dict.fromkeys(("dbg", "debug", "vdbg", "trace"), "debug"),
}
_ENDS = re.compile(
    r"(?:^|_|(?<=^DM))(" + "|".join(BY_WORD) + r")"
    r"(?:_?(?:ratelimited|rl|once|limit|limited|probe|in_rcu|unless_timed_out))*$",
    re.IGNORECASE,
)
_KERNEL = re.compile(r"\bKERN_(\w+)")


def level_by_name(name: str) -> Level | None:
    """Return the level that a function's name ends with; None where it has none."""
    one = _ENDS.search(name)
    return BY_WORD[one[1].casefold()] if one else None


def level_of_kernel(arguments: Sequence[str]) -> Level | None:
    """Return the level that a `KERN_` word among the arguments of a printk gives; None for a line that is continued."""
    for argument in arguments:
        if one := _KERNEL.search(argument):
            word = one[1].casefold()
            return None if word in ("cont", "default") else BY_WORD.get(word)
    # The default of `CONFIG_MESSAGE_LOGLEVEL_DEFAULT`.
    return "warning"
