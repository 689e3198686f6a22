"""What `stoker store doctor` looks at on a Redis server."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator
from functools import partial

from runner.errors import StokerError
from runner.store.examination import FAIL, PASS, UNKNOWN, Finding, StoreCheck, overall, run_checks
from runner.store.redis.connection import ErrorReply, HostResolver
from runner.store.redis.durability import (
    BULK,
    ServerHandle,
    check_durability,
    info_of,
    settings_of,
)
from runner.store.redis.keys import keys_of
from runner.store.redis.scripts import APPEND

# between the server's clock and ours: leases do not mind, people do; chosen
MOST_OFFSET_SECONDS = 2.0
# chosen
LEAST_CERTIFICATE_DAYS = 14.0
# chosen
MOST_MEMORY_SHARE = 0.8
# chosen
MOST_CLIENTS_SHARE = 0.8
# a signal of 100 MB is to be refused
MOST_BULK_BYTES = 64 << 20


def examine_server(handle: ServerHandle) -> Iterator[StoreCheck]:
    """Check the server; yield each result at once, and stop after the first if it is out of reach."""
    checks: dict[str, Callable[[ServerHandle], Finding]] = {
        "reach": _reach,
        "tls": _tls,
        "rights": _rights,
        "durable": _durable,
        "limits": _limits,
        "disk": _disk,
        "memory": _memory,
        "clients": _clients,
        "clock": _clock,
    }
    bound = {name: partial(check, handle) for name, check in checks.items()}
    for result in run_checks(bound, fail_on=(StokerError,)):
        yield result
        if result.check == "reach" and result.outcome == FAIL:
            return


def _reach(handle: ServerHandle) -> Finding:
    found = info_of(handle, "server")
    started = time.perf_counter()
    handle.command("PING")
    taken_ms = 1000 * (time.perf_counter() - started)
    days = int(found.get("uptime_in_seconds", 0)) / 86400
    version = found.get("redis_version", "of an unknown version")
    return PASS, f"{handle.server}, {version}, up for {days:.1f} days, answers in {taken_ms:.2f} ms"


def _tls(handle: ServerHandle) -> Finding:
    connection = handle.server.connect(HostResolver(), timeout_seconds=1.0)
    try:
        found = connection.tls()
    finally:
        connection.close()
    if found is None:
        if _is_loopback(handle):
            return PASS, "none, and none needed on loopback"
        way_out = "passwords and signals cross the network in the clear; docs/redis.md shows how to set up TLS"
        return FAIL, f"none: {way_out}"
    version, ends = found
    days = (ends - time.time()) / 86400
    if days < LEAST_CERTIFICATE_DAYS:
        return FAIL, f"{version}; the server's certificate ends in {days:.1f} days: renew it"
    return PASS, f"{version}; the server's certificate is good for {days:.0f} days"


def _rights(handle: ServerHandle) -> Finding:
    """Ask the server what our user may do, by ACL DRYRUN; what a store needs is tried besides (`use`)."""
    who = handle.command("ACL", "WHOAMI")
    if isinstance(who, ErrorReply):
        return (
            UNKNOWN,
            "the server does not say who we are; allow `+acl|whoami +acl|dryrun`, as in deploy/users.acl",
        )
    user = who.decode()
    missing = []
    for words in _needed(handle.cluster):
        summary = handle.command("ACL", "DRYRUN", user, *words)
        if isinstance(summary, ErrorReply):
            return (
                UNKNOWN,
                f"the server does not say what {user!r} may do; allow `+acl|dryrun`, as in deploy/users.acl",
            )
        if summary != b"OK":
            missing.append(" ".join(words[:2] if words[0] in ("CONFIG", "XINFO") else words[:1]))
    if missing:
        return (
            FAIL,
            f"user {user!r} may not: {', '.join(missing)}; give it the rights in deploy/users.acl",
        )
    if handle.command("ACL", "DRYRUN", user, "FLUSHALL") == b"OK":
        more = f"user {user!r} may do all that is needed, and empty the server as well"
        if _is_loopback(handle):
            return PASS, more
        return FAIL, f"{more}; take a user like that in deploy/users.acl"
    return PASS, f"user {user!r} may do what is needed, and not empty the server"


def _needed(cluster: str) -> Iterator[tuple[str, ...]]:
    """Yield a sample of every command that a store, its scripts included, sends."""
    keys = keys_of(cluster)
    key = keys.stream("doctor")
    for command in (
        "EVALSHA {sha} 1 {key}", "EVAL x 1 {key}", "EVALSHA_RO {sha} 1 {key}", "EVAL_RO x 1 {key}",
        "XREAD COUNT 1 BLOCK 1 STREAMS {key} 0-0", "XADD {key} 1-0 f v", "XRANGE {key} - +",
        "XREVRANGE {key} + -", "XTRIM {key} MINID 1-0", "XINFO STREAM {key}", "EXISTS {key}",
        "DEL {key}", "PEXPIRE {key} 1", "HGET {key} f", "HMGET {key} f", "HSET {key} f v",
        "HSETNX {key} f v", "HINCRBY {key} f 1", "HDEL {key} f", "ZADD {key} 0 m", "ZREM {key} m",
        "ZRANGEBYLEX {key} - +", "TIME", "INFO", "PING", "CONFIG GET appendonly",
    ):  # fmt: skip
        yield tuple(command.format(sha=APPEND.sha, key=key).split())


def _durable(handle: ServerHandle) -> Finding:
    results = check_durability(handle)
    outcome = overall(results)
    if outcome == PASS:
        return PASS, ", ".join(f"{each.check} {each.reason}" for each in results)
    return outcome, "; ".join(
        f"{each.check}: {each.reason}" for each in results if each.outcome != PASS
    )


def _limits(handle: ServerHandle) -> Finding:
    found = settings_of(handle, (BULK, "timeout", "client-output-buffer-limit"))
    if BULK not in found:
        return UNKNOWN, "the server does not say; allow `+config|get`"
    if int(found[BULK]) > MOST_BULK_BYTES:
        size = int(found[BULK]) >> 20
        return (
            FAIL,
            f"{BULK} is {size} MB: one client may fill its memory; set it to 32mb in redis.conf",
        )
    if found.get("timeout", "0") != "0":
        return (
            FAIL,
            f"timeout is {found['timeout']}: it disconnects waiting agents; set `timeout 0` in redis.conf",
        )
    return PASS, f"payloads up to {int(found[BULK]) >> 20} MB, no time-out for blocked clients"


def _disk(handle: ServerHandle) -> Finding:
    found = info_of(handle, "persistence")
    if "aof_enabled" not in found:
        return UNKNOWN, "the server does not say; allow `+info`"
    if found["aof_enabled"] != "1":
        return FAIL, "there is no append-only file; set `appendonly yes` in redis.conf"
    wrong = [
        name
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status")
        if found.get(name) != "ok"
    ]
    size = int(found.get("aof_current_size", 0)) / 1e6
    base = int(found.get("aof_base_size", 0)) / 1e6
    summary = f"append-only file {size:.1f} MB, {base:.1f} MB when last rewritten"
    rewrite = int(found.get("aof_last_rewrite_time_sec", -1))
    summary += f" (which took {rewrite} s)" if rewrite >= 0 else " (never since it started)"
    if wrong:
        return FAIL, f"{summary}; {', '.join(wrong)} failed: see its log, make room on its disk"
    return PASS, summary


def _memory(handle: ServerHandle) -> Finding:
    found = info_of(handle, "memory")
    if "used_memory" not in found:
        return UNKNOWN, "the server does not say; allow `+info`"
    used, limit = int(found["used_memory"]), int(found.get("maxmemory", 0))
    bound = limit or int(found.get("total_system_memory", 0))
    of_what = "maxmemory" if limit else "its machine's memory"
    summary = f"{used / 1e6:.0f} MB used, {100 * used / max(bound, 1):.1f} % of {of_what}"
    if bound and used > MOST_MEMORY_SHARE * bound:
        return (
            FAIL,
            f"{summary}; writes are refused when it is full: give it more, or see what else it keeps",
        )
    return PASS, summary


def _clients(handle: ServerHandle) -> Finding:
    found = info_of(handle, "clients")
    if "connected_clients" not in found:
        return UNKNOWN, "the server does not say; allow `+info`"
    now, most = int(found["connected_clients"]), int(found.get("maxclients", 0))
    if most and now > MOST_CLIENTS_SHARE * most:
        return (
            FAIL,
            f"{now} of {most} connections are used; raise maxclients, and `ulimit -n` with it",
        )
    return PASS, f"{now} of {most} connections"


def _clock(handle: ServerHandle) -> Finding:
    before = time.time()
    reply = handle.command("TIME")
    after = time.time()
    if isinstance(reply, ErrorReply):
        return UNKNOWN, "the user may not read the server's clock; allow `+time`"
    offset = int(reply[0]) + int(reply[1]) / 1e6 - (before + after) / 2
    summary = f"the server's is {abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'} ours"
    if abs(offset) > MOST_OFFSET_SECONDS:
        return FAIL, f"{summary}; let both follow NTP"
    return PASS, summary


def _is_loopback(handle: ServerHandle) -> bool:
    host = handle.server.endpoint()[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
