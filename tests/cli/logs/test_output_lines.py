"""Lines of an output file that grows, is cut back, or never ends a line."""

import random
from pathlib import Path

import pytest

from runner.agent.ranks.output_files import truncate
from runner.cli.logs.output_lines import MAX_LINE_BYTES, UNFINISHED_SECONDS, OutputFile, readable


def output_file(folder: Path, content: bytes = b"") -> OutputFile:
    """Make a file."""
    (folder / "rank0.out").write_bytes(content)
    return OutputFile(folder / "rank0.out", 0, "out")


def append(file: OutputFile, content: bytes) -> None:
    """Write as a rank does."""
    with file.path.open("ab") as writer:
        writer.write(content)


def test_a_follower_gets_each_line_once_however_it_is_written(tmp_path: Path) -> None:
    """Pieces of any size, also within a character of several bytes; a line without its end comes when the rank has ended."""
    lines = [f"step {number} lößs {'x' * (number % 90)}." for number in range(500)]
    content = "\n".join(lines).encode()
    pieces = random.Random(18)
    file, found, at = output_file(tmp_path), list[str](), 0
    while at < len(content):
        size = pieces.randint(1, 300)
        append(file, content[at : at + size])
        at += size
        found += file.read(is_last=False)
    assert found == lines[:-1]
    assert list(file.read(is_last=True)) == lines[-1:]
    assert list(file.read(is_last=True)) == []


def test_what_has_no_end_is_shown_after_a_moment(tmp_path: Path) -> None:
    """A prompt, or a bar that is rewritten for minutes; its last state is shown, and nothing twice."""
    file = output_file(tmp_path, b"ready\nloading ...")
    assert list(file.read(now=10.0, is_last=False)) == ["ready"]
    assert list(file.read(now=10.0 + UNFINISHED_SECONDS / 2, is_last=False)) == []
    assert list(file.read(now=10.0 + UNFINISHED_SECONDS, is_last=False)) == ["loading ..."]
    append(file, b"\r 10%\r 20%")
    assert list(file.read(now=20.0, is_last=False)) == []
    append(file, b"\r 30%")
    assert list(file.read(now=20.0 + UNFINISHED_SECONDS, is_last=False)) == [" 30%"]
    append(file, b" done\nnext\n")
    assert list(file.read(now=30.0, is_last=False)) == [" done", "next"]


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    """10 MB without an end of line come in pieces; nothing of it is lost."""
    file = output_file(tmp_path, b"y" * 10_000_000 + b"\nend\n")
    found = list(file.read(is_last=False))
    assert found[-1] == "end"
    assert max(map(len, found)) == MAX_LINE_BYTES
    assert sum(map(len, found[:-1])) == 10_000_000


def test_a_file_that_the_agent_cut_back_is_read_from_its_new_start(tmp_path: Path) -> None:
    """The follower learns of it once: lines before are in the other file."""
    file = output_file(tmp_path, b"".join(b"line %d\n" % number for number in range(2000)))
    assert len(list(file.read(is_last=False))) == 2000
    assert truncate(file.path, 4096)
    append(file, b"after\n")
    assert list(file.read(is_last=False)) == ["after"]
    assert file.was_cut
    append(file, b"and on\n")
    assert list(file.read(is_last=False)) == ["and on"]
    assert not file.was_cut


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("num_lines", [1, 2, 10, 11, 5000, 9999])
def test_the_last_lines_are_found_from_the_end(tmp_path: Path, end: bytes, num_lines: int) -> None:
    """As many as asked for, or all there are; a last line without its end counts as one."""
    lines = [f"line {number} {'z' * (number % 100)}." for number in range(5000)]
    file = output_file(tmp_path, "\n".join(lines).encode() + end)
    file.seek_last_lines(num_lines)
    assert list(file.read(is_last=True)) == lines[-num_lines:]


def test_the_last_lines_of_a_huge_line_are_its_last_part(tmp_path: Path) -> None:
    """The file is not read from its begin: at most MAX_LINE_BYTES for each line asked for."""
    file = output_file(tmp_path, b"x" * 5_000_000)
    file.seek_last_lines(3)
    assert sum(map(len, file.read(is_last=True))) == 3 * MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\x1b[1;31mstep 3\x1b[0m loss", "step 3 loss"),
        (b"  1%|\r 50%|#### \r100%|########|  ", "100%|########|"),
        (b"windows\r", "windows"),
        (b"\xff\xfe broken", "�� broken"),
        (b"a\tb", "a       b"),
        (b"", ""),
    ],
)
def test_a_line_is_what_a_person_would_have_read(line: bytes, text: str) -> None:
    """Without colours, and of a progress bar the last state."""
    assert readable(line) == text


def test_a_file_that_is_gone_has_no_lines(tmp_path: Path) -> None:
    """As when a person cleans up while it is followed."""
    file = output_file(tmp_path, b"one\n")
    assert list(file.read(is_last=False)) == ["one"]
    file.path.unlink()
    assert list(file.read(is_last=True)) == []
