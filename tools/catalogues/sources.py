"""Sources of catalogues: packages that pip or apt downloads into a temporary folder, and unpacks without running any of it."""

import contextlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path


class SourceMissing(Exception):
    """What a catalogue is made of cannot be read on this machine."""


@contextlib.contextmanager
def wheel(requirement: str, *, sdist: bool = False) -> Iterator[Path]:
    """Download a package from the package index and yield the folder of its files. Raises SourceMissing."""
    with tempfile.TemporaryDirectory(prefix="stoker-catalogue-") as scratch:
        kind = ["--no-binary", ":all:"] if sdist else ["--only-binary", ":all:"]
        _run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                *kind,
                "--dest",
                scratch,
                requirement,
            ]
        )
        packages = [path for path in Path(scratch).iterdir() if path.is_file()]
        if not packages:
            raise SourceMissing(f"{requirement}: nothing was downloaded")
        folder = Path(scratch, "unpacked")
        unpack(packages[0], folder)
        yield folder


def unpack(package: Path, folder: Path) -> None:
    """Unpack a wheel or an archive of sources."""
    if zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as archive:
            archive.extractall(folder)
        return
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", "") or str(error)
        raise SourceMissing(f"{' '.join(command[:4])} failed: {output.strip()[-300:]}") from error
