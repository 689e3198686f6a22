"""Hostile tracebacks: each has an outcome, and memory and work that do not grow with it."""

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from runner.collect.diagnosis import Diagnosis, Log
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.tracebacks import reader
from runner.collect.tracebacks.python_text import (
    FIRST_FRAMES,
    FIRST_RAISED,
    LAST_FRAMES,
    LAST_RAISED,
)
from runner.collect.tracebacks.streams import UNFINISHED_LINES

HEADER = "Traceback (most recent call last):\n"
FRAME = '  File "/app/rows.py", line {}, in __getitem__\n    return self.rows[{}]\n'
BLOCK_BYTES = 64 * 1024
# A block, and the lines of it with a hit; chosen.
MAX_GROWTH_BYTES = 1_000_000


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Compile the set once."""
    return engine_for()


def fed(data: bytes, engine: Engine) -> tuple[Diagnosis, Log]:
    """Read a log in blocks."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("job.log")
    for at in range(0, len(data), BLOCK_BYTES):
        log.feed(data[at : at + BLOCK_BYTES])
    log.finish()
    return diagnosis, log


@pytest.mark.costly
def test_a_stack_of_100_000_frames_has_its_ends(engine: Engine) -> None:
    """The outermost and the innermost frames are stored, and its exception."""
    frames = "".join(FRAME.format(number, number) for number in range(100_000))
    data = f"{HEADER}{frames}KeyError: 'tokens'\n".encode()
    diagnosis, log = fed(data, engine)
    (one,) = log.tracebacks
    (raised,) = one.chain
    assert len(raised.frames) == FIRST_FRAMES + LAST_FRAMES
    assert (raised.frames[0].line, raised.frames[-1].line) == (0, 99_999)
    assert diagnosis.verdicts()[0].cause.fault == "data_error"


@pytest.mark.costly
def test_memory_does_not_grow_with_a_stack(engine: Engine) -> None:
    """Of 1,000 frames or 10,000."""
    peaks = []
    for num_frames in (1_000, 10_000):
        frames = "".join(FRAME.format(number, number) for number in range(num_frames))
        data = f"{HEADER}{frames}KeyError: 'tokens'\n".encode()
        tracemalloc.start()
        fed(data, engine)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + MAX_GROWTH_BYTES


def test_a_chain_of_1_000_exceptions_has_its_ends(engine: Engine) -> None:
    """The first ones are the cause, and the last ones are what ended the program."""
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    parts = [f"{HEADER}{FRAME.format(n, n)}ValueError: number {n}\n" for n in range(1000)]
    _, log = fed(chained.join(parts).encode(), engine)
    (one,) = log.tracebacks
    messages = [raised.message for raised in one.chain]
    assert len(messages) == FIRST_RAISED + LAST_RAISED
    assert (messages[0], messages[-1]) == ("number 0", "number 999")


def test_more_tracebacks_than_are_read_leave_the_first_and_the_last(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that logs an error in each step does not hide the one that ended it, and its lines are not all read."""
    monkeypatch.setattr(reader, "MAX_LINES", 2000)
    parts = [f"{HEADER}{FRAME.format(n, n)}ValueError: number {n}\n" for n in range(20_000)]
    _, log = fed("".join(parts).encode(), engine)
    messages = [one.chain[0].message for one in log.tracebacks]
    assert (messages[0], messages[-1]) == ("number 0", "number 19999")
    assert len(messages) <= reader.FIRST_TRACEBACKS + reader.LAST_TRACEBACKS
    # The last two blocks, and the one in which the limit was reached.
    assert log.num_traceback_lines < 2000 + 3 * BLOCK_BYTES // 30


def test_healthy_lines_are_not_read_one_by_one(
    engine: Engine,
) -> None:
    """Only those near a traceback are: of a million others, none."""
    healthy = b"step 5 of 100: all is well\n" * 200_000
    _, log = fed(
        healthy + f"{HEADER}{FRAME.format(1, 1)}ValueError: x\n\n".encode() + healthy, engine
    )
    assert len(log.tracebacks) == 1
    assert log.num_traceback_lines < UNFINISHED_LINES


def hostile() -> Iterator[tuple[str, bytes]]:
    """Yield texts that no reader expects."""
    text = f"{HEADER}{FRAME.format(1, 1)}KeyError: 'tokens'\n"
    data = text.encode()
    yield "invalid UTF-8", data.replace(b"rows", b"\xff\xfe\xc3\x28")
    yield "CRLF", data.replace(b"\n", b"\r\n")
    yield "old Mac ends", data.replace(b"\n", b"\r")
    yield "zeros", data.replace(b"__getitem__", b"a\0b\0c")
    yield (
        "a line of 5 MB",
        HEADER.encode() + b'  File "' + b"x" * 5_000_000 + b'", line 1, in f\nKeyError: 1\n',
    )
    yield (
        "a message of 5 MB",
        HEADER.encode() + FRAME.format(1, 1).encode() + b"KeyError: " + b"y" * 5_000_000,
    )
    yield "a message of 100,000 lines", data + b"more\n" * 100_000
    yield "headers only", HEADER.encode() * 20_000
    yield "frames only", FRAME.format(2, 2).encode() * 20_000
    yield "a huge line number", data.replace(b"line 1", b"line " + b"9" * 4000)
    yield (
        "a prefix of 10,000 characters",
        b"\n".join(b"p" * 10_000 + line for line in data.split(b"\n")),
    )
    yield "1,000 prefixes", b"".join(f"w{n} | {HEADER}".encode() for n in range(1000)) + data
    yield "brackets", HEADER.encode() + b"(" * 100_000 + b"\n" + data
    yield (
        "groups within groups",
        b"".join(
            b"  " * n
            + b"+ Exception Group "
            + HEADER.encode()
            + b"  " * n
            + b"+-+---------------- 1 ----------------\n"
            for n in range(2000)
        ),
    )
    yield (
        "boxes that do not end",
        ("╭" + "─" * 30 + " Traceback (most recent call last) " + "─" * 30 + "╮\n").encode() * 5000,
    )
    yield "escaped ends", (HEADER.strip() + "\\n" * 200_000 + "\n").encode()
    dice = random.Random(17)
    torn = bytearray(data * 200)
    for _ in range(2000):
        torn[dice.randrange(len(torn))] = dice.randrange(256)
    yield "random bytes", bytes(torn)


@pytest.mark.parametrize(("name", "data"), [pytest.param(*one, id=one[0]) for one in hostile()])
def test_hostile_text_has_an_outcome(name: str, data: bytes, engine: Engine) -> None:
    """No text makes the reader fail, and what it stores is bounded."""
    diagnosis, log = fed(data, engine)
    diagnosis.verdicts()
    for one in log.tracebacks:
        assert len(one.chain) <= FIRST_RAISED + LAST_RAISED, name
        assert all(len(raised.message) <= 1200 and len(raised.text) <= 500 for raised in one.chain)
        assert all(len(frame.file) <= 300 for raised in one.chain for frame in raised.frames)


def test_a_traceback_cut_anywhere_has_an_outcome(engine: Engine) -> None:
    """Its log ends, or its block, at any byte."""
    text = (
        f"[rank1]: {HEADER}" + '[rank1]:   File "/app/rows.py", line 4, in __getitem__\n'
        "[rank1]:     return self.rows[index]\n[rank1]: KeyError: 'tokens'\n"
    ).encode()
    for at in range(len(text)):
        whole = Diagnosis(engine=engine)
        log = whole.log("job.log")
        log.feed(text[:at])
        log.feed(text[at:])
        log.finish()
        assert [one.chain[0].name for one in log.tracebacks] == ["KeyError"], at
        fed(text[:at], engine)
