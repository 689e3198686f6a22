"""pair_copies: copies from each device of a node to each other one, pair by pair; how fast, and words that arrived wrong.

Every device has a source, whose words differ from those of all others, and a target that is cleared before each round. A pair has
its links alone while it is measured. A CPU does the same with buffers of its cores: each was written first by its own core, so
that it lies in that core's memory, and the core of the target copies.

The first round names each pair on the error output before it begins, so that a hang has a name. Faults for the self test:
{"kind": "slow", "pair": [I, J], "seconds": S} sleeps beside each copy from I to J; {"kind": "flip", "pair": [I, J], "word": W}
flips a bit of what arrived.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

# The tools of vendors count GPUs by their addresses; it is read once.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")

import torch

WORD_BYTES = 8
# Odd, so that all words differ: the golden ratio of 64 bits; and what distinguishes the devices.
FACTOR, DEVICE_STEP = 0x9E3779B97F4A7C15 - (1 << 64), 0x2545F4914F6CDD1D
# Of one measurement, at least, and calls in it, at most. Chosen: a copy over NVLink takes a millisecond.
LEAST_SECONDS, MOST_CALLS = 0.005, 64
# The first round warms up, and does not count.
LEAST_ROUNDS = 4


class Place:
    """One device, or one core of a CPU: a source of known words, and a target."""

    def __init__(self, number: int, asked: dict[str, Any]) -> None:
        self.number = number
        self.device = torch.device(asked["devices"][number])
        self.core = asked["cores"][number] if self.device.type == "cpu" else None
        count = asked["bytes"] // WORD_BYTES
        self.enter()
        self.source = self.expected(number, count)
        self.target = torch.zeros(count, dtype=torch.int64, device=self.device)

    def enter(self) -> None:
        """Work on this device from now on."""
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})
        else:
            torch.cuda.set_device(self.device)

    def expected(self, number: int, count: int) -> torch.Tensor:
        """Return the words of the source of device `number`, computed here."""
        at = torch.arange(count, dtype=torch.int64, device=self.device)
        return at * FACTOR + number * DEVICE_STEP

    def synchronize(self) -> None:
        """Wait until it has done what it was asked."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Pair:
    """The way from one device to another, and what was found on it."""

    def __init__(self, source: Place, target: Place, faults: list[dict[str, Any]]) -> None:
        self.source, self.target = source, target
        pair = [source.number, target.number]
        self._faults = [fault for fault in faults if fault["pair"] == pair]
        self._calls, self.wrong_words = 1, 0
        self.rates: list[float] = []

    def copy(self) -> float:
        """Copy so many times; return the seconds."""
        self.source.synchronize()
        self.target.enter()
        began = time.perf_counter()
        for _ in range(self._calls):
            self.target.target.copy_(self.source.source, non_blocking=True)
            for fault in self._faults:
                if fault["kind"] == "slow":
                    time.sleep(fault["seconds"])
        self.source.synchronize()
        self.target.synchronize()
        return time.perf_counter() - began

    def measure(self) -> None:
        """Clear the target, copy, and compare every word with what was sent."""
        target = self.target.target
        target.zero_()
        seconds = self.copy()
        self.rates.append(self._calls * target.numel() * WORD_BYTES / seconds)
        each = seconds / self._calls
        self._calls = max(1, min(MOST_CALLS, round(LEAST_SECONDS / max(each, 1e-9))))
        for fault in self._faults:
            if fault["kind"] == "flip":
                target[fault["word"]] ^= 1
        expected = self.target.expected(self.source.number, target.numel())
        self.wrong_words += int((target != expected).sum())

    def plain(self) -> dict[str, Any]:
        """Return it as plain values. `peer`: the devices reach each other's memory without the host."""
        peer = True
        if self.target.device.type == "cuda":
            pair = (self.target.device.index, self.source.device.index)
            peer = torch.cuda.can_device_access_peer(*pair)
        return {
            "source": self.source.number,
            "target": self.target.number,
            "peer": peer,
            "rates": self.rates[1:],
            "wrong_words": self.wrong_words,
        }


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Copy between all of `asked["devices"]`, round after round until the time is over, and a few rounds at least."""
    torch.set_num_threads(1)
    places = [Place(number, asked) for number in range(len(asked["devices"]))]
    pairs = [Pair(one, other, faults) for one in places for other in places if one is not other]
    num_rounds = 0
    while num_rounds < LEAST_ROUNDS or time.monotonic() < asked["until"]:
        for pair in pairs:
            if num_rounds == 0:
                sys.stderr.write(f"the pair {pair.source.number} to {pair.target.number}\n")
                sys.stderr.flush()
            pair.measure()
        num_rounds += 1
    device = places[0].device
    model = "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device)
    found = [pair.plain() for pair in pairs]
    return {"bytes": asked["bytes"], "model": model, "pairs": found}
