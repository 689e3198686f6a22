"""Signatures: messages in the store carry a code that only holders of the cluster's token can make.

The store's password protects the store; the token protects against clients that reach the store without it. Agents sign
signals, commands sign requests, supervisors sign assignments and tasks. The code covers the name of the stream or register,
so that a message copied to another one is refused. It hides nothing, and does not stop a replay within one stream: sequences
and generations do that.
"""

import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from runner.errors import Forged, UserError, WireError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wire import decode
from runner.token_file import TokenFile, default_token_file, read_token_file

# Between two looks at the token file; chosen.
LOOK_SECONDS = 1.0
# in the state folder: the spec that the supervisor leads by; agents read it too
CLUSTER_NAME = "cluster.json"
# HMAC-SHA256 in hexadecimal; and the line's end before it.
CODE_CHARACTERS = 64
SIGNATURE_BYTES = CODE_CHARACTERS + 1
_LOG = logging.getLogger("stoker.token")
Clock = Callable[[], float]


class _Keys(NamedTuple):
    """A token file as it was read last, and its tokens by number, newest first.

    Each has the states of two hashes after it. The second is for links, which are made and checked by the million: BLAKE2 takes
    a third of the time.
    """

    file: TokenFile
    newest: int
    by_number: Mapping[int, tuple[hmac.HMAC, hashlib.blake2b]]


class Signer:
    """Signs and verifies with the newest token. Without any it signs nothing and accepts everything. Any thread may use it.

    Earlier tokens verify what is kept, the journal and its snapshots, and no message unless a rotation lasts. Tokens are
    numbered: 0 is the newest at the start, one that the file gets later has a higher number.
    """

    def __init__(
        self, token: bytes | Path | None, earlier: Sequence[bytes] = (), clock: Clock = time.time
    ) -> None:
        """`token`: a path is that of its file, which is read again about once a second. Raises UserError as `read_token_file`."""
        self._path = token if isinstance(token, Path) else None
        given = TokenFile((token, *earlier)) if isinstance(token, bytes) else TokenFile(())
        self._known = _numbered(read_token_file(self._path) if self._path else given, 0)
        self._clock, self._lock = clock, threading.Lock()
        self._signing, self._looked, self._complaint = (
            -(clock() < self._known.file.signs_from),
            0.0,
            "",
        )

    @property
    def is_active(self) -> bool:
        """Whether there is a token at all."""
        return bool(self._known.by_number)

    @property
    def number(self) -> int:
        """The number of the token that signs now; it never falls, whatever the clock does."""
        now, known = self._now()
        if now >= known.file.signs_from:
            self._signing = max(self._signing, known.newest)
        return self._signing

    def sign_with(self, number: int) -> None:
        """Sign with this token or a newer one from now on: the journal has an entry of it, whatever our clock shows."""
        self._signing = max(self._signing, number)

    def sign(self, place: str, message: bytes) -> bytes:
        """Return the message with its code; `place` is the stream or register it is written to."""
        if not self.is_active:
            return message
        number = self.number
        return message + b"\n" + _code(self._known.by_number[number][0], place, message)

    def verify(self, place: str, data: bytes) -> bytes:
        """Return the message without its code; raise Forged if the code is missing, wrong, or for another place."""
        now, known = self._now()
        num_accepted = 1 + (now < known.file.valid_until)
        return _verified(place, data, dict(islice(known.by_number.items(), num_accepted)))[0]

    def verify_kept(self, place: str, data: bytes) -> tuple[bytes, int]:
        """Verify what a supervisor of this cluster has kept in the store; return the message and the number of its token."""
        return _verified(place, data, self._now()[1].by_number)

    def seal_keys(self, cluster: str, run: str) -> list[bytes]:
        """Return the keys for the codes of a run's manifests, one for each token, that which signs now first; both are names."""
        place, keys, signing = f"seals\n{cluster}\n{run}", self._now()[1].by_number, self.number
        numbers = sorted(keys, key=lambda number: number != signing)
        return [bytes.fromhex(_code(keys[each][0], place, b"").decode()) for each in numbers]

    def link(self, previous: bytes, message: bytes, number: int = 0) -> bytes:
        """Return the code, of this token, of a journal's entry that follows the one with code `previous`, b"" for the first."""
        return self.links((previous,), (message,), number)

    def links(self, previous: Iterable[bytes], messages: Iterable[bytes], number: int) -> bytes:
        """Return the codes of entries, joined, each after the code before it: a journal has them by the million."""
        start, codes = self._known.by_number[number][1].copy, []
        for before, message in zip(previous, messages, strict=False):
            code = start()
            code.update(before)
            code.update(message)
            codes.append(code.hexdigest())
        return "".join(codes).encode()

    def token_of_link(self, previous: bytes, message: bytes, code: bytes) -> int | None:
        """Return the number of the token that made an entry's code; None: none of them."""
        for number in self._now()[1].by_number:
            if hmac.compare_digest(code, self.link(previous, message, number)):
                return number
        return None

    def _now(self) -> tuple[float, _Keys]:
        """Return the time, and what is known after a look at the file if the last one is old."""
        now = self._clock()
        if self._path is not None and abs(now - self._looked) >= LOOK_SECONDS:
            with self._lock:
                self._looked = now
                try:
                    self._look(self._path)
                    self._complaint = ""
                except UserError as error:
                    if str(error) != self._complaint:
                        _LOG.warning("this process keeps the tokens that it has: %s", error)
                    self._complaint = str(error)
        return now, self._known

    def _look(self, path: Path) -> None:
        """Use a file that changed. Raises UserError if it is bad, or lacks a token that this process has."""
        found, known = read_token_file(path), self._known
        if found == known.file:
            return
        num_added = len(found.tokens) - len(known.file.tokens)
        if num_added < 0 or found.tokens[num_added:] != known.file.tokens:
            raise UserError(
                f"token_file: {path} no longer holds the tokens that this cluster signs with; put them back, and use "
                "`stoker token --rotate`"
            )
        self._known = _numbered(found, known.newest + num_added)
        when = found.rotation or "its newest token signs"
        _LOG.info("%s was read again: %s", path, when)


def _numbered(file: TokenFile, newest: int) -> _Keys:
    keys = {newest - place: _keyed(each) for place, each in enumerate(file.tokens)}
    return _Keys(file, newest, keys)


def _keyed(token: bytes) -> tuple[hmac.HMAC, hashlib.blake2b]:
    link_key = hashlib.sha256(b"links\n" + token).digest()
    return hmac.new(token, digestmod="sha256"), hashlib.blake2b(key=link_key, digest_size=32)


def _verified(
    place: str, data: bytes, keys: Mapping[int, tuple[hmac.HMAC, object]]
) -> tuple[bytes, int]:
    if not keys:
        return _without_code(data), 0
    message, newline, code = data.rpartition(b"\n")
    if not newline or len(code) != CODE_CHARACTERS:
        raise Forged(f"{place}: {data[:80]!r} is not signed; its writer has no token")
    for number, (keyed, _) in keys.items():
        if hmac.compare_digest(code, _code(keyed, place, message)):
            return message, number
    raise Forged(f"{place}: {data[:80]!r} is signed with another token, or for another stream")


def _code(keyed: hmac.HMAC, place: str, message: bytes) -> bytes:
    code = keyed.copy()
    code.update(place.encode() + b"\n" + message)
    return code.hexdigest().encode()


def _without_code(data: bytes) -> bytes:
    """Return a message without its code, if it has one: a reader without a token checks none."""
    message, newline, code = data.rpartition(b"\n")
    is_signed = newline and len(code) == CODE_CHARACTERS and message.endswith(b"}")
    return message if is_signed else data


UNSIGNED = Signer(None)


def load_signer(token_file: str) -> Signer:
    """Return the signer of a token file; "" for a cluster without one. Raises UserError as `read_token_file` does."""
    return Signer(Path(token_file)) if token_file else UNSIGNED


def settle_token(cluster: ClusterSpec) -> ClusterSpec:
    """Return the cluster with its token file; with none for an unsigned cluster.

    Unsigned is a cluster of one machine that names no token file and never had one: an older release made it. A missing file
    is reported by `load_signer`.
    """
    default = default_token_file(cluster.state)
    named = cluster.token_file not in ("", default)
    if named or Path(default).exists() or cluster.spans_machines or _was_signed(cluster.state):
        return replace(cluster, token_file=cluster.token_file or default)
    return replace(cluster, token_file="")


def signer_of(cluster: ClusterSpec) -> Signer:
    """Return the cluster's signer; raise UserError when its token cannot be read."""
    return load_signer(settle_token(cluster).token_file)


def _was_signed(state: str) -> bool:
    """Whether a supervisor led this cluster with a token: then a missing file is a loss, not an unsigned cluster."""
    try:
        spec = decode((Path(state) / CLUSTER_NAME).read_bytes())
    except (OSError, WireError):
        return False
    return isinstance(spec, ClusterSpec) and bool(spec.token_file)
