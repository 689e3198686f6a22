"""Checks of a Redis server: what `stoker store doctor` looks at, and whether it keeps what it acknowledged.

A setting that the server does not show counts as unknown.
"""

import ipaddress
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Protocol

from runner.errors import StokerError
from runner.store.examination import (
    FAIL,
    PASS,
    CheckFailed,
    CheckUnknown,
    StoreCheck,
    named,
    overall,
    run_checks,
)
from runner.store.protocol import MAX_LARGE_BYTES
from runner.store.redis.access import RedisAddress
from runner.store.redis.connection import ErrorReply, HostResolver, parse_info
from runner.store.redis.keys import keys_of
from runner.store.redis.scripts import APPEND

# Between the server's clock and ours: leases do not mind, people do. The limits here are chosen, not measured.
MOST_OFFSET_SECONDS = 2.0
LEAST_CERTIFICATE_DAYS = 14.0
MOST_MEMORY_SHARE = 0.8
MOST_CLIENTS_SHARE = 0.8
# A journal entry or a register, with room for the command around it.
LEAST_BULK_BYTES = MAX_LARGE_BYTES + (1 << 20)
# A signal of 100 MB is to be refused.
MOST_BULK_BYTES = 64 << 20
BULK = "proto-max-bulk-len"
# setting -> value that a store needs, and what happens otherwise
WANTED = {
    "appendonly": ("yes", "it writes nothing to its disk"),
    "appendfsync": ("always", "a power cut loses acknowledged writes"),
    "no-appendfsync-on-rewrite": ("no", "a power cut during a rewrite loses acknowledged writes"),
    "maxmemory-policy": ("noeviction", "it evicts entries when its memory is full"),
}
# A sample of every command that a store, its scripts included, sends.
NEEDED = (
    "EVALSHA {sha} 1 {key}", "EVAL x 1 {key}", "EVALSHA_RO {sha} 1 {key}", "EVAL_RO x 1 {key}",
    "XREAD COUNT 1 BLOCK 1 STREAMS {key} 0-0", "XADD {key} 1-0 f v", "XRANGE {key} - +",
    "XREVRANGE {key} + -", "XTRIM {key} MINID 1-0", "XINFO STREAM {key}", "EXISTS {key}",
    "DEL {key}", "PEXPIRE {key} 1", "HGET {key} f", "HMGET {key} f", "HSET {key} f v",
    "HSETNX {key} f v", "HINCRBY {key} f 1", "HDEL {key} f", "ZADD {key} 0 m", "ZREM {key} m",
    "ZRANGEBYLEX {key} - +", "TIME", "INFO", "PING", "CONFIG GET appendonly",
)  # fmt: skip
# What the append-only file consists of. The server replays it at its start with the rights of the user `default`, whether or not
# that user may log in, and drops each transaction that holds a refused command (Redis 7.0 and later).
REPLAYED = (
    "SELECT 0", "MULTI", "EXEC", "XADD {key} 1-0 f v", "XTRIM {key} MINID 1-0", "DEL {key}",
    "HSET {key} f v", "HSETNX {key} f v", "HINCRBY {key} f 1", "HDEL {key} f", "ZADD {key} 0 m",
    "ZREM {key} m", "PEXPIREAT {key} 1",
)  # fmt: skip
DURABILITY_RIGHTS = "`+config|get +info`, as `stoker docs users.acl` shows"


class ServerHandle(Protocol):
    """A handle that sends commands to a server."""

    server: RedisAddress
    cluster: str

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command; the reply may be an ErrorReply."""
        ...


def check_durability(handle: ServerHandle) -> tuple[StoreCheck, ...]:
    """Check each setting that decides whether the server loses acknowledged writes. Raises UserError for a user of agents."""
    # Only supervisors may delete; there is no such key.
    reply = handle.command("DEL", keys_of(handle.cluster).stream(""))
    if isinstance(reply, ErrorReply):
        raise handle.server.translate_error(reply, is_opening=True, is_known=True)
    checks = {name: partial(_setting, name) for name in WANTED}
    return tuple(run_checks(handle, {**checks, BULK: _bulk, **named(_role, _replay)}))


def examine_server(handle: ServerHandle) -> Iterator[StoreCheck]:
    """Check the server; yield each result at once, and stop after the first if it is out of reach."""
    checks = named(_reach, _tls, _rights, _durable, _limits, _disk, _memory, _clients, _clock)
    for result in run_checks(handle, checks, StokerError):
        yield result
        if result.check == "reach" and result.outcome == FAIL:
            return


def _reach(handle: ServerHandle) -> str:
    found = _info_of(handle, "server")
    started = time.perf_counter()
    handle.command("PING")
    taken_ms = 1000 * (time.perf_counter() - started)
    days = int(found.get("uptime_in_seconds", 0)) / 86400
    version = found.get("redis_version", "of an unknown version")
    return f"{handle.server}, {version}, up for {days:.1f} days, answers in {taken_ms:.2f} ms"


def _tls(handle: ServerHandle) -> str:
    with closing(handle.server.connect(HostResolver(), timeout_seconds=1.0)) as connection:
        found = connection.tls()
    if found is None:
        if _is_loopback(handle):
            return "none, and none needed on loopback"
        raise CheckFailed(
            "none: passwords and signals cross the network in the clear; `stoker docs redis` shows how to set up TLS"
        )
    version, ends = found
    days = (ends - time.time()) / 86400
    if days < LEAST_CERTIFICATE_DAYS:
        raise CheckFailed(f"{version}; the server's certificate ends in {days:.1f} days: renew it")
    return f"{version}; the server's certificate is good for {days:.0f} days"


def _rights(handle: ServerHandle) -> str:
    """Ask the server what our user may do, by ACL DRYRUN; what a store needs is tried besides (`use`)."""
    who = handle.command("ACL", "WHOAMI")
    if isinstance(who, ErrorReply):
        raise CheckUnknown(
            "the server does not say who we are; take the supervisors' user, or allow `+acl|whoami +acl|dryrun`"
        )
    user = who.decode()
    missing = _refused(handle, user, NEEDED, what=f" what {user!r} may do")
    if missing:
        raise CheckFailed(
            f"user {user!r} may not: {', '.join(missing)}; give it the rights in `stoker docs users.acl`"
        )
    write = ("XADD", keys_of(handle.cluster).stream("journal"), "1-0", "f", "v")
    for narrow in (f"{user}-agent", f"{user}-command", f"{user}-read"):
        # An error where there is no such user.
        if handle.command("ACL", "DRYRUN", narrow, *write) == b"OK":
            raise CheckFailed(
                f"user {narrow!r} may write the journal; give it the rights in `stoker docs users.acl`, and `ACL LOAD`"
            )
    if handle.command("ACL", "DRYRUN", user, "FLUSHALL") != b"OK":
        return f"supervisors' user {user!r} may do what is needed, and not empty the server"
    more = f"user {user!r} may do all that is needed, and empty the server as well"
    if _is_loopback(handle):
        return more
    raise CheckFailed(f"{more}; take a user like that in `stoker docs users.acl`")


def _refused(
    handle: ServerHandle, user: str, commands: Iterable[str], *, what: str = ""
) -> list[str]:
    """Return those of the commands that `user` may not run."""
    key, refused = keys_of(handle.cluster).stream("doctor"), []
    for command in commands:
        words = command.format(sha=APPEND.sha, key=key).split()
        reply = handle.command("ACL", "DRYRUN", user, *words)
        if isinstance(reply, ErrorReply):
            raise CheckUnknown(
                f"the server does not say{what}; allow `+acl|dryrun`, as `stoker docs users.acl` shows"
            )
        if reply != b"OK":
            refused.append(" ".join(words[:2] if words[0] in ("CONFIG", "XINFO") else words[:1]))
    return refused


def _durable(handle: ServerHandle) -> str:
    results = check_durability(handle)
    outcome = overall(results)
    if outcome == PASS:
        return ", ".join(f"{each.check} {each.reason}" for each in results)
    error = CheckFailed if outcome == FAIL else CheckUnknown
    raise error(
        "; ".join(f"{each.check}: {each.reason}" for each in results if each.outcome != PASS)
    )


def _limits(handle: ServerHandle) -> str:
    found = _settings_of(handle, BULK, "timeout", "client-output-buffer-limit")
    size = int(_shown(found, BULK, "`+config|get`"))
    if size > MOST_BULK_BYTES:
        raise CheckFailed(
            f"{BULK} is {size >> 20} MB: one client may fill its memory; set it to 32mb in redis.conf"
        )
    if found.get("timeout", "0") != "0":
        raise CheckFailed(
            f"timeout is {found['timeout']}: it disconnects waiting agents; set `timeout 0` in redis.conf"
        )
    return f"payloads up to {size >> 20} MB, no time-out for blocked clients"


def _disk(handle: ServerHandle) -> str:
    found = _info_of(handle, "persistence")
    if _shown(found, "aof_enabled") != "1":
        raise CheckFailed("there is no append-only file; set `appendonly yes` in redis.conf")
    states = ("aof_last_write_status", "aof_last_bgrewrite_status")
    wrong = [name for name in states if found.get(name) != "ok"]
    size = int(found.get("aof_current_size", 0)) / 1e6
    base = int(found.get("aof_base_size", 0)) / 1e6
    summary = f"append-only file {size:.1f} MB, {base:.1f} MB when last rewritten"
    rewrite = int(found.get("aof_last_rewrite_time_sec", -1))
    summary += f" (which took {rewrite} s)" if rewrite >= 0 else " (never since it started)"
    if wrong:
        raise CheckFailed(
            f"{summary}; {', '.join(wrong)} failed: see its log, make room on its disk"
        )
    return summary


def _memory(handle: ServerHandle) -> str:
    found = _info_of(handle, "memory")
    used, limit = int(_shown(found, "used_memory")), int(found.get("maxmemory", 0))
    bound = limit or int(found.get("total_system_memory", 0))
    of_what = "maxmemory" if limit else "its machine's memory"
    summary = f"{used / 1e6:.0f} MB used, {100 * used / max(bound, 1):.1f} % of {of_what}"
    if bound and used > MOST_MEMORY_SHARE * bound:
        raise CheckFailed(
            f"{summary}; writes are refused when it is full: give it more, or see what else it keeps"
        )
    return summary


def _clients(handle: ServerHandle) -> str:
    found = _info_of(handle, "clients")
    now, most = int(_shown(found, "connected_clients")), int(found.get("maxclients", 0))
    if most and now > MOST_CLIENTS_SHARE * most:
        raise CheckFailed(
            f"{now} of {most} connections are used; raise maxclients, and `ulimit -n` with it"
        )
    return f"{now} of {most} connections"


def _clock(handle: ServerHandle) -> str:
    before = time.time()
    reply = handle.command("TIME")
    after = time.time()
    if isinstance(reply, ErrorReply):
        raise CheckUnknown("the user may not read the server's clock; allow `+time`")
    offset = int(reply[0]) + int(reply[1]) / 1e6 - (before + after) / 2
    summary = f"the server's is {abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'} ours"
    if abs(offset) > MOST_OFFSET_SECONDS:
        raise CheckFailed(f"{summary}; let both follow NTP")
    return summary


def _is_loopback(handle: ServerHandle) -> bool:
    host = handle.server.endpoint()[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _setting(name: str, handle: ServerHandle) -> str:
    wanted, otherwise = WANTED[name]
    found = _shown(_settings_of(handle, name), name, DURABILITY_RIGHTS)
    if found != wanted:
        way_out = f"set `{name} {wanted}` in redis.conf and restart the server"
        raise CheckFailed(f"is {found}: {otherwise}; {way_out}")
    return wanted


def _bulk(handle: ServerHandle) -> str:
    size = int(_shown(_settings_of(handle, BULK), BULK, DURABILITY_RIGHTS))
    if size < LEAST_BULK_BYTES:
        raise CheckFailed(
            f"is {size}: the server refuses a journal entry of 16 MB; set `{BULK} 32mb` in redis.conf"
        )
    return f"{size >> 20} MB"


def _role(handle: ServerHandle) -> str:
    """Check that the server is neither a replica nor has replicas."""
    info = _info_of(handle, "replication")
    if _shown(info, "role", DURABILITY_RIGHTS) != "master":
        raise CheckFailed(
            f"it is a replica of {info.get('master_host', 'another')}; name the primary"
        )
    if info.get("connected_slaves", "0") != "0":
        raise CheckFailed(
            f"{info['connected_slaves']} replicas follow it, which may lack acknowledged writes when one takes over; "
            "detach them (`REPLICAOF NO ONE` there), back up the append-only file instead"
        )
    return "a server of its own, without replicas"


def _replay(handle: ServerHandle) -> str:
    """Check that the server may replay its own append-only file when it starts."""
    refused = _refused(handle, "default", REPLAYED)
    if refused:
        raise CheckFailed(
            f"user 'default' may not {', '.join(refused)}, and the server replays its file with that user's rights: it is "
            "empty after its next start; write `user default off resetpass ~* &* +@all`, as in `stoker docs users.acl`, which "
            "still lets no one log in, and `ACL LOAD` before any restart"
        )
    return "whole at its next start"


def _settings_of(handle: ServerHandle, *names: str) -> dict[str, str]:
    """Return the named settings; empty when the server refuses."""
    reply = handle.command("CONFIG", "GET", *names)
    if isinstance(reply, ErrorReply):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _info_of(handle: ServerHandle, section: str) -> dict[str, str]:
    """Return a section of INFO; empty when the server refuses."""
    reply = handle.command("INFO", section)
    return {} if isinstance(reply, ErrorReply) else parse_info(reply)


def _shown(found: Mapping[str, str], name: str, rights: str = "`+info`") -> str:
    if name not in found:
        raise CheckUnknown(f"the server does not say; allow {rights}")
    return found[name]
