"""The loop of the warm process: import, fork on request, and in each rank run the program."""

from __future__ import annotations

import os
import socket
import sys
import time

from runner.keeper.protocol import KEEPER_VARIABLE
from runner.keeper.warm.forkable import NotForkable
from runner.keeper.warm.forked_rank import become, run_program, trim_tracebacks
from runner.keeper.warm.forks import ForkSlot, fork_ranks
from runner.keeper.warm.packets import receive, refuse, send
from runner.keeper.warm.preloaded_modules import PreloadedModules, versions_of
from runner.keeper.warm.proc_title import WARM_VARIABLES
from runner.keeper.warm.random_generators import SECOND_IMPORT, report_generators, reseed


def main() -> None:
    """Import the modules, fork ranks on request, and in each rank run the program to its end."""
    if sys.argv[1] == SECOND_IMPORT:
        report_generators()
        return
    stream = socket.socket(fileno=int(sys.argv[1]))
    modules = _preload(stream)
    if modules is None:
        os._exit(0)
    slot = _serve(stream, modules)
    become(modules, slot)
    stream.detach()
    reseed(modules.generators)
    trim_tracebacks()
    run_program(modules.request["form"], slot.rank)


def _preload(stream: socket.socket) -> PreloadedModules | None:
    for name in WARM_VARIABLES:
        os.environ.pop(name, None)
    request, _ = receive(stream)
    started = time.monotonic()
    try:
        modules = PreloadedModules(request)
        modules.title.write(
            ["warm", "process:", *request["preload"]], {KEEPER_VARIABLE: request["keeper"]}
        )
        modules.import_all()
    except NotForkable as error:
        send(stream, kind="odd", reason=str(error))
        return None
    send(stream, kind="ready", seconds=time.monotonic() - started, versions=versions_of(request))
    return modules


def _serve(stream: socket.socket, modules: PreloadedModules) -> ForkSlot:
    """Do jobs; returns only in a forked rank."""
    while True:
        job, descriptors = receive(stream)
        slot = None
        try:
            modules.check(job)
            slot = fork_ranks(stream, job, descriptors)
        except (NotForkable, OSError) as error:
            refuse(stream, job, str(error))
        if slot is not None:
            return slot
        for descriptor in descriptors:
            os.close(descriptor)
