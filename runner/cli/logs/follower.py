"""Follows the output of a run's ranks over its attempts, until the run has ended."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from runner.cli import output
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.status_feed import StatusFeed, is_over
from runner.cli.logs.attempt_output import Chosen, attempts_here, elsewhere, files_here
from runner.cli.logs.output_lines import OutputFile
from runner.errors import UserError
from runner.facts.ids import AttemptId

# Between two looks at the files. Chosen, not measured.
LOOK_SECONDS = 0.2
# A file of a rank appears within this time of its attempt's others. Chosen, not measured.
NEW_FILES_SECONDS = 1.0

Line = tuple[AttemptId, OutputFile, str]


class OutputFollower:
    """Yields lines as they are written: of the newest attempt its last ones first, of later attempts all."""

    def __init__(
        self,
        feed: StatusFeed,
        chosen: Chosen,
        find_nodes: Callable[[], Mapping[AttemptId, Mapping[int, str]]],
        num_lines: int,
    ) -> None:
        """`find_nodes` returns the node of each rank of each attempt, for a new one too."""
        self._feed, self._find_nodes = feed, find_nodes
        self._chosen, self._num_lines = chosen, num_lines
        self._attempt: AttemptId | None = None
        self._files: dict[str, OutputFile] = {}
        self._look_for_files_at = 0.0

    def lines(self) -> Iterator[Line]:
        """Yield attempt, file and line, until the run has ended and all is read."""
        has_ended = False
        while True:
            run = self._chosen.run
            yield from self._new_attempts()
            yield from self._read(is_last=has_ended)
            if has_ended:
                reason = output.because(run.reason)
                output.print_note(f"run {run.run} {run.name} {run.state}{reason}")
                return
            status = self._feed.next(LOOK_SECONDS)
            found = find_run(status, run.run) if status is not None else None
            if status is not None and found is None:
                raise UserError(f"run {run.run} {run.name} is no longer in the cluster's status")
            if found is not None:
                self._chosen = replace(self._chosen, run=found)
                has_ended = is_over(found)

    def _new_attempts(self) -> Iterator[Line]:
        """Go to the next attempt once there is one; what the one before it wrote last is yielded first."""
        known = attempts_here(self._chosen.run)
        if self._attempt is None:
            first = known[-1:]
        else:
            first = [one for one in known if one.numbers > self._attempt.numbers]
        for attempt in first:
            is_first = self._attempt is None
            yield from self._read(is_last=True)
            self._attempt, self._files, self._look_for_files_at = attempt, {}, 0.0
            self._chosen = replace(self._chosen, nodes=self._find_nodes())
            output.print_note(f"attempt {attempt}")
            if is_first:
                for file in self._find_files():
                    file.seek_last_lines(self._num_lines)
                for text in elsewhere(
                    self._chosen, attempt, [file.rank for file in self._files.values()]
                ):
                    output.print_note(text)
            yield from self._read(is_last=False)

    def _find_files(self) -> list[OutputFile]:
        """Find files that are new; the folder is read about once a second."""
        now = time.monotonic()
        if self._attempt is None or now < self._look_for_files_at:
            return []
        self._look_for_files_at = now + (NEW_FILES_SECONDS if self._files else 0.0)
        found = [
            file
            for file in files_here(self._chosen, self._attempt)
            if str(file.path) not in self._files
        ]
        self._files |= {str(file.path): file for file in found}
        return found

    def _read(self, *, is_last: bool) -> Iterator[Line]:
        if self._attempt is None:
            return
        if is_last:
            self._look_for_files_at = 0.0
        self._find_files()
        now = time.monotonic()
        for file in self._files.values():
            for line in file.read(now=now, is_last=is_last):
                yield self._attempt, file, line
            if file.was_cut:
                output.print_note(
                    f"{file.path} was cut back to its limit: lines before that are in {file.path.name}.1"
                )
