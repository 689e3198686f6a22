"""Parsing separates a line from what launchers, containers and the kernel write before it."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.collect.lines import (
    MAX_LINE_BYTES,
    Line,
    bare_prefix,
    decode_line,
    plain,
    segment,
    unwrapped,
)

REAL = Path(__file__).parents[2] / "../shared/data/logs"
# 2025-01-02T03:04:05Z
NEW_YEAR = 1735787045.0


def local(text: str) -> float:
    """Return a moment of this machine's zone in Unix seconds."""
    return datetime.fromisoformat(text).astimezone().timestamp()


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("[rank3]:     loss = f(x)", Line(text="    loss = f(x)", rank=3)),
        ("[rank12]:[W0102 03:04:05.1 Group.cpp:9] a", Line(text="[W0102 03:04:05.1 Group.cpp:9] a", rank=12)),
        ("[default3]:what(): no", Line(text="what(): no", local_rank=3)),
        ("[0]:up", Line(text="up", local_rank=0)),
        ("[node7:1]  File", Line(text=" File", local_rank=1, node="node7")),
        ("[1,3]<stdout>:up", Line(text="up", rank=3)),
        ("[1,30]<stderr>: up", Line(text="up", rank=30)),
        ("33: [rank33]:[W", Line(text="[W", rank=33)),
        (" 0: [rank5]: up", Line(text="up", rank=5)),
        ("(RayTrainWorker pid=4112) up", Line(text="up")),
        ("(pid=12, ip=10.0.0.5) up", Line(text="up", node="10.0.0.5")),
        ("\x1b[36m(RayTrainWorker pid=1, ip=10.0.0.5)\x1b[0m up", Line(text="up", node="10.0.0.5")),
        ("2025-01-02T03:04:05.5Z stdout F up", Line(text="up", at=NEW_YEAR + 0.5)),
        ("2025-01-02T05:04:05.500000000+02:00 stderr P up", Line(text="up", at=NEW_YEAR + 0.5)),
        ("[pod/worker-3/pytorch] up", Line(text="up", node="worker-3")),
        ('{"log":"[rank2]: up\\n","stream":"stdout","time":"2025-01-02T03:04:05Z"}', Line(text="up", rank=2, at=NEW_YEAR)),
        ("node-2:577:590 [0] NCCL WARN x", Line(text="NCCL WARN x", node="node-2")),
        ("Jan  2 03:04:05 node7 kernel: [ 12.000001] oops", Line(text="oops", node="node7")),
        ("Jan 12 03:04:05 node7 systemd[1]: up", Line(text="systemd[1]: up", node="node7")),
        ("2025-01-02T03:04:05.000000+00:00 node7 kernel: oops", Line(text="oops", node="node7", at=NEW_YEAR)),
        ("2025-01-02T03:04:05Z node7 sshd[9]: up", Line(text="sshd[9]: up", node="node7", at=NEW_YEAR)),
        ("[12345.678901] oops", Line(text="oops")),
        ("[   12.678901][  T17] oops", Line(text="oops")),
        ("<6>[   12.678901] oops", Line(text="oops")),
        ("[Thu Jan  2 03:04:05 2025] oops", Line(text="oops", at=local("2025-01-02T03:04:05"))),
        ("2025-01-02 03:04:05,500 - a - INFO - up", Line(text="a - INFO - up", at=local("2025-01-02T03:04:05.500"))),
        ("[2025-01-02 03:04:05,500] [INFO] up", Line(text="[INFO] up", at=local("2025-01-02T03:04:05.500"))),
        ("2025-01-02 03:04:05.5: F env.cc:7] no", Line(text="F env.cc:7] no", at=local("2025-01-02T03:04:05.500"))),
        ("2025-01-02 03:04:05 INFO node up", Line(text="INFO node up", at=local("2025-01-02T03:04:05"))),
        ("2025-01-02T03:04:05Z stdout F [rank1]: 2024-01-02 03:04:05 up", Line(text="up", rank=1, at=NEW_YEAR)),
        ("[rank0]: a 1%\ra 2%\r", Line(text="a 2%", rank=0)),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain\x00", Line(text="red and plain")),
    ],
)  # fmt: skip
def test_unwrapping_a_line_yields_what_the_wrapping_knows(raw: str, line: Line) -> None:
    """Each launcher's prefix, alone and nested, gives rank, node and time, and leaves the text."""
    assert unwrapped(raw) == line


@pytest.mark.parametrize(
    "raw",
    [
        *("12: up", "  0: up", "node7: up", "3 ranks joined", "12:30 is late", "[1, 2]: a list"),
        *("[INFO]: up", "INFO: up", "(a note) up", "[rank]: up", "[12.5] up", "{'log': 1}"),
        *('{"log": 1}', '{"log":"x"', "2025-01-02 is a day", "ValueError: 3", "    indented", ""),
        *("[1]:", "[1]: a reference"),
        "[1234567890]: no rank has so many digits",
    ],
)
def test_an_ordinary_line_stays_as_it_is(raw: str) -> None:
    """Numbers, names and brackets at the start of a line are no prefix by themselves."""
    assert unwrapped(raw) == Line(text=raw)


def test_a_time_that_is_none_gives_no_moment() -> None:
    """A month 13 is taken off and not believed."""
    assert unwrapped("2025-13-45 03:04:05 up") == Line(text="up")


def test_bare_numbers_are_ranks_when_nearly_all_lines_have_one() -> None:
    """Interleaved tasks of srun are recognised, Slurm's own lines among them; the number is then the rank."""
    lines = ["0: up", " 1: up", "0: loss 1.5", " 1: loss 1.5", "srun: Job step aborted", ""]
    assert bare_prefix(lines) == "rank"
    assert unwrapped(" 1: 12: up", "rank") == Line(text="12: up", rank=1)
    assert unwrapped("1: [default3]:up", "rank") == Line(text="up", local_rank=3)
    assert unwrapped("srun: up", "rank") == Line(text="srun: up")


def test_bare_names_are_nodes_when_nearly_all_lines_have_one() -> None:
    """Interleaved nodes of pdsh are seen as such."""
    assert bare_prefix(["node1: up", "node2: up", "node1: down", "node2: down"]) == "node"
    assert unwrapped("node2: [rank9]: up", "node") == Line(text="up", rank=9, node="node2")


@pytest.mark.parametrize(
    "lines",
    [
        ["1: import os", "2: import re", "3:", "4: def f():", "5:     pass"],
        ["INFO: a", "INFO: b", "WARNING: c", "INFO: d", "INFO: e"],
        ["ValueError: a", "ValueError: a", "ValueError: a", "ValueError: a"],
        ["0: up", "0: up"],
        ["0: up", "0: up", "Traceback", "  File", "    x = 1", "KeyError"],
        [],
    ],
)
def test_numbers_and_words_of_ordinary_logs_are_no_prefix(lines: list[str]) -> None:
    """Numbered lines, levels, exceptions, and too few lines decide nothing."""
    assert bare_prefix(lines) is None


def test_the_redraw_that_holds_a_match() -> None:
    """Of a progress bar the wanted redraw is returned, else the last one that is not empty."""
    bar = "one\rtwo\rthree\r  "
    assert [segment(bar, at) for at in (0, 4, 6, 8)] == ["one", "two", "two", "three"]
    assert segment(bar) == "three"
    assert segment("\r\r") == ""


def test_bytes_that_are_no_text_are_replaced_and_bounded() -> None:
    """Invalid UTF-8 becomes a sign of replacement, and a line without end is cut."""
    assert decode_line(b"a\xff\xfeb") == "a\ufffd\ufffdb"
    assert len(decode_line(b"x" * (MAX_LINE_BYTES + 9))) == MAX_LINE_BYTES
    assert len(unwrapped("y" * (MAX_LINE_BYTES + 9)).text) == MAX_LINE_BYTES


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    """Hostile text never raises; what is left is no longer than what was there."""
    assert len(unwrapped(text).text) <= len(text)
    assert "\x1b[" not in plain(text) or "\x1b[" in text
    bare_prefix(text.splitlines())


def test_ranks_of_real_logs() -> None:
    """In real logs every line that begins with [rankN] has that rank, and no ordinary log is taken for one of srun."""
    path = REAL / "cases.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not there: it belongs to the reviewers, not to the project")
    num_ranked = 0
    for case in map(json.loads, path.read_text().splitlines()):
        for line in case["log"].splitlines():
            if line.startswith("[rank"):
                num_ranked += 1
                assert unwrapped(line).rank == int(line[5 : line.index("]")])
    assert num_ranked > 100


def test_half_a_surrogate_pair_in_dockers_json_is_escaped() -> None:
    """JSON can hold what no message can; bytes that are no UTF-8 are replaced."""
    line = r'{"log":"\ud800 oops\n","stream":"stdout","time":"2025-01-02T03:04:05Z"}'
    assert unwrapped(line).text == r"\ud800 oops"
    assert decode_line(b"\xed\xa0\x80 oops").encode().endswith(b" oops")
