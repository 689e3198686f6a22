"""Sources that Debian ships: downloaded by apt-get with settings of its own, unpacked as far as they are read."""

import contextlib
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.catalogues.sources import SourceMissing

# A folder with `*.orig.tar.*` archives that were downloaded before; what it lacks is downloaded for the moment.
ARCHIVES = "STOKER_SOURCE_ARCHIVES"
_SUITES = ("bookworm", "trixie")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES = "deb-src [signed-by={keyring}] {mirror} {suite} main\n"
_SETTINGS = """\
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}/cache";
APT::Sandbox::User "root";
"""


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A package's sources. `version` is upstream's."""

    package: str
    version: str
    folder: Path

    def files(self, path: str, *suffixes: str) -> list[Path]:
        """Return a file, or the files below a folder that end with one of `suffixes`, in a stable order."""
        at = self.folder / path
        if at.is_file():
            return [at]
        return sorted(one for one in at.rglob("*") if one.suffix in suffixes and one.is_file())

    def at(self, path: Path) -> str:
        """Return a file's path as rows name it: below the package's top folder."""
        return path.relative_to(self.folder).as_posix()


@contextlib.contextmanager
def source_tree(package: str, version: str, paths: Sequence[str] = ("",)) -> Iterator[SourceTree]:
    """Yield the sources of an upstream version, as far as they lie below `paths`. Raises SourceMissing."""
    with tempfile.TemporaryDirectory(prefix="stoker-catalogue-") as scratch:
        archive = _archive_at_hand(package, version) or _downloaded(package, version, Path(scratch))
        folder = Path(scratch, "unpacked")
        with tarfile.open(archive) as opened:
            for member in opened:
                inner = member.name.removeprefix("./").partition("/")[2]
                if member.isfile() and any(_is_wanted(inner, path) for path in paths):
                    member.name = inner
                    opened.extract(member, folder, filter="data")
        if not folder.is_dir():
            raise SourceMissing(f"{archive.name} has nothing of {', '.join(paths)}")
        yield SourceTree(package, version, folder)


def _is_wanted(inner: str, path: str) -> bool:
    """Whether a file is below `path`, or says how what is below it is built."""
    folder, _, name = inner.rpartition("/")
    is_below = not path or inner == path or inner.startswith(f"{path}/")
    return is_below or (name == "Makefile" and path.startswith(f"{folder}/"))


def _archive_at_hand(package: str, version: str) -> Path | None:
    folder = os.environ.get(ARCHIVES)
    found = sorted(Path(folder).glob(f"{package}_{version}.orig.tar.*")) if folder else []
    return found[0] if found else None


def _downloaded(package: str, version: str, scratch: Path) -> Path:
    """Download the archive of any revision of this upstream version."""
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    mirror = _mirror()
    lines = [_SOURCES.format(keyring=_KEYRING, mirror=mirror, suite=suite) for suite in _SUITES]
    (scratch / "sources.list").write_text("".join(lines))
    (scratch / "apt.conf").write_text(_SETTINGS.format(folder=scratch))
    _apt(scratch, "apt-get", "update")
    known = _apt(scratch, "apt-cache", "showsrc", package)
    revisions = {
        line.removeprefix("Version: ").strip()
        for line in known.splitlines()
        if line.startswith("Version: ")
    }
    fitting = sorted(one for one in revisions if _upstream(one) == version)
    if not fitting:
        raise SourceMissing(
            f"Debian has no source {package} {version}; {', '.join(sorted(revisions))}"
        )
    _apt(scratch, "apt-get", "source", "--download-only", "--tar-only", f"{package}={fitting[-1]}")
    return next(scratch.glob(f"{package}_{version}.orig.tar.*"))


def _mirror() -> str:
    """Return where this machine gets Debian's packages from. Raises SourceMissing where it gets none."""
    command = ("apt-get", "indextargets", "--format", "$(REPO_URI)")
    try:
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SourceMissing(f"{' '.join(command)} failed: {error}") from error
    mirrors = [one for one in output.split() if one.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise SourceMissing("apt gets no packages of Debian here")
    return mirrors[0]


def _upstream(revision: str) -> str:
    return revision.split(":")[-1].rpartition("-")[0]


def _apt(scratch: Path, *command: str) -> str:
    environment = {**os.environ, "APT_CONFIG": str(scratch / "apt.conf"), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=scratch, env=environment
        )
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", "") or str(error)
        raise SourceMissing(f"{' '.join(command)} failed: {output.strip()[-300:]}") from error
    return done.stdout
