"""Step histories: what is written is read, whatever happens to leaders, disks and bytes; and it stays small."""

import itertools
import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.steps import (
    RunFiles,
    StepMerger,
    StepRow,
    contributing,
    folder_beside,
    load,
    read,
    read_newest,
)
from runner.steps import rows as form
from runner.steps.blocks import StepsHead, decode, encode_blocks, encode_head
from runner.steps.buckets import FINE_ROWS, MAX_ROWS, OLD_ROWS, thinned
from runner.steps.files import MAX_FILES
from tests.small_disk import fill, small_disk

ONE, TWO, THREE = AttemptId(1, 1, 0), AttemptId(1, 1, 1), AttemptId(1, 2, 0)


def row(step: int, attempt: AttemptId = ONE, loss: float | None = None) -> StepRow:
    """Make a row."""
    return StepRow(step, 1e9 + step, attempt, 3.0 / step if loss is None else loss, lr=1e-3)


def leader(folder: Path, token: int = 1, *, admitted_at: float = 5.0) -> RunFiles:
    """Return the files of run 1 as a leader writes them."""
    return RunFiles(folder, run=1, run_name="tiny", admitted_at=admitted_at, token=token)


def names(folder: Path) -> list[str]:
    """Return the files of run 1."""
    return sorted(path.name for path in (folder / "1").iterdir())


ANY_NUMBER = st.none() | st.floats()
ANY_ROW = st.builds(
    StepRow,
    st.integers(0, form.MAX_STEP),
    st.floats(allow_nan=False),
    st.builds(lambda a, b: AttemptId(1, a, b), st.integers(0, 2**32 - 1), st.integers(0, 9)),
    *[ANY_NUMBER] * len(form.COLUMNS),
    st.booleans(),
)


@given(ANY_ROW)
def test_every_row_is_read_as_it_was_written(one: StepRow) -> None:
    """None stays None, NaN stays NaN, and no float loses a bit."""
    body = encode_head(head()) + encode_blocks([form.packed(one)])
    found = form.unpacker(1)(decode(body, 0, form.MAX_STEP).rows[0])
    assert repr(found) == repr(one)


def head(**changes: object) -> StepsHead:
    """Make a head of run 1."""
    plain = {"version": 1, "run": 1, "run_name": "tiny", "admitted_at": 5.0, "token": 1}
    return StepsHead(**{**plain, "columns": form.COLUMNS, **changes})  # type: ignore[arg-type]


def test_a_next_leader_goes_on_and_the_earlier_one_damages_nothing(tmp_path: Path) -> None:
    """Both write for a while; each step of each attempt is there once, with the later leader's numbers."""
    old, new = leader(tmp_path, 3), leader(tmp_path, 4)
    old.append([row(step) for step in range(1, 6)])
    new.append([row(step) for step in range(6, 9)])
    old.append([row(6, loss=9.0)])
    new.compact()
    # Its file is gone, so it begins another.
    old.append([row(7, loss=9.0), row(9)])
    assert [each.step for each in read(tmp_path, 1)] == list(range(1, 10))
    assert [each.loss for each in read(tmp_path, 1, 6, 7)] == [3.0 / 6, 3.0 / 7]
    assert len(names(tmp_path)) == 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_torn_and_damaged_bytes_cost_their_blocks_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Wherever the file ends, and whichever byte is another: every row that is read is one that was written."""
    folder = tmp_path_factory.mktemp("damaged")
    files = leader(folder)
    written = [[row(step) for step in range(begin, begin + 4)] for begin in range(1, 41, 4)]
    for block in written:
        files.append(block)
    path = folder / "1" / names(folder)[0]
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(whole[:place])
        least = 0
    else:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        least = len(written) - 1
    found = load(folder, 1)
    assert all(
        each in block
        for each in found.rows
        for block in written
        if each.step in range(block[0].step, block[-1].step + 1)
    )
    is_in_head = place < whole.index(b"\n") + 1
    if not is_in_head:
        assert len(found.rows) >= 4 * least
    # The next leader goes on.
    leader(folder, 2).append([row(100)])
    assert read(folder, 1)[-1] == row(100)


def test_a_file_of_another_release_is_read_or_left_alone(tmp_path: Path) -> None:
    """Columns that it lacks read as None and unknown ones are passed over; a newer version is told and never deleted."""
    columns = ("lr", "curvature", "loss")
    packed = (7, 1.0, 1, 0, 0b101 | form.SKIPPED, 2e-4, 99.0, 1.5)
    body = form.layout(3).pack(*packed)
    whole = encode_blocks([form.packed(row(7))])
    import runner.steps.blocks as blocks

    begin = blocks._BLOCK.pack(b"STPS", 1, 7, 7, 0)
    block = blocks._BLOCK.pack(b"STPS", 1, 7, 7, blocks._code(begin, body)) + body
    assert len(whole) > len(block)
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "000000000001-000001.steps").write_bytes(encode_head(head(columns=columns)) + block)
    (folder / "000000000002-000001.steps").write_bytes(encode_head(head(version=2)) + block)
    (folder / "000000000002-000001.steps.part").write_bytes(b"half")
    found = load(tmp_path, 1)
    assert found.rows == [StepRow(7, 1.0, ONE, loss=1.5, lr=2e-4, skipped=True)]
    assert "version 2, this release reads 1" in " ".join(found.damage)
    files = leader(tmp_path, 3)
    files.append([row(8)])
    files.compact()
    assert "000000000002-000001.steps" in names(tmp_path)
    assert [each.step for each in read(tmp_path, 1)] == [7, 8]


def test_another_run_that_had_the_number_is_not_read(tmp_path: Path) -> None:
    """After the store was rolled back a run may get the number of one that is forgotten."""
    leader(tmp_path, 7, admitted_at=5.0).append([row(1, loss=8.0), row(2)])
    leader(tmp_path, 2, admitted_at=6.0).append([row(1, loss=3.0)])
    assert [each.loss for each in read(tmp_path, 1)] == [3.0]


def test_the_files_of_many_leaders_become_one(tmp_path: Path) -> None:
    """A supervisor that is restarted all day leaves no folder of thousands."""
    for token in range(1, 2 * MAX_FILES):
        leader(tmp_path, token).append([row(token)])
        assert len(names(tmp_path)) <= MAX_FILES + 2
    assert [each.step for each in read(tmp_path, 1)] == list(range(1, 2 * MAX_FILES))


def test_a_full_disk_costs_nothing_that_was_written(tmp_path: Path) -> None:
    """A block that does not fit is refused whole; once there is room, it is appended."""
    with small_disk(tmp_path / "disk", size_bytes=256 * 1024) as disk:
        files = leader(disk)
        files.append([row(step) for step in range(1, 101)])
        filler = fill(disk)
        many = [row(step) for step in range(101, 2000)]
        with pytest.raises(OSError, match="No space left"):
            files.append(many)
        assert load(disk, 1) == ([row(step) for step in range(1, 101)], ())
        filler.unlink()
        files.append(many)
        assert [each.step for each in read(disk, 1)] == list(range(1, 2000))


@pytest.mark.costly
def test_a_long_history_is_thinned_evenly_and_keeps_what_matters(tmp_path: Path) -> None:
    """The newest rows are whole, older ones even; the greatest loss, a NaN and validation losses stay; the file stays small."""
    draw = random.Random(1)
    files, total = leader(tmp_path), MAX_ROWS + FINE_ROWS
    for begin in range(1, total, 5000):
        block = [row(step, loss=draw.uniform(2, 3)) for step in range(begin, begin + 5000)]
        if begin == 5001:
            block[77] = block[77]._replace(loss=math.nan)
            block[1234] = block[1234]._replace(loss=55.5)
            block[2000] = block[2000]._replace(validation_loss=2.25)
        files.append(block)
        if files.is_thick:
            files.compact()
    rows = read(tmp_path, 1)
    assert len(rows) < MAX_ROWS
    steps = [each.step for each in rows]
    assert steps[0] < 5
    assert set(steps) >= set(range(total - FINE_ROWS + 1, total))
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert max(gaps) <= 2 * total / OLD_ROWS + 2
    kept = {each.step: each for each in rows}
    assert math.isnan(kept[5078].loss or 0)
    assert kept[6235].loss == 55.5
    assert kept[7001].validation_loss == 2.25
    assert sum(os.path.getsize(tmp_path / "1" / name) for name in names(tmp_path)) < 15e6
    # Of a file that was thinned, and one that a next leader has begun.
    leader(tmp_path, 2).append([row(step) for step in range(total + 1, total + 1001)])
    for count in (500, 1000, 5000, 10 * MAX_ROWS):
        newest = [each.step for each in read_newest(tmp_path, 1, count)]
        assert newest == list(range(total + 1001 - min(count, FINE_ROWS), total + 1001))


def test_the_newest_rows_are_those_that_all_leaders_wrote_last(tmp_path: Path) -> None:
    """A row that a later leader wrote again counts once, as it wrote it; a run without a history, or another one, has none."""
    assert read_newest(tmp_path, 1, 10) == []
    leader(tmp_path, 1).append([row(step) for step in range(1, 21)])
    leader(tmp_path, 2).append([row(step, loss=7.0) for step in range(19, 23)])
    leader(tmp_path, 3, admitted_at=1.0).append([row(99)])
    found = read_newest(tmp_path, 1, 6)
    assert [(each.step, each.loss == 7.0) for each in found] == [
        (17, False),
        (18, False),
        *((step, True) for step in range(19, 23)),
    ]


@given(st.lists(st.floats(), min_size=1, max_size=300), st.integers(0, 5))
def test_thinned_again_and_again_is_as_thinned_at_once(losses: list[float], doublings: int) -> None:
    """Of no bucket more than four rows stay, and none of its rows has a greater loss than one of them."""
    some = [form.packed(row(step, loss=loss)) for step, loss in enumerate(losses, start=1)]
    again = some
    for power in range(doublings + 1):
        again = thinned(again, 2**power)
    width = 2**doublings
    buckets: dict[int, list[float]] = {}
    for each in again:
        buckets.setdefault(int(each[0]) // width, []).append(each[form.NUM_FIXED])
    assert max(map(len, buckets.values())) <= 4
    for number, kept in buckets.items():
        of_bucket = losses[max(0, number * width - 1) : (number + 1) * width - 1]
        highest = max(-math.inf if math.isnan(one) else one for one in of_bucket)
        assert any(not math.isfinite(one) for one in kept) or highest in kept


def test_the_branch_is_what_no_later_attempt_overwrote() -> None:
    """A rewind voids what lies behind it, also before the new attempt has got as far; the ledger's ranges are exact."""
    rows = [row(step, ONE) for step in range(1, 101)]
    rows += [row(step, TWO) for step in range(81, 131)]
    rows += [row(step, THREE) for step in range(61, 71)]
    branch = contributing(rows)
    assert [(each.step, each.attempt) for each in branch] == [
        *((step, ONE) for step in range(1, 61)),
        *((step, THREE) for step in range(61, 71)),
    ]
    exact = contributing(rows, {ONE: (1, 80), TWO: (81, 130)})
    assert [each.attempt for each in exact] == [ONE] * 80 + [TWO] * 50


def heartbeat(node: str, *steps: StepRecord, attempt: AttemptId = ONE) -> Heartbeat:
    """Make a heartbeat."""
    return Heartbeat(node=node, incarnation=1, attempt=attempt, steps=steps)


def test_nodes_that_report_the_same_step_make_one_row() -> None:
    """The source's loss, the greater norm, and what the source lacks from another; times are spread over the heartbeat."""
    merger = StepMerger()
    merger.add(heartbeat("n1", StepRecord(step=1, lr=0.1), StepRecord(step=2, lr=0.2)), 100.0)
    merger.add(heartbeat("n2", StepRecord(step=1, loss=3.0, grad_norm=1.0)), 100.1)
    merger.add(heartbeat("n1", StepRecord(step=1, loss=4.0, grad_norm=math.nan)), 100.2)
    merger.add(heartbeat("n2", StepRecord(step=2, loss=2.9), StepRecord(step=3, loss=2.8)), 102.1)
    merger.add(heartbeat("n3", StepRecord(step=3, loss=7.0, tokens_per_second=5.0)), 102.2)
    found = {each.step: each for each in merger.take()[1]}
    assert (found[1].loss, found[1].lr, str(found[1].grad_norm)) == (3.0, 0.1, "nan")
    assert (found[2].loss, found[2].lr) == (2.9, 0.2)
    assert (found[3].loss, found[3].tokens_per_second) == (2.8, 5.0)
    assert found[3].at - found[2].at == pytest.approx(1.0)
    assert merger.take() == {}


def test_rows_of_an_earlier_attempt_are_taken_and_its_late_reports_passed_over() -> None:
    """No report of a gang that was replaced becomes a row of the next."""
    merger = StepMerger()
    merger.add(heartbeat("n1", StepRecord(step=9, loss=1.0)), 100.0)
    merger.add(heartbeat("n1", StepRecord(step=5, loss=1.5), attempt=TWO), 110.0)
    merger.add(heartbeat("n1", StepRecord(step=10, loss=0.9)), 111.0)
    assert [(each.attempt, each.step) for each in merger.take()[1]] == [(ONE, 9), (TWO, 5)]


def test_folders_lie_beside_the_journal(tmp_path: Path) -> None:
    """One folder for all runs; a run without a history has no rows."""
    folder = folder_beside(tmp_path)
    assert folder.parent == tmp_path
    assert load(folder, 12) == ([], ())
