"""The steps of one log: how far it came, and the last step that the process surely survived.

A process that ends by an exception draws its bar once more below the traceback, often with a step that it had not drawn before.
So the last state of a bar shows progress only once another step follows it.
"""

import re
from dataclasses import dataclass

from runner.facts.matches import LoggedStep

# As tqdm draws it, and others like it: "33/100 [00:33<".
_BAR = re.compile(rb"\| *(\d{1,15})/(\d{1,15}) \[")


@dataclass(slots=True)
class LogSteps:
    """Follows the steps of one log. `first` and `furthest`: of all.

    `survived`: the newest that is of no open bar, or that another step follows.
    """

    file: str
    first: LoggedStep | None = None
    furthest: LoggedStep | None = None
    survived: LoggedStep | None = None

    def add(self, step: int, line: int, text: bytes) -> None:
        """Add a step of a line with this text."""
        before, is_open = self.furthest, is_open_bar(text)
        if before is None or step > before.step:
            self.furthest = LoggedStep(file=self.file, line=line, step=step)
            self.survived = before if is_open else self.furthest
        elif not is_open:
            self.survived = before
        self.first = self.first or self.furthest


def is_open_bar(text: bytes) -> bool:
    """Whether a line ends with a bar that is not full."""
    states = _BAR.findall(text)
    return bool(states) and int(states[-1][0]) < int(states[-1][1])
