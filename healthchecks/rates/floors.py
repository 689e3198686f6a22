"""Least rates by model of GPU, with their sources: what nodes must reach wherever their peers are.

A model that no row names has no floor. Names are those that torch gives, which are the driver's. Variants of a model with other
power or memory (NVL, PCIe) have rows of their own or none.
"""

import re
from dataclasses import dataclass

# Of what was measured, a floor leaves so much: DCGM's own floors are that share of its measurements.
MEASURED_SHARE = 0.75
MAMF = "75 % of the best product that stas00/ml-engineering found (MAMF)"
DCGM = "DCGM, its diagnostic's floor for this model"
AZURE = "azurehpc-health-checks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A least rate: `quantity` is a type of product, in FLOP/s, or a direction of copying, in bytes/s."""

    model: str
    quantity: str
    value: float
    source: str


def _best(model: str, tflops: float, quantity: str = "bfloat16") -> Floor:
    value = MEASURED_SHARE * tflops * 1e12
    return Floor(model=model, quantity=quantity, value=value, source=MAMF)


def _copy(model: str, gb_per_second: float, source: str = DCGM) -> Floor:
    return Floor(model=model, quantity="copy", value=gb_per_second * 1e9, source=source)


def _link(model: str, gb_per_second: float) -> tuple[Floor, ...]:
    return tuple(
        Floor(model=model, quantity=quantity, value=gb_per_second * 1e9, source=AZURE)
        for quantity in ("host to device", "device to host")
    )


A100, H100, H200 = r"A100-SXM4-80GB", r"H100 80GB HBM3", r"H200(?! NVL)"
B200, V100 = r"\bB200\b", r"V100-SXM2"
MI250X, MI300X, MI355X = r"MI250X", r"MI300X", r"MI355X"

FLOORS = (
    _best(A100, 271),
    _best(H100, 794.5),
    _best(H100, 1402, "float8"),
    _best(H200, 794.5),
    _best(B200, 1745),
    _best(MI300X, 668),
    _best(MI355X, 1565),
    Floor(
        model=MI250X,
        quantity="bfloat16",
        value=0.5 * 191.5e12,
        source="chosen, not measured: half of the peak of one die",
    ),
    _copy(A100, 1173),
    _copy(r"A100-PCIE-80GB|A100 80GB PCIe", 969.75),
    _copy(H100, 1905),
    _copy(r"H100 NVL", 2043),
    _copy(V100, 607.5),
    _copy(r"\bA30\b", 585),
    _copy(r"\bA40\b", 423.675),
    _copy(r"\bA10G\b", 362.7),
    _copy(r"\bT4\b", 183),
    _copy(B200, 4072.5),
    _copy(MI300X, 1250, "ROCm/cvs, copy of its TransferBench"),
    _copy(MI250X, 1100, "chosen, not measured: 70 % of the peak of one die"),
    *_link(A100, 21),
    *_link(H100, 48),
    *_link(H200, 48),
    *_link(MI300X, 48),
    *_link(V100, 9),
    *_link(MI250X, 12),
)


def floor_of(model: str, quantity: str) -> Floor | None:
    """Return the floor of a model; None where there is none."""
    for floor in FLOORS:
        if floor.quantity == quantity and re.search(floor.model, model):
            return floor
    return None
