"""A small file system of its own, for what happens when a disk is full."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, *, size_bytes: int, num_inodes: int = 0) -> Iterator[Path]:
    """Mount a file system of memory on a folder, which is made, while the block runs; skip the test where that cannot be.

    `num_inodes`: as many files and folders as fit, its own included; 0: any number.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("a file system can be mounted by root only")
    done = subprocess.run(
        [
            mount,
            "-t",
            "tmpfs",
            "-o",
            f"size={size_bytes},nr_inodes={num_inodes}",
            "stoker-test",
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte of a disk free; return the file to remove."""
    path = disk / "filled"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path
