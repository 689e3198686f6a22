"""Random generators: which of them the imported modules seed, and what a forked rank draws from."""

from __future__ import annotations

import importlib
import json
import os
import random
import select
import signal
import sys
import time

from runner.keeper.protocol import Message
from runner.keeper.warm.forkable import NotForkable

# The first argument of the process that imports the modules a second time, and how long it may take; chosen.
SECOND_IMPORT = "--generators"
_SECOND_IMPORT_SECONDS = 300.0
# Of the state of a Mersenne twister, in `random` and in numpy.
_NUM_WORDS = 624


def seeds() -> dict[str, object]:
    """Return what the next draws from each imported random generator do not change, but a seed does.

    Their state is 624 words and a place in them. Draws, such as `import rich` makes one, move the place; at the words' end
    they make new words, so the place is moved to their begin first, in a copy.
    """
    state = random.getstate()
    if state[1][-1] >= _NUM_WORDS:
        copy = random.Random()
        copy.setstate(state)
        copy.getrandbits(32)
        state = copy.getstate()
    states: dict[str, object] = {"random": hash(state[1][:-1])}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state = numpy_random.get_state()
        if state[2] >= _NUM_WORDS:
            copy = numpy_random.RandomState()
            copy.set_state(state)
            copy.bytes(4)
            state = copy.get_state()
        states["numpy.random"] = hash(state[1].tobytes())
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.initial_seed()
    return states


def lasting_generators(
    request: Message, module: str, library: str, environment: dict[str, str]
) -> dict[str, object]:
    """Return the generators that every process has alike after the imports: these are seeded with a number that is always the same.

    A second process imports the modules, too. Where its generator differs, a module seeds it with what each process has of its own,
    or only draws from it: then a forked rank draws a seed of its own, as a fresh one would.
    """
    reader, writer = os.pipe()
    options = request["interpreter"][1:]
    main = os.path.join(os.path.dirname(__file__), "__main__.py")
    program = [sys.executable, *options, main, SECOND_IMPORT, str(writer)]
    text = json.dumps(
        {"path": sys.path, "target": request["target"], "preload": request["preload"]}
    )
    pid = os.fork()
    if pid == 0:
        try:
            os.set_inheritable(writer, True)
            os.closerange(3, writer)
            os.closerange(writer + 1, writer + 1024)
            os.execve(sys.executable, [*program, text], environment)  # noqa: S606 - as meant
        finally:
            os._exit(1)
    os.close(writer)
    found = b""
    deadline = time.monotonic() + _SECOND_IMPORT_SECONDS
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            break
        found += chunk
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    os.waitpid(pid, 0)
    try:
        second = json.loads(found)
    except ValueError:
        raise NotForkable(
            f"preload {module!r} seeds {library}, or draws from it, while it is imported, and importing it a second time, to see "
            "which, failed"
        ) from None
    first = _generators()
    return {name: state for name, state in first.items() if second.get(name) == _as_text(state)}


def report_generators() -> None:
    """Be the second process of `lasting_generators`: write the generators to its pipe."""
    descriptor, request = int(sys.argv[2]), json.loads(sys.argv[3])
    os.set_inheritable(descriptor, False)
    sys.path[:] = request["path"]
    sys.argv[:] = [request["target"]]
    for name in request["preload"]:
        importlib.import_module(name)
    states = {name: _as_text(state) for name, state in _generators().items()}
    with open(descriptor, "w") as pipe:
        json.dump(states, pipe)


def _generators() -> dict[str, object]:
    """Return the whole state of each random generator that is imported."""
    states: dict[str, object] = {"random": random.getstate()}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        states["numpy.random"] = numpy_random.get_state()
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state()
    return states


def _as_text(state: object) -> str:
    """Write a generator's state such that two processes write the same state alike."""
    parts = state if isinstance(state, tuple) else (state,)
    return repr([part.tolist() if hasattr(part, "tolist") else part for part in parts])


def reseed(generators: dict[str, object]) -> None:
    """Draw the random values that a fresh process draws at its start; these generators have the same state in each process."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        multiprocessing.current_process().authkey = os.urandom(32)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    if "random" in generators:
        random.setstate(generators["random"])  # type: ignore[arg-type]
    if "numpy.random" in generators and numpy_random is not None:
        numpy_random.set_state(generators["numpy.random"])
    if "torch" in generators and torch is not None:
        torch.set_rng_state(generators["torch"])
    importlib.invalidate_caches()
