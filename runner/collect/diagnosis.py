"""Diagnosis: logs of one run, read from front to back, become verdicts. What a command does offline, and agents do bit by bit.

What is kept does not grow with the logs: matches are folded (`scan`), of steps only the furthest is remembered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from runner.collect.engines import Engine
from runner.collect.scan import Scan, ScannedLine, engine_for
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics
from runner.facts.causes import Verdict
from runner.facts.matches import LAYERS, LoggedStep, Match, ScannedLogs
from runner.rootcause.correlation import correlate, telling
from runner.rootcause.signatures import SIGNATURES, Signature

# at the beginning of a file, to see whether it is text; chosen
PROBED_BYTES = 4096
# of zero bytes among them, from which on it is not; chosen
BINARY_SHARE = 0.05
# lines of one signature in one file that are told; chosen
ALIKE = 2
# incidents of one log's numbers that are kept; chosen
MAX_NUMERIC = 100
_RANK_IN_NAME = re.compile(
    r"(?<![a-z])(?<!lora[_\-.])(?<!node[_\-.])(?<!local[_\-.])(?<!low[_\-.])rank[_\-. ]?(\d+)(?!\d)",
    re.IGNORECASE,
)


class Diagnosis:
    """Judges the logs of one run together."""

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        own_format: str | None = None,
        signatures: Sequence[Signature] = SIGNATURES,
    ) -> None:
        """`own_format`: a pattern for the lines in which the trainer tells its steps. Raises UserError for one that is wrong.

        `engine`, where it is given, was made for these signatures and this format.
        """
        self._engine = engine or engine_for(signatures, own_format)
        self._signatures = signatures
        self._own_format = own_format
        self.logs: list[Log] = []

    def log(self, name: str, *, rank: int | None = None) -> Log:
        """Begin with another file; `rank`: whose it is, where its lines and its name do not say."""
        scan = Scan(
            name,
            signatures=self._signatures,
            own_format=self._own_format,
            engine=self._engine,
        )
        self.logs.append(Log(name, scan, rank))
        return self.logs[-1]

    def verdicts(self) -> list[Verdict]:
        """Return what is wrong, the root cause first; nothing for a healthy run."""
        matches = [match for log in self.logs for match in log.matches]
        return correlate(matches, [log.furthest for log in self.logs if log.furthest is not None])

    def scanned(self, most: int, *, text: int) -> ScannedLogs:
        """Return what a supervisor is told of these logs: at most so many lines, those that name a cause first.

        `text`: the most characters of each.
        """
        steps = tuple(log.furthest for log in self.logs if log.furthest is not None)
        every = telling((match for log in self.logs for match in log.matches), steps)
        told: Counter[tuple[str, str]] = Counter()
        matches = []
        for match in every:
            told[match.file, match.signature] += 1
            if told[match.file, match.signature] <= ALIKE:
                matches.append(match)
        order = sorted(range(len(matches)), key=lambda number: _importance(matches[number], number))
        kept = sorted(order[:most])
        cut = (replace(matches[number], text=matches[number].text[:text]) for number in kept)
        return ScannedLogs(matches=tuple(cut), steps=steps)

    @property
    def warnings(self) -> list[str]:
        """What people should know of the input."""
        return [f"{log.name}: {warning}" for log in self.logs for warning in log.warnings]


class Log:
    """One file of a run."""

    def __init__(self, name: str, scan: Scan, rank: int | None = None) -> None:
        self.name = name
        self.matches: list[Match] = []
        self.furthest: LoggedStep | None = None
        self.is_binary = False
        self._scan = scan
        self._numerics = Numerics()
        self._num_numeric = 0
        named = _RANK_IN_NAME.search(Path(name).name)
        self._rank = rank if rank is not None or named is None else int(named[1])

    @property
    def num_bytes(self) -> int:
        """How much was read."""
        return self._scan.num_bytes

    @property
    def warnings(self) -> Sequence[str]:
        """What people should know of this file."""
        if self.is_binary:
            return ["this is no text; it was not looked at"]
        if not self.num_bytes:
            return ["empty"]
        return self._numerics.warnings

    def feed(self, block: bytes) -> None:
        """Take more bytes in."""
        if not self.num_bytes:
            block = block.lstrip(
                b"\0"
                # a hole: the file was cut while its writer went on where it was
            )
            probed = block[:PROBED_BYTES]
            self.is_binary = probed.count(0) > BINARY_SHARE * len(probed)
        if not self.is_binary:
            for found in self._scan.feed(block):
                self._take(found)

    def finish(self) -> None:
        """Take in a last line without an end."""
        for found in self._scan.finish():
            self._take(found)

    def _take(self, found: ScannedLine) -> None:
        if found.match is not None:
            match = found.match
            if match.rank is None and self._rank is not None:
                match = replace(match, rank=self._rank)
            self.matches.append(match)
        if found.record is not None:
            step = found.record.step
            if self.furthest is None or step > self.furthest.step:
                self.furthest = LoggedStep(file=self.name, line=found.line, step=step)
            for finding in self._numerics.judge(found.record):
                self._note(finding, found.line)

    def _note(self, finding: NumericFinding, line: int) -> None:
        if finding.severity != "incident" or self._num_numeric >= MAX_NUMERIC:
            return
        self._num_numeric += 1
        text = f"from step {finding.onset_step}: {finding.evidence}"
        self.matches.append(
            Match(
                signature="numbers",
                fault=finding.fault,
                layer="numbers",
                scope="user",
                file=self.name,
                line=line,
                text=text,
                rank=self._rank,
                named={"onset_step": str(finding.onset_step)},
            )
        )


def _importance(match: Match, number: int) -> tuple[bool, int, int]:
    """Order matches: what names a rank, then what names a fault, the deepest layer first, and of each the first word."""
    is_plain = match.weight != "names" and not match.role
    return (is_plain, 0 if match.role else LAYERS.index(match.layer), number)
