"""Signatures: messages in the store carry a code that only holders of the cluster's token can make.

The store's password protects the store; the token protects against clients that reach the store without it. Agents sign
signals, commands sign requests, supervisors sign assignments and tasks. The code covers the name of the stream or register,
so that a message copied to another one is refused. It hides nothing, and does not stop a replay within one stream: sequences
and generations do that.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from msgspec.structs import replace

from runner.errors import Forged, UserError, WireError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wire import decode

# random bytes of a token that Stoker makes; chosen
TOKEN_BYTES = 32
# of a token that a person made; chosen
MIN_TOKEN_CHARACTERS = 16
TOKEN_NAME = "cluster.token"  # noqa: S105 - a file's name; in the state folder, unless the cluster names another file
# in the state folder: the spec that the supervisor leads by; agents read it too
CLUSTER_NAME = "cluster.json"
# HMAC-SHA256 in hexadecimal
CODE_CHARACTERS = 64
# added to a message
SIGNATURE_BYTES = CODE_CHARACTERS + 1


class Signer:
    """Signs and verifies with one token. Without a token (None) it signs nothing and accepts everything."""

    def __init__(self, token: bytes | None) -> None:
        # The state of the hash after the token, copied for each code.
        self._keyed = None if token is None else hmac.new(token, digestmod="sha256")

    @property
    def is_active(self) -> bool:
        """Whether there is a token at all."""
        return self._keyed is not None

    def sign(self, place: str, message: bytes) -> bytes:
        """Return the message with its code; `place` is the stream or register it is written to."""
        if self._keyed is None:
            return message
        return message + b"\n" + self._code(place, message)

    def verify(self, place: str, data: bytes) -> bytes:
        """Return the message without its code; raise Forged if the code is missing, wrong, or for another place."""
        if self._keyed is None:
            return data
        message, newline, code = data.rpartition(b"\n")
        if not newline or len(code) != CODE_CHARACTERS:
            raise Forged(f"{place}: {data[:80]!r} is not signed; its writer has no token")
        if not hmac.compare_digest(code, self._code(place, message)):
            raise Forged(
                f"{place}: {data[:80]!r} is signed with another token, or for another stream"
            )
        return message

    def _code(self, place: str, message: bytes) -> bytes:
        assert self._keyed is not None
        code = self._keyed.copy()
        code.update(place.encode() + b"\n" + message)
        return code.hexdigest().encode()


UNSIGNED = Signer(None)


def load_signer(token_file: str) -> Signer:
    """Read the cluster's token; "" for a cluster without one.

    Raises UserError for a file that is missing, readable by others, or too short to be a secret.
    """
    if not token_file:
        return UNSIGNED
    path = Path(token_file)
    try:
        mode = path.stat().st_mode
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise UserError(
            f"token_file: {path} cannot be read ({error}); make one with `stoker token`, and copy it to every machine"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(
            f"token_file: {path} has mode {stat.S_IMODE(mode):o}: others may use it; `chmod 600 {path}`"
        )
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise UserError(
            f"token_file: {path} holds {len(token)} characters, at least {MIN_TOKEN_CHARACTERS} are needed; "
            "make one with `stoker token`"
        )
    return Signer(token.encode())


def make_token(token_file: str) -> bool:
    """Write a new token, readable by its owner only; False if there is one already, which is left as it is."""
    path = Path(token_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(TOKEN_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def default_token_file(state: str) -> str:
    """Return where a cluster's token is when its file says nothing."""
    return str(Path(state) / TOKEN_NAME)


def settle_token(cluster: ClusterSpec) -> ClusterSpec:
    """Return the cluster with its token file; with none for an unsigned cluster.

    Unsigned is a cluster of one machine that names no token file and never had one: an older release made it. A missing file
    is reported by `load_signer`.
    """
    default = default_token_file(cluster.state)
    named = cluster.token_file not in ("", default)
    if named or Path(default).exists() or cluster.store.address or _was_signed(cluster.state):
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
