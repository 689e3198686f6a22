"""rates: how fast a device multiplies matrices, or moves memory, as a series of short windows.

`asked["measure"]`: "products" multiplies random matrices of each type; "copies" copies within the device's memory, and for a
GPU from and to pinned memory of the host as well, and counts words of the last copy that are wrong. A window is as many calls
as fill its time. The series shows dips that a mean hides; the check draws its conclusions.

Faults for the self test: {"kind": "sleep", "seconds": S, "every": N} sleeps in every N-th window; {"kind": "flip", "word": W}
flips a bit of what was copied; {"kind": "name", "name": TEXT} is another name of the device; {"kind": "foreign", "bytes": B}
is memory of the device that other programs use.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import Any

import torch

# Rows of the smallest and the largest product. Tools that do the same use up to 8192.
FIRST_ROWS, MOST_ROWS = 512, 8192
# Of one window; chosen: many calls on a GPU, some on a CPU. Windows grow so that there are at most so many.
WINDOW_SECONDS, MOST_WINDOWS = 0.05, 200
# Calls that fill a window, at least.
LEAST_CALLS = 2
# Copied on a GPU, on a CPU, and between host and GPU. Chosen: several times the last cache; of a CPU's slow first touch less.
GPU_BYTES, CPU_BYTES, HOST_BYTES = 1 << 30, 128 << 20, 256 << 20
WORD_BYTES = 8
BLOCK_WORDS = 1 << 17
# Odd, so that all words differ: the golden ratio of 64 bits.
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
SEED = 5

# Those that any CPU multiplies at its own rate.
CPU_TYPES = ("float64", "float32")
TYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
FLOAT8 = "float8"
# AMD's first GPUs with it have their own form, without a negative zero.
FIRST_AMD = "gfx94"


class Device:
    """The device under test."""

    def __init__(self, asked: dict[str, Any], faults: list[dict[str, Any]]) -> None:
        self.device = torch.device(asked["device"])
        self.is_gpu = self.device.type == "cuda"
        self.faults = faults
        self._num_windows, self._least_windows = 0, asked["least_windows"]
        if self.is_gpu:
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(asked["num_threads"])

    def synchronize(self) -> None:
        """Wait until it has done what it was asked."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def name(self) -> str:
        """Return its model."""
        for fault in self.faults:
            if fault["kind"] == "name":
                return str(fault["name"])
        if self.is_gpu:
            return torch.cuda.get_device_name(self.device)
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            models = [line for line in lines if line.startswith("model name")]
        return models[0].partition(":")[2].strip() if models else "CPU"

    def foreign_bytes(self) -> int:
        """Return how much of a GPU's memory is in use, by others and by what a context takes."""
        for fault in self.faults:
            if fault["kind"] == "foreign":
                return int(fault["bytes"])
        if not self.is_gpu:
            return 0
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free - torch.cuda.memory_reserved(self.device)

    def seconds_of(self, work: Callable[[], object], calls: int) -> float:
        """Return how long so many calls take."""
        self.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        self.synchronize()
        return time.perf_counter() - began

    def windows(self, work: Callable[[], object], amount: float, until: float) -> list[float]:
        """Return the rates of windows, `amount` a call: until the time is over, and the least number at least."""
        seconds = self.seconds_of(work, 1)
        window = max(WINDOW_SECONDS, (until - time.monotonic()) / MOST_WINDOWS)
        calls = max(1, round(window / max(seconds, 1e-9)))
        rates: list[float] = []
        while len(rates) < self._least_windows or time.monotonic() < until:
            self._num_windows += 1
            pause = 0.0
            for fault in self.faults:
                if fault["kind"] == "sleep" and self._num_windows % fault["every"] == 0:
                    pause = fault["seconds"]
                    time.sleep(pause)
            rates.append(calls * amount / (self.seconds_of(work, calls) + pause))
        return rates


def products(device: Device, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Multiply random matrices of each type for its share of the time."""
    types = asked["types"]
    if not device.is_gpu:
        types = [each for each in types if each in CPU_TYPES]
    elif not has_float8(device.device):
        types = [each for each in types if each != FLOAT8]
    found = []
    began = time.monotonic()
    share = max(0.0, asked["until"] - began) / len(types)
    for number, dtype in enumerate(types, 1):
        if device.is_gpu:
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        rows, work = _product(device, dtype)
        rates = device.windows(work, 2.0 * rows**3, began + number * share)
        found.append({"name": dtype, "size": rows, "rates": rates})
    return found


def plain_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object]:
    """Return the product of two matrices as what is repeated."""
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def scaled_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object]:
    """Return the product of two matrices of 8 bits: torch's private function takes columns one after the other."""
    columns = right.t().contiguous().t()
    one = torch.ones((), device=left.device)
    return lambda: torch._scaled_mm(left, columns, one, one, out_dtype=torch.bfloat16)


def float8_of(device: torch.device) -> torch.dtype:
    """Return the type of 8 bits, four of them for the exponent, that a device multiplies."""
    if device.type == "cuda" and torch.version.hip:
        architecture = torch.cuda.get_device_properties(device).gcnArchName
        if architecture.startswith(FIRST_AMD):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


def has_float8(device: torch.device) -> bool:
    """Whether this torch and this device multiply it: a product of the smallest size shows."""
    try:
        small = torch.ones(16, 16, device=device).to(float8_of(device))
        scaled_product(small, small)()
    except (AttributeError, RuntimeError, NotImplementedError, ValueError, TypeError):
        return False
    return True


def _product(device: Device, dtype: str) -> tuple[int, Callable[[], object]]:
    """Return a product whose calls are short beside a window, and as large as that allows."""
    rows = FIRST_ROWS
    while True:
        generator = torch.Generator(device.device).manual_seed(SEED)
        kind = float8_of(device.device) if dtype == FLOAT8 else TYPES[dtype]
        # Constant data would draw less power, and flatter the rate.
        left, right = (
            torch.randn(rows, rows, generator=generator, device=device.device).to(kind)
            for _ in range(2)
        )
        work = scaled_product(left, right) if dtype == FLOAT8 else plain_product(left, right)
        work()
        seconds = min(device.seconds_of(work, 1) for _ in range(3))
        if 2 * rows > MOST_ROWS or 8 * seconds > WINDOW_SECONDS / LEAST_CALLS:
            return rows, work
        rows *= 2


def copies(device: Device, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Copy within the device, and between the host and a GPU, each for its share of the time."""
    wanted = asked["most_bytes"]
    num_bytes = min(GPU_BYTES if device.is_gpu else CPU_BYTES, wanted)
    source, target = (_words(device, num_bytes) for _ in range(2))
    _write(source)
    # A copy reads as much as it writes.
    moves = [("copy", source, target, 2)]
    if device.is_gpu:
        host_source, host_target = (
            torch.empty(min(HOST_BYTES, wanted) // WORD_BYTES, dtype=torch.int64, pin_memory=True)
            for _ in range(2)
        )
        _write(host_source)
        count = host_source.numel()
        moves.append(("host to device", host_source, target[:count], 1))
        moves.append(("device to host", source[:count], host_target, 1))
    found = []
    began = time.monotonic()
    share = max(0.0, asked["until"] - began) / len(moves)
    for number, (name, left, right, factor) in enumerate(moves, 1):
        right.zero_()

        def work(left: torch.Tensor = left, right: torch.Tensor = right) -> object:
            return right.copy_(left, non_blocking=True)

        amount = float(factor * left.numel() * WORD_BYTES)
        rates = device.windows(work, amount, began + number * share)
        for fault in device.faults:
            if fault["kind"] == "flip":
                right[fault["word"]] ^= 1
        size = left.numel() * WORD_BYTES
        found.append({"name": name, "size": size, "rates": rates, "wrong_words": _wrong(right)})
    return found


def _words(device: Device, num_bytes: int) -> torch.Tensor:
    if device.is_gpu:
        return torch.empty(num_bytes // WORD_BYTES, dtype=torch.int64, device=device.device)
    memory = mmap.mmap(-1, num_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass
    return torch.frombuffer(memory, dtype=torch.int64)


def _expected(words: torch.Tensor, first: int) -> torch.Tensor:
    count = min(BLOCK_WORDS, words.numel() - first)
    return torch.arange(first, first + count, device=words.device) * FACTOR


def _write(words: torch.Tensor) -> None:
    for first in range(0, words.numel(), BLOCK_WORDS):
        words[first : first + BLOCK_WORDS] = _expected(words, first)


def _wrong(words: torch.Tensor) -> int:
    """Count words that are not what was written to the source; each is computed again."""
    return sum(
        int((words[first : first + BLOCK_WORDS] != _expected(words, first)).sum())
        for first in range(0, words.numel(), BLOCK_WORDS)
    )


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Measure what `asked["measure"]` names on `asked["device"]`."""
    device = Device(asked, faults)
    measure = products if asked["measure"] == "products" else copies
    answer: dict[str, Any] = {"device": asked["device"], "model": device.name()}
    answer["foreign_bytes"] = device.foreign_bytes()
    answer["series"] = measure(device, asked)
    names = [series["name"] for series in answer["series"]]
    answer["not_covered"] = [name for name in asked.get("types", []) if name not in names]
    return answer
