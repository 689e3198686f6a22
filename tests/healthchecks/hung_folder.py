"""`python hung_folder.py FOLDER COMMAND ...`: mounts a file system that never answers on FOLDER and runs a command.

For use in a mount namespace of its own; the file system ends with this process.
"""

import ctypes
import os
import subprocess
import sys


def main(folder: str, *command: str) -> int:
    """Mount, run, and return the command's exit code."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    # A request to this file system waits for a reader of `device`, and there will be none.
    if libc.mount(b"hung", os.fsencode(folder), b"fuse", 0, options) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
