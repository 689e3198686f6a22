"""Kinds of floating-point numbers, and how NaN and infinities are found among many at the speed of C, without numpy.

A number is NaN or infinite when all bits of its exponent are set. Those bits lie in its last two bytes, little-endian; slices with
a stride put the last bytes of all numbers side by side, and for nearly every piece a search for two values of them is all there is.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class Special(NamedTuple):
    """Index of the first NaN and of the first infinity among some numbers; None: there is none."""

    nan: int | None
    infinity: int | None


NONE = Special(None, None)


@cache
def _all_of(mask: int) -> bytes:
    """Map a byte to 1 if all bits of the mask are set, else to 0."""
    return bytes(byte & mask == mask for byte in range(256))


@cache
def _any_of(mask: int) -> bytes:
    """Map a byte to 1 if some bit of the mask is set, else to 0."""
    return bytes(bool(byte & mask) for byte in range(256))


@dataclass(frozen=True, slots=True)
class FloatKind:
    """Numbers of `item_bytes` bytes, little-endian. `last`, `second`: bits of the exponent in the last byte and in the one before.

    `typecode`: of an array of integers as long, to compare numbers by their bits.
    """

    name: str
    item_bytes: int
    typecode: str
    last: int
    second: int

    @property
    def rare(self) -> tuple[int, ...]:
        """Return the last bytes that only NaN, infinities and, of the longer kinds, numbers near the largest have."""
        return _RARE[self.last]

    def find(self, numbers: bytes) -> Special:
        """Look at whole numbers, one after the other."""
        width = self.item_bytes
        last = numbers[width - 1 :: width]
        if not any(byte in last for byte in self.rare):
            return NONE
        special = int.from_bytes(last.translate(_all_of(self.last)), "little")
        second = numbers[width - 2 :: width]
        special &= int.from_bytes(second.translate(_all_of(self.second)), "little")
        if not special:
            return NONE
        # A mantissa that is not 0 makes it a NaN.
        mantissa = int.from_bytes(last.translate(_any_of(~(self.last | 0x80) & 0xFF)), "little")
        mantissa |= int.from_bytes(second.translate(_any_of(~self.second & 0xFF)), "little")
        for at in range(width - 2):
            mantissa |= int.from_bytes(numbers[at::width].translate(_any_of(0xFF)), "little")
        return Special(_first(special & mantissa), _first(special & ~mantissa))


# Last bytes with all these bits set, whatever the sign.
_RARE = {mask: tuple(byte for byte in range(256) if byte & mask == mask) for mask in (0x7F, 0x7C)}


def _first(marks: int) -> int | None:
    """Return the place of the lowest byte that is 1."""
    return ((marks & -marks).bit_length() - 1) // 8 if marks else None


FLOAT64 = FloatKind("float64", 8, "Q", 0x7F, 0xF0)
FLOAT32 = FloatKind("float32", 4, "I", 0x7F, 0x80)
BFLOAT16 = FloatKind("bfloat16", 2, "H", 0x7F, 0x80)
FLOAT16 = FloatKind("float16", 2, "H", 0x7C, 0x00)
