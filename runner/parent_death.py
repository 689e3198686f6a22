"""A helper process ends when its parent ends, by whatever signal that is."""

import ctypes
import os
import signal

# From prctl(2).
PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel end this process by SIGKILL as soon as the thread that started it has ended.

    `parent`: pid of that thread's process, which may have ended before this call.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
