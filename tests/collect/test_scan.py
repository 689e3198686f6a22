"""A scan finds the same lines in any division of a log into blocks, and costs no memory for unknown lines."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.collect.engines import Engine
from runner.collect.scan import MAX_LINE_BYTES, MAX_MATCHES, Scan, ScannedLine, engine_for
from runner.collect.step_formats.formats import MetricLines, Reading

ENGINE = engine_for()
SICK = b"RuntimeError: CUDA error: an illegal memory access was encountered"
LINES = (
    b"nothing to see here",
    b"",
    b"[rank3]: " + SICK,
    b"10%|#   | 1/10\r20%|##  | 2/10\rCUDA out of memory. Tried to allocate 2 GiB\r30%|### | 3/10",
    b"\x1b[31mnfs: server filer02 not responding, still trying\x1b[0m",
    b"\xff\xfe broken \x80 text",
    b"iter 120: loss 2.4312, time 135.20ms, mfu 41.20%",
    b"K" * 5000 + b" No space left on device",
)


def scanned(data: bytes, cuts: list[int], engine: Engine = ENGINE) -> list[ScannedLine]:
    """Scan data that comes in blocks cut at these offsets."""
    scan, found, last = Scan("log", engine=engine), list[ScannedLine](), 0
    for cut in [*sorted(cuts), len(data)]:
        found += scan.feed(data[last:cut])
        last = max(last, cut)
    return [*found, *scan.finish()]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12), st.randoms(use_true_random=False))
def test_blocks_make_no_difference(lines: list[bytes], dice: random.Random) -> None:
    """However a log is cut, the same matches and records come out, with the same line numbers."""
    data = b"\n".join(lines)
    cuts = [dice.randrange(len(data) + 1) for _ in range(dice.randrange(6))]
    assert scanned(data, cuts) == scanned(data, [])


def test_matches_have_line_number_and_rank_and_no_wrapping() -> None:
    """Prefixes of a line, colours and other redraws of a progress bar are no part of a match."""
    found = [one for one in scanned(b"\n".join(LINES), []) if one.match is not None]
    matches = {one.match.signature: one.match for one in found if one.match is not None}
    assert matches["cuda-illegal-access"].line == 3
    assert matches["cuda-illegal-access"].rank == 3
    assert matches["cuda-illegal-access"].text == SICK.decode()
    assert matches["cuda-oom"].text == "CUDA out of memory. Tried to allocate 2 GiB"
    assert matches["file-server-silent"].text == "nfs: server filer02 not responding, still trying"
    assert len(matches["disk-full"].text) <= 500
    assert "No space left on device" in matches["disk-full"].text


def test_steps_are_read_beside_matches() -> None:
    """Metric lines of trainers are found by the same pass."""
    (record,) = [one.record for one in scanned(b"\n".join(LINES), []) if one.record is not None]
    assert (record.step, record.loss) == (120, 2.4312)


def test_a_line_without_a_step_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs may have no other lines: parsing is most of what they cost."""
    parse, parsed = MetricLines.parse, list[str]()

    def count(self: MetricLines, text: str) -> Reading | None:
        parsed.append(text)
        return parse(self, text)

    monkeypatch.setattr(MetricLines, "parse", count)
    lines = [f"loss: {2 + 1 / number:.4f}" for number in range(1, 50)]
    found = list(Scan("log").feed("".join(f"{line}\n" for line in lines).encode()))
    assert [one.unnumbered is not None for one in found] == [True] * len(lines)
    assert parsed == lines


def test_a_line_without_end_is_searched_and_not_kept() -> None:
    """In ten megabytes without a newline the matches are found, and memory holds no more than a bounded part."""
    scan, found = Scan("log", engine=ENGINE), list[ScannedLine]()
    filler = b"x" * 100_000
    for number in range(100):
        found += scan.feed(filler + (b" " + SICK + b" " if number == 50 else b""))
        assert len(scan._rest) <= MAX_LINE_BYTES
    found += scan.feed(b"\nCUDA out of memory\n")
    matches = [one.match for one in found if one.match is not None]
    known = [match for match in matches if match.signature.startswith("cuda")]
    assert [(match.signature, match.line) for match in known] == [
        ("cuda-illegal-access", 1),
        ("cuda-oom", 2),
    ]


def test_a_match_across_two_pieces_of_an_endless_line_is_found_once() -> None:
    """Wherever it is cut; a match found before is not reported again."""
    for shift in range(0, len(SICK) + 8, 3):
        scan = Scan("log", engine=ENGINE)
        data = b"x" * (MAX_LINE_BYTES - shift) + b" " + SICK + b" " + b"x" * (3 * MAX_LINE_BYTES)
        found = list[ScannedLine]()
        for at in range(0, len(data), MAX_LINE_BYTES // 2):
            found += scan.feed(data[at : at + MAX_LINE_BYTES // 2])
        found += scan.finish()
        names = [one.match.signature for one in found if one.match is not None]
        assert names.count("cuda-illegal-access") == 1, shift


def test_a_flood_of_one_line_is_counted_and_hides_no_other() -> None:
    """A million of the same are not reported one by one, and the first of another kind still is."""
    scan = Scan("log", engine=ENGINE)
    data = (
        b"ConnectionResetError: [Errno 104] Connection reset by peer\n" * (3 * MAX_MATCHES) + SICK
    )
    found = [*scan.feed(data), *scan.finish()]
    names = [one.match.signature for one in found if one.match is not None]
    assert names.count("peer-gone") == MAX_MATCHES
    assert names.count("cuda-illegal-access") == 1
    assert scan.num_folded >= 2 * MAX_MATCHES


def test_what_no_engine_can_search_for_is_named() -> None:
    """An invalid pattern is reported itself, not the set."""
    from runner.collect.engines import make_engine

    with pytest.raises(ValueError, match=r"\(unclosed"):
        make_engine(["fine", "(unclosed"])
