"""A family of emitters, and the words that families share."""

import re
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from runner.facts.matches import Layer, Scope


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of emitter, or of event, that a pattern shows anywhere in a line; any case unless the pattern says otherwise."""

    name: str
    pattern: str
    fault: str
    _: KW_ONLY
    layer: Layer
    scope: Scope
    sample: str
    near: str
    confidence: float = 0.6
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern, re.I))


nccl = partial(Family, layer="network", scope="fabric", near="NCCL INFO Using network IB")
kernel = partial(Family, layer="machine", scope="node", near="usb 1-1: new high-speed USB device")
storage = partial(Family, fault="filesystem", layer="machine", scope="storage")
gpu = partial(Family, layer="device", scope="gpu")
program = partial(Family, layer="program", scope="user")
ended = partial(Family, fault="unknown", layer="launcher", scope="rank", confidence=0.4)
# What hardware and drivers report as lost, broken or late, within so much text.
TROUBLE = (
    r".{0,160}\b(?:errors?|fail\w*|fault\w*|timed? ?out|timeout|time-?out|aborts?|aborting|reset\w*|dead|hung|hang|stuck"
    r"|fatal"
    r"|uncorrect\w*|corrupt\w*|unable|cannot|can't|could not|couldn't|bad|broken|offline|down|lost|not responding|invalid"
    r"|critical|panic"
    r"|overflow|unhealthy|degraded|compromised|assert\w*|no memory|unexpected|missing|refused|rejected)"
)
# How kernel lines and those of drivers begin: with the subsystem, behind a time or `kernel:`.
HEAD = r"(?:^|\] ?|kernel: ?|: )(?:\S{1,40} )?"
GONE = (
    r".{0,120}(?:surprise|removed|removing|removal|vanish\w*|disconnect\w*|disappear\w*|not present|no such device|ENODEV"
    r"|hot-?unplug)"
)

# Of files: what is there is not what a reader expects.
UNREADABLE = (
    r".{0,80}\b(?:corrupt\w*|truncat\w*|incomplete|not (?:a )?(?:finali[sz]ed|complete|committed)|missing|bad (?:header|magic)"
    r"|cannot be (?:read|decoded|parsed|loaded|restored)|checksum|malformed|damaged|unreadable)\b"
)
UNREADABLE_BEFORE = (
    r"\b(?:corrupt\w*|truncated|incomplete|bad header|malformed|damaged|unreadable|cannot (?:read|decode|parse|load|restore|save)"
    r"|(?:failed|unable) to (?:read|decode|parse|load|restore|save|write))\b.{0,60}"
)
