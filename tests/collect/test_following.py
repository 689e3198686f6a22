"""Logs that are followed: which matches are reported, in which order, how often, and where a follower resumes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.tails.followed_logs import MAX_REPEATS, REPEAT_SECONDS
from runner.collect.tails.follower import MAX_MATCHES, POSITIONS_SECONDS, Follower
from runner.facts import wire
from runner.facts.matches import Match
from runner.facts.messages.log_search import FollowReport, FollowRequest, LogPosition
from runner.facts.messages.signals import StepRecord

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB"
LOST = "NVRM: Xid (PCI:0000:a1:00): 79, pid=77, name=python, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return the engine with all signatures."""
    return engine_for()


class Reader:
    """A follower of two ranks' logs, and its reports."""

    def __init__(self, folder: Path, engine: Engine, **request: object) -> None:
        self.folder = folder
        files = {str(folder / f"rank{r}.{kind}"): r for r in (0, 1) for kind in ("out", "err")}
        self.request = FollowRequest(gang="1.1.0", files=files, **request)  # type: ignore[arg-type]
        self.engine = engine
        self.follower = Follower(self.request, engine)
        self.reports: list[FollowReport] = []
        self.now = 0.0

    def write(self, name: str, *lines: str) -> None:
        """Append lines."""
        with (self.folder / name).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def look(self, seconds: float = 1.5) -> list[Match]:
        """Poll after a while; return the matches."""
        self.now += seconds
        reports = self.follower.poll(self.now)
        for report in reports:
            assert len(wire.encode(report)) < wire.MAX_MESSAGE_BYTES
        self.reports += reports
        return [match for report in reports for match in report.matches]

    @property
    def places(self) -> dict[str, LogPosition]:
        """The positions last reported, as they come back from JSON."""
        last_places = next(report.places for report in reversed(self.reports) if report.places)
        plain = json.loads(json.dumps(wire.to_plain(last_places)))
        return {path: wire.from_plain(LogPosition, place) for path, place in plain.items()}

    @property
    def steps(self) -> list[StepRecord]:
        """All step records reported."""
        return [record for report in self.reports for record in report.records]


@pytest.fixture
def reader(tmp_path: Path, engine: Engine) -> Iterator[Reader]:
    """Give a reader of logs that are not there yet."""
    reader = Reader(tmp_path, engine)
    yield reader
    reader.follower.close()


def test_matches_have_rank_file_and_line_number_standard_error_first(reader: Reader) -> None:
    """A log may appear after the follower's first poll."""
    assert reader.look() == []
    reader.write("rank0.out", "hello", OOM)
    reader.write("rank1.err", "a", "b", OOM)
    found = [(match.file, match.line, match.rank) for match in reader.look()]
    assert found == [("rank1.err", 3, 1), ("rank0.out", 2, 0)]
    reader.write("rank0.out", "hello again")
    assert reader.look() == []


def test_a_log_goes_on_where_it_was_after_it_was_rotated_or_its_reader_replaced(
    reader: Reader, tmp_path: Path, engine: Engine
) -> None:
    """Nothing twice, nothing lost; lines are counted within their file."""
    reader.write("rank0.err", "one", f"{OOM} (1)")
    assert [match.line for match in reader.look()] == [2]
    reader.write("rank0.err", f"{OOM} (2)")
    (tmp_path / "rank0.err").rename(tmp_path / "rank0.err.1")
    reader.write(
        "rank0.err", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."
    )
    matches = reader.look() + reader.look()
    assert [(match.line, match.signature) for match in matches] == [
        (3, "cuda-oom"),
        (1, matches[1].signature),
    ]
    places = reader.places
    reader.write("rank0.err", "x", f"NCCL error: {OOM}", LOST)
    other = Reader(tmp_path, engine, places=places)
    lines = {match.line for match in other.look()}
    other.follower.close()
    assert lines == {3, 4}


def test_bytes_that_a_log_lost_are_reported_once_with_the_lines_after_them(
    reader: Reader, tmp_path: Path
) -> None:
    """Each time by the name that matches have; a log that lost none is not named."""
    for number in range(2):
        reader.write("rank0.err", "read")
        with (tmp_path / "rank0.err").open("a") as log:
            log.write("held back")
        reader.look(0.1)
        (tmp_path / "rank0.err").write_text("")
        reader.reports.clear()
        reader.write("rank0.err", "x" * number, f"{OOM} ({number})")
        assert [match.file for match in reader.look(0.1)] == ["rank0.err"]
        assert [report.lost_bytes for report in reader.reports] == [{"rank0.err": 9}]
    reader.look(POSITIONS_SECONDS)
    assert reader.reports[-1].lost_bytes == {}


def test_a_repeated_line_is_reported_twice_an_hour(reader: Reader) -> None:
    """The rest is counted."""
    for _ in range(50):
        reader.write("rank0.out", OOM)
        reader.look(0.1)
    assert len([match for report in reader.reports for match in report.matches]) == MAX_REPEATS
    reader.write("rank0.out", OOM)
    assert len(reader.look(REPEAT_SECONDS)) == 1
    assert reader.reports[-1].num_kept_back == 50 - MAX_REPEATS


def test_many_lines_at_once_are_reported_in_parts_that_fit_a_message(reader: Reader) -> None:
    """Positions come with the last part: a receiver of it has received all."""
    from runner.rootcause.signatures import SIGNATURES

    samples = [one.sample for one in SIGNATURES if one.weight == "primary" and one.fault]
    reader.write("rank0.err", *samples)
    found = reader.look()
    assert len(found) > 3 * MAX_MATCHES
    assert [bool(report.places) for report in reader.reports] == [False] * (
        len(reader.reports) - 1
    ) + [True]


def test_steps_are_read_from_one_log_alone(reader: Reader) -> None:
    """Ranks that step together all write the same, or each its own loss."""
    reader.write("rank0.out", "iter 7: loss 4.2500, time 310.11ms, mfu 12.50%")
    reader.look()
    reader.write("rank1.out", "iter 8: loss 9.9900, time 310.11ms, mfu 12.50%")
    reader.write("rank0.out", "iter 8: loss 4.1250, time 310.11ms, mfu 12.50%")
    reader.look()
    assert [(record.step, record.loss) for record in reader.steps] == [(7, 4.25), (8, 4.125)]


def test_a_pattern_of_ones_own_is_read(tmp_path: Path) -> None:
    """Where no format is known."""
    pattern = r"it=(?P<step>\d+) L=(?P<loss>\S+)"
    reader = Reader(tmp_path, None, metric_pattern=pattern)  # type: ignore[arg-type]
    reader.write("rank0.out", "it=12 L=3.5")
    reader.look()
    assert [(record.step, record.loss) for record in reader.steps] == [(12, 3.5)]
    reader.follower.close()


def test_an_unreadable_log_is_reported_once(tmp_path: Path, engine: Engine) -> None:
    """A folder where a log should be; the other logs are read all the same."""
    (tmp_path / "rank0.out").mkdir()
    reader = Reader(tmp_path, engine)
    reader.write("rank1.err", OOM)
    assert len(reader.look()) == 1
    for _ in range(5):
        reader.look()
    assert [report.trouble != "" for report in reader.reports].count(True) == 1
    reader.follower.close()


def test_positions_are_reported_once_in_a_while_although_nothing_matches(reader: Reader) -> None:
    """So that the next reader need not search what was searched."""
    reader.write("rank0.out", "nothing that is known")
    reader.look(POSITIONS_SECONDS + 1)
    assert reader.places
    num_words = len(reader.reports)
    for _ in range(10):
        reader.look(POSITIONS_SECONDS + 1)
    later = reader.reports[num_words:]
    # It reports that it still runs.
    assert len(later) == 10
    assert not any(report.places for report in later)


def test_the_kernels_log_is_read_from_the_runs_start_and_resumes_where_it_was(
    tmp_path: Path, engine: Engine
) -> None:
    """Its lines are marked as the kernel's own."""
    kernel = tmp_path / "kern.log"
    kernel.write_text(f"[   50.000000] {LOST} (old)\n[  101.000000] {LOST} (new)\n")
    reader = Reader(tmp_path, engine, kernel_log=str(kernel), since_microseconds=100_000_000)
    reader.now = 200.0
    found = reader.look()
    assert {match.of_kernel for match in found} == {True}
    assert [("(old)" in match.text, match.fault) for match in found if match.is_lasting] == [
        (False, "gpu_lost")
    ]
    reader.follower.close()
    with kernel.open("a") as file:
        file.write(
            "[  150.000000] EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0\n"
        )
    again = Reader(
        tmp_path,
        engine,
        kernel_log=str(kernel),
        since_microseconds=100_000_000,
        places=reader.places,
    )
    again.now = 201.0
    texts = [match.text for match in again.look()]
    assert not any("Xid" in text for text in texts)
    again.follower.close()


def test_the_first_line_is_reported_in_any_flood_of_others(reader: Reader) -> None:
    """The cause precedes a hundred tracebacks that came of it, all in one poll."""
    traceback = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in f',
        "ValueError: no",
    ]
    reader.write("rank0.err", OOM, *traceback * 100)
    assert reader.look()[0].signature == "cuda-oom"


def test_the_content_of_a_file_before_it_was_cut_is_no_context_for_the_new_content(
    reader: Reader, tmp_path: Path
) -> None:
    """Lines are counted from 1 again: an old line that excuses exceptions does not excuse new ones."""
    ignored = "Exception ignored in: <function Pool.__del__ at 0x7f>"
    filler = [f"line {number}" for number in range(1000)]
    reader.write("rank0.err", *filler, ignored)
    reader.look()
    (tmp_path / "rank0.err").write_text("")
    reader.look()
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-7.bin'"
    reader.write("rank0.err", "Traceback (most recent call last):", "  in f", missing)
    assert {match.line for match in reader.look()} == {3}


def test_a_line_that_cannot_be_searched_does_not_block_the_next(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower reports it, once, and skips it."""
    from runner.collect.scan import Scan

    searched = Scan.feed

    def feed(scan: Scan, block: bytes) -> object:
        if b"poison" in block:
            raise RecursionError("too deep")
        return searched(scan, block)

    monkeypatch.setattr(Scan, "feed", feed)
    reader.write("rank0.err", f"poison {OOM}")
    assert reader.look() == []
    assert "cannot be searched" in reader.reports[-1].trouble
    reader.write("rank0.err", OOM)
    assert [match.signature for match in reader.look()] == ["cuda-oom"]


def test_deep_json_around_a_line_is_no_error(reader: Reader) -> None:
    """It looks like Docker's, and is not."""
    reader.write("rank0.err", '{"log":' + "[" * 5000 + f" {OOM}")
    assert [match.signature for match in reader.look()] == ["cuda-oom"]


def test_an_incomplete_line_is_searched_at_once_and_its_metrics_are_read_when_it_is_whole(
    reader: Reader, tmp_path: Path
) -> None:
    """Outputs are cut where a buffer was full: half a loss is none."""
    with (tmp_path / "rank0.out").open("a") as out, (tmp_path / "rank0.err").open("a") as errors:
        out.write("iter 7: loss 4.2")
        errors.write(OOM)
        out.flush()
        errors.flush()
        matches = [match for _ in range(3) for match in reader.look()]
        assert [match.signature for match in matches] == ["cuda-oom"]
        assert reader.steps == []
        out.write("500, time 310.11ms, mfu 12.50%\n")
        errors.write(" and so on\n")
        out.flush()
        errors.flush()
        assert reader.look() == []
    assert [(record.step, record.loss) for record in reader.steps] == [(7, 4.25)]


def test_one_device_that_complains_all_the_time_hides_no_other(
    reader: Reader,
) -> None:
    """Suppressed matches do not count."""
    for _ in range(100):
        reader.write("rank0.err", LOST)
        reader.look(0.1)
    reader.write("rank0.err", LOST.replace("a1:00", "b2:00"))
    assert {match.named["gpu"] for match in reader.look() if match.is_lasting} == {"0000:b2:00"}


def test_another_log_gives_the_steps_when_the_first_has_fallen_silent(reader: Reader) -> None:
    """A line that happens to look like a step does not hide another log's steps for ever."""
    reader.write("rank0.err", "iter 1: loss 4.2500, time 310.11ms, mfu 12.50%")
    reader.look()
    for step in range(2, 5):
        reader.write("rank0.out", f"iter {step}: loss 4.0000, time 310.11ms, mfu 12.50%")
        reader.look(40.0)
    assert [record.step for record in reader.steps] == [1, 3, 4]
