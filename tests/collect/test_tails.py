"""A tail delivers every byte of a log once, in order, whatever is done to its files; it reports and counts what it leaves out."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.collect.tails.tail import Block, ReadLimits, Tail
from runner.facts.messages.log_search import LogPosition

# Small enough that every limit is met by small files.
SMALL = ReadLimits(
    poll_bytes=4000,
    behind_bytes=10_000_000,
    block_bytes=500,
    partial_seconds=2.0,
    linger_seconds=1.0,
)


def joined(blocks: list[Block]) -> bytes:
    """Return all bytes that were delivered."""
    return b"".join(block.data for block in blocks)


def look_until_quiet(tail: Tail, now: float) -> list[Block]:
    """Poll, a minute apart, until two polls in a row bring nothing."""
    blocks: list[Block] = []
    quiet = 0
    for turn in range(200):
        found = tail.poll(now + 60.0 * turn)
        quiet = 0 if found else quiet + 1
        if quiet > 2:
            return blocks
        blocks += found
    raise AssertionError("the tail never comes to an end")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Give the path of a log that is not there yet."""
    return tmp_path / "train.log"


def add(path: Path, data: bytes) -> None:
    """Append to a file."""
    with path.open("ab") as file:
        file.write(data)


def rename_on(path: Path) -> None:
    """Rename log to log.1, log.1 to log.2 and so on."""
    rotated = sorted(path.parent.glob(f"{path.name}.*"), key=lambda name: -int(name.suffix[1:]))
    for name in rotated:
        name.rename(path.with_name(f"{path.name}.{int(name.suffix[1:]) + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def test_what_is_new_is_delivered_once(log: Path) -> None:
    """Whole lines come at the next poll, with offset and line number; nothing comes twice; a log may appear later."""
    tail = Tail(log)
    assert tail.poll(0.0) == []
    add(log, b"one\ntwo\n")
    (block,) = tail.poll(1.0)
    assert (block.data, block.offset, block.line, block.is_line_start) == (
        b"one\ntwo\n",
        0,
        1,
        True,
    )
    assert tail.poll(2.0) == []
    add(log, b"three\n")
    (block,) = tail.poll(3.0)
    assert (block.data, block.offset, block.line) == (b"three\n", 8, 3)
    tail.close()


def test_a_line_without_an_end_is_held_back_for_a_while(log: Path) -> None:
    """It comes whole once its end is there, or as it is after the time stated; then the rest follows as the same line."""
    tail = Tail(log, limits=SMALL)
    add(log, b"whole\nhal")
    assert joined(tail.poll(0.0)) == b"whole\n"
    add(log, b"f\npart")
    assert joined(tail.poll(1.0)) == b"half\n"
    assert tail.poll(2.0) == []
    assert tail.poll(2.9) == []
    (block,) = tail.poll(3.0)
    assert (block.data, block.line, block.is_line_start) == (b"part", 3, True)
    add(log, b" two\nnext\n")
    (block,) = tail.poll(5.0)
    assert (block.data, block.line, block.is_line_start) == (b" two\nnext\n", 3, False)
    tail.close()


def test_a_progress_bar_is_cut_between_its_pictures(log: Path) -> None:
    """A line that is redrawn over and over comes up to its last whole redraw, and no character is cut."""
    tail = Tail(log, limits=SMALL)
    add(log, b"1%\r2%\r3")
    tail.poll(0.0)
    assert joined(tail.poll(2.0)) == b"1%\r2%\r"
    add(log, "é".encode()[:1])
    tail.poll(3.0)
    assert joined(tail.poll(5.0)) == b"3"
    tail.poll(6.0)
    # nothing came after it
    assert joined(tail.poll(8.0)) == "é".encode()[:1]
    tail.close()


def test_a_line_of_ten_megabytes_comes_in_pieces(log: Path) -> None:
    """No block is longer than the limit, no piece is lost, and the line number stays until its end."""
    line = os.urandom(5_000_000).hex().encode() + b"\n"
    add(log, line + b"next\n")
    tail = Tail(log)
    blocks = look_until_quiet(tail, 0.0)
    assert joined(blocks) == line + b"next\n"
    assert max(len(block.data) for block in blocks) <= ReadLimits().block_bytes
    assert all(block.line == 1 for block in blocks)
    tail.close()


def test_bytes_that_are_no_text_come_as_they_are(log: Path) -> None:
    """Nothing is decode_line, so nothing can be lost in it."""
    data = bytes(range(256)) * 3 + b"\n"
    add(log, data)
    tail = Tail(log)
    assert joined(tail.poll(0.0)) == data
    tail.close()


def test_several_rotations_between_two_polls(log: Path) -> None:
    """The file that was read is finished first, then those that came and went, then the new one."""
    tail = Tail(log)
    add(log, b"a1\n")
    assert joined(tail.poll(0.0)) == b"a1\n"
    add(log, b"a2\nno end")
    for letter in (b"b", b"c", b"d"):
        rename_on(log)
        add(log, letter + b"1\n")
    assert joined(look_until_quiet(tail, 1.0)) == b"a2\nno endb1\nc1\nd1\n"
    assert tail.num_gaps == 0
    tail.close()


def test_older_rotated_files_and_other_logs_are_left_alone(log: Path) -> None:
    """Files rotated before the first poll, packed files, and logs with similar names are not read as this log."""
    for name in ("train.log.1", "train.log.2.gz", "train.log.err", "train2.log", "train.log.3"):
        add(log.with_name(name), b"old\n")
    add(log, b"a\n")
    tail = Tail(log)
    assert joined(tail.poll(0.0)) == b"a\n"
    log.rename(log.with_name("train.log.4"))
    add(log.with_name("train.log.7.gz"), b"packed\n")
    add(log.with_name("train.log.rank9"), b"another\n")
    add(log, b"b\n")
    assert joined(look_until_quiet(tail, 1.0)) == b"b\n"
    tail.close()


def test_a_writer_may_go_on_in_a_renamed_file(log: Path) -> None:
    """While the renamed file grows, or has just been renamed, the new one waits."""
    tail = Tail(log, limits=SMALL)
    with log.open("ab", buffering=0) as old:
        old.write(b"a\n")
        assert joined(tail.poll(0.0)) == b"a\n"
        rename_on(log)
        add(log, b"c\n")
        assert tail.poll(1.0) == []
        old.write(b"b\n")
        assert joined(tail.poll(1.5)) == b"b\n"
    assert tail.poll(2.0) == []
    assert joined(tail.poll(2.5)) == b"c\n"
    tail.close()


def test_a_truncated_log_is_read_from_its_start_and_the_gap_is_reported(log: Path) -> None:
    """Bytes that were seen and not read are counted as lost; the next block marks that something may be missing."""
    tail = Tail(log, limits=SMALL)
    add(log, b"a\n" + b"held back")
    assert joined(tail.poll(0.0)) == b"a\n"
    log.write_bytes(b"new\n")
    (block,) = tail.poll(1.0)
    assert (block.data, block.offset, block.line, block.may_lack) == (b"new\n", 0, 1, True)
    assert (tail.num_gaps, tail.num_lost_bytes) == (1, 9)
    tail.close()


def test_a_log_that_was_truncated_and_has_outgrown_its_old_size(log: Path) -> None:
    """The bytes before the position show that the file is not the same any more."""
    tail = Tail(log)
    add(log, b"first content\n")
    tail.poll(0.0)
    log.write_bytes(b"second content, which is longer\n")
    (block,) = tail.poll(1.0)
    assert (block.data, block.may_lack) == (b"second content, which is longer\n", True)
    tail.close()


def test_a_copy_that_was_made_before_a_truncation_is_read_to_its_end(log: Path) -> None:
    """Copytruncate loses nothing that the copy holds, though the gap is reported."""
    tail = Tail(log)
    add(log, b"a\n")
    tail.poll(0.0)
    add(log, b"b\nc\n")
    shutil.copy(log, log.with_name("train.log.1"))
    os.truncate(log, 0)
    add(log, b"d\n")
    blocks = look_until_quiet(tail, 1.0)
    assert joined(blocks) == b"b\nc\nd\n"
    assert [block.may_lack for block in blocks] == [False, True]
    assert (tail.num_gaps, tail.num_lost_bytes) == (1, 0)
    tail.close()


def test_an_older_file_that_begins_alike_is_no_copy(log: Path) -> None:
    """A run that starts again truncates its log; an earlier run's log with the same first lines is not read in its place."""
    add(log.with_name("train.log.1"), b"header\nan old error\n")
    # File systems record times in steps of some milliseconds.
    time.sleep(0.02)
    add(log, b"header\n")
    for restarts in (False, True):
        tail = Tail(log)
        tail.poll(0.0)
        if restarts:
            position = tail.position
            tail.close()
            tail = Tail(log, position)
        log.write_bytes(b"new\n")
        assert joined(look_until_quiet(tail, 1.0)) == b"new\n"
        assert tail.num_gaps == 1
        tail.close()
        log.write_bytes(b"header\n")


def test_a_copy_of_the_newer_half_only(log: Path) -> None:
    """Our own agents keep the newer half of a long output: the tail finds its last position there by content."""
    lines = [b"%04d %s\n" % (number, b"x" * 40) for number in range(200)]
    tail = Tail(log)
    add(log, b"".join(lines[:150]))
    tail.poll(0.0)
    add(log, b"".join(lines[150:]))
    log.with_name("train.log.1").write_bytes(b"".join(lines[100:]))
    os.truncate(log, 0)
    add(log, b"after\n")
    assert joined(look_until_quiet(tail, 1.0)) == b"".join(lines[150:]) + b"after\n"
    tail.close()


def test_a_writer_that_goes_on_at_its_old_offset_leaves_a_hole(log: Path) -> None:
    """The hole that truncation leaves before such a writer is no news."""
    tail = Tail(log)
    with log.open("wb", buffering=0) as writer:
        writer.write(b"x" * (1 << 20) + b"\n")
        tail.poll(0.0)
        os.truncate(log, 0)
        writer.write(b"after\n")
        data = joined(look_until_quiet(tail, 1.0))
    assert data.lstrip(b"\0") == b"after\n"
    assert len(data) < 10_000
    tail.close()


def test_a_new_reader_goes_on_where_the_old_one_stopped(log: Path) -> None:
    """From its position, under any name that the file has now, and through what was rotated since."""
    tail = Tail(log)
    add(log, b"a\n")
    tail.poll(0.0)
    position = tail.position
    tail.close()
    add(log, b"b\n")
    rename_on(log)
    add(log, b"c\n")
    rename_on(log)
    add(log, b"d\n")
    tail = Tail(log, position)
    blocks = look_until_quiet(tail, 0.0)
    assert joined(blocks) == b"b\nc\nd\n"
    assert (blocks[0].line, tail.num_gaps) == (2, 0)
    tail.close()


def test_a_position_that_is_nowhere_is_a_gap(log: Path) -> None:
    """A position in a file that is gone or changed is not used: the log is read from its start, and a gap is reported."""
    add(log, b"new\n")
    state = log.stat()
    for inode in (state.st_ino, state.st_ino + 1):
        position = LogPosition(device=state.st_dev, inode=inode, offset=4, before="0" * 16, line=2)
        tail = Tail(log, position)
        (block,) = tail.poll(0.0)
        assert (block.data, block.may_lack, tail.num_gaps) == (b"new\n", True, 1)
        tail.close()


def test_under_a_flood_the_middle_is_skipped_and_counted(log: Path) -> None:
    """Head and tail of what is new are read; bytes and lines between them are counted exactly, and line numbers stay right."""
    limits = ReadLimits(poll_bytes=10_000, behind_bytes=50_000, block_bytes=1000)
    lines = [b"%06d\n" % number for number in range(20_000)]
    tail = Tail(log, limits=limits)
    add(log, b"".join(lines[:10]))
    assert len(joined(tail.poll(0.0))) == 70
    add(log, b"".join(lines[10:]))
    blocks = tail.poll(1.0)
    (after,) = (block for block in blocks if block.skipped_bytes)
    before = blocks[blocks.index(after) - 1]
    assert blocks[0].data.startswith(lines[10])
    assert blocks[-1].data.endswith(lines[-1])
    assert after.offset - (before.offset + len(before.data)) == after.skipped_bytes
    assert after.skipped_lines == after.skipped_bytes // 7
    assert [block.line for block in blocks] == [int(block.data[:6]) + 1 for block in blocks]
    assert sum(len(block.data) for block in blocks) + after.skipped_bytes == 7 * 19_990
    assert (tail.num_skipped_bytes, tail.num_skipped_lines) == (
        after.skipped_bytes,
        after.skipped_lines,
    )
    assert tail.poll(2.0) == []
    tail.close()


def test_the_first_error_of_a_flood_is_never_skipped(log: Path) -> None:
    """Ranks that were silent and then all print at once: the first lines are always among those read."""
    limits = ReadLimits(poll_bytes=20_000, behind_bytes=40_000, block_bytes=2000)
    tail = Tail(log, limits=limits)
    error = b"RuntimeError: the cause\n"
    for turn in range(5):
        add(log, b"quiet %d\n" % turn)
        tail.poll(10.0 * turn)
        add(log, b"x" * 5000 + b"\n" + error + b"consequence of it\n" * 100_000)
        assert error in joined(tail.poll(10.0 * turn + 5.0))
    assert tail.num_skipped_bytes > 5 * 1_000_000
    tail.close()


def test_lines_are_not_counted_beyond_a_limit(log: Path) -> None:
    """Then line numbers are not known any more, and none is made up; bytes are counted nevertheless."""
    limits = ReadLimits(poll_bytes=1000, behind_bytes=2000, block_bytes=100, counted_bytes=5000)
    add(log, b"12345\n" * 5000)
    tail = Tail(log, limits=limits)
    blocks = tail.poll(0.0)
    (after,) = (block for block in blocks if block.skipped_bytes)
    assert (after.skipped_lines, after.line, blocks[0].line) == (None, None, 1)
    assert len(joined(blocks)) + tail.num_skipped_bytes == 30_000
    tail.close()


def test_trouble_with_a_log_is_reported_and_survived(log: Path) -> None:
    """A folder in its place is no log; once a file is there it is read."""
    log.mkdir()
    tail = Tail(log)
    assert tail.poll(0.0) == []
    assert "no regular file" in tail.trouble
    log.rmdir()
    os.mkfifo(log)
    assert tail.poll(1.0) == []
    log.unlink()
    add(log, b"a\n")
    assert joined(tail.poll(2.0)) == b"a\n"
    assert tail.trouble == ""
    tail.close()


def test_a_poll_takes_and_keeps_little_memory_and_time(log: Path) -> None:
    """A writer of 50 MB/s takes a small part of a core: reading 128 MB costs far less than the seconds they take to write."""
    chunk = b"2025-01-02 03:04:05 INFO step: 100 loss: 1.5\n" * 23_000
    with log.open("wb") as file:
        for _ in range(128):
            file.write(chunk)
    tail = Tail(log)
    started, total = time.process_time(), 0
    while blocks := tail.poll(0.0):
        total += len(joined(blocks))
        assert len(joined(blocks)) <= ReadLimits().poll_bytes
    seconds = time.process_time() - started
    assert total == 128 * len(chunk)
    # 470e6 was measured, the joining of this test included
    assert total / seconds > 50e6
    assert tail.num_skipped_bytes == 0
    tail.close()


# thousands find what sixty do not
EXAMPLES = int(os.environ.get("STOKER_EXAMPLES", "60"))


class World:
    """A log with its writer, which remembers all that was written; and its reader."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "train.log"
        self.written = b""
        self.read = b""
        self.now = 0.0
        self.num_lines = 0
        self.writer: BinaryIO = self.log.open("ab", buffering=0)
        self.tail = Tail(self.log, limits=SMALL)
        self.blocks: list[Block] = []

    def write(self, num_lines: int, cut: int) -> None:
        """Write unique lines; the last one lacks its last `cut` bytes, which come with the next write."""
        text = b""
        for _ in range(num_lines):
            self.num_lines += 1
            text += b"%d: %s\n" % (self.num_lines, b"y" * (self.num_lines * 37 % 90))
        self.put(text[: len(text) - cut])
        self.owed = text[len(text) - cut :]

    owed = b""

    def put(self, text: bytes) -> None:
        """Write what is owed and then a text."""
        self.writer.write(self.owed + text)
        self.written += self.owed + text
        self.owed = b""

    def look(self, seconds: float) -> None:
        """Let time pass and poll."""
        self.now += seconds
        found = self.tail.poll(self.now)
        self.blocks += found
        self.read += joined(found)

    def restart(self) -> None:
        """Go on with another reader, from the position of this one."""
        position = self.tail.position
        if position is None or position.offset == 0:
            # Nothing is known of a log that was never read.
            return
        self.tail.close()
        self.tail = Tail(self.log, position, limits=SMALL)

    def rotate(self, *, again_at_once: bool) -> None:
        """Rename all files on; the writer goes on in the renamed one unless it opens the log again."""
        if self.log.exists():
            rename_on(self.log)
        if again_at_once:
            self.reopen()

    def reopen(self) -> None:
        """Let the writer open the log again."""
        self.writer.close()
        self.writer = self.log.open("ab", buffering=0)

    def copy_and_truncate(self) -> None:
        """Rotate as logrotate does with copytruncate."""
        copy = self.log.with_name("copy")
        shutil.copy(self.log, copy)
        state = self.log.stat()
        rename_on(self.log)
        self.log.with_name("train.log.1").rename(self.log)
        copy.rename(self.log.with_name("train.log.1"))
        assert self.log.stat().st_ino == state.st_ino
        os.truncate(self.log, 0)

    def finish(self) -> None:
        """Read all there is."""
        self.reopen()
        self.put(b"")
        blocks = look_until_quiet(self.tail, self.now + 60.0)
        self.blocks += blocks
        self.read += joined(blocks)
        self.tail.close()
        self.writer.close()


WRITES = st.tuples(st.just("write"), st.integers(1, 30), st.integers(0, 12))
LOOKS = st.tuples(st.just("look"), st.sampled_from([0.0, 0.5, 3.0]), st.just(0))
RENAMES = st.sampled_from([("rotate", 0, 0), ("reopen", 0, 0), ("restart", 0, 0), ("rotate", 1, 0)])
COPIES = st.sampled_from([("copy", 0, 0), ("restart", 0, 0)])


def play(world: World, steps: list[tuple[str, float, int]]) -> None:
    """Run the steps, then read to the end."""
    for verb, first, second in steps:
        if verb == "write":
            world.write(int(first), second)
        elif verb == "look":
            world.look(first)
        elif verb == "restart":
            world.restart()
        elif verb == "copy":
            world.copy_and_truncate()
        elif verb == "reopen":
            world.reopen()
        else:
            world.rotate(again_at_once=bool(first))
    world.finish()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.one_of(WRITES, LOOKS, RENAMES), max_size=25))
def test_nothing_is_lost_or_read_twice_through_renames(
    steps: list[tuple[str, float, int]],
) -> None:
    """In any order of writes, polls, renames and restarts, the tail reads what was written."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.look(0.0)
        play(world, steps)
    assert world.read == world.written
    assert world.tail.num_gaps == 0
    seen: dict[int, Block] = {}
    for block in world.blocks:
        before = seen.get(block.inode)
        wanted = before.offset + len(before.data) if before else 0
        line = (before.line or 0) + before.data.count(b"\n") if before else 1
        assert (block.offset, block.line) == (wanted, line)
        seen[block.inode] = block


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.one_of(WRITES, LOOKS, COPIES), max_size=25))
def test_nothing_is_lost_or_read_twice_through_copies(
    steps: list[tuple[str, float, int]],
) -> None:
    """In any order of writes, polls, copytruncates and restarts, as long as the copies are kept."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.look(0.0)
        play(world, steps)
    assert world.read == world.written


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=12),
    st.integers(100, 3000),
    st.integers(1, 4),
)
def test_whatever_is_skipped_is_counted(
    writes: list[tuple[int, bool]], poll_bytes: int, times: int
) -> None:
    """For any flood and any limits, blocks are the content at their offsets; with the skipped bytes they are all there is."""
    limits = ReadLimits(
        poll_bytes=poll_bytes, behind_bytes=poll_bytes * times, block_bytes=max(50, poll_bytes // 7)
    )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        tail, number = Tail(log, limits=limits), 0
        blocks: list[Block] = []
        for num_lines, is_followed in writes:
            first = number
            number += num_lines
            add(log, b"".join(b"%d: %s\n" % (n, b"z" * (n % 70)) for n in range(first, number)))
            at = len(joined(blocks)) + tail.num_skipped_bytes
            found = tail.poll(0.0) if is_followed else []
            # what comes next is never skipped
            assert not found or found[0].offset == at
            blocks += found
        blocks += look_until_quiet(tail, 1.0)
        data, at = log.read_bytes() if log.exists() else b"", 0
        for block in blocks:
            assert block.offset == at + block.skipped_bytes
            assert block.skipped_lines == data.count(b"\n", at, block.offset)
            assert block.data == data[block.offset : block.offset + len(block.data)]
            assert block.line == data.count(b"\n", 0, block.offset) + 1
            at = block.offset + len(block.data)
        assert at == len(data)
        tail.close()
