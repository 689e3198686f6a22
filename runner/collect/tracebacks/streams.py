"""Streams: the lines of one writer from the header of a traceback on, and what the lines above it state."""

import re
from typing import NamedTuple

from runner.collect.tracebacks import line_forms as forms
from runner.collect.tracebacks.native_text import CppText, FatalText
from runner.collect.tracebacks.prefixes import WrittenLine, learned_prefix, rank_in
from runner.collect.tracebacks.python_text import PythonText

# Lines of others until a traceback is over that has its exception, or has not.
IDLE_LINES, UNFINISHED_LINES = 60, 400
_IGNORED = re.compile(
    r"Exception ignored (?:in|while|on)|Error in atexit|--- Logging error ---|"
    r"Exception in thread .*(?:_monitor|tqdm|wandb|pin_memory)"
)
_OWNER = re.compile(r"(?P<owner>Process [\w.:-]{1,80}|Exception in thread [\w. ()-]{1,80}):\s*$")
# It was logged, and the program went on.
_HANDLED = re.compile(
    r"(?i)\bwarn(?:ing)?\b.*(?:retry|ignor|skip|fall(?:ing)?[ -]?back|continu|attempt|default)"
)
_SUMMARY_RANK = re.compile(r"\brank\s*: (\d{1,6}) \(local_rank: \d+\)")


class Introduction(NamedTuple):
    """What the lines above a traceback state of it."""

    owner: str = ""
    rank: int | None = None
    is_ignored: bool = False
    is_logged: bool = False


class Stream:
    """The lines of one writer, from the header of a traceback on."""

    def __init__(
        self,
        begin: WrittenLine,
        text: PythonText | CppText | FatalText,
        *,
        prefix: str = "",
        introduction: Introduction,
    ) -> None:
        self.begin, self.text, self.introduction = begin, text, introduction
        self.key = begin.key
        self.prefix = learned_prefix(prefix)
        self.rank = begin.rank
        if self.rank is None:
            self.rank = rank_in(prefix)
        if self.rank is None:
            self.rank = introduction.rank
        # Whether a line after the first began with the prefix, too.
        self.is_confirmed = False
        self.num_lines = 0
        self.last_number = begin.number

    def own_text(self, line: WrittenLine) -> str | None:
        """Return the text of a line without the learned prefix; None for a line of another writer."""
        if self.prefix is None:
            return line.text
        found = self.prefix.match(line.text)
        if found is not None:
            self.is_confirmed = True
            return line.text[found.end() :]
        if self.is_confirmed or self.num_lines > self.text.is_cut:
            return None
        # A logger wrote its prefix once.
        if not line.text or line.text[0].isspace() or forms.frame_of(line.text):
            self.prefix = None
            return line.text
        return None

    def add(self, number: int, text: str) -> bool:
        """Add a line; False: it is none of this traceback."""
        self.num_lines += 1
        self.last_number = number
        return self.text.add(number, text)

    def is_over(self, number: int) -> bool:
        """Whether nothing of it was written for many lines."""
        limit = IDLE_LINES if self.text.last else UNFINISHED_LINES
        return number - self.last_number > limit


def introduction_of(above: bytes, prefix: str) -> Introduction:
    """Return what the two lines above a header, and the text before it, state of a traceback."""
    lines = above.decode(errors="replace").splitlines()
    near = [line for line in lines if line.strip()][-2:]
    owner = next((found["owner"] for line in near if (found := _OWNER.search(line))), "")
    ranks = _SUMMARY_RANK.findall("\n".join(lines)) if "traceback" in prefix else []
    return Introduction(
        owner=owner,
        rank=int(ranks[-1]) if ranks else None,
        is_ignored=any(_IGNORED.search(line) for line in near),
        is_logged=any(_HANDLED.search(line) for line in (*near[-1:], prefix)),
    )
