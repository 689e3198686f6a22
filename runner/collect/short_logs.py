"""The numbers of a short log, with their lines, for the judges of whole windows (`detect/numerics/windows/short_log.py`)."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from runner.collect.step_formats.epoch_steps import place_in
from runner.collect.step_formats.scores import accuracies_in, accuracies_of, scores_in
from runner.collect.step_formats.sentences import waiting_seconds
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord

# What lines of reinforcement and preference learning, of adversaries, of annealed divergences and of tasks that become harder have
# beside a loss, or call one. Their losses rise, wander, and rest at a level in healthy runs.
OPPOSED = re.compile(
    rb"(?i)reward|polic(?:y|ies)|critic|\bactor|advantage|episode|\bkld?\b|kl_|_kl\b|generator|discriminator|adversar"
    # Rewards by Stable Baselines' names; and what makes a task harder while it is learned.
    rb"|\bep_rew|\bep_len|\bsparsity\b|\bprun(?:ed|ing)\b|\bcurriculum\b|\bdifficulty\b"
    rb"|\b(?:loss_?[dg]|[dg]_?loss|err_?[dg])(?:\b|_)|\bq_?loss|value_(?:function_)?loss|\bv?gan\b|policy_entropy"
)

EPOCH, OTHER_COUNTER = re.compile(rb"(?i)\bepoch"), re.compile(rb"(?i)step|iter|batch|update")
# Updates of a pass, where a line shows its last one: "10/10 [====] - loss: 2.3". Chosen: a pass of a single batch is one step.
MIN_UPDATES = 10
# What a step's time depends on, as far as lines print it: sizes of batches and lengths of sequences.
SIZE = re.compile(
    rb"(?i)((?:[a-z]{1,16}[_ ])?batch[_ ]?size|\bbsz|seq(?:uence)?[_ ]?len(?:gth)?|\b(?:img_?|image_?)?size|\bres(?:olution)?)"
    rb"['\"]?\s{0,4}[:= ]\s{0,4}(\d{1,9})(?![\d.])"
)
# Steps that were skipped: since the line before (Megatron-LM), and since the start (DeepSpeed).
SKIPPED = re.compile(
    rb"(?i)number of skipped iterations:\s{0,4}(\d{1,9})\b|\bskipped ?[=:] ?(\d{1,9})\b"
)
# Passes over the data that a line names; the first one is 0 or 1. What else a script trains, or how, from some line on.
NAMED_PASS = re.compile(rb"(?i)\bepochs?\b['\"]?\s{0,3}[:=\[#]{0,2}\s{0,3}(\d{1,6})(?![\d.])")
SHARE_OF_PASS = re.compile(rb"(?i)'epoch': (\d{1,6}\.\d{1,20})\b")
# A share of a pass after which no loss scale is searched for; chosen.
LATE_SHARE = 0.1
OTHER_WORK = re.compile(
    rb"(?i)\bunfr(?:eez|ozen)|\bfreez|\b(?:stage|phase)[ :=#]{0,2}\d|\bcurriculum\b|\bprogressive (?:resiz|grow)"
)
# Lines with numbers at most, whose steps may not be known yet.
MAX_LINES = 1000


class ShortLogReader:
    """Follows the lines of one log that have numbers, until they are too many."""

    def __init__(self) -> None:
        self._log = ShortLog()
        self._lines: dict[int, int] = {}
        # Line -> its accuracies.
        self._accuracies: dict[int, Sequence[float]] = {}
        # Line -> its scores, by name.
        self._scores: dict[int, Mapping[str, float]] = {}
        # Line -> seconds of its step, and of its wait for data.
        self._data_seconds: dict[int, tuple[float, float]] = {}
        # The first line's, where all lines have the same.
        self._sizes: list[tuple[bytes, bytes]] | None = None
        self._has_sizes = False
        self._num_lines = 0
        self._counts_epochs = True
        # A line says that something else is trained from it on.
        self._changes_work = False
        # Line -> steps skipped, and of totals the newest one.
        self._skips: dict[int, int] = {}
        self._num_skipped: int | None = None
        # Passes that are over at the first line that says it.
        self._share: float | None = None
        # The first pass over the data that a line names, the one of each line, and that of the last record.
        self._first_pass: int | None = None
        self._passes: dict[int, int] = {}
        self._last_pass: tuple[int, int] | None = None

    def add_line(self, line: bytes, number: int, scores: Mapping[str, float] | None = None) -> None:
        """Look at a line with numbers, for what else it has. `scores`: of a row of a table."""
        self._num_lines += 1
        if not self._log.is_open or self._num_lines > MAX_LINES:
            return
        self._leave_out(line)
        # Of a bar that draws itself again, as it is at last.
        shown = line.rstrip(b"\r\b ").replace(b"\b", b"\r").rpartition(b"\r")[2]
        text = shown.decode(errors="replace")
        self._scores[number] = scores_in(text) if scores is None else scores
        self._accuracies[number] = accuracies_in(text) if scores is None else accuracies_of(scores)
        if (wait := waiting_seconds(text)) is not None:
            self._data_seconds[number] = wait
        is_epoch = EPOCH.search(shown) is not None and OTHER_COUNTER.search(shown) is None
        # What a bar drew before has a loss of its own.
        is_whole = len(shown) == len(line.rstrip(b"\r\b "))
        self._counts_epochs &= is_epoch or (is_whole and _ends_pass(text))
        self._count_skips(line, number)
        if (named := NAMED_PASS.search(shown)) is not None:
            self._passes[number] = int(named[1])
            self._first_pass = min(int(named[1]), self._first_pass or int(named[1]))
        if self._share is None and (share := SHARE_OF_PASS.search(shown)) is not None:
            self._share = float(share[1])
        self._changes_work |= OTHER_WORK.search(shown) is not None
        sizes = SIZE.findall(line)
        self._has_sizes |= bool(sizes)
        self._sizes = sizes if self._sizes in (None, sizes) else []

    def add(self, record: StepRecord, line: int) -> None:
        """Add a record of a line."""
        if self._log.is_open:
            self._log.add(
                record,
                self._accuracies.get(line, ()),
                self._data_seconds.get(line),
                self._scores.get(line),
            )
            self._lines[record.step] = line
            if line in self._passes:
                # Two steps of one pass are no passes.
                last, self._last_pass = self._last_pass, (self._passes[line], record.step)
                is_same = last is not None and last[0] == self._last_pass[0]
                self._counts_epochs &= not is_same or last == self._last_pass
            if line in self._skips:
                self._log.note_skips(record.step, self._skips[line])

    def _count_skips(self, line: bytes, number: int) -> None:
        """Note how many steps a line counts as skipped since the line before."""
        found = SKIPPED.search(line)
        if found is None:
            return
        if found[1] is not None:
            self._skips[number] = int(found[1])
            return
        total, before = int(found[2]), self._num_skipped
        self._num_skipped = total
        if before is not None:
            self._skips[number] = max(0, total - before)

    def note_other_work(self) -> None:
        """Note a line that says that something else is trained from it on, or in another way: its steps take another time."""
        self._changes_work = True

    def training_rises_since(self, onset_step: int) -> bool:
        """Whether the training loss rises with the validation loss since before this step."""
        return self._log.training_rises_since(onset_step)

    def _leave_out(self, line: bytes) -> None:
        if OPPOSED.search(line) is not None:
            self._log.leave_out_losses()

    def add_sample(self, record: StepRecord, number: int) -> None:
        """Add a record of a curve; a loss that is not finite was often only not measured there."""
        if record.loss is None or math.isfinite(record.loss):
            self.add(record, number)

    def finding_of_curve(self, columns: Iterable[str]) -> tuple[NumericFinding, int] | None:
        """Return what a curve with these columns shows once it is over, and the number of its sample."""
        for name in columns:
            self._leave_out(name.encode(errors="replace"))
        return self.finding()

    def divergence_from(self, onset_step: int) -> tuple[NumericFinding, int] | None:
        """Return the divergence that began with a spike at this step, and its line; None: it was a spike."""
        found = self._log.divergence_from(onset_step)
        return None if found is None else (found, self._lines.get(onset_step, 0))

    def finding(self) -> tuple[NumericFinding, int] | None:
        """Return what the log shows once it is over, and the line of its onset; None: nothing."""
        if self._sizes:
            self._log.trust_times()
        elif self._sizes is not None and self._has_sizes:
            self._log.doubt_times()
        if self._counts_epochs and self._num_lines:
            self._log.count_passes()
        if (self._share or 0) >= LATE_SHARE:
            self._log.pass_start()
        if self._changes_work:
            self._log.doubt_times()
        if (self._first_pass or 0) > 1:
            self._log.pass_first_passes()
        found = self._log.finding()
        return None if found is None else (found, self._lines[found.onset_step])


def _ends_pass(text: str) -> bool:
    """Whether a line is of the last update of a pass over the data: its counter is at its end."""
    place = place_in(text)
    return place is not None and place.index == place.total and (place.total or 0) >= MIN_UPDATES
