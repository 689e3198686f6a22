"""Who a visitor is: by the token of a viewer or of an operator, which a browser shows once and then has a signed cookie for.

The two tokens are files of their own, made like the cluster's (`runner/token_file.py`), which signs and which no visitor has. A
cookie carries role, name and end, and a code made with the token: with another token in the file it is worth nothing, and a
restart of the page ends no session.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from runner.errors import StokerError, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import printable
from runner.token_file import TokenFile, WebRole, make_token, read_token_file, utc, web_token_file

ROLES: tuple[WebRole, ...] = ("operator", "viewer")
# A wall display stays; an operator logs in again each day. Chosen.
SESSION_SECONDS = {"viewer": 30 * 86400.0, "operator": 12 * 3600.0}
MAX_NAME_CHARACTERS = 40
# By what a browser says of itself, a request comes from a page of ours, or a person typed its address.
OWN_SITES = ("same-origin", "none")
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Visitor(NamedTuple):
    """Who makes a request. `check`: what a write must repeat, which only a page of ours can read; "" for a program with a token."""

    role: WebRole
    name: str = ""
    check: str = ""


class NoAccess(StokerError):
    """The visitor may not do this; the message says what would help."""


class WrongOrigin(NoAccess):
    """The request comes from a page of another site."""


class Access:
    """The rules of one cluster's page. `is_private`: only its owner reaches the socket, who may read without a token."""

    def __init__(self, cluster: ClusterSpec, *, is_private: bool = False) -> None:
        self.cookie_name = f"stoker-{cluster.name}"
        self.is_private = is_private
        self._files = {role: Path(web_token_file(cluster, role)) for role in ROLES}
        for path in self._files.values():
            make_token(str(path))
        self._check_apart(cluster.token_file)

    def file_of(self, role: WebRole) -> str:
        """Return the file of a role's token."""
        return str(self._files[role])

    def log_in(self, token: str, name: str) -> tuple[str, float]:
        """Return the cookie for a token, and for how many seconds it lasts. Raises NoAccess, and UserError for a token's file."""
        role, signing = self._role_of(token.strip().encode())
        seconds = SESSION_SECONDS[role]
        text = printable(name, MAX_NAME_CHARACTERS) or "unknown"
        shown = base64.urlsafe_b64encode(text.encode()).decode()
        body = f"{role}.{time.time() + seconds:.0f}.{shown}"
        return f"{body}.{self._code(signing, body)}", seconds

    def visitor(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Visitor:
        """Return who a request is from. Raises NoAccess with the way in, and UserError for a token's file that cannot be read."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            role, _ = self._role_of(token.strip().encode())
            return Visitor(role, "program")
        if cookie := cookies.get(self.cookie_name, ""):
            try:
                return self._visitor_of(cookie)
            except NoAccess:
                if not self.is_private:
                    raise
        if self.is_private:
            # A page of another name, whose owner points that name here, must not read what only the owner may.
            if (host := _host_name(headers.get("host", ""))) not in LOCAL_NAMES:
                raise WrongOrigin(f"this page is read as localhost, not as {host!r}")
            return Visitor("viewer")
        raise NoAccess("log in first: show the token of a viewer or of an operator")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raise WrongOrigin for what a page of another site has a browser send."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        host = headers.get("host", "")
        if origin is not None and origin.partition("://")[2] != host:
            raise WrongOrigin(f"this comes from {origin!r}, and this page is {host!r}")
        if site is not None and site not in OWN_SITES:
            raise WrongOrigin(f"this comes from a page of another site ({site})")

    def operator(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Visitor:
        """Return the operator who asks for a write. Raises NoAccess unless it is one, from a page of ours or from a program."""
        self.check_origin(headers)
        visitor = self.visitor(headers, cookies)
        if visitor.role != "operator":
            raise NoAccess("this needs the token of an operator; log out, and log in with it")
        given = headers.get("x-stoker-check", "")
        if visitor.check and not hmac.compare_digest(given.encode(), visitor.check.encode()):
            raise WrongOrigin("the request lacks the page's own code; load the page again")
        return visitor

    def _check_apart(self, cluster_token_file: str) -> None:
        """Raise UserError for a token that is in two files: that of the cluster signs, and a viewer is no operator."""
        files = [*self._files.values(), *([Path(cluster_token_file)] if cluster_token_file else [])]
        owners: dict[bytes, Path] = {}
        for path in files:
            # Raises UserError for one that others may read, or that is too short.
            for token in read_token_file(path).tokens:
                if owners.setdefault(token, path) != path:
                    raise UserError(
                        f"{path} holds a token that {owners[token]} holds, too; remove the one of the page, and `stoker web` makes "
                        "another"
                    )

    def _role_of(self, token: bytes) -> tuple[WebRole, bytes]:
        expired = ""
        for role, path in self._files.items():
            file = read_token_file(path)
            for known in file.tokens:
                if hmac.compare_digest(known, token):
                    if known in accepted(file):
                        return role, known
                    expired = f"this {role}'s token is no longer valid"
                    expired += f", since {utc(file.valid_until)}" if file.valid_until else ""
        raise NoAccess(
            f"{expired or 'this token is not known here'}; the page's owner has the file of the present one"
        )

    def _visitor_of(self, cookie: str) -> Visitor:
        body, _, code = cookie.rpartition(".")
        role, _, rest = body.partition(".")
        until, _, shown = rest.partition(".")
        for known_role, path in self._files.items():
            for token in accepted(read_token_file(path)) if known_role == role else ():
                if not hmac.compare_digest(self._code(token, body).encode(), code.encode()):
                    continue
                if not until.isdecimal() or time.time() > float(until):
                    raise NoAccess("this session has ended; log in again")
                try:
                    name = base64.urlsafe_b64decode(shown).decode()
                except (binascii.Error, UnicodeDecodeError):
                    break
                return Visitor(known_role, name, self._code(token, f"check {cookie}"))
        raise NoAccess(
            "this session is not known any more, or its token was replaced; log in again"
        )

    def _code(self, token: bytes, text: str) -> str:
        key = hashlib.sha256(b"web session\n" + token).digest()
        return hmac.new(key, f"{self.cookie_name}\n{text}".encode(), "sha256").hexdigest()


def _host_name(host: str) -> str:
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def accepted(file: TokenFile) -> tuple[bytes, ...]:
    """Return the tokens of a file that count now: the newest, and during a rotation the one before it."""
    return file.tokens[: 2 if time.time() < file.valid_until else 1]
