"""memory: enough is left, the machine hardly swaps, and a region of memory keeps what is written to it.

The pattern test goes through 64 MiB with solid patterns and with words that hold their own position, each followed by its
complement, block by block upwards and then downwards. It is short: it detects a stuck data or address line, and bad memory in
the region it got, not every weak cell of the machine. It writes complements by XOR of what it read and computes the expected ones
by arithmetic; the sum of all words has a closed form. So nothing is compared with its own product.
"""

import mmap
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

from healthchecks import cgroups
from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_least, at_most

NAME = "memory"
BLOCK_BYTES = 1 << 20
WORD_BYTES = 8
BLOCK_WORDS = BLOCK_BYTES // WORD_BYTES
TOP = (1 << 64) - 1
ONES = (1 << 8 * BLOCK_BYTES) - 1
# The pattern test runs if so many times its size is available, so that it displaces no process. Chosen, not measured.
RESERVE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The content of block `i`, its complement, and the sum of its words."""

    name: str
    block: Callable[[int], bytes]
    complement: Callable[[int], bytes]
    total: Callable[[int], int]


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Measure available memory and swap, then test `node.pattern_bytes` of memory."""
    available = _available()
    evidence = [judge("memory.available_bytes", available), _swap(judge)]
    if available < RESERVE * node.pattern_bytes:
        note = f"too little is left for a test of {node.pattern_bytes} bytes"
        return Verdict(
            check=NAME, evidence=(*evidence, judge("memory.wrong_bytes", None, note=note))
        )
    try:
        memory = mmap.mmap(-1, node.pattern_bytes // BLOCK_BYTES * BLOCK_BYTES)
    except (OSError, MemoryError, ValueError) as error:
        note = f"{node.pattern_bytes} bytes cannot be had: {error}"
        return Verdict(
            check=NAME, evidence=(*evidence, judge("memory.wrong_bytes", None, note=note))
        )
    with memory:
        for pattern in PATTERNS:
            evidence += _test(memory, pattern, judge=judge)
    return Verdict(check=NAME, evidence=tuple(evidence))


def _available() -> int:
    available = psutil.virtual_memory().available
    room = cgroups.headroom(cgroups.MEMORY)
    return available if room is None else min(available, room)


def _swap(judge: Judge) -> Evidence:
    swap = psutil.swap_memory()
    if swap.total == 0:
        return Evidence(name="memory.swap_used_ratio", value=None, note="no swap")
    return judge("memory.swap_used_ratio", swap.used / swap.total)


def fill(memory: mmap.mmap, pattern: Pattern) -> None:
    """Write the pattern into all of `memory`, whose size is a multiple of BLOCK_BYTES."""
    for i in range(len(memory) // BLOCK_BYTES):
        memory[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES] = pattern.block(i)


def invert(memory: mmap.mmap, expected: Callable[[int], bytes], *, upwards: bool) -> Iterator[int]:
    """Go through all blocks: yield how many bytes differ from what is expected, then write the complement of what is there."""
    count = len(memory) // BLOCK_BYTES
    for i in range(count) if upwards else reversed(range(count)):
        span = slice(i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES)
        seen = memory[span]
        yield wrong_bytes(seen, expected(i))
        memory[span] = (int.from_bytes(seen, "little") ^ ONES).to_bytes(BLOCK_BYTES, "little")


def wrong_bytes(seen: bytes, expected: bytes) -> int:
    """Count bytes of a block that differ."""
    if seen == expected:
        return 0
    return sum(a != b for a, b in zip(seen, expected, strict=True))


def read_back(memory: mmap.mmap, pattern: Pattern) -> tuple[int, int]:
    """Return how many bytes differ from the pattern, and how many blocks have words that do not add up to what they must."""
    wrong, wrong_sums = 0, 0
    for i in range(len(memory) // BLOCK_BYTES):
        seen = memory[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES]
        wrong += wrong_bytes(seen, pattern.block(i))
        wrong_sums += sum(array("Q", seen)) != pattern.total(i)
    return wrong, wrong_sums


def _test(memory: mmap.mmap, pattern: Pattern, *, judge: Judge) -> Iterator[Evidence]:
    subject = f"pattern {pattern.name}"
    fill(memory, pattern)
    wrong = sum(invert(memory, pattern.block, upwards=True))
    wrong += sum(invert(memory, pattern.complement, upwards=False))
    wrong_at_last, wrong_sums = read_back(memory, pattern)
    yield judge("memory.wrong_bytes", wrong + wrong_at_last, subject=subject)
    yield judge("memory.wrong_sums", wrong_sums, subject=subject)


def _solid(byte: int) -> Pattern:
    return Pattern(
        name=f"{byte:02x}",
        block=lambda i: bytes([byte]) * BLOCK_BYTES,
        complement=lambda i: bytes([255 - byte]) * BLOCK_BYTES,
        total=lambda i: BLOCK_WORDS * byte * (TOP // 255),
    )


def _own_position(i: int) -> bytes:
    first = i * BLOCK_WORDS
    return array("Q", range(first, first + BLOCK_WORDS)).tobytes()


def _own_position_complement(i: int) -> bytes:
    # By subtraction; no word borrows from the next.
    words = int.from_bytes(_own_position(i), "little")
    return (ONES - words).to_bytes(BLOCK_BYTES, "little")


def _own_position_total(i: int) -> int:
    return BLOCK_WORDS * (2 * i * BLOCK_WORDS + BLOCK_WORDS - 1) // 2


OWN_POSITION = Pattern(
    name="own position",
    block=_own_position,
    complement=_own_position_complement,
    total=_own_position_total,
)
# Solid ones and alternating bits, each with its complement; then addresses.
PATTERNS = (_solid(0x00), _solid(0x55), OWN_POSITION)


CHECK = HealthCheck(
    name=NAME,
    position=50,
    run=check,
    needs=("pattern_bytes",),
    limits={
        "memory.available_bytes": at_least(
            2 << 30, "bytes", CHOSEN, most=1e15, way_out="end other programs"
        ),
        "memory.swap_used_ratio": at_most(0.5, "ratio", CHOSEN, most=0.99),
        "memory.wrong_bytes": at_most(0, "bytes", DEFINED, most=0),
        "memory.wrong_sums": at_most(0, "sums", DEFINED, most=0),
    },
)
