"""Check that a Redis server keeps what it acknowledges. A setting it does not show counts as unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from runner.store.examination import FAIL, PASS, UNKNOWN, StoreCheck
from runner.store.protocol import MAX_LARGE_BYTES
from runner.store.redis.access import RedisAddress
from runner.store.redis.connection import ErrorReply

# A journal entry or a register, with room for the command around it.
LEAST_BULK_BYTES = MAX_LARGE_BYTES + (1 << 20)
# setting -> value that a store needs, and what happens otherwise
WANTED = {
    "appendonly": ("yes", "it writes nothing to its disk"),
    "appendfsync": ("always", "a power cut loses acknowledged writes"),
    "no-appendfsync-on-rewrite": ("no", "a power cut during a rewrite loses acknowledged writes"),
    "maxmemory-policy": ("noeviction", "it evicts entries when its memory is full"),
}
BULK = "proto-max-bulk-len"


class ServerHandle(Protocol):
    """A handle that sends commands to a server."""

    server: RedisAddress
    cluster: str

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command; the reply may be a ErrorReply."""
        ...


def check_durability(handle: ServerHandle) -> tuple[StoreCheck, ...]:
    """Check each setting that decides whether the server loses acknowledged writes."""
    settings = settings_of(handle, (*WANTED, BULK))
    by_setting = [_check_setting(name, settings) for name in WANTED]
    return (*by_setting, _check_bulk(settings), _check_role(handle))


def settings_of(handle: ServerHandle, names: tuple[str, ...]) -> dict[str, str]:
    """Return the named settings; empty when the server refuses CONFIG GET."""
    reply = handle.command("CONFIG", "GET", *names)
    if isinstance(reply, ErrorReply):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def info_of(handle: ServerHandle, section: str) -> dict[str, str]:
    """Return a section of INFO; empty when the server refuses."""
    reply = handle.command("INFO", section)
    if isinstance(reply, ErrorReply):
        return {}
    lines = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _check_role(handle: ServerHandle) -> StoreCheck:
    """Check that the server is neither a replica nor has replicas."""
    info = info_of(handle, "replication")
    if "role" not in info:
        return _unknown("role")
    if info["role"] != "master":
        return _fail(
            "role", f"it is a replica of {info.get('master_host', 'another')}; name the primary"
        )
    if info.get("connected_slaves", "0") != "0":
        return _fail(
            "role",
            f"{info['connected_slaves']} replicas follow it, which may lack acknowledged writes when one takes over; "
            "detach them (`REPLICAOF NO ONE` there), back up the append-only file instead",
        )
    return StoreCheck(check="role", outcome=PASS, reason="a server of its own, without replicas")


def _check_setting(name: str, settings: Mapping[str, str]) -> StoreCheck:
    wanted, otherwise = WANTED[name]
    if name not in settings:
        return _unknown(name)
    if settings[name] == wanted:
        return StoreCheck(check=name, outcome=PASS, reason=wanted)
    way_out = f"set `{name} {wanted}` in redis.conf and restart the server"
    return _fail(name, f"is {settings[name]}: {otherwise}; {way_out}")


def _check_bulk(settings: Mapping[str, str]) -> StoreCheck:
    if not settings.get(BULK, "").isdecimal():
        return _unknown(BULK)
    if int(settings[BULK]) < LEAST_BULK_BYTES:
        return _fail(
            BULK,
            f"is {settings[BULK]}: the server refuses a journal entry of 16 MB; set `{BULK} 32mb` in redis.conf",
        )
    return StoreCheck(check=BULK, outcome=PASS, reason=f"{int(settings[BULK]) >> 20} MB")


def _fail(name: str, reason: str) -> StoreCheck:
    return StoreCheck(check=name, outcome=FAIL, reason=reason)


def _unknown(name: str) -> StoreCheck:
    reason = "the server does not say; allow `+config|get +info`, as in deploy/users.acl"
    return StoreCheck(check=name, outcome=UNKNOWN, reason=reason)
