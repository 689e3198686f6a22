"""Metric files of people: CSV, JSON and TensorBoard events, whole and broken."""

import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.collect.metric_files.columns import Sample
from runner.collect.metric_files.curves import Curve, curves_in
from runner.collect.metric_files.tensorboard import crc32c, masked_crc32c
from runner.detect.numerics.slow_trends import ACTIVATION_NORM


def read(path: Path, content: str | bytes) -> tuple[list[Sample], list[str]]:
    """Write a file, and read it: its samples, its warnings."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    curve = Curve(path)
    return list(curve.samples()), curve.warnings


def varint(value: int) -> bytes:
    """Write an integer as protobuf does."""
    value &= (1 << 64) - 1
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, data: bytes) -> bytes:
    """Write a field of bytes as protobuf does."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, tag: str, value: bytes) -> bytes:
    """Write a record with one scalar, `value` being its encoded field."""
    summary = field(1, field(1, tag.encode()) + value)
    data = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + varint(step) + field(5, summary)
    head = struct.pack("<Q", len(data))
    return (
        head
        + struct.pack("<I", masked_crc32c(head))
        + data
        + struct.pack("<I", masked_crc32c(data))
    )


def simple(value: float) -> bytes:
    """Write a number as `simple_value`."""
    return b"\x15" + struct.pack("<f", value)


def tensor(value: float) -> bytes:
    """Write a number as a tensor of one float, its bytes in `tensor_content`."""
    return field(8, b"\x08\x01" + field(2, b"") + field(4, struct.pack("<f", value)))


def tensor_of_double(value: float) -> bytes:
    """Write a number as a tensor of one double in `double_val`."""
    return field(8, b"\x08\x02" + field(6, struct.pack("<d", value)))


@pytest.mark.parametrize("delimiter", [",", "\t", ";", " "])
def test_tables_are_read_by_the_names_of_their_columns(tmp_path: Path, delimiter: str) -> None:
    """A table's columns are known by many names, in any order, with any usual delimiter."""
    lines = [
        ("iteration", "train/loss", "gnorm", "learning_rate", "loss_scale", "wps", "mystery"),
        ("10", "2.5", "0.3", "1e-4", "65536", "51000", "7"),
        ("20", "NaN", "inf", "1E-4", "32768", "-", "7"),
    ]
    text = "\n".join(delimiter.join(line) for line in lines)
    (first, second), warnings = read(tmp_path / "run.csv", text)
    assert (first.record.step, first.record.loss, first.record.grad_norm) == (10, 2.5, 0.3)
    assert (first.record.lr, first.record.loss_scale) == (1e-4, 65536.0)
    assert first.record.tokens_per_second == 51000.0
    assert first.where == "line 2"
    assert math.isnan(second.record.loss or 0.0)
    assert second.record.grad_norm == math.inf
    assert second.record.tokens_per_second is None
    assert not warnings


def test_exports_of_dashboards_are_read(tmp_path: Path) -> None:
    """The name of a run before a column is taken off, smallest and largest values are left out."""
    text = '"Step","happy-run - train/loss","happy-run - train/loss__MIN"\n"1","3.5","3.4"\n"2","3.25",""\n'
    samples, warnings = read(tmp_path / "wandb.csv", text)
    assert [(one.record.step, one.record.loss) for one in samples] == [(1, 3.5), (2, 3.25)]
    assert not warnings


def test_lines_of_json_are_read(tmp_path: Path) -> None:
    """Objects, one a line, may nest and need not hold the same things."""
    rows = [
        {"step": 1, "train": {"loss": 2.0, "grad_norm": 0.5}, "overflow": False},
        {"step": 2, "train": {"loss": float("nan")}, "overflow": True},
        {"step": 2, "eval_loss": 2.2},
        {"_wandb": {"runtime": 4}},
        {"step": 3, "perplexity": math.e, "actv_norm": 3000},
    ]
    samples, warnings = read(tmp_path / "log.jsonl", "\n".join(map(json.dumps, rows)))
    assert [one.record.step for one in samples] == [1, 2, 2, 3]
    assert [one.record.skipped for one in samples] == [False, True, False, False]
    assert samples[2].record.validation_loss == 2.2
    assert samples[3].record.loss == pytest.approx(1.0)
    assert samples[3].extra == {ACTIVATION_NORM: 3000.0}
    assert not warnings


@pytest.mark.parametrize("indent", [None, 2])
def test_a_trainers_state_is_read(tmp_path: Path, indent: int | None) -> None:
    """The history in a document counts, whatever surrounds it."""
    history = [{"step": 10 * at, "loss": 3.0 - at, "learning_rate": 1e-4} for at in range(3)]
    state = {"best_metric": None, "epoch": 1.0, "log_history": history}
    for document in (state, history):
        text = json.dumps(document, indent=indent)
        samples, warnings = read(tmp_path / "trainer_state.json", text)
        assert [one.record.step for one in samples] == [0, 10, 20]
        assert not warnings


def test_the_better_known_of_two_columns_counts(tmp_path: Path) -> None:
    """Where two columns mean the same, the reader takes the usual name and reports the choice once."""
    samples, warnings = read(tmp_path / "run.csv", "step,total_loss,loss\n1,9,2\n2,9,2\n")
    assert [one.record.loss for one in samples] == [2.0, 2.0]
    assert len(warnings) == 1
    assert "'total_loss' and 'loss'" in warnings[0]


def test_samples_without_steps_are_numbered(tmp_path: Path) -> None:
    """A file without a column for the step is read by sample, with a warning."""
    samples, warnings = read(tmp_path / "run.csv", "loss,lr\n2.5,1\n2.4,1\n")
    assert [one.record.step for one in samples] == [1, 2]
    assert warnings == ["no column holds the step: samples are numbered from 1 (line 2)"]


def test_broken_lines_are_left_out_and_reported_once(tmp_path: Path) -> None:
    """A line that was cut, is no number or no text costs itself and one warning of its kind."""
    text = b"step,loss\n1,2.5\n2,two\n3\n4,2.4\nx,2.3\n\xff\xfe\x00,1\n5\n6,2.2\nstep,loss\n7,2.1\n"
    samples, warnings = read(tmp_path / "run.csv", text)
    assert [one.record.step for one in samples] == [1, 4, 6, 7]
    kinds = (
        "column 'loss' holds what is no number, left out (line 3)",
        "a line does not have the 2 columns of the first one, left out (2 times, first in line 4)",
        "column 'step' holds what is no number, left out (line 6)",
        "a row without a number in 'step' is left out (line 6)",
        "a line is no text, left out (line 7)",
    )
    assert sorted(warnings) == sorted(kinds)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00", "is no text"),
        (b"1,2\n3,4\n", "has no line of names"),
        (b"epoch,accuracy\n1,0.5\n", "holds no metric that is known"),
        (b'{"a": [1, 2', "is no JSON"),
        (b"[1, 2", "is no JSON"),
        (b"PAR1\x15\x04", "holds no metric that is known"),
    ],
)
def test_files_that_hold_nothing_report_why(tmp_path: Path, content: bytes, words: str) -> None:
    """A file without a single sample yields one warning that names its content."""
    samples, warnings = read(tmp_path / "run.log", content)
    assert not samples
    assert len(warnings) == 1
    assert words in warnings[0]


def test_missing_files_and_empty_folders_are_reported(tmp_path: Path) -> None:
    """What is not there is a warning, not an exception."""
    for path in (tmp_path / "none.csv", tmp_path):
        (curve,) = curves_in(path)
        assert not list(curve.samples())
        assert len(curve.warnings) == 1


def test_a_line_without_an_end_is_not_swallowed(tmp_path: Path) -> None:
    """A line of megabytes is left out, and the lines after it are read."""
    text = "step,loss\n1,2\n" + "9" * 3_000_000 + "\n3,2\n"
    samples, warnings = read(tmp_path / "run.csv", text)
    assert [one.record.step for one in samples] == [1, 3]
    assert len(warnings) == 1


def test_event_files_are_read(tmp_path: Path) -> None:
    """Scalars of one step make one record, however they are encoded; negative steps and other tags are no harm."""
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    first = b"".join(
        event(step, tag, form(value))
        for step in (1, 2)
        for tag, form, value in (
            ("train/loss", simple, 2.5),
            ("train/grad_norm", tensor, 0.5),
            ("lr", tensor_of_double, 1e-4),
            ("images/0", lambda _value: field(4, b"png"), 0.0),
        )
    )
    (folder / "events.out.tfevents.1.host").write_bytes(first)
    (folder / "events.out.tfevents.2.host").write_bytes(event(2, "train/loss", simple(math.nan)))
    (curve,) = curves_in(tmp_path)
    samples = list(curve.samples())
    assert [one.record.step for one in samples] == [1, 2, 2]
    record = samples[0].record
    assert (record.loss, record.grad_norm, record.lr) == (2.5, 0.5, 1e-4)
    assert math.isnan(samples[2].record.loss or 0.0)
    assert not curve.warnings
    assert curve.columns["loss"] == "train/loss"


def test_event_files_that_were_cut_are_read_up_to_there(tmp_path: Path) -> None:
    """A killed run leaves half a record: what precedes it counts, and the rest is reported once."""
    whole = b"".join(event(step, "loss", simple(2.0)) for step in range(5))
    for damaged in (whole[:-3], whole[:-40] + b"\0" * 40):
        samples, warnings = read(tmp_path / "events.out.tfevents.9", damaged)
        assert [one.record.step for one in samples] == [0, 1, 2, 3]
        assert len(warnings) == 1
        assert "is damaged" in warnings[0]


def test_checksums_are_those_of_the_standard() -> None:
    """CRC-32C of the digits is the one in RFC 3720."""
    assert crc32c(b"123456789") == 0xE3069283


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.text(max_size=300).map(str.encode),
        st.text(alphabet='step,lo\n"{}[]:0123.eE-naif \t', max_size=300).map(str.encode),
        st.binary(max_size=60).map(lambda tail: event(1, "loss", simple(1.0)) + tail),
        st.binary(max_size=60).map(lambda data: event(1, "loss", field(8, data))),
    ),
    name=st.sampled_from(["run.csv", "run.jsonl", "events.out.tfevents.1"]),
)
def test_no_bytes_break_the_reader(tmp_path: Path, content: bytes, name: str) -> None:
    """For any content of a file, reading ends, without an exception, with samples or a warning."""
    samples, warnings = read(tmp_path / name, content)
    assert samples or warnings
