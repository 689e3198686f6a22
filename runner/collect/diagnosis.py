"""Diagnosis: the logs of one run, read from their start, become verdicts. A command does so offline, an agent part by part.

Memory does not grow with the logs: matches beyond a limit are counted (`scan`), and only the last step is stored.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path

from msgspec.structs import replace

from runner.collect.catalogues.catalogues import Catalogues, all_catalogues
from runner.collect.engines import Engine
from runner.collect.log_ends.reader import EndReader
from runner.collect.log_folders.origins import Origin
from runner.collect.log_steps import LogSteps, is_open_bar
from runner.collect.margins import Margin
from runner.collect.numeric_matches import (
    match_of_finding,
    spike_onset,
    validation_onset,
    without_taken_back,
)
from runner.collect.resumes import LogResumes
from runner.collect.scan import Scan, ScannedLine, engine_for
from runner.collect.short_logs import ShortLogReader
from runner.collect.step_formats.line_order import LineOrder
from runner.collect.tracebacks.reader import TracebackReader
from runner.collect.wordings import installed_wordings
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics
from runner.detect.numerics.windows.unlearned.constant_loss import ConstantLoss
from runner.facts.causes import Verdict
from runner.facts.matches import LAYERS, LoggedStep, Match, ScannedLogs
from runner.facts.messages.signals import StepRecord
from runner.rootcause.context.line_context import in_context, with_start, without_warnings
from runner.rootcause.context.quotations import is_quotation
from runner.rootcause.correlation import correlate, relevant_matches
from runner.rootcause.error_lines import with_likeliest
from runner.rootcause.log_ends import (
    PLAIN_STATEMENT,
    LogEnding,
    match_of_cut,
    match_of_end,
    match_of_failure,
    match_of_last_step,
)
from runner.rootcause.signatures import SIGNATURES, Signature
from runner.rootcause.tracebacks.application import with_tracebacks
from runner.rootcause.tracebacks.objects import Traceback

# All chosen. A file is binary if more than this ratio of its first bytes is zero.
PROBED_BYTES, BINARY_RATIO = 4096, 0.05
# Matches of one signature in one file that are returned, and numeric incidents of one log.
MAX_REPEATS, MAX_NUMERIC = 2, 100
# A blank that does not break lines, as pages and documents have it where a log was copied from.
HARD_BLANK = "\N{NO-BREAK SPACE}".encode()
# Faults of short windows that outrank a cause that is unknown.
OF_ONE_SAMPLE = ("nan_loss", "grad_norm_spike", "loss_scale_floor")
# Lines of source and marks below the last frame of a traceback that the end of a log cut off; chosen.
MAX_CUT_OFF = 4
_RANK_IN_NAME = re.compile(
    r"(?<![a-z])(?<!lora[_\-.])(?<!node[_\-.])(?<!local[_\-.])(?<!low[_\-.])rank[_\-. ]?(\d+)(?!\d)",
    re.IGNORECASE,
)


class Diagnosis:
    """Diagnoses the logs of one run together."""

    def __init__(
        self,
        *,
        engine: Engine | None = None,
        own_format: str | None = None,
        signatures: Sequence[Signature] = SIGNATURES,
        catalogues: Catalogues | None = None,
    ) -> None:
        """`own_format`: a pattern for the trainer's lines with a step; raises UserError for a wrong one.

        `engine`, if given, was made for these signatures and this format. `catalogues`: default: those of this release.
        """
        self._engine = engine or engine_for(signatures, own_format)
        self._signatures = signatures
        self._own_format = own_format
        self._catalogues = catalogues or all_catalogues()
        self.logs: list[Log] = []

    def log(self, name: str, *, rank: int | None = None, origin: Origin | None = None) -> "Log":
        """Begin another file. `rank`: its writer, where neither its lines nor its name state it.

        `origin`: the writer by the whole path and the files beside it, in place of both; lines outrank it.
        """
        tracebacks = TracebackReader(name)
        scan = Scan(
            name,
            signatures=self._signatures,
            own_format=self._own_format,
            engine=self._engine,
            catalogues=self._catalogues,
        )
        scan.on_block = tracebacks.feed
        self.logs.append(Log(name, scan, tracebacks, origin or _origin_of(name, rank)))
        return self.logs[-1]

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts, the root cause first; none for a healthy run."""
        return verdicts_on(
            [match for log in self.logs for match in log.judged_matches()],
            [match for log in self.logs for match in log.of_windows],
            [log.steps.survived for log in self.logs if log.steps.survived is not None],
        )

    def scanned(self, max_matches: int, *, text: int) -> ScannedLogs:
        """Return matches and steps for a supervisor: `max_matches` at most, those that name a cause first.

        `text`: the most characters of each.
        """
        steps = tuple(log.steps.survived for log in self.logs if log.steps.survived is not None)
        judged = (match for log in self.logs for match in log.judged_matches())
        every = relevant_matches(judged, steps)
        num: Counter[tuple[str, str]] = Counter()
        matches = []
        for match in every:
            num[match.file, match.signature] += 1
            if num[match.file, match.signature] <= MAX_REPEATS:
                matches.append(replace(match, text=match.text[:text]))
        by_importance = sorted(range(len(matches)), key=lambda at: _importance(matches[at]))
        chosen = sorted(by_importance[:max_matches])
        return ScannedLogs(matches=tuple(matches[at] for at in chosen), steps=steps)

    @property
    def warnings(self) -> list[str]:
        """Defects of the catalogues and of the input."""
        of_logs = [f"{log.name}: {warning}" for log in self.logs for warning in log.warnings]
        return [*self._catalogues.defects, *of_logs]


class Log:
    """One file of a run."""

    def __init__(self, name: str, scan: Scan, tracebacks: TracebackReader, origin: Origin) -> None:
        """`scan` feeds `tracebacks`."""
        self.name = name
        # Bytes read.
        self.num_bytes = 0
        self.matches: list[Match] = []
        # Of a short log that was read to its end: what its numbers show, for where no line shows an incident.
        self.of_windows: list[Match] = []
        self.steps = LogSteps(name)
        self.is_binary = False
        self._scan, self._tracebacks, self._end = scan, tracebacks, EndReader(name)
        self._margin = Margin()
        self._last_step_line = 0
        self._numerics = Numerics()
        self._constant_loss = ConstantLoss()
        self._windows = ShortLogReader()
        self._order = LineOrder()
        self._resumes = LogResumes()
        self._num_numeric = 0
        # Whether its first block has blanks that do not break lines.
        self._has_hard_blanks = False
        self._first_finite: int | None = None
        self._defects: Sequence[str] = ()
        self._origin = origin

    @property
    def warnings(self) -> Sequence[str]:
        """Defects of this file."""
        if self.is_binary:
            return ["this is no text; it was not read"]
        if not self.num_bytes:
            return ["empty"]
        return self._defects

    def feed(self, block: bytes) -> None:
        """Add bytes."""
        if not self.num_bytes:
            # A hole: the file was truncated while its writer continued at its old offset.
            block = block.lstrip(b"\0")
            probed = block[:PROBED_BYTES]
            self.is_binary = probed.count(0) > BINARY_RATIO * len(probed)
            self._has_hard_blanks = HARD_BLANK in block
        if not self.is_binary:
            self.num_bytes += len(block)
            if self._has_hard_blanks:
                block = block.replace(HARD_BLANK, b" ")
            self._read(self._margin.feed(block))

    def finish(self) -> None:
        """Add a last line without an end."""
        self._read(self._margin.finish())
        self._add(self._scan.finish())
        self._tracebacks.finish()
        self._add_validation()
        self._defects = self._numerics.warnings
        self._judge_spikes()
        self._judge_validations()
        if (mismatch := self._resumes.finding()) is not None:
            self._add_finding(*mismatch)
        if (found := self._windows.finding()) is not None:
            rank = self._origin.rank
            finding = self._resumes.renamed(found[0])
            match = match_of_finding(finding, self.name, found[1], rank=rank)
            self.of_windows = [replace(match, node=self._origin.node)]

    @property
    def tracebacks(self) -> Sequence[Traceback]:
        """The tracebacks whose ends were read."""
        return self._tracebacks.tracebacks

    @property
    def num_traceback_lines(self) -> int:
        """Lines that were read one by one, since they are near a traceback."""
        return self._tracebacks.num_lines

    def judged_matches(self) -> list[Match]:
        """Return the matches, those of tracebacks judged with all that is in these."""
        tracebacks = (
            one if one.rank is not None else dataclasses.replace(one, rank=self._origin.rank)
            for one in self.tracebacks
        )
        first_step = self.steps.first.line if self.steps.first is not None else 0
        judged = with_tracebacks(self.matches, tracebacks, first_step=first_step)
        if (constant := self._constant_loss.finding()) is not None:
            judged.append(
                match_of_finding(constant, self.name, self._last_step_line, rank=self._origin.rank)
            )
        judged = with_likeliest(judged, installed_wordings())
        if not self.is_binary:
            judged += self._match_of_last_step()
            end = self.end()
            judged = without_warnings(judged, _progress_line(end))
            of_end = with_likeliest(self._match_of_end(judged, end), installed_wordings())
            # An attempt that is repeated is harmless, unless nothing but attempts came of it.
            unmet = [match.line for match in of_end if match.fault == "rendezvous"]
            judged = [one for one in judged if one.weight != "benign" or one.line not in unmet]
            judged += of_end
            judged += self._match_of_cut(judged, end)
        judged = with_start(judged, first_step=first_step)
        return (
            [match if match.node else replace(match, node=self._origin.node) for match in judged]
            if self._origin.node
            else judged
        )

    def end(self) -> LogEnding:
        """Return how the log ends, as far as it was read."""
        return self._end.end(self._last_step_line)

    def _match_of_last_step(self) -> list[Match]:
        """Return the line of the furthest step, if it is the last one that the run was to make."""
        furthest = self.steps.furthest
        if furthest is None or not self._end.is_last_step(furthest.line, furthest.step):
            return []
        return [match_of_last_step(furthest)]

    def _match_of_end(self, judged: Sequence[Match], end: LogEnding) -> list[Match]:
        """Return how the log ends, where no line after its last progress names a fault or a good end."""
        last = end.progress.line if end.progress is not None else 0
        # Exceptions that a line only quotes explain nothing.
        after = [match for match in in_context(judged) if match.line >= last]
        is_explained = any(
            match.role == "ended-well" or (match.weight == "primary" and match.fault)
            for match in after
        )
        if not is_explained:
            match = match_of_end(end)
        elif all(match.fault in ("", "unknown") and match.role != "ended-well" for match in after):
            # That something failed is known, and a line of the end may show what.
            match = match_of_failure(end)
        else:
            match = None
        if match is None:
            return []
        is_unmet = match.fault == "rendezvous"
        if not is_unmet and match.line in [one.line for one in judged if one.weight == "benign"]:
            return []
        if is_quotation(match.text, match.fault):
            return []
        is_vague = match.fault == "unknown" or match.signature == PLAIN_STATEMENT
        if is_vague and self._scan.is_harmless(match.text):
            return []
        return [match if match.rank is not None else replace(match, rank=self._origin.rank)]

    def _match_of_cut(self, judged: Sequence[Match], end: LogEnding) -> list[Match]:
        """Return the last line of a log that ends within a traceback, whose exception is missing, where no line shows more."""
        cut = [
            one
            for one in self.tracebacks
            if one.last > end.num_lines - MAX_CUT_OFF and one.kind == "python"
            if not all(raised.name for raised in one.chain)
        ]
        is_of_run = bool(cut) and not any(one.is_ignored or one.is_logged for one in cut)
        is_explained = any(
            one.role == "traceback" or (one.weight == "primary" and one.fault)
            for one in in_context(judged)
        )
        match = match_of_cut(end) if is_of_run and not is_explained else None
        if match is None:
            return []
        return [match if match.rank is not None else replace(match, rank=self._origin.rank)]

    def without_reader(self) -> "Log":
        """Return what was found in the whole file, judged, and without what reads it: small, and fit for another process."""
        found = copy(self)
        found.matches = self.judged_matches()
        for name in [name for name in vars(self) if name[0] == "_" and name != "_defects"]:
            delattr(found, name)
        return found

    def _read(self, block: bytes) -> None:
        if block:
            self._add(self._scan.feed(block))
            self._end.feed(block, self._scan.num_lines)

    def _add(self, lines: Iterable[ScannedLine]) -> None:
        for line in lines:
            if line.match is not None:
                rank = self._origin.rank if line.match.rank is None else line.match.rank
                self.matches.append(replace(line.match, rank=rank))
                if line.match.role == "resumed":
                    self._resumes.note_resume(line.match.text)
                elif line.match.role == "other-work":
                    self._windows.note_other_work()
            if line.with_numbers:
                self._windows.add_line(line.with_numbers, line.line, line.scores)
            if line.record is not None:
                self._add_validation()
                self._order.add_record(line.record)
                self._add_step(line.record, line.line, line.with_numbers)
            if line.unnumbered is not None:
                for number, record in self._order.records(line.unnumbered, line.line):
                    self._add_step(record, number, line.with_numbers)

    def _add_validation(self) -> None:
        """Add the validation loss of a line of its own below the last step."""
        for number, record in self._order.validation():
            self._add_step(record, number, b"")

    def _add_step(self, record: StepRecord, line: int, text: bytes) -> None:
        self.steps.add(record.step, line, text)
        if self._first_finite is None and record.loss is not None and math.isfinite(record.loss):
            self._first_finite = record.step
        self._last_step_line = line
        self._constant_loss.add(record, line)
        self._windows.add(record, line)
        self._resumes.add(record, line)
        for finding in self._numerics.judge(record):
            self._add_finding(finding, line)

    def _add_finding(self, finding: NumericFinding, line: int) -> None:
        if finding.fault == "nan_loss" and finding.recovered:
            self._forget_unmeasured(finding.onset_step)
        if finding.severity == "incident" and self._num_numeric >= MAX_NUMERIC:
            return
        finding = self._resumes.renamed(finding)
        self.matches = without_taken_back(self.matches, finding)
        if finding.severity != "incident":
            return
        self._num_numeric += 1
        self.matches.append(match_of_finding(finding, self.name, line, rank=self._origin.rank))

    def _judge_spikes(self) -> None:
        """Find the spikes after which the loss did not come back, now that the log is over."""
        for match in list(self.matches):
            onset = spike_onset(match)
            # The divergence that began with one spike takes back those after it.
            if onset is None or match not in self.matches:
                continue
            if (found := self._windows.divergence_from(onset)) is not None:
                self._add_finding(*found)

    def _judge_validations(self) -> None:
        """Call a validation loss that rises with the training loss a divergence, now that the log is over."""
        for at, match in enumerate(self.matches):
            onset = validation_onset(match)
            if onset is not None and self._windows.training_rises_since(onset):
                text = f"{match.text}; the training loss rises with it"
                self.matches[at] = replace(match, fault="divergence", text=text)

    def _forget_unmeasured(self, onset_step: int) -> None:
        """Drop a NaN from the start of a log on that ended: weights that are NaN give no loss again, so none was measured yet."""
        if self._first_finite is not None and self._first_finite > onset_step:
            self.matches = [one for one in self.matches if one.fault != "nan_loss"]


def verdicts_on(
    matches: Sequence[Match], of_windows: Sequence[Match], steps: Sequence[LoggedStep]
) -> list[Verdict]:
    """Return the verdicts on matches, the root cause first.

    What short windows show counts where there are none; what one sample is enough for, where the cause is unknown.
    """
    found = correlate(matches, steps)
    if any(verdict.cause.fault != "unknown" for verdict in found):
        return found
    counted = [one for one in of_windows if not found or one.fault in OF_ONE_SAMPLE]
    return correlate([*matches, *counted], steps) if counted else found


def _progress_line(end: LogEnding) -> int:
    """Return the line of the last progress, if it is no open bar, which an exiting process may draw again; else 0."""
    progress = end.progress
    return 0 if progress is None or is_open_bar(progress.text.encode()) else progress.line


def _origin_of(name: str, rank: int | None) -> Origin:
    """Return the writer of a file, by what a caller knows, else by the file's own name."""
    named = _RANK_IN_NAME.search(Path(name).name) if rank is None else None
    return Origin(rank=int(named[1]) if named is not None else rank)


def _importance(match: Match) -> tuple[bool, int]:
    """Order matches: those that name a rank, then those that name a fault, the deepest layer first."""
    is_plain = match.weight != "primary" and not match.role
    return (is_plain, 0 if match.role else LAYERS.index(match.layer))
