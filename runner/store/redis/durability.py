"""Whether a Redis server would keep what it acknowledges. What cannot be found out counts as no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.store.protocol import MAX_LARGE_BYTES
from runner.store.redis.connection import Refused
from runner.store.redis.store import RedisStore

# A journal entry or a register, with room for what stands around it.
LEAST_BULK_BYTES = MAX_LARGE_BYTES + (1 << 20)
# Settings that a store needs, and why.
WANTED = {
    "appendonly": ("yes", "nothing is written to its disk"),
    "appendfsync": ("always", "a power cut takes what was acknowledged"),
    "no-appendfsync-on-rewrite": ("no", "a power cut during a rewrite takes what was acknowledged"),
    "maxmemory-policy": ("noeviction", "it throws entries away when its memory is used up"),
}
BULK = "proto-max-bulk-len"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """What was found of one setting. `good`: None when nobody would tell."""

    name: str
    good: bool | None
    reason: str


def judge_durability(store: RedisStore) -> tuple[Judgment, ...]:
    """Ask the server for each setting that decides whether it forgets."""
    settings = settings_of(store, (*WANTED, BULK))
    found = [_judge(name, settings) for name in WANTED]
    return (*found, _judge_bulk(settings), judge_role(store))


def settings_of(store: RedisStore, names: tuple[str, ...]) -> dict[str, str]:
    """Return the settings that the server tells; none when it does not let us ask."""
    reply = store.command("CONFIG", "GET", *names)
    if isinstance(reply, Refused):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def info_of(store: RedisStore, section: str) -> dict[str, str]:
    """Return a section of INFO; empty when the server does not let us ask."""
    reply = store.command("INFO", section)
    if isinstance(reply, Refused):
        return {}
    lines = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def judge_role(store: RedisStore) -> Judgment:
    """Say whether the server leads nobody and follows nobody."""
    found = info_of(store, "replication")
    if "role" not in found:
        return _untold("role")
    if found["role"] != "master":
        reason = (
            f"it is a replica of {found.get('master_host', 'another')}; name the server that leads"
        )
        return Judgment(name="role", good=False, reason=reason)
    if found.get("connected_slaves", "0") != "0":
        reason = (
            f"{found['connected_slaves']} replicas follow it, which may lack what was acknowledged when one takes over; "
            "detach them (`REPLICAOF NO ONE` there), back up the append-only file instead"
        )
        return Judgment(name="role", good=False, reason=reason)
    return Judgment(name="role", good=True, reason="a server of its own, without replicas")


def _judge(name: str, settings: Mapping[str, str]) -> Judgment:
    wanted, otherwise = WANTED[name]
    if name not in settings:
        return _untold(name)
    if settings[name] == wanted:
        return Judgment(name=name, good=True, reason=wanted)
    reason = (
        f"is {settings[name]}: {otherwise}; set `{name} {wanted}` in redis.conf and start it anew"
    )
    return Judgment(name=name, good=False, reason=reason)


def _judge_bulk(settings: Mapping[str, str]) -> Judgment:
    if not settings.get(BULK, "").isdecimal():
        return _untold(BULK)
    if int(settings[BULK]) < LEAST_BULK_BYTES:
        reason = f"is {settings[BULK]}: a journal entry of 16 MB would not go through; set `{BULK} 32mb` in redis.conf"
        return Judgment(name=BULK, good=False, reason=reason)
    return Judgment(name=BULK, good=True, reason=f"{int(settings[BULK]) >> 20} MB")


def _untold(name: str) -> Judgment:
    reason = (
        "the server does not say; let the user ask (`+config|get +info`, as in deploy/users.acl)"
    )
    return Judgment(name=name, good=None, reason=reason)
