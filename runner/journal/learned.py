"""Registers of learned summaries: sealed and signed as snapshots are, and volatile, since all of it can be learned again.

A summary that does not verify, or is of another version, is refused with the reason: a supervisor starts without it.
"""

import msgspec

from runner.errors import Forged, WireError
from runner.facts import wire
from runner.facts.messages.learned import LearnedSeal, LearnedSummary
from runner.facts.store_names import LEARNED_PREFIX, learned_register
from runner.journal.snapshots import sha256
from runner.signer import Signer
from runner.store.protocol import Lease, Store

# Of the detectors' memories; another number is refused. It rises when a field of a memory changes its meaning.
VERSION = 1
# Of an encoded summary; with seal and code it stays below a message's 64 KB.
MAX_BYTES = 62 * 1024


class LearnedRegisters:
    """The summaries of one cluster's runs. Any thread may write."""

    def __init__(self, store: Store, signer: Signer) -> None:
        self._store, self._signer = store, signer

    def write(self, run: int, body: bytes, lease: Lease) -> None:
        """Write an encoded summary, or delete it if it is empty. Raises Fenced when another supervisor took over."""
        name = learned_register(run)
        if not body:
            self._store.delete(name, fence=lease)
            return
        seal = wire.encode(LearnedSeal(bytes=len(body), sha256=sha256(body)))
        self._store.put(name, self._signer.sign(name, seal + b"\n" + body), fence=lease)

    def read(self) -> tuple[dict[int, LearnedSummary], dict[int, str]]:
        """Return the summaries by run, and by run why others were refused."""
        summaries: dict[int, LearnedSummary] = {}
        refused: dict[int, str] = {}
        for name, register in self._store.registers(LEARNED_PREFIX).items():
            number = name.removeprefix(LEARNED_PREFIX)
            if not (number.isascii() and number.isdecimal()):
                continue
            try:
                summaries[int(number)] = self._opened(name, int(number), register.payload)
            except (WireError, Forged) as error:
                refused[int(number)] = str(error)
        return summaries, refused

    def _opened(self, name: str, run: int, payload: bytes) -> LearnedSummary:
        message, token = self._signer.verify_kept(name, payload)
        if token < self._signer.number:
            raise WireError("it is signed with an earlier token")
        head, _, body = message.partition(b"\n")
        seal = wire.decode(head)
        if not isinstance(seal, LearnedSeal):
            raise WireError(f"its first line is a {type(seal).__name__}, not a seal")
        if (len(body), sha256(body)) != (seal.bytes, seal.sha256):
            raise WireError(f"it has {len(body)} bytes, sealed were {seal.bytes} others")
        summary = wire.decode(body)
        if not isinstance(summary, LearnedSummary) or summary.run != run:
            raise WireError(f"it is a {type(summary).__name__}, not the summary of run {run}")
        if summary.version != VERSION:
            raise WireError(f"it is of version {summary.version}, this release reads {VERSION}")
        return summary


def encode_summary(run: int, detectors: dict[str, object], now: float) -> tuple[bytes, list[str]]:
    """Return the summary of a run, and the detectors whose memory no longer fits into `MAX_BYTES`."""
    kept: dict[str, object] = {}
    left_out, num_bytes = [], 0
    for name, memory in detectors.items():
        encoded = wire.encode_value(memory)
        num_bytes += len(encoded) + len(name) + 4
        if num_bytes + 200 <= MAX_BYTES:
            kept[name] = msgspec.Raw(encoded)
        else:
            left_out.append(name)
            num_bytes -= len(encoded) + len(name) + 4
    summary = LearnedSummary(run=run, version=VERSION, made_at=now, detectors=kept)
    return wire.encode(summary), left_out
