"""A row of the tables of statements, and the words that rows share."""

import re
from dataclasses import KW_ONLY, dataclass, field

from runner.facts.matches import Layer

# What a part is that no longer does what it is for, behind its name.
GONE = (
    r"(?:missing|lost|dead|gone|unresponsive|unreachable|hung|(?:not|no longer|stopped) (?:respond\w*|reachable|visible|present"
    r"|detected|available|answer\w*)|disappeared|vanished|dropped (?:out|off))"
)
# Forms of "to be" and the like between a subject and what became of it.
IS = r"(?:(?:is|are|was|were|has|have|had|went|became|seems|appears|been|being|to be|now|all|suddenly|reported|as) ){0,3}"
# Not what is being done to it.
DOWN = r"(?<!tearing )(?<!scale )(?<!shutting )(?<!power )(?<!bring )(?<!set )(?<!count )(?<!currently )down"
# Of files and records: what is there cannot be used.
SPOILT = (
    r"(?:truncated|corrupt(?:ed|ion)?|damaged|malformed|unreadable|incomplete|garbled|undecodable|broken"
    r"|(?:cannot|can't|could not|couldn't|failed to|unable to) (?:be )?(?:\w+ )?(?:read|decode|parse|load|open|deserialize)\w*)"
)
# A time with its unit.
SECONDS = r"\d[\d.,]*\s?(?:s|sec\w*|m|min\w*|h|hours?|ms)\b"


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence that states a fault in plain words, whatever program says it; any case.

    The groups `few` and `all` of a pattern must differ as their names say, `slow` must be well above `usual`, `low` well below
    `high`, and `many` at least `LEAST_MANY`. `sample` matches; `near` is similar and does not.
    """

    pattern: str
    fault: str
    _: KW_ONLY
    layer: Layer
    sample: str
    near: str
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern, re.I))
