"""Checks on a new connection: whether the server is suitable, and whether it still holds the same store."""

import os
import re

from runner.errors import StoreCorrupt, StoreRolledBack, StoreUnavailable, UserError
from runner.store.redis.connection import ErrorReply, ServerConnection, parse_info
from runner.store.redis.keys import Keys
from runner.store.redis.scripts import BEGIN, HELLO
from runner.store.redis.thread_connection import evaluate

SCHEMA_VERSION = 1
# EVALSHA_RO, and keys of scripts that rights are checked for
OLDEST = (7, 0)


class NeverStarted(UserError):
    """The server holds nothing of the cluster."""


class Handshake:
    """The store that a handle is on, and the highest instance id of its server seen."""

    def __init__(self, server: str, cluster: str, *, create: bool) -> None:
        """`server`: its name in errors. Without `create`, a missing store raises NeverStarted."""
        self._server, self._cluster, self._create = server, cluster, create
        self._id = ""
        self.instance_id = 0

    def check(self, connection: ServerConnection, keys: Keys) -> int:
        """Return the server's instance id, from 1; raise StoreRolledBack if an earlier store is gone."""
        run = self._run_of(connection)
        _, store_id, instance_id, begun, schema = evaluate(connection, HELLO, (keys.meta,))
        self._check_same(store_id.decode())
        if not store_id and not self._create:
            raise NeverStarted(
                f"cluster {self._cluster!r} was never started: {self._server} holds nothing of it; start it with "
                "`stoker supervise`, or correct store.address and store.database"
            )
        if begun.decode() != run:
            prefix = keys.of_instance("").prefix.removesuffix(":")
            new = (run, os.urandom(8).hex(), SCHEMA_VERSION, prefix)
            try:
                _, store_id, instance_id, _, schema = evaluate(
                    connection, BEGIN, (keys.meta,), *new
                )
            except ErrorReply as error:
                if error.code != "NOPERM":
                    raise
                if not store_id:
                    raise StoreUnavailable(
                        f"{self._server} holds nothing of cluster {self._cluster!r} yet, and store.user may not begin "
                        "it: start `stoker supervise` with the supervisors' user (`stoker docs redis`)"
                    ) from error
                # The number that the next supervisor begins it with.
                instance_id = int(instance_id) + 1
            self._check_same(store_id.decode())
        if int(schema) > SCHEMA_VERSION:
            raise StoreCorrupt(
                f"{self._server} holds schema version {int(schema)} of cluster {self._cluster!r}, this Stoker knows "
                f"{SCHEMA_VERSION}; use the newer Stoker"
            )
        if int(instance_id) < self.instance_id:
            raise StoreRolledBack(
                f"{self._server} came back with less than it acknowledged: it counts {int(instance_id)} starts, "
                f"{self.instance_id} were seen; was it replaced by an old copy?"
            )
        self._id, self.instance_id = store_id.decode(), int(instance_id)
        return self.instance_id

    def reset(self) -> None:
        """Accept whatever store the server holds."""
        self._id, self.instance_id = "", 0

    def _check_same(self, store_id: str) -> None:
        if self._id and store_id != self._id:
            found = f"another one ({store_id})" if store_id else "nothing"
            raise StoreRolledBack(
                f"{self._server} came back with less than it acknowledged: it held the store {self._id} of cluster "
                f"{self._cluster!r}, now it holds {found}; was it emptied, or its append-only file lost? Put back a copy"
            )

    def _run_of(self, connection: ServerConnection) -> str:
        reply = connection.call(("INFO", "server"))[0]
        if isinstance(reply, ErrorReply):
            raise reply
        found = parse_info(reply)
        version = tuple(int(part) for part in re.findall(r"\d+", found.get("redis_version", "")))
        if version < OLDEST:
            raise UserError(
                f"store.address: {self._server} is version {found.get('redis_version')}; 7.0 or later is needed"
            )
        if found.get("redis_mode", "standalone") != "standalone":
            raise UserError(
                f"store.address: {self._server} runs as {found['redis_mode']!r}; name a server of its own: the journal, "
                "the lease and all they guard must be on one server"
            )
        return found.get("run_id", "")
