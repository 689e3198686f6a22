"""The unit of costs of processor time: one iteration of a fixed loop, timed in the same run and in the same seconds.

A host gives its machines more or less from one hour to the next: on two days, the same grep searched 174 and 308 MB/s of processor
time. A cost is therefore printed as its ratio to this loop, with its limit on that scale. For people, the ratio is also
written as time on the first machine, where the limits were chosen: ratio x one iteration there.

`iteration` never changes, or older figures lose their meaning. Two kinds of samples, for two kinds of code: `is_hot` for what
repeats one call thousands of times, otherwise for what wakes up for a moment and finds its caches cold.
"""

import statistics
import time
from dataclasses import dataclass, field

# One iteration on the first machine, in microseconds. The loop did not exist there: the trainer of commit 3d039fa was measured
# there twice, 183 and 196 us in a rank, and here costs 11.85 iterations (bench/results/scale.txt).
FIRST_MACHINE_US = 16.0
# The same, hot. Here a hot iteration takes 0.7 of a woken one; that it did so there is assumed, not measured.
FIRST_MACHINE_HOT_US = 11.2
# In one sample. A woken one is as long as what a rank or an agent does in a moment; chosen, not measured.
WOKEN_ITERATIONS, HOT_ITERATIONS = 10, 200
# Between two samples beside processes that are measured: 0.2 % of a core; chosen, not measured.
PAUSE_SECONDS = 0.1


@dataclass(slots=True)
class _Part:
    name: str
    weight: int
    seen: dict[str, int]

    def note(self, key: str, value: int) -> int:
        self.seen[key] = self.seen.get(key, 0) + value * self.weight
        return len(self.seen)


def iteration() -> int:
    """Do the fixed work, of the kind Stoker's processes do: small objects, calls, dictionaries, strings, numbers, a sort."""
    total = 0
    parts = [_Part(f"part-{index}", index, {}) for index in range(4)]
    for number in range(12):
        part = parts[number & 3]
        total += part.note(f"{part.name}/{number % 5}", number)
        total ^= hash((number, number * 31)) & 0xFF
    sample = ",".join(f"{key}={value}" for part in parts for key, value in part.seen.items())
    fields = dict(word.split("=") for word in sample.split(","))
    ordered = sorted(fields, key=lambda key: int(fields[key]))
    return total + len(ordered) + sum(ordered.index(key) for key in ordered[:3])


@dataclass(kw_only=True)
class ReferenceLoop:
    """Samples of the loop, taken in turns with what is measured, in the caller's thread and as its processor time."""

    is_hot: bool = False
    samples_us: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Time the loop once more."""
        num_iterations = HOT_ITERATIONS if self.is_hot else WOKEN_ITERATIONS
        started = time.thread_time()
        for _ in range(num_iterations):
            iteration()
        self.samples_us.append((time.thread_time() - started) * 1e6 / num_iterations)

    def sleep(self, seconds: float) -> None:
        """Wait as time.sleep does, and sample meanwhile: for processes that are measured from outside."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE_SECONDS))
            self.sample()

    @property
    def us(self) -> float:
        """Microseconds of one iteration, the median of the samples; ValueError if there are none."""
        if not self.samples_us:
            raise ValueError("no samples of the reference loop: take some beside the measurement")
        return statistics.median(self.samples_us)

    @property
    def first_us(self) -> float:
        """Microseconds of one iteration on the first machine."""
        return FIRST_MACHINE_HOT_US if self.is_hot else FIRST_MACHINE_US

    @property
    def to_first_machine(self) -> float:
        """The factor from processor time here to processor time on the first machine."""
        return self.first_us / self.us
