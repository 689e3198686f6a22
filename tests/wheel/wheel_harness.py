"""Wheels of this tree, and environments of their own that have one, without any download."""

import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("stoker", "runner", "trainer", "healthchecks", "runbooks", "docs", "deploy"),
    *("pyproject.toml", "setup.py", "LICENSE", "README.md"),
)
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")


def copy_sources(folder: Path) -> Path:
    """Copy what a wheel is built of, so that the tree stays clean."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    return source


def build_wheel(folder: Path) -> Path:
    """Build a wheel of the tree in a folder."""
    source = copy_sources(folder)
    _pip("wheel", *OFFLINE, "--wheel-dir", str(folder), str(source))
    return next(folder.glob("*.whl"))


def make_environment(folder: Path, *, with_dependencies: bool) -> Path:
    """Make a virtual environment; return its interpreter. `with_dependencies`: it also sees what is installed here, save Stoker."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    if with_dependencies:
        installed = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        # Of these folders, .pth files are not read, so that an editable installation here stays out of sight.
        (installed / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    return python


def install(python: Path, *what: str) -> None:
    """Install a wheel, or with `-e` a source folder, into the environment of an interpreter."""
    _pip("--python", str(python), "install", *OFFLINE, *what)


def _pip(*arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments], check=True, cwd="/")
