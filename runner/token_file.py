"""The file of a cluster's token: the newest above the earlier ones, and from a rotation on its times in the first line."""

import math
import os
import re
import secrets
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from runner.atomic_files import write_atomically
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec

# Of a token that Stoker makes, and that a person made; chosen.
RANDOM_TOKEN_BYTES, MIN_TOKEN_CHARACTERS = 32, 16
# The shortest rotation; chosen.
MIN_VALID_SECONDS = 4.0
WebRole = Literal["viewer", "operator"]
# In the state folder, unless the cluster names another file.
TOKEN_NAME = "cluster.token"  # noqa: S105 - a file's name
# The first line of a token file, from a rotation on: times in UTC.
_ROTATION = re.compile(r"# signs from (\S+Z), the token below it is valid until (\S+Z)")


class TokenFile(NamedTuple):
    """Tokens, newest first. Before `signs_from` the second signs, and before `valid_until` its messages are accepted.

    Both are seconds since 1970, 0 without a rotation.
    """

    tokens: tuple[bytes, ...]
    signs_from: float = 0.0
    valid_until: float = 0.0

    @property
    def rotation(self) -> str:
        """The times as the first line has them; "" without a rotation."""
        if not self.valid_until:
            return ""
        return f"signs from {utc(self.signs_from)}, the token below it is valid until {utc(self.valid_until)}"


def utc(seconds: float) -> str:
    """Write a time, seconds since 1970, as `2026-11-23T15:00:00Z`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%FT%TZ}"


def read_token_file(path: Path) -> TokenFile:
    """Read a token file: a token a line, newest first, below the line of a rotation.

    Raises UserError for a file that is missing, readable by others, or too short to be a secret, and for bad times.
    """
    signs_from = valid_until = 0.0
    try:
        mode = path.stat().st_mode
        lines = [line.strip() for line in path.read_text().splitlines() if line.strip()] or [""]
        if times := _ROTATION.fullmatch(lines[0]):
            del lines[0]
            signs_from, valid_until = (
                datetime.fromisoformat(x).timestamp() for x in times.groups()
            )
    except (OSError, ValueError) as error:
        raise UserError(
            f"token_file: {path} cannot be read ({error}); make one with `stoker token`, and copy it to every machine"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(
            f"token_file: {path} has mode {stat.S_IMODE(mode):o}: others may use it; `chmod 600 {path}`"
        )
    shortest = min(map(len, lines), default=0)
    if shortest < MIN_TOKEN_CHARACTERS:
        raise UserError(
            f"token_file: {path} holds a token of {shortest} characters, at least {MIN_TOKEN_CHARACTERS} are needed; "
            "make one with `stoker token`"
        )
    is_cut = any(line.startswith("# signs from") for line in lines) or signs_from > valid_until
    if is_cut or (times and len(lines) < 2):
        raise UserError(
            f"token_file: {path} holds an incomplete or misplaced `# signs from`, with which a rotation begins the file; copy "
            "it from the machine on which `stoker token --rotate` ran"
        )
    return TokenFile(tuple(line.encode() for line in lines), signs_from, valid_until)


def make_token(token_file: str) -> bool:
    """Write a new token, readable by its owner only; False if there is one already, which is left as it is."""
    path = Path(token_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(RANDOM_TOKEN_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def replace_token(token_file: str, valid_seconds: float = 0.0) -> TokenFile:
    """Put a new token before those that a file holds, and return what it holds then. Raises UserError as `read_token_file` does.

    `valid_seconds`: the newest so far is accepted for that long and signs for half of it; not while another rotation lasts.
    """
    path, now, first_line = Path(token_file).resolve(), math.ceil(time.time()), list[bytes]()
    before, owner = read_token_file(path), path.stat()
    if valid_seconds:
        if now < before.valid_until:
            raise UserError(f"token_file: {path}: {before.rotation}; rotate again after that")
        times = TokenFile((), now + math.ceil(valid_seconds / 2), now + math.ceil(valid_seconds))
        first_line = [f"# {times.rotation}".encode()]
    made = secrets.token_hex(RANDOM_TOKEN_BYTES).encode()
    content = b"\n".join((*first_line, made, *before.tokens, b""))
    write_atomically(path, content, mode=0o600)
    os.chown(path, owner.st_uid, owner.st_gid)
    return read_token_file(path)


def web_token_file(cluster: ClusterSpec, role: WebRole) -> str:
    """Return the file of the token that a viewer or an operator of the web page shows."""
    named = cluster.web_operator_token_file if role == "operator" else cluster.web_viewer_token_file
    return named or str(Path(cluster.state) / f"web-{role}.token")


def default_token_file(state: str) -> str:
    """Return where a cluster's token is when its file says nothing."""
    return str(Path(state) / TOKEN_NAME)
