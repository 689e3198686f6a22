"""The start of a run: connections that fail before the first step are of ranks that could not meet, not of a network that was"
" lost.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from runner.facts.faults import FAULTS
from runner.facts.matches import Match

# Of one failure: the exception, and below it what NCCL says of it. Chosen.
MAX_LINES = 8
# NCCL's bootstrap, and sockets that are being connected. A connection that a peer closed was there before.
_CONNECTS = re.compile(
    r"\bbootstrap\.cc:\d+|\bsocket(?:Start|Poll|Finalize|Try)?Connect\w*|\bncclSocketConnect\b|\bbootstrap(?:Init|Root|Create)\w*"
    r"|\b[Cc]onnecting to address\b|\bConnect to \S{1,120} (?:\w+ )?(?:failed|returned)\b|\bBootstrap ?: .{0,80}\b(?:fail\w*"
    r"|timeout|no )\b"
    r"|\bncclCommInitRank\w*\b.{0,200}\b(?:fail\w*|refused|reset|closed|unreachable|no route)\b"
)
# The network itself is what is wrong.
_NO_WAY = re.compile(
    r"(?i)\bno route to host\b|\bunreachable\b|\bnetwork is down\b|\bhost is down\b"
)


def with_start(matches: Sequence[Match], *, first_step: int) -> list[Match]:
    """Return the matches of one log in which what failed to connect before the first step is a rendezvous.

    `first_step`: the line of the log's first step; 0: it has none.
    """
    lines = [match.line for match in matches if _fails_to_meet(match, first_step)]
    return [
        replace(match, fault="rendezvous", layer="network", scope=FAULTS["rendezvous"].scope)
        if match.fault == "nccl_network" and _is_beside(match, lines)
        else match
        for match in matches
    ]


def _is_beside(match: Match, lines: Sequence[int]) -> bool:
    return any(abs(match.line - line) <= MAX_LINES for line in lines)


def _fails_to_meet(match: Match, first_step: int) -> bool:
    is_of_network = match.fault == "nccl_network" and match.layer == "network"
    if _NO_WAY.search(match.text):
        return False
    is_before = not first_step or match.line < first_step
    return is_of_network and is_before and _CONNECTS.search(match.text) is not None
