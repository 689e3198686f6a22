"""How to connect and log in to a Redis server, and what its errors mean to the callers of a store.

The password is read from its file with every connection, so that it can be changed while everything runs; it appears in no
message, no repr and no command line. A wrong setting is a UserError while a store is opened. Later it is StoreUnavailable:
a certificate that expires during a run is an outage until an operator renews it.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

from runner.errors import StokerError, StoreCorrupt, StoreUnavailable, UserError
from runner.facts.specs.cluster import StoreSpec, split_address
from runner.store.redis.connection import (
    Command,
    ErrorReply,
    HostResolver,
    NotRedis,
    ServerConnection,
    connected,
)

_MANUAL = "`stoker docs redis` shows how to set up a server"

# first word of an error that passes by itself or by an operator -> what to do
_TEMPORARY = {
    "LOADING": "it is still reading its files; wait",
    "BUSY": "a script of another client keeps it busy; wait, or use `SCRIPT KILL`",
    "MISCONF": "it cannot write to its disk; see its log, make room",
    "READONLY": "it is a replica, which refuses writes; name the primary, and disable automatic failover",
    "MASTERDOWN": "it is a replica that lost its primary; name the primary",
    "CLUSTERDOWN": "it is part of a Redis Cluster that is down; use a server of its own",
    "OOM": "its memory is used up (maxmemory); give it more, or see what else uses it",
    "NOREPLICAS": "it waits for replicas (min-replicas-to-write); set that to 0",
    "TRYAGAIN": "try again",
    "UNKILLABLE": "a script of another client keeps it busy; wait",
}
_NOT_AUTHORISED = ("WRONGPASS", "NOAUTH", "NOPERM")
_CLUSTERED = ("MOVED", "ASK", "CROSSSLOT")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A server as cluster.yaml names it."""

    spec: StoreSpec

    def __str__(self) -> str:
        """Name the server, as errors do."""
        return f"Redis at {self.spec.address}"

    def endpoint(self) -> tuple[str, int]:
        """Return host and port. Raises UserError for a malformed address."""
        endpoint = split_address(self.spec.address)
        if endpoint is None:
            raise UserError(
                f"store.address: {self.spec.address!r} is not HOST:PORT; write it as redis.example:6379"
            )
        return endpoint

    def connect(self, resolver: HostResolver, *, timeout_seconds: float) -> ServerConnection:
        """Connect and log in. Raises ErrorReply, UserError for unusable files, and the errors of `connected`."""
        password = _password(self.spec.password_file)
        tls = _tls_context(self.spec) if self.spec.tls else None
        connection = connected(
            self.endpoint(), resolver=resolver, tls=tls, timeout_seconds=timeout_seconds
        )
        commands: list[Command] = []
        if password:
            commands.append(("AUTH", *([self.spec.user] if self.spec.user else []), password))
        if self.spec.database:
            commands.append(("SELECT", self.spec.database))
        try:
            for reply in connection.call(*commands) if commands else ():
                if isinstance(reply, ErrorReply):
                    raise reply
        except BaseException:
            connection.close()
            raise
        return connection

    def translate_error(self, error: Exception, *, is_opening: bool, is_known: bool) -> StokerError:
        """Translate an error of a connection for callers of the store. `is_known`: an earlier login succeeded."""
        if isinstance(error, StokerError):
            wrong: StokerError = error
        elif isinstance(error, ErrorReply):
            wrong = self._from_error_reply(error)
        elif isinstance(error, ssl.SSLError):
            wrong = self._tls_failure(error)
        elif isinstance(error, NotRedis):
            way_out = "is store.address right?" if self.spec.tls else "does it want `tls: true`?"
            wrong = UserError(f"store.address: {self.spec.address} is no Redis: {error}; {way_out}")
        else:
            hint = "" if is_known else self._hint(error)
            wrong = StoreUnavailable(f"{self} is out of reach: {error}{hint}")
        if isinstance(wrong, UserError) and not is_opening:
            return StoreUnavailable(str(wrong), delay_seconds=5.0)
        return wrong

    def _hint(self, error: Exception) -> str:
        text = str(error).lower()
        if not self.spec.tls and ("closed" in text or "reset" in text):
            return "; does it want `tls: true`?"
        return "; is it running, and is store.address right?"

    def _from_error_reply(self, error: ErrorReply) -> StokerError:
        text = error.text[:300]
        if (
            error.code in _NOT_AUTHORISED
            or "can't run this command" in text
            or "can't access" in text
        ):
            return self._not_authorised(error.code, text)
        if error.code in _CLUSTERED:
            return UserError(
                f"store.address: {self.spec.address} is part of a Redis Cluster ({text}); name a server of its own: "
                "the journal, the lease and all they guard must be on one server"
            )
        if error.code == "WRONGTYPE":
            return StoreCorrupt(
                f"{self}: another program wrote to a key of the store ({text}); give the cluster a database or a name of "
                "its own"
            )
        way_out = _TEMPORARY.get(error.code, f"see its log; {_MANUAL}")
        if "max number of clients" in text:
            way_out = "raise its maxclients"
        return StoreUnavailable(f"{self} refuses this now: {text}; {way_out}")

    def _not_authorised(self, code: str, text: str) -> UserError:
        user = repr(self.spec.user) if self.spec.user else "the default user"
        if code == "NOAUTH":
            return UserError(
                f"store.password_file: {self} requires a password, and none is given; name a file that holds it"
            )
        if code == "WRONGPASS":
            given = self.spec.password_file or "none"
            return UserError(
                f"store.password_file: {self} refuses the password in {given} for {user}; is it the one in "
                "the server's users.acl, and is store.user right?"
            )
        return UserError(
            f"store.user: {user} lacks rights that this needs ({text}); supervisors, `stoker store accept` and `store doctor` "
            "need the supervisors' user, agents and commands one of theirs: each as `stoker docs users.acl` shows, with the "
            "keys of this cluster"
        )

    def _tls_failure(self, error: ssl.SSLError) -> UserError:
        reason = (error.reason or "").lower().replace("_", " ")
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
            ways = {
                10: "the server's certificate has expired: renew it, or set this machine's clock",
                9: "the server's certificate is not valid yet: is this machine's clock right?",
                62: "use the name that the certificate was made for",
                64: "use the address that the certificate was made for, or add it there (subjectAltName)",
            }
            field = "address" if error.verify_code in (62, 64) else "ca_file"
            way_out = ways.get(
                error.verify_code, "name the authority that signed the server's certificate"
            )
            value = self.spec.address if field == "address" else self.spec.ca_file or "the system's"
            return UserError(f"store.{field}: {value}: {self} is not trusted: {why}; {way_out}")
        if "alert" in reason or "certificate required" in reason:
            return UserError(
                f"store.certificate_file: {self} refuses our certificate "
                f"({self.spec.certificate_file or 'none given'}): {reason}; name one, and its key_file, that an authority "
                "which the server trusts has signed, and that has not expired"
            )
        return UserError(
            f"store.tls: {self} failed the TLS handshake: {reason or error}; is its port a TLS port?"
        )


def _password(path: str) -> str:
    if not path:
        return ""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"store.password_file: {path} cannot be read: {why}") from None
    if not lines or not lines[0].strip():
        raise UserError(f"store.password_file: {path} is empty; its first line is the password")
    return lines[0].strip()


def _tls_context(spec: StoreSpec) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=spec.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"store.ca_file: {spec.ca_file} holds no certificate: {error}") from error
    if spec.certificate_file:
        try:
            context.load_cert_chain(spec.certificate_file, spec.key_file or None, password="")
        except (OSError, ssl.SSLError) as error:
            raise UserError(
                f"store.certificate_file: {spec.certificate_file} and key_file {spec.key_file or 'none'} cannot be used: "
                f"{error}; the key must belong to the certificate, without a passphrase"
            ) from error
    return context
