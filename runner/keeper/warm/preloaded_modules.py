"""The modules that a warm process has imported for its ranks."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import sys
import traceback

from runner.keeper.protocol import Message
from runner.keeper.warm.forkable import (
    NotForkable,
    open_descriptors,
    require_forkable,
    require_nothing_hidden,
    require_source,
)
from runner.keeper.warm.proc_title import ProcTitle, initial_environment
from runner.keeper.warm.random_generators import lasting_generators, seeds
from runner.keeper.warm.rank_variables import forbid_reads

# Of a descriptor's number, at most.
_NUMBER_DIGITS = 10


class PreloadedModules:
    """What has been imported, from which files, and what that has done to the environment."""

    def __init__(self, request: Message) -> None:
        self.request = request
        self.title = ProcTitle()
        # What an attempt sets differs; all else must stay as it is when the modules are imported.
        self._own = re.compile(request["own_variables"])
        self.initial_environment = self._lasting(initial_environment())
        self.environment_changes: dict[str, str | None] = {}
        # Of generators that the modules seed, always alike: what a fresh rank would have after the same imports.
        self.generators: dict[str, object] = {}
        self._files: dict[str, tuple[int, int]] = {}

    def import_all(self) -> None:
        """Import the modules as the program would find them. Raises NotForkable when ranks cannot be forked afterwards."""
        if os.path.exists("/dev/kfd"):
            raise NotForkable("this node has AMD GPUs, and forking has not been tried on them")
        self._set_search_path()
        opened, folder = open_descriptors(), os.getcwd()
        environment = dict(os.environ)
        seeding = []
        for name in self.request["preload"]:
            with forbid_reads(name, self._own):
                changed = _import(name)
            seeding += [(name, library) for library in changed]
        if seeding:
            self.generators = lasting_generators(self.request, *seeding[0], environment)
        after = self._lasting(dict(os.environ))
        changed = _differing(after, self.initial_environment)
        self.environment_changes = {name: after.get(name) for name in changed}
        require_forkable(self.request["preload"], opened, folder)
        self._files = {path: _stamp(path) for path in _files_of_modules()}
        gc.collect()
        # A collection in a rank would write to, and so copy, every page.
        gc.freeze()

    def check(self, job: Message) -> None:
        """Raise NotForkable when a rank of this job would not be what a fresh process is."""
        for path, stamp in self._files.items():
            if _stamp(path) != stamp:
                raise NotForkable(f"{path} has changed since it was imported")
        if self.request["form"] == "path":
            require_source(self.request["target"])
        if not os.path.isdir(job["working_directory"]):
            raise NotForkable(f"{job['working_directory']} is not a folder")
        for rank in job["ranks"]:
            environment = {**job["environment"], **rank["environment"]}
            self.title.check({**environment, "STOKER_CHANNEL": "0" * _NUMBER_DIGITS})
            changed = _differing(self._lasting(environment), self.initial_environment)
            if changed:
                raise NotForkable(f"{changed[0]} has changed since the modules were imported")

    def _lasting(self, environment: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if not self._own.fullmatch(name)}

    def _set_search_path(self) -> None:
        """Search where the program will: beside the script or in the working directory, not beside this file."""
        target = self.request["target"]
        sys.argv[:] = [target]
        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            return
        is_script = self.request["form"] == "path"
        sys.path[0] = os.path.dirname(os.path.realpath(target)) if is_script else os.getcwd()
        require_nothing_hidden(sys.path[0])


def _differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _import(name: str) -> list[str]:
    """Import a module; return the libraries whose random generators it seeds."""
    before, seeds_before = os.getpid(), seeds()
    try:
        importlib.import_module(name)
    except BaseException as error:
        reason = "".join(traceback.format_exception_only(type(error), error)).strip()
        traceback.print_exc()
        raise NotForkable(f"preload {name!r} cannot be imported: {reason[-500:]}") from error
    finally:
        if os.getpid() != before:
            # This is a copy of us that the module has forked.
            os._exit(1)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        raise NotForkable(f"preload {name!r} starts a process while it is imported")
    return [library for library, seed in seeds().items() if seeds_before.get(library, seed) != seed]


def versions_of(request: Message) -> dict[str, str]:
    """Return the versions that have to be the same on all nodes of a run."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("torch", "deepspeed", *(name.partition(".")[0] for name in request["preload"])):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = str(version)
    return versions


def _files_of_modules() -> set[str]:
    """Return the files whose time shows that code has changed; for an installed package, its site-packages folder."""
    paths = {os.path.realpath(sys.executable)}
    library = os.path.dirname(os.path.realpath(os.__file__))
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or os.path.dirname(path) == os.path.dirname(__file__):
            continue
        parts = path.split(os.sep)
        folders = ("site-packages", "dist-packages")
        installed = [index for index, part in enumerate(parts) if part in folders]
        if installed:
            paths.add(os.sep.join(parts[: installed[-1] + 1]))
        elif not os.path.realpath(path).startswith(library + os.sep):
            paths.add(path)
    return paths


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)
