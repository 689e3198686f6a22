"""compute_exact: multiplies matrices of integers whose product is exact in the type under test, and reports rows that are wrong.

Every partial sum is an integer that the type holds exactly, so the product is the same on any device, by any library, in any order
of summing. The matrices have a closed form (the check has it too, and computes the checksum of the product from it):

    a(i,k) = A[(i S1 + k S2) mod L]     b(k,j) = B[(k T1 + j T2) mod L]     d(k,j) = D[the same], 0 from row `rest` on
    left(i,2k) = left(i,2k+1) = a(i,k)        right(2k,j) = b(k,j) + d(k,j)      right(2k+1,j) = -b(k,j)

Their product is the sum of a(i,k) d(k,j): the rest cancels, and with few rows in `d` the result is small enough for types of
few bits. `inner` bounds how many products are summed (0: as many as there are rows), where the sum has few bits, too.

Freivalds' test compares each row, times odd weights, modulo 2^64, with integers that were computed from the closed form: one wrong
value is always found. The checksum over all rows is for the check.

On a CPU each core computes by itself as well. Faults for the self test, with `dtype` and, for one core alone, `core`:
{"kind": "row", "row": R} adds 1 to a value of that row of each product; "nan" puts a NaN there; "operand" adds 1 to the left
matrix before, as a fault that is the same in every repetition.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

# The same in the check.
LENGTH = 509
STEPS = (101, 7, 11, 211)
WEIGHT_MODULUS = 32749
ROW_STEP, COLUMN_STEP = 40503, 30011
MASK = (1 << 64) - 1
# Rows of a product of one core: it stays in the core's own caches. Chosen.
CORE_SIZE = 256
# Of the time for one type: a product with its test takes at most so much of it. Chosen, not measured.
LARGEST_SHARE = 0.05
# Of the time on a CPU, what all cores together get; the rest is for each by itself. Chosen, not measured.
TOGETHER_SHARE = 0.4
# Products between two tests under load. Chosen, not measured.
LOAD_PRODUCTS = 8
MAX_ROWS = 16

TYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Multiplied by torch's private function, into another type.
FLOAT8, FLOAT8_OUT = "float8", torch.bfloat16
# AMD's first GPUs with it have their own form, without a negative zero.
FIRST_AMD = "gfx94"


class Product:
    """Two matrices of one type on one device, and what is known of their product."""

    def __init__(self, spec: dict[str, Any], device: torch.device, size: int) -> None:
        self.dtype, self.size, self.device = str(spec["dtype"]), size, device
        half = min(size, spec["inner"] or size) // 2
        rest = min(half, spec["rest"]) if spec["rest"] else half
        a, b, d = (
            torch.tensor(spec[name], dtype=torch.int64, device=device) for name in ("a", "b", "d")
        )
        at, inner = torch.arange(size, device=device), torch.arange(half, device=device)
        left = a[(at[:, None] * STEPS[0] + inner * STEPS[1]) % LENGTH]
        where = (inner[:, None] * STEPS[2] + at * STEPS[3]) % LENGTH
        right, extra = b[where], d[where]
        extra[rest:] = 0
        self._column_weights = 2 * (at * COLUMN_STEP % WEIGHT_MODULUS) + 1
        self._row_weights = 2 * (at * ROW_STEP % WEIGHT_MODULUS) + 1
        self._expected = (left * (extra * self._column_weights).sum(1)).sum(1)
        kind = float8_of(device) if self.dtype == FLOAT8 else TYPES[self.dtype]
        self.left = left.repeat_interleave(2, dim=1).to(kind)
        self.right = torch.stack([right + extra, -right], dim=1).view(2 * half, size).to(kind)
        if self.dtype == FLOAT8:
            # It takes columns one after the other, and factors.
            self.right = self.right.t().contiguous().t()
            self._one = torch.ones((), device=device)

    def new(self) -> torch.Tensor:
        """Return room for a product."""
        kind = FLOAT8_OUT if self.dtype == FLOAT8 else self.left.dtype
        return torch.empty(self.size, self.size, dtype=kind, device=self.device)

    def multiply(self, out: torch.Tensor) -> None:
        """Compute the product."""
        if self.dtype == FLOAT8:
            one, kind = self._one, FLOAT8_OUT
            torch._scaled_mm(self.left, self.right, one, one, out_dtype=kind, out=out)
            return
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
        torch.mm(self.left, self.right, out=out)

    def test(self, out: torch.Tensor, found: Found) -> None:
        """Compare every row with its integer, and add up the checksum."""
        wide = out.to(torch.float64)
        not_numbers = int((~torch.isfinite(wide)).sum())
        whole = torch.nan_to_num(wide, nan=0.0, posinf=0.0, neginf=0.0).to(torch.int64)
        rows = (whole * self._column_weights).sum(1)
        # A value that is no integer is lost in the conversion.
        wrong = (rows != self._expected) | (whole.to(torch.float64) != wide).any(1)
        found.num_products += 1
        found.not_numbers += not_numbers
        found.num_wrong_rows += int(wrong.sum())
        if len(found.rows) < MAX_ROWS:
            found.rows += torch.nonzero(wrong).flatten().tolist()
            found.rows = sorted(set(found.rows))[:MAX_ROWS]
        checksum = str(int((rows * self._row_weights).sum()) & MASK)
        found.checksums[checksum] = found.checksums.get(checksum, 0) + 1


class Found:
    """What the products of one type on one device, or on one core, were like."""

    def __init__(self, product: Product) -> None:
        self._dtype, self._size = product.dtype, product.size
        self.num_products = self.not_numbers = self.num_wrong_rows = 0
        self.rows: list[int] = []
        self.checksums: dict[str, int] = {}

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "dtype": self._dtype,
            "size": self._size,
            "products": self.num_products,
            "wrong_rows": self.num_wrong_rows,
            "rows": self.rows,
            "not_numbers": self.not_numbers,
            "checksums": self.checksums,
        }


class Faults:
    """Damages products, for the self test."""

    def __init__(self, faults: list[dict[str, Any]]) -> None:
        self._faults = faults

    def to_operand(self, product: Product) -> None:
        """Change the left matrix, where a fault asks for it."""
        for fault in self._faults:
            if fault["kind"] == "operand" and fault["dtype"] == product.dtype:
                row = product.left[fault["row"] % product.size]
                # A type of 8 bits adds nothing by itself.
                row[3] = (row[3].to(torch.float64) + 1).to(row.dtype)

    def to_product(self, product: Product, out: torch.Tensor, core: int | None) -> None:
        """Change a value of a product."""
        for fault in self._faults:
            if fault["dtype"] != product.dtype or fault.get("core") != core:
                continue
            row, column = fault["row"] % product.size, fault["row"] * 7 % product.size
            if fault["kind"] == "row":
                out[row, column] += 1
            elif fault["kind"] == "nan":
                out[row, column] = float("nan")


def repeat(
    product: Product, faults: Faults, *, until: float, load: int = 1, core: int | None = None
) -> Found:
    """Multiply and test until the time is over, at least once; `load` products come before each test."""
    found, out = Found(product), product.new()
    while found.num_products == 0 or time.monotonic() < until:
        for _ in range(load):
            product.multiply(out)
        faults.to_product(product, out, core)
        product.test(out, found)
    return found


def largest(spec: dict[str, Any], device: torch.device, asked: dict[str, Any], share: float) -> int:
    """Return the size at which a product and its test take a small part of the time `share`."""
    size: int = asked["first_rows"]
    while 2 * size <= asked["most_rows"]:
        product = Product(spec, device, size)
        found, out = Found(product), product.new()
        product.multiply(out)
        product.test(out, found)
        began = time.monotonic()
        product.multiply(out)
        product.test(out, found)
        # Twice the size: at most eight times the time, and the matrices have to be made as well.
        if 8 * (time.monotonic() - began) > LARGEST_SHARE * share:
            break
        size *= 2
    return size


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
        one = torch.ones((), device=device)
        torch._scaled_mm(small, small.t(), one, one, out_dtype=FLOAT8_OUT)
    except (AttributeError, RuntimeError, NotImplementedError, ValueError, TypeError):
        return False
    return True


def supported(specs: list[dict[str, Any]], device: torch.device) -> list[dict[str, Any]]:
    """Return those that the device multiplies with sums in 32 bits or more."""
    if not has_float8(device):
        specs = [spec for spec in specs if spec["dtype"] != FLOAT8]
    if device.type == "cuda":
        return specs
    mkldnn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    has_bfloat16 = mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    types = ["float64", "float32", FLOAT8, *(["bfloat16"] if has_bfloat16 else [])]
    return [spec for spec in specs if spec["dtype"] in types]


def whole_device(
    device: torch.device, specs: list[dict[str, Any]], faults: Faults, asked: dict[str, Any]
) -> list[dict[str, Any]]:
    """Multiply on the whole device, one type after the other."""
    left = asked["until"] - time.monotonic()
    if device.type == "cpu":
        left *= TOGETHER_SHARE
    began, share = time.monotonic(), max(0.0, left) / len(specs)
    load = LOAD_PRODUCTS if asked["level"] == "deep" else 1
    found = []
    for number, spec in enumerate(specs, 1):
        product = Product(spec, device, largest(spec, device, asked, share))
        faults.to_operand(product)
        until = began + number * share
        found.append(repeat(product, faults, until=until, load=load).plain())
    return found


def each_core(
    specs: list[dict[str, Any]], faults: Faults, asked: dict[str, Any]
) -> list[dict[str, Any]]:
    """Have each core multiply by itself: one after the other; at the level deep all at the same time, for heat."""
    cores = sorted(os.sched_getaffinity(0))
    together = asked["level"] == "deep"
    products = [Product(spec, torch.device("cpu"), CORE_SIZE) for spec in specs]
    for product in products:
        faults.to_operand(product)
    left = max(0.0, asked["until"] - time.monotonic())
    share = left / len(products) / (1 if together else len(cores))

    def one(core: int) -> dict[str, Any]:
        # Of this thread alone.
        os.sched_setaffinity(0, {core})
        found = []
        for product in products:
            until = time.monotonic() + share
            found.append(repeat(product, faults, until=until, core=core).plain())
        return {"core": core, "products": found}

    with ThreadPoolExecutor(len(cores) if together else 1) as threads:
        return list(threads.map(one, cores))


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Multiply what `asked["products"]` describes on `asked["device"]`; on a CPU on each of its cores, too."""
    device = torch.device(asked["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    else:
        torch.set_num_threads(asked["num_threads"])
    specs, planted = supported(asked["products"], device), Faults(faults)
    answer: dict[str, Any] = {"device": asked["device"]}
    answer["products"] = whole_device(device, specs, planted, asked)
    if device.type == "cpu":
        torch.set_num_threads(1)
        # A core computes with 8 bits as with 32.
        own = [spec for spec in specs if spec["dtype"] != FLOAT8]
        answer["cores"] = each_core(own, planted, asked)
    return answer
