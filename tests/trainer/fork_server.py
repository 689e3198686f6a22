"""Starts gangs of ranks by forking, for tests: what a rank imports is imported once, here.

One JSON object per line comes in (a job), one goes out (how it ended). The server imports, runs no
tensor operation and has one thread, so that its children are sound. Each child dies with it.
"""

import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
MAX_PACKET_BYTES = 65536


@dataclass
class Rank:
    """One forked rank, seen from its parent."""

    number: int
    pid: int
    channel: socket.socket
    reports: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None


def serve() -> None:
    """Run jobs from standard input until it ends."""
    from trainer import loop

    assert loop
    threads = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "Threads" in line
    )
    assert threads.split()[1] == "1", f"the fork server has {threads}: its children would hang"
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run_gang(json.loads(line))), flush=True)


def run_gang(job: dict[str, Any]) -> dict[str, Any]:
    """Fork the ranks of a job, collect their reports, deliver its requests, wait for all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [fork_rank(number, job, port) for number in range(job["ranks"])]
    deadline = time.monotonic() + job["timeout_seconds"]
    frozen_at, frozen_seconds = deadline, 0.0
    kill_at = deadline
    waiting, freeze = list(job["requests"]), job["freeze"]
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.channel, selectors.EVENT_READ, rank)
        while selector.get_map():
            for key, _ in selector.select(timeout=0.1):
                if not read_reports(key.data):
                    selector.unregister(key.fileobj)
            waiting = deliver(waiting, ranks)
            if freeze and steps_done(ranks[freeze["rank"]]) >= freeze["after_step"]:
                os.kill(ranks[freeze["rank"]].pid, signal.SIGSTOP)
                freeze, frozen_at = None, time.monotonic()
            # The survivors of a rank that died by a drill are ended, as an agent would.
            dead = any(reap(rank) not in (None, 0, 75, 78) for rank in ranks)
            if dead:
                kill_at = min(kill_at, time.monotonic() + job["patience_seconds"])
            if time.monotonic() >= kill_at:
                frozen_seconds = time.monotonic() - frozen_at
                kill_all(ranks)
                break
    for rank in ranks:
        while rank.exit_code is None:
            reap(rank, block=True)
        while read_reports(rank):
            pass
        rank.channel.close()
    return {
        "exit_codes": [rank.exit_code for rank in ranks],
        "reports": [rank.reports for rank in ranks],
        "timed_out": time.monotonic() > deadline,
        "frozen_seconds": frozen_seconds,
    }


def fork_rank(number: int, job: dict[str, Any], port: int) -> Rank:
    """Fork one rank with the environment of the contract."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        return Rank(number, pid, ours)
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        ours.close()
        folder = Path(job["output"])
        for descriptor, name in ((1, "out"), (2, "err")):
            file = os.open(folder / f"rank{number}.{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(file, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(
            RANK=str(number),
            LOCAL_RANK=str(number),
            WORLD_SIZE=str(job["ranks"]),
            LOCAL_WORLD_SIZE=str(job["ranks"]),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            STOKER_CONTRACT="1",
            STOKER_CHANNEL=str(theirs.fileno()),
            **job["environment"],
        )
        code = importlib.import_module(job["body"]).main(job["arguments"])
    except BaseException:  # noqa: BLE001  a forked child must not return into the parent's code
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def read_reports(rank: Rank) -> bool:
    """Read one packet; False when there is none, or the rank has closed its end."""
    try:
        packet = rank.channel.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return rank.exit_code is None
    except OSError:
        return False
    rank.reports += [json.loads(line) for line in packet.splitlines()]
    return bool(packet)


def steps_done(rank: Rank) -> int:
    """Return the last step the rank has reported."""
    return max((r["step"] for r in rank.reports if r["kind"] == "step"), default=0)


def deliver(waiting: list[dict[str, Any]], ranks: list[Rank]) -> list[dict[str, Any]]:
    """Send each request whose step its rank has reported; return the others."""
    left = []
    for item in waiting:
        rank = ranks[item["rank"]]
        if steps_done(rank) < item["after_step"]:
            left.append(item)
            continue
        line = json.dumps({"kind": "request", **item["request"]}) + "\n"
        try:
            rank.channel.send(line.encode(), socket.MSG_NOSIGNAL)
        except OSError:
            # It ended in the meantime; its exit code shows how.
            pass
    return left


def reap(rank: Rank, *, block: bool = False) -> int | None:
    """Return the rank's exit code (negative: signal), None while it runs."""
    if rank.exit_code is None:
        pid, status = os.waitpid(rank.pid, 0 if block else os.WNOHANG)
        if pid:
            rank.exit_code = os.waitstatus_to_exitcode(status)
    return rank.exit_code


def kill_all(ranks: list[Rank]) -> None:
    """Kill all ranks that still run."""
    for rank in ranks:
        if reap(rank) is None:
            os.kill(rank.pid, signal.SIGKILL)


if __name__ == "__main__":
    serve()
