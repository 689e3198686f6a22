"""Sources of Debian packages: unpacked ones below a folder that the environment names, or what apt downloads."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.sources import SourceMissing, unpack

# A folder with unpacked sources, one folder for each, named as upstream names it.
VARIABLE = "STOKER_CATALOGUE_SOURCES"
_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".cuh", ".inl")


@contextlib.contextmanager
def debian(package: str, folder: str) -> Iterator[Path]:
    """Yield the root of a source package. `folder`: a pattern of its top folder. Raises SourceMissing.

    apt may lack the package's description or its Debian part: the upstream archive is enough.
    """
    if local := _local(folder):
        yield local
        return
    if shutil.which("apt-get") is None:
        raise SourceMissing(f"{package}: no apt-get, and {VARIABLE} has no {folder}")
    with tempfile.TemporaryDirectory(prefix="stoker-catalogue-") as scratch:
        command = ["apt-get", "source", "--download-only", "--only-source", package]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        archives = sorted(Path(scratch).glob("*.orig.tar.*"))
        if not archives:
            raise SourceMissing(f"apt-get source {package}: {done.stderr.strip()[-300:]}")
        root = Path(scratch, "unpacked")
        unpack(archives[0], root)
        yield next(root.glob(folder), root)


def _local(folder: str) -> Path | None:
    below = os.environ.get(VARIABLE)
    found = sorted(Path(below).glob(folder)) if below else []
    return found[-1] if found else None


def c_files(root: Path, *folders: str) -> Iterator[tuple[str, str]]:
    """Yield (path relative to the root, text) of the C and C++ files below folders, in a stable order; tests are left out."""
    for folder in folders or (".",):
        top = root / folder
        paths = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in paths:
            name = path.relative_to(root).as_posix()
            if path.suffix in _SUFFIXES and path.is_file() and "test" not in name.casefold():
                yield name, path.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def packed_wheel(requirement: str) -> Iterator[zipfile.ZipFile]:
    """Yield a wheel, packed, from the folder that the environment names or from the package index. Raises SourceMissing."""
    below = os.environ.get(VARIABLE)
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}*.whl"
    if below and (found := sorted(Path(below).glob(pattern))):
        with zipfile.ZipFile(found[-1]) as local:
            yield local
        return
    with tempfile.TemporaryDirectory(prefix="stoker-catalogue-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", scratch, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(scratch).glob("*.whl"))
        if not found:
            raise SourceMissing(f"{requirement}: {done.stderr.strip()[-300:]}")
        with zipfile.ZipFile(found[0]) as archive:
            yield archive
