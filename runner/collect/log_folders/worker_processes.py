"""Worker processes: many logs, or large ones, are read by one process for each core. What they find is what one process finds.

Each worker has a pipe of its own. It ends when the pipe does, so none outlives its parent, however that ends.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import cast

from runner.collect.diagnosis import Diagnosis
from runner.collect.log_folders.inputs import LogSource
from runner.collect.log_folders.readers import LogEnd, ReadLog, SourceReader

# Smaller inputs are read sooner by one process. Chosen: about half a second of one core.
FROM_BYTES = 64 << 20
# What a log costs besides its bytes, as bytes; measured: a millisecond.
BYTES_PER_LOG = 128 << 10
# Of a file, between two reports of progress; chosen.
REPORTED_BYTES = 4 << 20
# For a worker to end by itself when its pipe is closed; chosen.
END_SECONDS = 2.0
MAX_WORKERS = 64


def num_workers(num_logs: int, num_bytes: int) -> int:
    """Return how many processes read so much; 1: this one."""
    if num_bytes + num_logs * BYTES_PER_LOG < FROM_BYTES or num_logs < 2:
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), num_logs, MAX_WORKERS))


def read_with_workers(
    sources: Sequence[LogSource],
    reader: SourceReader,
    on_bytes: Callable[[int], None],
    workers: int,
) -> list[ReadLog]:
    """Read logs, the largest first; return what was found in the order of `sources`."""
    order = sorted(range(len(sources)), key=lambda at: -sources[at].size)
    pool = _Pool(reader, sources, workers)
    try:
        found = dict(pool.run(order, on_bytes))
    finally:
        pool.close()
    return [found[at] for at in range(len(sources))]


class _Pool:
    def __init__(self, reader: SourceReader, sources: Sequence[LogSource], workers: int) -> None:
        # A forked worker has the compiled patterns already.
        context = multiprocessing.get_context("fork")
        self._sources = sources
        self._processes: dict[Connection, ForkProcess] = {}
        for _ in range(workers):
            ours, theirs = context.Pipe()
            inherited = (ours, *self._processes)
            process = context.Process(
                target=_work, args=(theirs, inherited, reader, sources), daemon=True
            )
            process.start()
            theirs.close()
            self._processes[ours] = process

    def run(
        self, order: Sequence[int], on_bytes: Callable[[int], None]
    ) -> Iterator[tuple[int, ReadLog]]:
        """Hand out logs; yield the index of each with what was found, as it comes."""
        waiting = list(reversed(order))
        reading: dict[Connection, int] = {}
        for pipe in self._processes:
            self._hand_out(pipe, waiting, reading)
        while reading:
            for ready in wait(list(reading)):
                pipe = cast(Connection, ready)
                try:
                    message = pickle.loads(pipe.recv_bytes())  # noqa: S301 - of our own child
                except EOFError:
                    at = reading.pop(pipe)
                    yield at, _unread(self._sources[at])
                    if not reading:
                        # The last worker ended: nothing reads the rest.
                        yield from ((at, _unread(self._sources[at])) for at in waiting)
                    continue
                if isinstance(message, int):
                    on_bytes(message)
                    continue
                yield reading.pop(pipe), message
                self._hand_out(pipe, waiting, reading)

    def close(self) -> None:
        """End all workers."""
        for pipe in self._processes:
            pipe.close()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join(END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    def _hand_out(
        self, pipe: Connection, waiting: list[int], reading: dict[Connection, int]
    ) -> None:
        if not waiting:
            return
        with contextlib.suppress(BrokenPipeError):
            pipe.send(waiting[-1])
        reading[pipe] = waiting.pop()


def _work(
    pipe: Connection,
    inherited: Sequence[Connection],
    reader: SourceReader,
    sources: Sequence[LogSource],
) -> None:
    """Read what the parent asks for, until it closes the pipe."""
    # Ctrl-C reaches all processes of the terminal; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in inherited:
        other.close()
    # The parent closed the pipe, or ended: nothing asks for more.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            at = pipe.recv()
            report = _Progress(pipe)
            found = reader.read(sources[at], report.add)
            report.flush()
            pipe.send_bytes(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))


class _Progress:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes >= REPORTED_BYTES:
            self.flush()

    def flush(self) -> None:
        self._pipe.send_bytes(pickle.dumps(self._num_bytes))
        self._num_bytes = 0


def _unread(source: LogSource) -> ReadLog:
    """Return what is known of a log whose reader ended: the kernel ended it for memory, say."""
    log = Diagnosis().log(source.path, origin=source.origin)
    log.finish()
    error = f"{source.path}: the process that read it ended before its end"
    return ReadLog(log.without_reader(), source.size, error, (), LogEnd(), LogEnd())
