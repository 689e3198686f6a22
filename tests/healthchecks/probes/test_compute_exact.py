"""compute_exact: one right product for all devices; wrong rows, NaN and faults that repeat are found, and the core is named."""

import os
from random import Random
from typing import Any

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.active.compute_exact import (
    BOUNDS,
    LENGTH,
    MASK,
    STEPS,
    checksum,
    describe,
    judge_numbers,
)
from tests.healthchecks.check_harness import named
from tests.healthchecks.probes.probe_harness import Fault, judged, numbers_of, plant, real_verdict

pytestmark = pytest.mark.trainer

PRODUCTS = [describe(dtype, 11) for dtype in BOUNDS]
# The size of what a core multiplies.
CORE_SIZE = 256


def asked_of(rows: int) -> dict[str, Any]:
    """Ask for products of so many rows."""
    sizes = {"first_rows": rows, "most_rows": rows}
    return {"device": "cpu", "products": PRODUCTS, "num_threads": 1, **sizes}


def verdict_here(*faults: Fault, seconds: float = 0.0) -> Verdict:
    """Multiply once of each type on all cores together and on each one."""
    numbers = numbers_of("compute_exact", asked_of(CORE_SIZE), seconds=seconds, faults=faults)
    return judged("compute_exact", lambda judge: judge_numbers(numbers, PRODUCTS, judge))


def failed(verdict: Verdict) -> set[tuple[str, str]]:
    """Return name and subject of each value that fails."""
    return {
        (each.name.partition(".")[2], each.subject)
        for each in verdict.evidence
        if each.outcome is Outcome.FAIL
    }


def test_a_sound_processor_passes() -> None:
    """All types and every core; products in which the tables repeat, too."""
    numbers = numbers_of("compute_exact", asked_of(640), seconds=0.0)
    verdict = judged("compute_exact", lambda judge: judge_numbers(numbers, PRODUCTS, judge))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert named(verdict, "tested_cores").value == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("dtype", BOUNDS)
def test_the_checksum_is_that_of_the_product_by_definition(dtype: str) -> None:
    """Multiplied out in Python's integers, of a size at which the tables repeat; the sums stay in the type's range."""
    size, product, bounds = 2 * (LENGTH // 31), describe(dtype, 5), BOUNDS[dtype]
    # Of few rows, all are summed; that is what `inner` bounds.
    assert size <= (bounds.inner or size)
    a, b, d = (product[name] for name in "abd")

    def left(i: int, k: int) -> int:
        return int(a[(i * STEPS[0] + k // 2 * STEPS[1]) % LENGTH])

    def right(k: int, j: int) -> int:
        at = (k // 2 * STEPS[2] + j * STEPS[3]) % LENGTH
        extra = d[at] if not bounds.rest or k // 2 < bounds.rest else 0
        return int(-b[at] if k % 2 else b[at] + extra)

    total = 0
    for i in range(size):
        row = 2 * (i * 40503 % 32749) + 1
        for j in range(size):
            value = sum(left(i, k) * right(k, j) for k in range(size))
            total += row * (2 * (j * 30011 % 32749) + 1) * value
            assert not bounds.rest or abs(value) <= 256
    assert checksum(product, size) == total & MASK
    most = (bounds.inner or 8192) * bounds.most * (bounds.most + bounds.most_extra)
    assert most < {"float64": 1 << 53, "float8": 1 << 13}.get(dtype, 1 << 24)


def test_integers_of_8_bits_are_exact_in_an_adder_of_14() -> None:
    """Each operand is an integer that e4m3 holds, and the sum is right in any order where bits below the 14th are dropped."""
    import torch

    bounds, product = BOUNDS["float8"], describe("float8", 3)
    values = torch.arange(-16, 17, dtype=torch.float32)
    for kind in (torch.float8_e4m3fn, torch.float8_e4m3fnuz):
        assert torch.equal(values.to(kind).to(torch.float32), values)
    assert bounds.most + bounds.most_extra <= 16
    random = Random(7)
    a, b, d = (product[name] for name in "abd")
    for i in range(20):
        pairs = []
        for k in range(bounds.inner // 2):
            left, at = a[(i * STEPS[0] + k * STEPS[1]) % LENGTH], k * STEPS[2] % LENGTH
            extra = d[at] if k < bounds.rest else 0
            pairs += [left * (b[at] + extra), left * -b[at]]
        random.shuffle(pairs)
        total = 0
        for pair in pairs:
            largest = max(abs(total), abs(pair), 1)
            unit = 2.0 ** (largest.bit_length() - 1 - 13)
            # Aligned to the first bit of the larger one, and cut off.
            total = int(unit * (int(total / unit) + int(pair / unit)))
        assert total == sum(pairs)


def test_what_the_device_does_not_multiply_is_named() -> None:
    """A product of 8 bits that this torch lacks is not covered, and no fault."""
    numbers = numbers_of("compute_exact", asked_of(CORE_SIZE), seconds=0.0)
    whole = judged("compute_exact", lambda judge: judge_numbers(numbers, PRODUCTS, judge))
    assert "float8" not in named(whole, "types").note
    numbers["products"] = [each for each in numbers["products"] if each["dtype"] != "float8"]
    verdict = judged("compute_exact", lambda judge: judge_numbers(numbers, PRODUCTS, judge))
    assert verdict.outcome is Outcome.PASS
    assert "float8" in named(verdict, "types").note


@pytest.mark.parametrize("kind", ["row", "operand"])
def test_a_wrong_row_of_8_bits_is_found(kind: str) -> None:
    """One value of the product, or of the matrix before it."""
    verdict = verdict_here({"kind": kind, "row": 9, "dtype": "float8"})
    assert failed(verdict) == {("wrong_rows", "cpu float8"), ("wrong_checksums", "cpu float8")}


@pytest.mark.parametrize("seed", range(4))
def test_one_wrong_row_of_one_core_is_found_and_named(seed: int) -> None:
    """Row, core and type by a seed; nothing else fails."""
    random = Random(seed)
    row, core = random.randrange(CORE_SIZE), random.choice(sorted(os.sched_getaffinity(0)))
    dtype = random.choice(["float64", "float32"])
    verdict = verdict_here({"kind": "row", "row": row, "core": core, "dtype": dtype})
    subject = f"core {core} {dtype}"
    assert failed(verdict) == {("wrong_rows", subject), ("wrong_checksums", subject)}
    assert named(verdict, "wrong_rows", subject).note.startswith(f"rows {row}, of ")


@pytest.mark.proves("compute_exact.wrong_rows", "compute_exact.wrong_checksums")
def test_a_wrong_row_of_the_whole_device_is_found() -> None:
    """Cores by themselves are sound then."""
    verdict = verdict_here({"kind": "row", "row": 77, "dtype": "float32"})
    assert failed(verdict) == {("wrong_rows", "cpu float32"), ("wrong_checksums", "cpu float32")}


@pytest.mark.proves("compute_exact.not_numbers")
def test_not_a_number_is_counted() -> None:
    """It compares as unequal to everything, and is a wrong row as well."""
    verdict = verdict_here({"kind": "nan", "row": 3, "dtype": "float64"})
    assert named(verdict, "not_numbers", "cpu float64").value == 1
    assert ("wrong_rows", "cpu float64") in failed(verdict)
    assert verdict.outcome is Outcome.FAIL


def test_a_fault_that_is_the_same_every_time_is_found() -> None:
    """Every repetition on every core agrees with every other, and none with the integers."""
    verdict = verdict_here({"kind": "operand", "row": 5, "dtype": "float32"}, seconds=0.2)
    cores = sorted(os.sched_getaffinity(0))
    subjects = {"cpu float32", *(f"core {core} float32" for core in cores)}
    assert failed(verdict) == {
        (name, subject) for name in ("wrong_rows", "wrong_checksums") for subject in subjects
    }


def test_a_checksum_of_another_definition_fails_although_every_row_agrees() -> None:
    """The device's own test of rows is not the last judge."""
    numbers = numbers_of("compute_exact", asked_of(CORE_SIZE), seconds=0.0)
    others = [describe(dtype, 12) for dtype in BOUNDS]
    verdict = judged("compute_exact", lambda judge: judge_numbers(numbers, others, judge))
    assert {name for name, _ in failed(verdict)} == {"wrong_checksums"}


@pytest.mark.parametrize("what", ["products", "cores"])
def test_what_was_not_multiplied_is_unknown(what: str) -> None:
    """A type that is everywhere, and a core."""
    numbers = numbers_of("compute_exact", asked_of(CORE_SIZE), seconds=0.0)
    del numbers[what][0]
    verdict = judged("compute_exact", lambda judge: judge_numbers(numbers, PRODUCTS, judge))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "multiplied" in verdict.reason


def test_the_check_runs_its_probe_in_the_interpreter_of_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From end to end: a planted wrong row fails it within its time."""
    plant(monkeypatch, {"probe": "compute_exact", "kind": "row", "row": 8, "dtype": "float32"})
    verdict = real_verdict("compute_exact")
    assert failed(verdict) == {("wrong_rows", "cpu float32"), ("wrong_checksums", "cpu float32")}
