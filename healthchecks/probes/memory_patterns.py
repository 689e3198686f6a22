"""memory_patterns: writes patterns to a region of a device's memory, reads them back, and reports words that differ.

The region is a list of blocks of 64-bit words. Every pattern can be computed for any block at any time, so what is read is compared
with what is computed again, never with a copy that was kept. A word that differs is read once more, after other memory has
displaced it from caches: the same wrong value points to the cell (or to how it was written), another value to the path.

Faults for the self test: {"kind": "flip", "pattern": NAME, "word": W, "bit": B} flips a bit of a word after the first pass that
writes the pattern; "path" undoes it before the second reading; "stuck" forces the bit to 1 after every pass that writes; "alias"
copies the first block over the second one, as an address line that sticks would.

One file, past the usual length: a probe imports nothing of ours.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

WORD_BYTES = 8
# For modulo-20, and for 64-byte moves of halves.
STRIDE, MOVED_WORDS = 20, 8
# Of modulo-20, in one round: chosen. Rounds that repeat come to the others.
NUM_OFFSETS, OFFSET_STEP = 2, 7
# Of one block: on a CPU it stays in the cache of a core beside what it is compared with, on a GPU one call is long. Measured on
# a CPU (1.25 MiB against 160 KiB to 2.5 MiB), chosen on a GPU.
CPU_BLOCK_WORDS, GPU_BLOCK_WORDS = STRIDE * 8192, STRIDE * 8192 * 64
# Of one row of a pattern that is computed. Measured on a CPU: 256 of 256 to 32768.
ROW_WORDS = 256
# How often all patterns together go through the region, about; and of the time left, what they may plan with.
NUM_PASSES, PLANNED_SHARE = 100, 0.6
# Of memory that is free on a GPU, less what libraries need: ../shared has 92 % less 1 GiB from tools that do the same.
GPU_FREE_SHARE, GPU_RESERVE_BYTES = 0.92, 1 << 30
# Reported of a pattern.
MAX_POSITIONS = 16
# Blocks with errors that are looked at word by word.
MAX_LOCATED_BLOCKS = 64
# Read to displace a word from caches; chosen, more than the last cache of most processors.
DISPLACING_BYTES = 256 << 20
# Of one hold of bit fade, at most, and of the time left. The first is chosen, the tools that hold longest take 90 minutes.
HOLD_SECONDS, HOLD_SHARE = 60.0, 0.05
MASK = (1 << 64) - 1
TOP = 1 << 63


def signed(value: int) -> int:
    """Return 64 bits as torch's int64 has them."""
    value &= MASK
    return value - (1 << 64) if value >= TOP else value


def mix(value: int) -> int:
    """Return 64 bits that look random, the same everywhere: the finalizer of splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class Solid:
    """The same word everywhere."""

    def __init__(self, like: torch.Tensor, word: int) -> None:
        self._like, self._word = like, signed(word)
        self._full = torch.full_like(like, self._word)

    def fill(self, block: torch.Tensor, index: int) -> None:
        """Write the pattern to block `index`."""
        block.fill_(self._word)

    def expected(self, index: int, scratch: torch.Tensor) -> torch.Tensor:
        """Return what block `index` must hold; `scratch` may be used for it."""
        return self._full

    def inverse(self) -> Solid:
        """Return the pattern with every bit inverted."""
        return Solid(self._like, ~self._word)


class Offset:
    """Words of one row, plus a number that differs from row to row, plus one that differs from block to block; or the inverse.

    A row is short enough for the nearest cache: writing is faster than from a whole block.
    """

    def __init__(
        self,
        row: torch.Tensor,
        offsets: torch.Tensor,
        number: Callable[[int], int],
        *,
        is_inverse: bool = False,
    ) -> None:
        self._plain, self._number, self._is_inverse = (row, offsets), number, is_inverse
        # ~x == -1 - x, so the inverse of a sum is a sum, too.
        self._row, self._offsets = (-1 - row, -offsets) if is_inverse else (row, offsets)

    def fill(self, block: torch.Tensor, index: int) -> None:
        """Write the pattern to block `index`."""
        number = self._number(index)
        offsets = self._offsets + signed(-number if self._is_inverse else number)
        torch.add(self._row, offsets, out=block.view(-1, ROW_WORDS))

    def expected(self, index: int, scratch: torch.Tensor) -> torch.Tensor:
        """Return what block `index` must hold."""
        self.fill(scratch, index)
        return scratch

    def inverse(self) -> Offset:
        """Return the pattern with every bit inverted."""
        return Offset(*self._plain, self._number, is_inverse=not self._is_inverse)


def own_address(like: torch.Tensor) -> Offset:
    """Each word holds its own position in the region."""
    ramp = torch.arange(like.numel(), dtype=torch.int64, device=like.device).view(-1, ROW_WORDS)
    return Offset(ramp[0], ramp[:, :1].clone(), lambda index: index * like.numel())


def random_words(like: torch.Tensor, seed: int) -> Offset:
    """Random words, other ones in each row of each block."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    words = torch.empty(ROW_WORDS + like.numel() // ROW_WORDS, dtype=torch.int64)
    words = words.random_(-TOP, None, generator=generator).to(like.device)
    row, offsets = words[:ROW_WORDS], words[ROW_WORDS:, None]
    return Offset(row, offsets, lambda index: mix(seed ^ (index << 20)))


class Moved:
    """What a block holds after its halves were moved: the first half rotated by 64 bytes, and the first half as it was."""

    def __init__(self, source: Offset) -> None:
        self._source = source

    def expected(self, index: int, scratch: torch.Tensor) -> torch.Tensor:
        """Return what block `index` must hold."""
        self._source.fill(scratch, index)
        first = scratch[: scratch.numel() // 2]
        return torch.cat([torch.roll(first, MOVED_WORDS), first])


class Region:
    """Memory of a device in blocks, and what was found wrong in it."""

    def __init__(self, device: torch.device, num_bytes: int, *, num_workers: int) -> None:
        self.device = device
        self.is_cpu = device.type == "cpu"
        self.block_words = CPU_BLOCK_WORDS if self.is_cpu else GPU_BLOCK_WORDS
        self.blocks: list[torch.Tensor] = []
        self.workers = num_workers if self.is_cpu else 1
        self._pool = ThreadPoolExecutor(self.workers)
        self._lock = threading.Lock()
        self._scratch = [self._empty(1)[0] for _ in range(self.workers)]
        self.errors: dict[str, Errors] = {}
        self.grow(num_bytes)

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return len(self.blocks) * self.block_words * WORD_BYTES

    def grow(self, num_bytes: int) -> None:
        """Have so many bytes in all, in whole blocks and at least two of them."""
        wanted = max(2, num_bytes // (self.block_words * WORD_BYTES))
        if wanted > len(self.blocks):
            self.blocks += self._empty(wanted - len(self.blocks))

    def _empty(self, count: int) -> list[torch.Tensor]:
        words = count * self.block_words
        if not self.is_cpu:
            whole = torch.empty(words, dtype=torch.int64, device=self.device)
        else:
            memory = mmap.mmap(-1, words * WORD_BYTES)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                try:
                    memory.madvise(mmap.MADV_HUGEPAGE)
                except OSError:
                    pass
            whole = torch.frombuffer(memory, dtype=torch.int64)
        return list(whole.view(count, self.block_words).unbind(0))

    def each(
        self, work: Callable[[torch.Tensor, int, torch.Tensor], None], *, upwards: bool = True
    ) -> float:
        """Do `work(block, index, scratch)` with every block, and return the seconds that it took."""
        count = len(self.blocks)

        def part(worker: int) -> None:
            indices = range(worker * count // self.workers, (worker + 1) * count // self.workers)
            for index in indices if upwards else reversed(indices):
                work(self.blocks[index], index, self._scratch[worker])

        began = time.monotonic()
        list(self._pool.map(part, range(self.workers)))
        if not self.is_cpu:
            torch.cuda.synchronize(self.device)
        return time.monotonic() - began

    def displace(self, near: int) -> None:
        """Read other blocks than `near`, so that no cache holds that one any more."""
        most = DISPLACING_BYTES // (self.block_words * WORD_BYTES)
        others = [block for index, block in enumerate(self.blocks) if index != near]
        for block in others[: max(1, most)]:
            int(block.sum())

    def compare(
        self, block: torch.Tensor, index: int, expected: torch.Tensor, errors: Errors
    ) -> None:
        """Compare a block with what it must hold, and record the words that differ."""
        if torch.equal(block, expected):
            return
        with self._lock:
            errors.locate(self, block, index, expected)


class Errors:
    """Words of one pattern that differed."""

    def __init__(self, before_second_reading: Callable[[], None]) -> None:
        self.num_words = self.num_same = self.num_changed = self._num_blocks = 0
        self.positions: list[dict[str, Any]] = []
        self.bits: dict[int, int] = {}
        self._before_second_reading = before_second_reading

    def locate(
        self, region: Region, block: torch.Tensor, index: int, expected: torch.Tensor
    ) -> None:
        """Find the words of a block that differ, and read them once more."""
        difference = torch.bitwise_xor(block, expected)
        where = torch.nonzero(difference).flatten()
        self.num_words += where.numel()
        self._num_blocks += 1
        if self._num_blocks > MAX_LOCATED_BLOCKS or where.numel() == 0:
            # Of a block that was wrong and is not any more, at least one word was.
            self.num_words += where.numel() == 0
            self.num_changed += where.numel() == 0
            return
        wrong, should = difference[where], expected[where]
        for bit in range(64):
            count = int(((wrong >> bit) & 1).sum())
            if count:
                self.bits[bit] = self.bits.get(bit, 0) + count
        self._before_second_reading()
        region.displace(index)
        same = torch.bitwise_xor(block[where], should) == wrong
        self.num_same += int(same.sum())
        self.num_changed += int((~same).sum())
        rows = torch.stack([where, wrong, same.to(torch.int64)], dim=1)
        for at, mask, again in rows[: MAX_POSITIONS - len(self.positions)].tolist():
            word = index * region.block_words + at
            position = {"word": word, "xor": f"{mask & MASK:016x}", "same": bool(again)}
            self.positions.append(position)

    def plain(self) -> dict[str, Any]:
        """Return what was found as plain values."""
        return {
            "wrong_words": self.num_words,
            "read_again_same": self.num_same,
            "read_again_changed": self.num_changed,
            "positions": self.positions,
            "bits": self.bits,
        }


class Battery:
    """All patterns on one region. Each test is a generator of passes; faults are planted after passes that write."""

    def __init__(self, region: Region, faults: list[dict[str, Any]], *, seed: int) -> None:
        self.region, self.seed = region, seed
        self._faults = faults
        self.fill_rates: list[float] = []
        self.verify_rates: list[float] = []
        self._planted: list[tuple[torch.Tensor, int, int]] = []
        self._like = region.blocks[0]

    def run(self, name: str, until: float) -> None:
        """Run the test of that name."""
        errors = self.region.errors.setdefault(name, Errors(self._undo))
        self._planted = []
        if name.startswith("solid "):
            solid = Solid(self._like, int(name.split()[1], 16) * (MASK // 255))
            self._fill(name, solid)
            self._verify(solid, errors)
        elif name == "own address":
            self._both(name, own_address(self._like), errors)
        elif name == "moving inversions":
            self._move_inversions(name, errors)
        elif name == "random":
            self._both(name, random_words(self._like, self.seed), errors)
        elif name == "modulo 20":
            for step in range(NUM_OFFSETS):
                self._modulo(name, errors, (self.seed + step * OFFSET_STEP) % STRIDE)
        elif name == "block move":
            self._move_blocks(name, errors)
        elif name == "bit fade":
            self._fade(name, errors, until)
        else:
            raise ValueError(f"no pattern {name!r}")

    def _fill(self, name: str, pattern: Any) -> None:
        seconds = self.region.each(lambda block, index, scratch: pattern.fill(block, index))
        self.fill_rates.append(self.region.num_bytes / seconds)
        self._plant(name)

    def _verify(self, pattern: Any, errors: Errors) -> None:
        def compare(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            self.region.compare(block, index, pattern.expected(index, scratch), errors)

        seconds = self.region.each(compare)
        self.verify_rates.append(self.region.num_bytes / seconds)

    def _both(self, name: str, pattern: Offset, errors: Errors) -> None:
        for each in (pattern, pattern.inverse()):
            self._fill(name, each)
            self._verify(each, errors)

    def _move_inversions(self, name: str, errors: Errors) -> None:
        """Upwards: compare, write the inverse. Downwards: compare that, write the pattern. Compare."""
        pattern = random_words(self._like, self.seed + 1)
        inverse = pattern.inverse()
        self._fill(name, pattern)
        self._invert(pattern, inverse, errors, upwards=True)
        self._plant(name)
        self._invert(inverse, pattern, errors, upwards=False)
        self._plant(name)
        self._verify(pattern, errors)

    def _invert(self, old: Offset, new: Offset, errors: Errors, *, upwards: bool) -> None:
        def invert(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            self.region.compare(block, index, old.expected(index, scratch), errors)
            new.fill(block, index)

        self.region.each(invert, upwards=upwards)

    def _modulo(self, name: str, errors: Errors, offset: int) -> None:
        """Every 20th word holds a pattern; all others get its inverse, twice; then all are compared."""
        word = signed(mix(self.seed + offset))

        def write(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            block[offset::STRIDE].fill_(word)

        def write_others(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            rows = block.view(-1, STRIDE)
            for _ in range(2):
                rows[:, :offset].fill_(~word)
                rows[:, offset + 1 :].fill_(~word)

        def compare(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            scratch.fill_(~word)
            scratch[offset::STRIDE].fill_(word)
            self.region.compare(block, index, scratch, errors)

        self.region.each(write)
        self.region.each(write_others)
        self._plant(name)
        self.region.each(compare)

    def _move_blocks(self, name: str, errors: Errors) -> None:
        """Copy the first half of each block to its second one, and back rotated by 64 bytes."""
        source = random_words(self._like, self.seed + 3)
        self._fill(name, source)

        def copy(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            half = block.numel() // 2
            block[half:].copy_(block[:half])

        def rotate(block: torch.Tensor, index: int, scratch: torch.Tensor) -> None:
            half = block.numel() // 2
            block[MOVED_WORDS:half].copy_(block[half:-MOVED_WORDS])
            block[:MOVED_WORDS].copy_(block[-MOVED_WORDS:])

        self.region.each(copy)
        self.region.each(rotate)
        self._verify(Moved(source), errors)

    def _fade(self, name: str, errors: Errors, until: float) -> None:
        """Write, leave it alone for a while, compare."""
        for word in (0, MASK):
            solid = Solid(self._like, word)
            self._fill(name, solid)
            time.sleep(min(HOLD_SECONDS, max(0.0, HOLD_SHARE * (until - time.monotonic()))))
            self._verify(solid, errors)

    def _plant(self, name: str) -> None:
        """Damage what was just written, as the faults ask."""
        for fault in self._faults:
            if fault["kind"] == "alias" and fault["pattern"] == name:
                self.region.blocks[1].copy_(self.region.blocks[0])
            if fault["kind"] not in ("flip", "path", "stuck"):
                continue
            index, at = divmod(fault["word"], self.region.block_words)
            block, bit = self.region.blocks[index], signed(1 << fault["bit"])
            if fault["kind"] == "stuck":
                block[at] |= bit
            elif fault["pattern"] == name and not fault.get("is_done"):
                fault["is_done"] = True
                block[at] ^= bit
                if fault["kind"] == "path":
                    self._planted.append((block, at, bit))

    def _undo(self) -> None:
        for block, at, bit in self._planted:
            block[at] ^= bit
        self._planted = []


def fill(block: torch.Tensor) -> None:
    """Write zeros."""
    block.fill_(0)


def size_for(region: Region, asked: dict[str, Any]) -> int:
    """Return how many bytes all patterns can go through in time, by what the first blocks took."""
    if region.is_cpu:
        most = asked["most_bytes"]
    else:
        free, _ = torch.cuda.mem_get_info(region.device)
        most = int(GPU_FREE_SHARE * free) - GPU_RESERVE_BYTES
    first = random_words(region.blocks[0], 1)
    touched = region.each(lambda block, index, scratch: first.fill(block, index))
    filled = region.each(lambda block, index, scratch: first.fill(block, index))
    errors = Errors(lambda: None)
    compared = region.each(
        lambda block, index, scratch: region.compare(
            block, index, first.expected(index, scratch), errors
        )
    )
    seconds = PLANNED_SHARE * max(0.0, asked["until"] - time.monotonic())
    per_byte = (
        max(0.0, touched - filled) + NUM_PASSES * (filled + compared) / 2
    ) / region.num_bytes
    return int(max(0, min(most, seconds / per_byte)))


def rounds(names: list[str], until: float, *, repeats: bool) -> Iterator[tuple[int, str]]:
    """Yield (round, pattern) as long as there is time; patterns start while it lasts, and at least the first one does."""
    number = 0
    while number == 0 or (repeats and time.monotonic() < until):
        for name in names:
            if (number or name != names[0]) and time.monotonic() >= until:
                return
            yield number, name
        number += 1


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the patterns `asked["patterns"]` on `asked["device"]`; repeat them with other random words where it says `repeats`."""
    torch.set_num_threads(1)
    device = torch.device(asked["device"])
    region = Region(device, asked["first_bytes"], num_workers=asked["num_workers"])
    region.grow(size_for(region, asked))
    # The first touch is the slowest, and no part of the rates.
    region.each(lambda block, index, scratch: fill(block))
    num_rounds, began = 0, time.monotonic()
    fill_rates: list[float] = []
    verify_rates: list[float] = []
    done: list[str] = []
    for number, name in rounds(asked["patterns"], asked["until"], repeats=asked["repeats"]):
        battery = Battery(region, faults, seed=asked["seed"] + 1000 * number)
        battery.run(name, asked["until"])
        num_rounds = number + 1
        fill_rates += battery.fill_rates
        verify_rates += battery.verify_rates
        done += [name] if name not in done else []
    return {
        "device": asked["device"],
        "bytes": region.num_bytes,
        "rounds": num_rounds,
        "seconds": time.monotonic() - began,
        "fill_bytes_per_second": max(fill_rates, default=0.0),
        "verify_bytes_per_second": max(verify_rates, default=0.0),
        "patterns": {name: region.errors[name].plain() for name in done},
    }
