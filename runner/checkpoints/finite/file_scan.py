"""The scan of one file: pieces come in as they are hashed, from front to back, and what is NaN or infinite in its tensors is noted.

*Not finite* is a tensor with a NaN, of whatever use, and one with an infinity unless it is a constant mask: all its numbers are
either one and the same infinity or one and the same other number, as `torch.nn.Transformer.generate_square_subsequent_mask` makes
them, and it has a name, which is none of a weight or of an optimizer's state. A mask is known by its content, for most files do not
say which of their tensors are buffers; weights and moments that training has touched are hardly ever of two values alone. What
has to be known of a tensor with infinities is read a second time, and only that.
"""

import array
import os
from dataclasses import dataclass, field

from runner.checkpoints.finite.float_kinds import FloatKind, Special
from runner.checkpoints.finite.layouts import Span, TensorLayout

# Of a second look. Chosen.
READ_BYTES = 1 << 20
# Tensors that are named in one answer, and those with infinities that are looked at again. Chosen.
MAX_NAMED = 2
MAX_MASKS = 256
# How torch.optim, Apex and DeepSpeed call what an optimizer keeps, and everyone a weight: never a mask.
_TRAINED = frozenset(
    [
        *("weight", "bias", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"),
        *("square_avg", "sum", "optimizer", "optimizer_state_dict", "base_optimizer_state"),
        *("fp32_flat_groups", "single_partition_of_fp32_groups", "master_params"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """What a scan says of a file: how many tensors it has; why they are not covered, or what is not finite; "": neither."""

    num_tensors: int = 0
    uncovered: str = ""
    not_finite: str = ""


@dataclass(slots=True)
class FileScan:
    """Feed it the pieces of a file in order; ask for the result at the end."""

    layout: TensorLayout
    _next: int = 0
    _carry: bytes = b""
    # What is not finite, in words; where spans with NaN begin; spans with infinities, and the index of the first.
    _bad: list[str] = field(default_factory=list)
    _num_bad: int = 0
    _with_nan: set[int] = field(default_factory=set)
    _infinite: list[tuple[Span, int]] = field(default_factory=list)

    def feed(self, offset: int, piece: memoryview) -> None:
        """Look at the piece of the file at this offset; the one before ended there."""
        spans, end = self.layout.spans, offset + len(piece)
        while self._next < len(spans) and spans[self._next].offset < end:
            span = spans[self._next]
            span_end = span.offset + span.size_bytes
            begin = max(span.offset, offset)
            numbers = bytes(piece[begin - offset : min(span_end, end) - offset])
            self._look(span, begin - len(self._carry), self._carry + numbers)
            if span_end > end:
                return
            self._next, self._carry = self._next + 1, b""

    def result(self, file: int) -> ScanResult:
        """Return the result for the file, which is open and the one whose pieces came. Raises OSError."""
        infinite = [pair for pair in self._infinite if pair[0].offset not in self._with_nan]
        for span, index in infinite[:MAX_MASKS]:
            if not span.name or is_named_as_trained(span.name) or not _is_mask(file, span):
                self._condemn(span, index, "an infinity")
        for span, index in infinite[MAX_MASKS:]:
            self._condemn(span, index, "an infinity")
        more = f" and {self._num_bad - MAX_NAMED} more tensors" if self._num_bad > MAX_NAMED else ""
        return ScanResult(
            num_tensors=self.layout.num_tensors,
            uncovered=self.layout.uncovered,
            not_finite=", ".join(self._bad) + more,
        )

    def _look(self, span: Span, begin: int, numbers: bytes) -> None:
        whole = len(numbers) // span.kind.item_bytes * span.kind.item_bytes
        self._carry = numbers[whole:]
        found: Special = span.kind.find(numbers[:whole] if self._carry else numbers)
        first = (begin - span.offset) // span.kind.item_bytes
        if found.nan is not None and span.offset not in self._with_nan:
            self._with_nan.add(span.offset)
            self._condemn(span, first + found.nan, "NaN")
        elif found.infinity is not None and not self._is_known(span):
            self._infinite.append((span, first + found.infinity))

    def _is_known(self, span: Span) -> bool:
        return bool(self._infinite) and self._infinite[-1][0] is span

    def _condemn(self, span: Span, index: int, what: str) -> None:
        self._num_bad += 1
        if len(self._bad) < MAX_NAMED:
            name = span.name or f"the tensor at byte {span.offset}"
            count = span.size_bytes // span.kind.item_bytes
            self._bad.append(f"{name} has {what} (number {index} of {count}, {span.kind.name})")


def is_named_as_trained(name: str) -> bool:
    """Whether a tensor's path says that it is a weight or an optimizer's state."""
    return not _TRAINED.isdisjoint(name.split("."))


def _is_mask(file: int, span: Span) -> bool:
    """Whether all numbers of a span are one infinity or one other number."""
    values: set[int] = set()
    at, end = span.offset, span.offset + span.size_bytes
    while at < end and len(values) <= 2:
        numbers = array.array(span.kind.typecode)
        wanted = min(READ_BYTES // 8 * 8, end - at)
        data = os.pread(file, wanted, at)
        data = data[: len(data) // numbers.itemsize * numbers.itemsize]
        if not data:
            return False
        numbers.frombytes(data)
        values.update(numbers)
        at += len(data)
    specials = [value for value in values if _is_special(span.kind, value)]
    return len(specials) == 1 and len(values) <= 2


def _is_special(kind: FloatKind, bits: int) -> bool:
    return kind.find(bits.to_bytes(kind.item_bytes, "little")) != (None, None)
