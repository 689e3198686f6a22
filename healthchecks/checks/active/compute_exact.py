"""compute_exact: each GPU, the CPU, and each of its cores multiplies matrices of integers without a wrong value.

The product is exact in every type, so there is one right result for all devices, vendors and libraries. Its checksum is worked out
here, in Python's integers and from the closed form of the matrices; the probe of the same name, which describes them, computes
it on the device from the product. A wrong row is found by Freivalds' test. What a type holds exactly, its sums included, bounds
the values: `Bounds`. A type that a device or its torch does not multiply, such as FP8, is named as not covered.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import DEFINED, HealthCheck, at_most
from healthchecks.probe import CPU, devices_of, judge_answers, num_threads, run_probes

NAME = "compute_exact"
# The same in the probe.
LENGTH = 509
STEPS = (101, 7, 11, 211)
WEIGHT_MODULUS = 32749
ROW_STEP, COLUMN_STEP = 40503, 30011
MASK = (1 << 64) - 1
# Every device has them.
REQUIRED_TYPES = ("float64", "float32")
# Matrices of more rows would exceed the bounds below.
FIRST_ROWS, MOST_ROWS = 256, 8192
MAX_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest values of the tables of one type: `most` of A and B, `most_extra` of D, which has `rest` rows (0: all).

    The sum of all |left| |right| stays below 2^24 or 2^53, which a sum of 32 or 64 bits holds exactly; `most` + `most_extra` is at
    most 256, exact in bfloat16; with few rows in D the results are at most 256, too.

    FP8 (e4m3, 4 significant bits) holds integers up to 16 exactly; a product of two has 8 bits, exact in every adder. Hopper adds
    products of FP8 with 14 significant bits, not 24: it aligns all to the largest and drops bits more than 13 places below its
    first one. All |left| |right| together are 256 * 5 * (5 + 1) = 7680 at most, `inner` being 256, so no partial sum reaches 2^13,
    whatever the order. Its first bit is that of 2^12 at most, every bit that is dropped is worth less than 1, and all terms are
    integers: nothing is lost. The results, at most 48 * 5 * 1 = 240, are exact in bfloat16.
    """

    most: int
    most_extra: int
    rest: int = 0
    # Products that are summed, at most (0: as many as there are rows).
    inner: int = 0


BOUNDS: Mapping[str, Bounds] = {
    "float64": Bounds(most=1 << 19, most_extra=1 << 19),
    "float32": Bounds(most=31, most_extra=31),
    "tf32": Bounds(most=31, most_extra=31),
    "bfloat16": Bounds(most=31, most_extra=1, rest=8),
    "float16": Bounds(most=31, most_extra=1, rest=8),
    "float8": Bounds(most=5, most_extra=1, rest=48, inner=256),
}


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Multiply on all devices at the same time."""
    seed = int.from_bytes(os.urandom(4), "little")
    products = [describe(dtype, seed) for dtype in BOUNDS]
    devices = devices_of(node)
    sizes = {"first_rows": FIRST_ROWS, "most_rows": MOST_ROWS, "num_threads": num_threads()}
    asked = [{"device": device, "products": products, **sizes} for device in devices]
    evidence = judge_answers(
        zip(devices, run_probes(NAME, node, asked), strict=True),
        lambda numbers: judge_numbers(numbers, products, judge),
        lambda device, why: judge("compute_exact.wrong_rows", None, subject=device, note=why),
    )
    return Verdict(check=NAME, evidence=evidence)


def describe(dtype: str, seed: int) -> dict[str, Any]:
    """Return the tables of two matrices of one type."""
    bounds = BOUNDS[dtype]
    return {
        "dtype": dtype,
        "rest": bounds.rest,
        "inner": bounds.inner,
        "a": _table(seed, 1, bounds.most),
        "b": _table(seed, 2, bounds.most),
        "d": _table(seed, 3, bounds.most_extra),
    }


def checksum(product: Mapping[str, Any], size: int) -> int:
    """Return the sum of all values of the product, each times the weights of its row and column, modulo 2^64.

    By integers, from the closed form: a(i,k) depends on i S1 mod L alone, so the weights of rows of the same remainder are added
    first; columns likewise.
    """
    rows, columns = [0] * LENGTH, [0] * LENGTH
    for i in range(size):
        rows[i * STEPS[0] % LENGTH] += 2 * (i * ROW_STEP % WEIGHT_MODULUS) + 1
        columns[i * STEPS[3] % LENGTH] += 2 * (i * COLUMN_STEP % WEIGHT_MODULUS) + 1
    a, d = [*product["a"]] * 2, [*product["d"]] * 2
    left = [sum(map(mul, rows, a[at : at + LENGTH])) for at in range(LENGTH)]
    right = [sum(map(mul, columns, d[at : at + LENGTH])) for at in range(LENGTH)]
    rest = min(size // 2, product["rest"] or size // 2)
    products = (left[k * STEPS[1] % LENGTH] * right[k * STEPS[2] % LENGTH] for k in range(rest))
    total: int = sum(products)
    return total & MASK


def judge_numbers(
    numbers: Mapping[str, Any], products: Sequence[Mapping[str, Any]], judge: Judge
) -> Iterator[Evidence]:
    """Judge one device: each type on the whole of it; of a CPU also its cores, of which only those with a fault are named."""
    device = str(numbers["device"])
    golden = _Golden(products)
    types = {found["dtype"] for found in numbers["products"]}
    for dtype in REQUIRED_TYPES:
        if dtype not in types:
            subject = f"{device} {dtype}"
            yield judge("compute_exact.wrong_rows", None, subject=subject, note="not multiplied")
    left_out = [dtype for dtype in BOUNDS if dtype not in types]
    yield Evidence(
        name="compute_exact.types",
        value=len(types),
        unit="types",
        subject=device,
        note=f"not covered: {', '.join(left_out)}" if left_out else "",
    )
    for found in numbers["products"]:
        yield from _judge_product(found, f"{device} {found['dtype']}", golden, judge)
    if device == CPU:
        yield from _judge_cores(numbers["cores"], golden, judge)


def _judge_cores(
    cores: Sequence[Mapping[str, Any]], golden: "_Golden", judge: Judge
) -> Iterator[Evidence]:
    name = "compute_exact.tested_cores"
    yield Evidence(name=name, value=len(cores), unit="cores", subject=CPU)
    if len(cores) != num_threads():
        note = f"{len(cores)} of {num_threads()} cores multiplied"
        yield judge("compute_exact.wrong_rows", None, subject="each core", note=note)
    for core in cores:
        for found in core["products"]:
            subject = f"core {core['core']} {found['dtype']}"
            evidence = tuple(_judge_product(found, subject, golden, judge))
            yield from (each for each in evidence if each.value != 0)


class _Golden:
    """Right checksums by type and size, each computed once."""

    def __init__(self, products: Sequence[Mapping[str, Any]]) -> None:
        self._products = {str(each["dtype"]): each for each in products}
        self._known: dict[tuple[str, int], int] = {}

    def of(self, dtype: str, size: int) -> int:
        if (dtype, size) not in self._known:
            self._known[dtype, size] = checksum(self._products[dtype], size)
        return self._known[dtype, size]


def _judge_product(
    found: Mapping[str, Any], subject: str, golden: _Golden, judge: Judge
) -> Iterator[Evidence]:
    right = str(golden.of(found["dtype"], found["size"]))
    wrong = sum(count for value, count in found["checksums"].items() if value != right)
    rows = ", ".join(map(str, found["rows"][:MAX_NAMED]))
    of = f"of {found['products']} products of {found['size']} rows"
    note = f"rows {rows}, {of}" if rows else of
    yield judge("compute_exact.wrong_rows", float(found["wrong_rows"]), subject=subject, note=note)
    not_numbers = float(found["not_numbers"])
    yield judge("compute_exact.not_numbers", not_numbers, subject=subject, note=note)
    # No product at all has no right one.
    value = float(wrong) if found["products"] else None
    yield judge("compute_exact.wrong_checksums", value, subject=subject, note=of)


def _table(seed: int, number: int, most: int) -> list[int]:
    """Return numbers from -most to most that look random: a linear congruential generator modulo 2^64 (Knuth), its upper bits."""
    state = (seed * 4 + number) & MASK
    values = []
    for _ in range(LENGTH):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        values.append((state >> 33) % (2 * most + 1) - most)
    return values


CHECK = HealthCheck(
    name=NAME,
    position=230,
    run=check,
    needs=("num_gpus", "python"),
    seconds={"quick": 7.0, "standard": 16.0, "deep": 900.0},
    limits={
        "compute_exact.wrong_rows": at_most(0, "rows", DEFINED, most=0),
        "compute_exact.not_numbers": at_most(0, "values", DEFINED, most=0),
        "compute_exact.wrong_checksums": at_most(0, "products", DEFINED, most=0),
    },
)
