"""Data: a pure function of text, seed, step and skipped ranges."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import SpecError
from trainer.config.settings import Settings, load_settings
from trainer.data import sources

np = pytest.importorskip("numpy")

from trainer.data.batches import Corpus, Permutation, data_step, open_data  # noqa: E402  numpy is optional


def settings_for(path: Path | None = None, *, windows: int = 50, **changes: Any) -> Settings:
    """Return small settings; with a path, text of `windows` windows of 8 tokens, each window distinct."""
    plain: dict[str, Any] = {
        "model": {"sequence": 8},
        "batch": {"global_batch": 4},
        "data": {"validation_ratio": 0.2},
        **changes,
    }
    if path is not None:
        path.write_bytes(b"".join(b"%07d " % number for number in range(windows)) + b"!")
        plain["data"] = {"source": "text", "path": str(path), **plain["data"]}
    return load_settings(plain)


def window_numbers(tokens: Any) -> list[int]:
    """Read back which windows of `settings_for` a batch holds."""
    return [int(bytes(row.tolist())) for row in tokens]


def test_shapes_and_shift(tmp_path: Path) -> None:
    """A batch is (global batch, sequence) twice, and targets are the tokens one further on."""
    corpus = open_data(settings_for(tmp_path / "text"))
    tokens, targets = corpus.batch(1)
    assert tokens.shape == targets.shape == (4, 8)
    assert tokens.dtype == targets.dtype == np.int64
    assert (tokens[:, 1:] == targets[:, :-1]).all()


def test_epoch_has_every_window_once(tmp_path: Path) -> None:
    """Each epoch has each training window exactly once, in an order of its own, across batch borders."""
    corpus = open_data(settings_for(tmp_path / "text"))
    size = corpus.split.training
    assert size % 4, (
        "the border of an epoch must lie inside a batch for this test to mean something"
    )
    seen = [
        number for step in range(1, size + 1) for number in window_numbers(corpus.batch(step)[0])
    ]
    epochs = [seen[start : start + size] for start in range(0, 4 * size, size)]
    assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_held_out_never_overlaps(tmp_path: Path) -> None:
    """No token of the held-out windows is ever trained on, not even as a target."""
    corpus = open_data(settings_for(tmp_path / "text"))
    trained = set(range(corpus.split.training * 8 + 1))
    first = corpus.split.validation_first
    held_out = set(range(first * 8, (first + corpus.split.validation) * 8 + 1))
    assert trained.isdisjoint(held_out)
    assert max(held_out) < corpus.num_tokens
    training = {n for step in range(1, 40) for n in window_numbers(corpus.batch(step)[0])}
    validation = {n for i in range(10) for n in window_numbers(corpus.validation_batch(i)[0])}
    assert max(training) < min(validation)
    assert len(validation) == corpus.split.validation


def test_nothing_held_out(tmp_path: Path) -> None:
    """With a ratio of 0 all windows train, and a request for held-out ones raises an error that names the reason."""
    corpus = open_data(
        settings_for(tmp_path / "text", data={"validation_ratio": 0}, validate_every=0)
    )
    assert corpus.split == (50, 50, 0)
    with pytest.raises(ValueError, match="nothing is held out"):
        corpus.validation_batch(0)


def test_every_layout_sees_the_same(tmp_path: Path) -> None:
    """The batch does not depend on layout or micro-batch, and the rows of replicas add up to it."""
    whole = open_data(settings_for(tmp_path / "text")).batch(5)[0]
    for layout, micro_batch in (({"data": 2}, 1), ({"data": 4}, 1), ({"tensor": 2}, 4)):
        batch = {"global_batch": 4, "micro_batch": micro_batch}
        corpus = open_data(settings_for(tmp_path / "text", layout=layout, batch=batch))
        assert (corpus.batch(5)[0] == whole).all()
        share = 4 // layout.get("data", 1)
        parts = [
            corpus.batch(5, rows=slice(start, start + share))[0] for start in range(0, 4, share)
        ]
        assert (np.concatenate(parts) == whole).all()


def test_same_in_another_process() -> None:
    """Another process, with other hash seeds, reads the same batch and the same fingerprint."""
    program = (
        "from trainer.config.settings import load_settings; from trainer.data.batches import open_data\n"
        "c = open_data(load_settings('tiny_cpu')); t = c.batch(123, [[7, 9]])[0]\n"
        "print(c.fingerprint, int((t * range(64)).sum()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


def test_seed_orders_the_data(tmp_path: Path) -> None:
    """Another seed is another order of the same windows; the fingerprint is the text's alone."""
    one = open_data(settings_for(tmp_path / "text"))
    other = open_data(settings_for(tmp_path / "text", seed=5))
    assert one.fingerprint == other.fingerprint
    assert not (one.batch(1)[0] == other.batch(1)[0]).all()


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 8)), max_size=5),
    st.randoms(use_true_random=False),
)
def test_skipped_steps(ranges: list[tuple[int, int]], random: Any) -> None:
    """Training steps read the remaining data steps in order, for any order and overlap of the ranges."""
    skipped = [[first, first + length] for first, length in ranges]
    random.shuffle(skipped)
    left = [
        step for step in range(1, 100) if not any(first <= step <= last for first, last in skipped)
    ]
    assert [data_step(step, skipped) for step in range(1, 41)] == left[:40]


def test_skipping_leaves_the_past_alone(tmp_path: Path) -> None:
    """A range taken out moves what comes after it and nothing before it."""
    corpus = open_data(settings_for(tmp_path / "text"))
    for step in (1, 2):
        assert (corpus.batch(step, [[3, 5]])[0] == corpus.batch(step)[0]).all()
    assert (corpus.batch(3, [[3, 5]])[0] == corpus.batch(6)[0]).all()


@pytest.mark.parametrize("skipped", [[[0, 1]], [[3, 2]], [[1]], [[1, 2, 3]]])
def test_bad_ranges(skipped: list[list[int]]) -> None:
    """The error of an invalid range names its value."""
    with pytest.raises(SpecError, match="is no range"):
        data_step(1, skipped)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 1000, 4097])
def test_permutation(size: int) -> None:
    """Every place has a number of its own, at any size."""
    order = Permutation(size, "key")(np.arange(size))
    assert sorted(order.tolist()) == list(range(size))


def test_permutation_scatters() -> None:
    """Neighbours end up far apart, and orders of two keys have little in common."""
    size = 10_000
    one, other = (Permutation(size, key)(np.arange(size)) for key in ("a", "b"))
    # The mean distance of random neighbours is size / 3, its deviation here about 24.
    assert abs(np.abs(np.diff(one)).mean() - size / 3) < 200
    assert abs(np.corrcoef(one, np.arange(size))[0, 1]) < 0.05
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
    assert (one == other).sum() < 20


def test_permutation_of_a_trillion() -> None:
    """An order too long for any memory is computed where it is asked."""
    order = Permutation(10**12, "key")
    places = np.arange(10**11, 10**11 + 1000)
    numbers = order(places)
    assert len(set(numbers.tolist())) == 1000
    assert (numbers < 10**12).all()


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_token_file(tmp_path: Path, dtype: str) -> None:
    """A flat file of ids is read as it stands, little-endian."""
    path = tmp_path / "ids"
    np.arange(1000).astype(f"<u{2 if dtype == 'uint16' else 4}").tofile(path)
    data = {"source": "tokens", "path": str(path), "token_dtype": dtype}
    corpus = open_data(settings_for(data=data, model={"sequence": 8, "vocabulary": 1000}))
    assert corpus.num_tokens == 1000
    tokens, targets = corpus.batch(1)
    assert (tokens % 8 == np.arange(8)).all()
    assert (targets == tokens + 1).all()


def test_token_beyond_vocabulary(tmp_path: Path) -> None:
    """A token that the model has no row for is refused by number, not looked up."""
    path = tmp_path / "ids"
    np.full(1000, 300, "<u2").tofile(path)
    corpus = open_data(
        settings_for(data={"source": "tokens", "path": str(path)}, model={"sequence": 8})
    )
    with pytest.raises(SpecError, match=r"holds token 300, but model\.vocabulary = 256"):
        corpus.batch(1)


def test_folder_of_text(tmp_path: Path) -> None:
    """A folder is its files in order of name, links and hidden ones left out, joined by newlines."""
    for name, text in (
        ("b/z.txt", "zz" * 50),
        ("a.txt", "aa" * 50),
        (".hidden", "hh"),
        ("empty", ""),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    source = sources.find_source(settings_for(data={"source": "text", "path": str(tmp_path)}).data)
    assert [file.name for file in source.files] == ["a.txt", "b/z.txt"]
    joined = bytes(sources.read_source(source))
    assert joined == b"aa" * 50 + b"\n" + b"zz" * 50 + b"\n"
    assert len(joined) == source.size_bytes


def test_standard_library() -> None:
    """The default text needs no download: Python's own sources, without tests and installed packages."""
    source = sources.find_source(Settings().data)
    names = [file.name for file in source.files]
    assert names == sorted(names)
    assert {"dataclasses.py", "json/decoder.py"} <= set(names)
    assert not any(part in sources.LEFT_OUT for name in names for part in name.split("/"))
    assert source.num_tokens > 5_000_000


def test_fingerprint(tmp_path: Path) -> None:
    """A changed byte, length or token type is another fingerprint; the file's name is not."""
    path = tmp_path / "text"
    settings = settings_for(path)
    first = open_data(settings).fingerprint
    path.rename(tmp_path / "other")
    renamed = settings_for(tmp_path / "other")
    assert open_data(renamed).fingerprint == first
    content = (tmp_path / "other").read_bytes()
    (tmp_path / "other").write_bytes(content.replace(b"!", b"?"))
    assert open_data(renamed).fingerprint != first
    as_tokens = settings_for(
        data={"source": "tokens", "path": str(tmp_path / "even")}, model={"sequence": 8}
    )
    (tmp_path / "even").write_bytes(content[:400])
    as_text = settings_for(
        data={"source": "text", "path": str(tmp_path / "even")}, model={"sequence": 8}
    )
    assert Corpus(as_tokens).fingerprint != Corpus(as_text).fingerprint


def test_fingerprint_of_a_huge_file(tmp_path: Path) -> None:
    """A file too large to hash whole is known by its size, its samples and both its ends."""
    path = tmp_path / "huge"
    size = sources.WHOLE_BYTES + 12_345

    def taken(*marks: int) -> str:
        with path.open("wb") as file:
            # sparse: costs no disk
            file.truncate(size)
            for place in marks:
                file.seek(place)
                file.write(b"x")
        source = sources.find_source(
            settings_for(data={"source": "text", "path": str(path)}, model={"sequence": 8}).data
        )
        return sources.fingerprint(source, sources.read_source(source))

    plain = taken()
    assert plain.startswith("sampled-sha256:")
    assert len({plain, taken(0), taken(size - 1), taken(size // 2)}) >= 3


@pytest.mark.parametrize(
    ("content", "data", "expected"),
    [
        (None, {"source": "text"}, "cannot be read: No such file"),
        (b"", {"source": "text"}, "holds 0 tokens: 0 windows"),
        (b"short", {"source": "text"}, "fewer than batch.global_batch = 4"),
        (b"odd", {"source": "tokens"}, "has 3 bytes, not a whole number of uint16"),
    ],
)
def test_unusable_sources(
    tmp_path: Path, content: bytes | None, data: dict[str, Any], expected: str
) -> None:
    """A source that cannot be read or is too short is refused in one line that names it."""
    path = tmp_path / "source"
    if content is not None:
        path.write_bytes(content)
    settings = settings_for(data={**data, "path": str(path)}, model={"sequence": 8})
    with pytest.raises(SpecError) as caught:
        open_data(settings)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folder_as_tokens(tmp_path: Path) -> None:
    """A folder where a file is meant, and a folder without text, are refused."""
    for data, expected in (
        ({"source": "tokens", "path": str(tmp_path)}, "cannot be read: Is a directory"),
        ({"source": "text", "path": str(tmp_path)}, "a folder without text"),
    ):
        with pytest.raises(SpecError, match=expected):
            open_data(settings_for(data=data, model={"sequence": 8}))


def test_file_that_grows(tmp_path: Path) -> None:
    """A file that is still being written is refused rather than read in part."""
    path = tmp_path / "text"
    source = sources.find_source(settings_for(path).data)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SpecError, match="it is being written"):
        sources.read_source(source)
