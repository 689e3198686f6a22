"""Data as a pure function: the batch of a step depends on text, seed, step and skipped ranges only.

No iterator, no state to save: a rank that was killed asks for step 801 and gets what it would have got. Every layout gets
the same global batch. In each epoch every training window comes exactly once, in another order.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from runner.errors import SpecError
from runner.facts.remedies import skipped_steps
from trainer.config.settings import Settings
from trainer.data.sources import find_source, fingerprint, read_source, split

Tokens: TypeAlias = npt.NDArray[np.int64]
Batch: TypeAlias = tuple[Tokens, Tokens]
Ranges: TypeAlias = Iterable[Sequence[int]]

_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
# Rounds of the Feistel network; four already make a pseudo-random permutation (Luby and Rackoff 1988).
_ROUNDS = 6


def open_data(settings: Settings) -> "Corpus":
    """Open the source the settings name; raises SpecError when it cannot be read or is too short."""
    return Corpus(settings)


def data_step(step: int, skipped: Ranges = ()) -> int:
    """Return the data step that training step `step` (from 1) reads, when the ranges [first, last] are left out.

    A range moves only the steps at and after it: earlier steps read what they would read without it. Of a run that has skipped
    since it began; `trainer.resume.DataOrder` has the order from a checkpoint on.
    """
    return skipped_steps.data_step(step, _checked(skipped))


class Corpus:
    """A text as windows, and the batches made of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        source = find_source(settings.data)
        self.split = split(source, settings)
        text = read_source(source)
        self.fingerprint = fingerprint(source, text)
        self._tokens: npt.NDArray[Any] = np.frombuffer(text, dtype=_DTYPES[source.token_bytes])
        self._offsets = np.arange(settings.model.sequence + 1)
        # That `batch` has read last.
        self.last_windows: Tokens = np.empty(0, np.int64)

    @property
    def num_tokens(self) -> int:
        """Tokens of the whole text, held-out ones included."""
        return len(self._tokens)

    def batch(self, step: int, skipped: Ranges = (), *, rows: slice = slice(None)) -> Batch:
        """Return tokens and targets of a step, each (global_batch, sequence) int64; `rows` picks some of the windows.

        Steps count from 1. Raises SpecError for a token beyond the vocabulary.
        """
        size = self._settings.batch.global_batch
        first = (data_step(step, skipped) - 1) * size
        positions = np.arange(first, first + size)[rows]
        windows = np.empty(len(positions), np.int64)
        epochs = positions // self.split.training
        for epoch in np.unique(epochs):
            here = epochs == epoch
            order = Permutation(self.split.training, f"{self._settings.seed}/{epoch}")
            windows[here] = order(positions[here] % self.split.training)
        self.last_windows = windows
        return self._read(windows)

    def validation_batch(self, index: int, *, rows: slice = slice(None)) -> Batch:
        """Return held-out batch number `index` (from 0), shaped like `batch`; the same ones in every validation."""
        if not self.split.validation:
            raise ValueError("nothing is held out: data.validation_ratio is 0")
        size = self._settings.batch.global_batch
        positions = np.arange(index * size, (index + 1) * size)[rows]
        order = Permutation(self.split.validation, "validation")
        return self._read(self.split.validation_first + order(positions % self.split.validation))

    def _read(self, windows: Tokens) -> Batch:
        starts = windows * self._settings.model.sequence
        tokens = self._tokens[starts[:, None] + self._offsets].astype(np.int64)
        largest, vocabulary = int(tokens.max(initial=0)), self._settings.model.vocabulary
        if largest >= vocabulary:
            raise SpecError(
                f"data.path = {self._settings.data.path!r} holds token {largest}, but model.vocabulary = "
                f"{vocabulary}: raise it, or correct data.token_dtype"
            )
        return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


class Permutation:
    """A random order of 0 ... size - 1 that is computed position by position, without a table.

    A Feistel network permutes the next power of four; a number outside is permuted again until it is inside.
    """

    def __init__(self, size: int, key: str) -> None:
        self._size = np.uint64(size)
        self._half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        self._mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        digest = hashlib.shake_128(key.encode()).digest(8 * _ROUNDS)
        self._keys = np.frombuffer(digest, dtype="<u8")

    def __call__(self, positions: Tokens) -> Tokens:
        """Return the number at each of these positions."""
        numbers = self._permute(positions.astype(np.uint64))
        while (outside := numbers >= self._size).any():
            numbers[outside] = self._permute(numbers[outside])
        return numbers.astype(np.int64)

    def _permute(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = numbers >> self._half_bits, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return (left << self._half_bits) | right


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scatter 64 bits over 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _checked(skipped: Ranges) -> list[tuple[int, int]]:
    ranges = []
    for item in skipped:
        if len(item) != 2 or not 1 <= item[0] <= item[1]:
            raise SpecError(f"skip_steps: {item!r} is no range [first, last] of data steps from 1")
        ranges.append((int(item[0]), int(item[1])))
    return ranges
