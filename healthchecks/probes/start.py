"""`python start.py PARENT NAME ASKED`: runs the probe NAME of this folder, and prints its answer as the last line, in JSON.

PARENT: the pid of the process that waits for the answer; the probe dies with it. ASKED: what the check asks, in JSON; `seconds` of
it, counted from here, become the moment `until` on the monotonic clock. A file that cannot be imported, for want of torch, is
an answer too. STOKER_PROBE_FAULTS: a JSON list of faults to plant, each an object that names its `probe`.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import time
from typing import Any

BEGAN = time.monotonic()
FAULTS_VARIABLE = "STOKER_PROBE_FAULTS"
# From prctl(2).
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run one probe; 0 if there is an answer."""
    parent, name, text = arguments
    die_with(int(parent))
    # Threads that wait for each other sleep rather than spin: beside other processes, ten times faster. Measured, libgomp.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    asked = json.loads(text)
    asked["until"] = BEGAN + asked["seconds"]
    print(json.dumps(answer(name, asked)), flush=True)
    return 0


def answer(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a probe; where its imports fail, `trouble` says so."""
    faults = json.loads(os.environ.get(FAULTS_VARIABLE, "[]"))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    try:
        probe = runpy.run_path(path)["probe"]
    except (ImportError, OSError) as error:
        return {"trouble": f"{sys.executable} cannot run it: {error}"}
    found: dict[str, Any] = probe(asked, [each for each in faults if each["probe"] == name])
    return found


def die_with(parent: int) -> None:
    """End by SIGKILL as soon as the parent dies: a probe that hangs must not outlive who waits for it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Libraries with threads may abort or hang as the interpreter takes them down: the answer is out.
    sys.stderr.flush()
    os._exit(code)
