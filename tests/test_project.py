"""The project around the code: what the control plane needs, and what `make` repeats."""

import configparser
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def project() -> dict[str, Any]:
    """Return the [project] table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


BLOCKED = """
import importlib, pkgutil, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "deepspeed", "numpy", "trainer"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
import runner
names = [module.name for module in pkgutil.walk_packages(runner.__path__, "runner.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_the_control_plane_needs_no_torch() -> None:
    """Every module of the control plane imports where torch, DeepSpeed, numpy and the trainer cannot be imported."""
    shown = subprocess.run(
        [sys.executable, "-c", BLOCKED], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert int(shown) > 20


def test_no_requirement_of_the_control_plane_brings_torch() -> None:
    """Installing stoker without extras pulls in none of the trainer's large packages."""
    assert not {"torch", "deepspeed", "numpy"} & closure(project()["dependencies"]).keys()


def test_the_command_exists() -> None:
    """The command that pyproject.toml promises can be called."""
    module, function = project()["scripts"]["stoker"].split(":")
    assert callable(getattr(importlib.import_module(module), function))


def closure(requirements: list[str]) -> dict[str, str]:
    """Follow requirements to the installed versions: name -> version without its local part."""
    found: dict[str, str] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name in found and not requirement.extras:
            continue
        distribution = importlib.metadata.distribution(name)
        found[name] = distribution.version.split("+")[0]
        for text in distribution.requires or []:
            waiting += [(Requirement(text), each) for each in ("", *requirement.extras)]
    return found


def pins() -> dict[str, str]:
    """Read constraints.txt: name -> version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    parts = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in parts}


def test_every_version_is_pinned() -> None:
    """constraints.txt names the installed version of everything that the package and its extras pull in, and no more."""
    extras = project()["optional-dependencies"]
    needed = closure([*project()["dependencies"], *extras["trainer"], *extras["dev"]])
    # torch's CUDA build brings nvidia and triton wheels whose versions it pins itself.
    of_torch = ("nvidia-", "triton", "cuda-")
    needed = {
        name: v
        for name, v in needed.items()
        if not name.startswith(of_torch) or name == "nvidia-ml-py"
    }
    assert needed == pins()


# `make`, with an interpreter that only records what it is asked to install.

NOTING_PYTHON = """\
#!/bin/sh
echo "$@" >> calls
case "$*" in *deepspeed==*) test ! -e broken;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the Makefile and an environment that records what is installed."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(NOTING_PYTHON)
    python.chmod(0o755)
    return tmp_path


def make(folder: Path) -> tuple[int, list[str]]:
    """Run `make install`; return its exit code and the calls of pip."""
    environment = {
        name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")
    }
    (folder / "calls").unlink(missing_ok=True)
    done = subprocess.run(
        ["make", "install"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return done.returncode, calls


def test_make_installs_once_and_torch_first(clone: Path) -> None:
    """An environment without a stamp is installed into, torch before DeepSpeed; the second time nothing is repeated."""
    code, calls = make(clone)
    assert code == 0
    assert [call.split()[-1] for call in calls] == [
        "torch==2.13.0",
        "deepspeed==0.19.8",
        ".[trainer,dev]",
    ]
    assert all("--constraint constraints.txt" in call for call in calls)
    assert make(clone) == (0, [])


def test_make_installs_again_after_a_change(clone: Path) -> None:
    """A newer constraints.txt or pyproject.toml brings the environment up to date."""
    make(clone)
    for name in ("constraints.txt", "pyproject.toml"):
        later = (clone / ".venv/.installed").stat().st_mtime + 10
        os.utime(clone / name, (later, later))
        assert len(make(clone)[1]) == 3
        os.utime(clone / ".venv/.installed", (later + 10, later + 10))


def test_a_failed_installation_leaves_no_stamp(clone: Path) -> None:
    """When pip fails, make fails, an older stamp is gone, and the next try starts over."""
    make(clone)
    later = (clone / ".venv/.installed").stat().st_mtime + 10
    os.utime(clone / "pyproject.toml", (later, later))
    (clone / "broken").touch()
    assert make(clone)[0] != 0
    assert not (clone / ".venv/.installed").exists()
    (clone / "broken").unlink()
    assert len(make(clone)[1]) == 3


# deploy/.


@pytest.mark.parametrize("path", sorted(ROOT.glob("deploy/*.service")), ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_exists(path: Path) -> None:
    """Each unit parses, comes back when it dies, spares what it started, and calls a subcommand of stoker as it wants to be."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    assert {"Unit", "Service", "Install"} == set(unit.sections())
    service = unit["Service"]
    assert (service["Restart"], service["KillMode"], service["OOMPolicy"]) == (
        "on-failure",
        "process",
        "continue",
    )
    program, *arguments = service["ExecStart"].split()
    assert Path(program).name == "stoker"
    help_text = subprocess.run(
        [sys.executable, "-m", "runner.cli.main", *arguments, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Usage: " in help_text


def test_prometheus_scrapes_the_documented_port() -> None:
    """The scrape configuration parses and has one job with a target on the port that its comment names."""
    text = (ROOT / "deploy/prometheus.yml").read_text()
    config = yaml.safe_load(text)
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "stoker"
    (target,) = job["static_configs"][0]["targets"]
    port = int(target.rpartition(":")[2])
    assert 0 < port < 65536
    assert f"({port} here;" in text
