"""The writer of step histories: rows that heartbeats bring, written every two seconds by a thread of its own.

The thread that owns the state merges reports into rows, which costs microseconds; files and their disk are this thread's. A
disk that is full or hangs stops nothing else: the newest rows wait in memory, one line of the log says so, and one that they are
written again.
"""

import logging
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from runner.decide.state.cluster_state import State
from runner.errors import StokerError
from runner.facts.ids import is_same_agent
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import PastStep, StepsWanted
from runner.steps import RunFiles, StepMerger, StepRow, contributing, read, read_newest
from runner.steps.merger import MAX_WAITING

_LOG = logging.getLogger("stoker")

# Between two writes: the rows that `kill -9` costs. Chosen.
WRITE_SECONDS = 2.0
# Rows that are read for each of the newest steps: attempts that went back made some of them again. Chosen.
SPARE_FACTOR = 3


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one run to be appended."""

    run_name: str
    admitted_at: float
    rows: list[StepRow]


class RecalledSteps(NamedTuple):
    """Steps that a detector wanted, as far as they are known."""

    wanted: StepsWanted
    steps: list[PastStep]


def steps_around(wanted: StepsWanted, rows: Iterable[StepRow]) -> list[PastStep]:
    """Return of a run's rows those that count before an attempt, then its own; or the newest that are part of the run."""
    if wanted.newest:
        return [_past(row) for row in contributing(rows)[-wanted.newest :]]
    own, before = list[StepRow](), list[StepRow]()
    for row in rows:
        if wanted.first <= row.step <= wanted.last and row.attempt not in wanted.without:
            if row.attempt == wanted.attempt:
                own.append(row)
            elif row.attempt < wanted.attempt:
                before.append(row)
    return [_past(row) for row in [*contributing(before), *own]]


def _past(row: StepRow) -> PastStep:
    return PastStep(**{name: getattr(row, name) for name in PastStep._fields})


class StepHistory:
    """The histories that one leader writes. One thread calls it; `_run` is the writer's own."""

    def __init__(
        self,
        folder: Path,
        token: int,
        *,
        prepare: Callable[[], None] = lambda: None,
        on_recalled: Callable[[RecalledSteps], None] = lambda recalled: None,
    ) -> None:
        """`folder`: of all runs' histories; `prepare` makes it ready, or raises, before each write until it has worked once.

        `on_recalled` gets, on the thread, what `recall` asked for.
        """
        self._on_recalled = on_recalled
        self._folder, self._token, self._prepare = folder, token, prepare
        self._merger = StepMerger()
        self._files: dict[int, RunFiles] = {}
        self._jobs: queue.SimpleQueue[Mapping[int, _Rows] | StepsWanted | None] = (
            queue.SimpleQueue()
        )
        # Rows that the thread could not write.
        self._unwritten: queue.SimpleQueue[Mapping[int, _Rows]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._is_prepared = self._is_failing = self._has_complained = False
        self._has_rows = False
        self._due_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="step-history", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def on_heartbeat(self, heartbeat: Heartbeat, state: State, now: float) -> None:
        """Note the steps that the current agent of a node reports of a run that is known."""
        node, attempt = state.nodes.get(heartbeat.node), heartbeat.attempt
        if node is None or attempt is None or attempt.run not in state.runs:
            return
        if not is_same_agent(node.instance_id, heartbeat.instance_id):
            return
        try:
            self._merger.add(heartbeat, now)
        except Exception:  # noqa: BLE001 - bulkhead: what ranks report stops no supervisor
            if not self._has_complained:
                _LOG.exception("steps that %s reports are not kept", heartbeat.node)
            self._has_complained = True
        self._has_rows = True

    def due_at(self) -> float:
        """Return when there is something to write, on the controller's clock; inf: nothing."""
        is_wanted = self._has_rows or self._is_failing
        return self._due_at if is_wanted and self._idle.is_set() else math.inf

    def advance(self, state: State, now: float) -> None:
        """Hand the rows that wait to the thread, if it is time and it is idle."""
        if now >= self.due_at():
            self._due_at = now + WRITE_SECONDS
            self._submit(state)

    def recall(self, wanted: StepsWanted, state: State) -> None:
        """Read steps on the thread, those that wait to be written among them; they are handed to `on_recalled`."""
        self._submit(state)
        self._jobs.put(wanted)

    def close(self, state: State, timeout_seconds: float) -> None:
        """Write what waits and end; wait for the disk at most this long."""
        self._submit(state)
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _submit(self, state: State) -> None:
        while not self._unwritten.empty():
            unwritten = self._unwritten.get()
            self._merger.put_back({run: job.rows for run, job in unwritten.items()})
        self._has_rows = False
        self._merger.forget({run: None for run, each in state.runs.items() if each.is_alive})
        rows = self._merger.take()
        runs = {run: state.runs[run] for run in rows if run in state.runs}
        if runs:
            self._idle.clear()
            self._jobs.put(
                {n: _Rows(run.spec.name, run.admitted_at, rows[n]) for n, run in runs.items()}
            )

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if isinstance(job, StepsWanted):
                    self._on_recalled(RecalledSteps(job, self._read(job)))
                else:
                    self._write(job)
            except Exception:  # noqa: BLE001 - bulkhead: nothing depends on a history
                _LOG.exception("the step history ends here: it failed")
                return
            self._idle.set()

    def _read(self, wanted: StepsWanted) -> list[PastStep]:
        run = wanted.attempt.run
        try:
            if wanted.newest:
                rows = read_newest(self._folder, run, SPARE_FACTOR * wanted.newest)
            else:
                rows = read(self._folder, run, wanted.first, wanted.last)
        except OSError as error:
            _LOG.warning("the steps before %s are not compared: %s", wanted.attempt, error)
            return []
        return steps_around(wanted, rows)

    def _write(self, job: Mapping[int, _Rows]) -> None:
        failed: dict[int, _Rows] = {}
        problem: Exception | None = None
        for run, each in job.items():
            try:
                self._append(run, each)
            except (OSError, StokerError) as error:
                failed[run], problem = each, error
        if failed:
            self._unwritten.put(failed)
        if problem is not None and not self._is_failing:
            what = "step histories are not written"
            kept = f"the newest {MAX_WAITING} rows of each run wait in memory"
            _LOG.warning("%s: %s; %s, and it is tried again", what, problem, kept)
        if problem is None and self._is_failing:
            _LOG.info("step histories are written again; %s", self._losses())
        self._is_failing = problem is not None

    def _losses(self) -> str:
        lost = dict(self._merger.num_lost)
        words = (f"{count} rows of run {run} are lost" for run, count in lost.items())
        return ", ".join(words) or "no row is lost"

    def _append(self, run: int, each: _Rows) -> None:
        if not self._is_prepared:
            self._prepare()
            self._is_prepared = True
        files = self._files.get(run)
        if files is None:
            files = self._files[run] = RunFiles(
                self._folder,
                run=run,
                run_name=each.run_name,
                admitted_at=each.admitted_at,
                token=self._token,
            )
        files.append(each.rows)
        if files.is_thick:
            files.compact()
