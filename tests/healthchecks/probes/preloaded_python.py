"""An interpreter for probes that has torch imported, which takes most of a short probe: a server forks it where its client is.

`python preloaded_python.py SOCKET` serves; `interpreter` writes the program that checks get as their `--python`. That program is
the client: it passes on arguments, environment, folder, outputs and network namespace, and waits. A fork dies with its client.
"""

import array
import contextlib
import ctypes
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_REQUEST_BYTES = 1 << 20
# From prctl(2) and setns(2).
PR_SET_PDEATHSIG, CLONE_NEWNET = 1, 0x40000000
# Of the client, which imports as little as it can.
CLIENT = """
import array, json, os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(sys.argv[1])
asked = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
outputs = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]
server.sendmsg([json.dumps(asked).encode()], outputs)
code = int(server.recv(16) or b"-9")
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def interpreter(folder: Path) -> Iterator[str]:
    """Give the path of the program, for as long as its server runs."""
    address, program = folder / "s", folder / "python"
    words = [sys.executable, "-I", "-S", "-c", CLIENT, str(address)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    server = subprocess.Popen([sys.executable, __file__, str(address)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield str(program)
    finally:
        server.kill()
        server.communicate()


def serve(address: str) -> None:
    """Fork a probe for each client, and answer with its exit code."""
    import torch.distributed

    assert torch.distributed.is_available()
    with selectors.DefaultSelector() as selector:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(address)
        listener.listen()
        selector.register(listener, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    pid = _fork(client)
                    handle = os.pidfd_open(pid)
                    selector.register(handle, selectors.EVENT_READ, (client, pid, handle))
                    selector.register(client, selectors.EVENT_READ, (client, pid, handle))
                elif key.fd in selector.get_map():
                    _end(selector, *key.data)


def _end(selector: selectors.BaseSelector, client: socket.socket, pid: int, handle: int) -> None:
    """Reap a probe that has ended, or whose client has."""
    selector.unregister(client)
    selector.unregister(handle)
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        client.send(str(code).encode())
    client.close()
    os.close(handle)


def _fork(client: socket.socket) -> int:
    asked, outputs = _receive(client)
    server = os.getpid()
    pid = os.fork()
    if pid:
        for output in outputs:
            os.close(output)
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        for own, given in zip((1, 2), outputs, strict=True):
            os.dup2(given, own)
        _enter_network(client)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        start, _, *rest = asked["arguments"]
        # The server waits for the probe here.
        code = runpy.run_path(start)["main"]([str(server), *rest])
    except BaseException as error:  # noqa: BLE001 - a forked child must not return into the server's code
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the request, and the client's outputs."""
    data, extra, _, _ = client.recvmsg(MAX_REQUEST_BYTES, socket.CMSG_SPACE(8))
    return json.loads(data), list(array.array("i", extra[0][2]))


def _enter_network(client: socket.socket) -> None:
    credentials = array.array("i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    space = os.open(f"/proc/{credentials[0]}/ns/net", os.O_RDONLY)
    if os.fstat(space).st_ino != os.stat("/proc/self/ns/net").st_ino:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(space, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    os.close(space)


if __name__ == "__main__":
    serve(sys.argv[1])
