"""A forked rank becomes what a fresh process would be, and runs the program."""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any

from runner.keeper.protocol import Message
from runner.keeper.warm.forkable import open_descriptors
from runner.keeper.warm.forks import ForkSlot, await_adoption
from runner.keeper.warm.preloaded_modules import PreloadedModules
from runner.keeper.warm.rank_variables import note_rank
from runner.keeper.warm.rendezvous import await_rendezvous

_PR_SET_NAME = 15


def become(modules: PreloadedModules, slot: ForkSlot) -> None:
    """Become the rank as the kernel and the operating system see it."""
    os.setsid()
    for name in list(os.environ):
        del os.environ[name]
    os.environ.update(slot.environment)
    for name, value in modules.environment_changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    note_rank()
    modules.title.write(slot.rank["command_line"], slot.environment)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, os.fsencode(slot.rank["name"]))
    os.chdir(slot.job["working_directory"])
    await_adoption(slot.start_barrier, slot.job["keeper"])
    await_rendezvous(slot)
    os.dup2(slot.output, 1)
    os.dup2(slot.errors, 2)
    os.set_inheritable(slot.channel, True)
    for descriptor in open_descriptors():
        if descriptor > 2 and descriptor != slot.channel:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def run_program(form: str, rank: Message) -> None:
    """Run the program as the interpreter would have."""
    sys.argv[:] = rank["argv"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = rank["command_line"]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    if form == "module":
        target = sys.argv[0]
        sys.argv[0] = "-m"
        runpy._run_module_as_main(target)  # type: ignore[attr-defined]  # what the interpreter calls for -m
        return
    # The interpreter does not normalise it either.
    path = os.path.join(os.getcwd(), sys.argv[0])
    main.__dict__.update(
        __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
    )
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the program that this process is for


def trim_tracebacks() -> None:
    """Leave the frames of this package out of tracebacks of the program."""
    original, folder = sys.excepthook, os.path.dirname(__file__)

    def hook(cls: Any, error: Any, trace: Any) -> None:
        while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == folder:
            trace = trace.tb_next
        original(cls, error.with_traceback(trace), trace)

    sys.excepthook = hook
