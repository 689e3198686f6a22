"""Status, watch, metrics and report agree on where a day went, with the generator of that day, which asks no ledger.

The day has crashes that are seen at once and late, waits for nodes, and changes that a person asked for. Its generator adds up by
itself which second was what: steps that count, steps made twice, and each phase between two attempts.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from runner.cli.clusters import Leader
from runner.cli.terminal.status_reader import Newest
from runner.cli.terminal.watch_screen import WatchScreen
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import ClusterStatus
from runner.serve.metrics import metrics_of
from runner.serve.status_reader import read_status
from tests.cli.conftest import Cluster, stoker
from tests.cli.report.conftest import publish, report, with_spec
from tests.history.journal_script import (
    Script,
    admitted,
    advanced,
    attempt_is,
    checkpoint,
    opened,
    planned,
    prepared,
    run_is,
)

DAY_SECONDS, CHECKPOINT_EVERY, STEPS_PER_MARK = 24 * 3600.0, 600, 60


class Day:
    """A run of a step a second that is interrupted every half an hour or so. `truth`: seconds by cause, and "productive"."""

    def __init__(self, seed: int) -> None:
        self.script, self.truth = Script(), defaultdict[str, float](float)
        self._rng = random.Random(seed)
        self._now, self._step, self._saved, self._number = 0.0, 0, 0, 0
        self._maker: AttemptId | None = None
        # The last interruption was asked for.
        self._is_asked = False
        # Seconds of a step, alike within an attempt: of one that ended the ledger keeps few marks and spreads steps evenly.
        self._pace = 1.0
        # Between two marks of the attempts so far: from, to, and the step then. What is made again later is taken off.
        self._spans: list[tuple[float, float, int]] = []

    def play(self) -> None:
        """Write the day."""
        self.script.at(0.0, admitted(), planned(self._attempt))
        self._launch(began=0.0)
        while self._now < DAY_SECONDS:
            self._advance(self._now + self._rng.expovariate(1 / 1800))
            if self._now < DAY_SECONDS:
                self._interrupt()
        self.truth["productive"] += sum(end - begin for begin, end, _ in self._spans)

    @property
    def _attempt(self) -> AttemptId:
        return AttemptId(1, 1, self._number)

    def _launch(self, *, began: float) -> None:
        """Start the attempt; `began`: when what came before it ended."""
        resumes = prepared(self._attempt, resume_step=self._saved, maker=self._maker)
        self._pass(2.0)
        self.script.at(self._now, resumes, attempt_is(self._attempt, "launching"))
        launched = self._now
        self._pass(self._rng.uniform(5, 30))
        self.script.at(self._now, attempt_is(self._attempt, "running"))
        self._pass(self._rng.uniform(5, 30))
        self._step, self._pace = self._saved + 1, self._rng.uniform(0.8, 1.3)
        self.script.at(self._now, advanced(self._attempt, self._step))
        self._add_phases(began, launched)

    def _add_phases(self, began: float, launched: float) -> None:
        if self._number == 0:
            self.truth["initial_start"] += self._now
        elif self._is_asked:
            self.truth["requested"] += self._now - began
        else:
            self.truth["prepare"] += launched - began
            self.truth["start"] += self._now - launched

    def _pass(self, seconds: float) -> None:
        self._now += seconds

    def _advance(self, until: float) -> None:
        """Make steps, with a mark now and then."""
        while self._now + 2 * STEPS_PER_MARK < until:
            begin, rest = self._now, STEPS_PER_MARK - self._step % STEPS_PER_MARK
            self._pass(rest * self._pace)
            self._step += rest
            self._spans.append((begin, self._now, self._step))
            self.script.at(self._now, advanced(self._attempt, self._step))
            if self._step % CHECKPOINT_EVERY == 0:
                self._saved, self._maker = self._step, self._attempt
                self.script.at(self._now, checkpoint(self._attempt, self._step))

    def _interrupt(self) -> None:
        self._is_asked = self._rng.random() < 0.2
        old, last_mark = self._attempt, self._now
        if self._is_asked:
            self._stop_as_asked(old)
            began = last_mark
        else:
            began = self._crash(old)
        # What was made after the checkpoint is made again.
        again = [span for span in self._spans if span[2] > self._saved]
        self._spans = [span for span in self._spans if span[2] <= self._saved]
        self.truth["rework"] += sum(end - begin for begin, end, _ in again)
        self._number += 1
        self.script.at(self._now, planned(self._attempt))
        self._launch(began=began)

    def _stop_as_asked(self, old: AttemptId) -> None:
        self._pass(3.0)
        self.script.at(self._now, attempt_is(old, "stopping", outcome="reconfigured"))
        self._pass(4.0)
        self.script.at(self._now, attempt_is(old, "ended", outcome="reconfigured"))

    def _crash(self, old: AttemptId) -> float:
        """Let a rank die, which is seen after a while; return when the gang was gone, or the wait for nodes was over."""
        self._pass(self._rng.uniform(0, 5))
        # Steps that were in progress until then.
        fault, seen_after = self._now, self._rng.choice((0.5, 90.0))
        self.truth["rework"] += fault - self.script.entries[-1].now + self.script.start
        self._pass(seen_after)
        name = f"i{self._number + 1}"
        self.script.at(
            self._now,
            opened(name, old, after=seen_after),
            attempt_is(old, "stopping", outcome="crashed", incident=name),
        )
        self.truth["detect"] += seen_after
        stopping = self._now
        self._pass(self._rng.uniform(1, 20))
        self.truth["stop"] += self._now - stopping
        ended = attempt_is(old, "ended", outcome="crashed")
        if self._rng.random() < 0.3:
            self.script.at(self._now, ended, run_is("waiting", "too few nodes"))
            idle = self._rng.uniform(60, 900)
            self._pass(idle)
            self.truth["waiting"] += idle
            self.script.at(self._now, run_is("active"))
        else:
            self.script.at(self._now, ended)
        return self._now


def shown(status: ClusterStatus) -> Iterator[str]:
    """Yield the lines of `stoker watch`."""
    screen = WatchScreen(on_order=lambda order: None, run=1)
    screen.update(Newest(status=status, leader=Leader(holder="a:1:2", alive=True)), status.wall)
    yield from (line.plain for line in screen.lines(200, 60, 0.0))


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(2))
def test_all_agree_on_where_a_day_went(cluster: Cluster, seed: int) -> None:
    """To the second, with a sum that is made without the ledger; and productive and lost seconds are the wall time."""
    day = Day(seed)
    day.play()
    publish(cluster, with_spec(day.script))
    truth = {cause: seconds for cause, seconds in day.truth.items() if seconds > 0}
    productive = truth.pop("productive")
    wall = day.script.entries[-1].now - day.script.start
    assert productive + sum(truth.values()) == pytest.approx(wall, abs=1.0)
    assert len(truth) == 8
    run = json.loads(stoker("status", "--json").stdout)["status"]["runs"][0]
    assert run["lost_seconds"] == pytest.approx(truth, abs=1.0)
    assert run["ettr_ratio"] == pytest.approx(productive / wall, abs=1 / wall)
    text = report("--format", "md")
    rows = re.findall(r"^\| [^|]+ \| (\w+) \| [^|]*\((\d+) s\) \| ", text, re.MULTILINE)
    assert {name: float(seconds) for name, seconds in rows} == pytest.approx(
        {**truth, "productive": productive}, abs=1.5
    )
    lines = metrics_of(cluster.store).decode().splitlines()
    for cause, seconds in truth.items():
        values = [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("stoker_run_lost_seconds{") and f'cause="{cause}"' in line
        ]
        assert values == [pytest.approx(seconds, abs=1.0)]
    status = read_status(cluster.store)
    assert status is not None
    assert any(f"ETTR {productive / wall:.3f}" in line for line in shown(status))
