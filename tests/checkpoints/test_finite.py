"""Whether the numbers in a checkpoint's files are finite: what is found, what is legal, and what is not covered."""

import hashlib
import math
import os
import pickle
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.checkpoints.finite.file_scan import FileScan, ScanResult
from runner.checkpoints.finite.float_kinds import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatKind
from runner.checkpoints.finite.layouts import layout_of
from runner.checkpoints.finite.pickle_outline import NoOutline, outline
from runner.checkpoints.share_verification import ShareReader
from tests.checkpoints.samples import sealed_checkpoint
from tests.checkpoints.tensor_files import packed, safetensors_file, torch_file

KINDS = (FLOAT64, FLOAT32, BFLOAT16, FLOAT16)
INFINITY, NAN = math.inf, math.nan


def scan(
    path: Path, *, piece_bytes: int = 1 << 20, names: dict[int, str] | None = None
) -> ScanResult:
    """Scan a file as a reader does, in pieces of this size."""
    with path.open("rb") as file:
        found = FileScan(layout_of(file.fileno(), path.stat().st_size, names))
        at = 0
        while piece := file.read(piece_bytes):
            found.feed(at, memoryview(piece))
            at += len(piece)
        return found.result(file.fileno())


def scan_of(folder: Path, data: bytes, **options: Any) -> ScanResult:
    """Scan these bytes."""
    path = folder / "file"
    path.write_bytes(data)
    return scan(path, **options)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(data=st.data())
def test_every_pattern_of_bits_is_judged_as_the_number_it_is(
    kind: FloatKind, data: st.DataObject
) -> None:
    """NaN of either sign and any payload, infinities, and the largest finite numbers among any others."""
    exponent = {8: 0x7FF << 52, 4: 0xFF << 23, 2: 0x1F << 10}[kind.item_bytes]
    if kind is BFLOAT16:
        exponent = 0xFF << 7
    top = 1 << (8 * kind.item_bytes - 1)
    bits = st.integers(0, 2 * top - 1) | st.sampled_from(
        [exponent, exponent | top, exponent | 1, exponent - 1, top - 1, 2 * top - 1]
    )
    patterns = data.draw(st.lists(bits, max_size=12))
    numbers = b"".join(each.to_bytes(kind.item_bytes, "little") for each in patterns)
    special = [each & exponent == exponent for each in patterns]
    nan = [
        is_special and each & (exponent | top) != each
        for is_special, each in zip(special, patterns, strict=True)
    ]
    infinite = [a and not b for a, b in zip(special, nan, strict=True)]
    found = kind.find(numbers)
    assert found.nan == (nan.index(True) if any(nan) else None)
    assert found.infinity == (infinite.index(True) if any(infinite) else None)


@pytest.mark.parametrize("make", [torch_file, safetensors_file])
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("piece_bytes", [7, 64, 1 << 20])
def test_a_number_that_is_not_finite_is_found_and_named(
    tmp_path: Path, make: Callable[..., bytes], kind: str, piece_bytes: int
) -> None:
    """Wherever pieces end; finite files are finite."""
    good = {"a.weight": (kind, [0.5] * 33), "b.exp_avg": (kind, [1.5, -2.0, 0.0])}
    found = scan_of(tmp_path, make(good), piece_bytes=piece_bytes)
    assert found == ScanResult(num_tensors=2)
    sick = {**good, "a.weight": (kind, [0.5] * 21 + [NAN] + [0.5] * 11)}
    found = scan_of(tmp_path, make(sick), piece_bytes=piece_bytes)
    assert found.not_finite == f"a.weight has NaN (number 21 of 33, {kind})"
    sick = {**good, "b.exp_avg": (kind, [1.5, -INFINITY, 0.0])}
    found = scan_of(tmp_path, make(sick), piece_bytes=piece_bytes)
    assert found.not_finite == f"b.exp_avg has an infinity (number 1 of 3, {kind})"


@pytest.mark.parametrize(
    ("name", "numbers", "is_legal"),
    [
        ("attn.mask", [0.0, -INFINITY, 0.0, -INFINITY], True),
        ("observer.min_val", [INFINITY], True),
        ("attn.mask", [0.0, -INFINITY, INFINITY], False),
        ("attn.mask", [0.0, 1.0, -INFINITY], False),
        ("attn.mask", [0.0, NAN, -INFINITY], False),
        ("attn.bias", [0.0, -INFINITY], False),
        ("optimizer.state.0.step", [INFINITY], False),
    ],
)
def test_constant_masks_are_legal_and_nothing_else_that_is_infinite(
    tmp_path: Path, name: str, numbers: list[float], *, is_legal: bool
) -> None:
    """By their content; and never under the name of a weight or an optimizer's state."""
    found = scan_of(tmp_path, torch_file({name: ("float32", numbers)}))
    assert (found.not_finite == "") is is_legal
    assert found.uncovered == ""


def test_tensors_without_names_get_no_benefit_of_the_doubt(tmp_path: Path) -> None:
    """Of several archives in one file: the metadata may name them, by where each begins."""
    mask = torch_file({"": ("float32", [0.0, -INFINITY])})
    data = torch_file({"w": ("float32", [1.0])}) + mask
    assert "the tensor at byte" in scan_of(tmp_path, data).not_finite
    names = {len(data) - len(mask): "mask"}
    assert scan_of(tmp_path, data, names=names) == ScanResult(num_tensors=2)


def test_many_bad_tensors_are_counted_and_two_are_named(tmp_path: Path) -> None:
    """A message has an end."""
    sick = {f"w{number}": ("float32", [NAN]) for number in range(5)}
    found = scan_of(tmp_path, torch_file(sick)).not_finite
    assert found.endswith("w1 has NaN (number 0 of 1, float32) and 3 more tensors")


COMPRESSED = b"PK\x05\x06" + bytes(18)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (os.urandom(4096) + b"\xff\x00", "no known format of tensors"),
        (torch_file({"w": ("float32", [NAN])}, byteorder=b"bigger"), "big-endian"),
        (COMPRESSED, "no known format"),
        (pickle.dumps({"w": b"\x00\x00\xc0\x7f" * 9}), "bytes of an unknown kind"),
        (safetensors_file({"w": ("float32", [NAN])}).replace(b"F32", b"F8X"), "is of kind"),
        (safetensors_file({"w": ("float32", [NAN])})[:-2], "past the end"),
        (b"PK\x03\x04" + b"x" * 100, "no archive ends"),
    ],
)
def test_what_is_not_known_is_not_covered_and_neither_finite_nor_sick(
    tmp_path: Path, data: bytes, why: str
) -> None:
    """It says why."""
    found = scan_of(tmp_path, data)
    assert why in found.uncovered
    assert (found.num_tensors, found.not_finite) == (0, "")


@pytest.mark.parametrize("data", [b"", b"step: 5\n", b'{"a": 1}', pickle.dumps({"step": 5})])
def test_texts_and_plain_pickles_hold_no_tensors(tmp_path: Path, data: bytes) -> None:
    """They are covered: there is nothing to look at."""
    assert scan_of(tmp_path, data) == ScanResult()


def test_damaged_files_are_never_an_error(tmp_path: Path) -> None:
    """Any byte of a file may be another, and it may end anywhere."""
    draw = random.Random(7)
    for make in (torch_file, safetensors_file):
        data = make({"w": ("float32", [1.0, 2.0]), "m": ("bfloat16", [1.0])})
        for _ in range(300):
            spoilt = bytearray(data[: draw.randrange(len(data)) if draw.random() < 0.3 else None])
            for _ in range(draw.randrange(4)):
                if spoilt:
                    spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
            scan_of(tmp_path, bytes(spoilt))


def test_a_pickle_is_read_and_never_carried_out(tmp_path: Path) -> None:
    """What would run a command when it is unpickled only has a name here."""
    made = tmp_path / "made"
    program = (
        b"cposix\nsystem\n(X" + struct.pack("<I", len(f"touch {made}")) + f"touch {made}".encode()
    )
    found = outline(b"\x80\x02" + program + b"tR.")
    assert found.globals == ["posix system"]
    assert not made.exists()
    with pytest.raises(NoOutline, match="EXT1"):
        outline(b"\x80\x02\x82\x01.")


def test_a_share_says_what_it_found_and_stops_at_the_first_that_is_not_finite(
    tmp_path: Path,
) -> None:
    """Its bytes agree with the manifest all the same; a record of an earlier reader says the same again."""
    files = {
        "a.pt": torch_file({"w": ("float32", [1.0])}),
        "b.pt": torch_file({"w": ("float32", [NAN])}),
        "c.bin": b"\xff\xfe\x00",
    }
    sealed, digest = sealed_checkpoint(tmp_path / "ck", files)
    for _ in range(2):
        reader = ShareReader(
            folder=sealed,
            manifest_sha256=digest,
            share=0,
            shares=1,
            record=tmp_path / "record",
            wait_seconds=0.0,
            confirm_seconds=0.0,
        )
        result = reader.run()
        assert result["outcome"] == "done"
        assert result["not_finite"] == "b.pt: w has NaN (number 0 of 1, float32)"
        assert (result["files"], result["tensors"], result["uncovered"]) == (2, 2, "")


def test_what_the_scan_adds_to_hashing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """For people to read; the machine may be busy."""
    for kind in KINDS:
        name = kind.name
        numbers = packed(name, [math.sin(number) for number in range((1 << 20) // kind.item_bytes)])
        seconds = []
        for work in (kind.find, lambda data: hashlib.sha256(data).digest()):
            began = time.process_time()
            for _ in range(8):
                work(numbers)
            seconds.append(time.process_time() - began)
        with capsys.disabled():
            print(f"\nscan of {name}: {seconds[0] / seconds[1]:.2f} of the time of sha256", end="")
        assert kind.find(numbers) == (None, None)
