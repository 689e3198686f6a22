"""The wheel: what it holds, and that all of Stoker works where nothing but the wheel is installed."""

import json
import os
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_project import closure, pins, project
from tests.wheel.wheel_harness import (
    ROOT,
    build_wheel,
    copy_sources,
    install,
    make_environment,
)

OWN = ("runner", "trainer", "healthchecks", "runbooks", "docs", "deploy")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of this tree."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment that has the wheel and its dependencies; its path holds a blank."""
    folder = tmp_path_factory.mktemp("of wheel")
    interpreter = make_environment(folder, with_dependencies=True)
    install(interpreter, str(wheel))
    return interpreter


def run(*command: str | Path, folder: Path, exit_code: int = 0) -> str:
    """Run a command where only what is installed can be imported; return its output and errors."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == exit_code, done.stdout
    return done.stdout


def of_git(*folders: str) -> list[str]:
    """Return the files of the tree that git tracks below some folders, or all of them where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    found = [name for name in listed if name and (ROOT / name).is_file()]
    every = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return found or [
        str(path.relative_to(ROOT)) for path in every if "__pycache__" not in str(path)
    ]


def test_the_wheel_holds_every_file_of_the_tree(wheel: Path) -> None:
    """Every module, runbook, recipe, catalogue, page and unit of the tree travels in the wheel; tests and benchmarks do not."""
    names = zipfile.ZipFile(wheel).namelist()
    expected = {f"stoker/_packages/{name}" for name in of_git(*OWN)} | {*of_git("stoker")}
    assert len(expected) > 700
    assert expected - {*names} == set()
    assert {name for name in names if ".dist-info/" not in name} - expected == set()
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.costly
def test_only_stoker_is_installed_at_the_top(wheel: Path, python: Path) -> None:
    """The wheel brings one name to site-packages, and no other file there that changes what a program can import."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"stoker"}
    listed = next(name for name in names if name.endswith("top_level.txt"))
    assert zipfile.ZipFile(wheel).read(listed).split() == [b"stoker"]
    script = f"import importlib.util as u; print([n for n in {OWN!r} if u.find_spec(n)])"
    assert run(python, "-P", "-c", script, folder=python.parent) == "[]\n"


def test_stoker_leaves_the_versions_of_others_alone(wheel: Path) -> None:
    """Neither the wheel nor anything it needs asks for drain3, jsonpickle or cachetools: any version installs beside it."""
    metadata = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("METADATA"))
    table = Parser().parsestr(zipfile.ZipFile(wheel).read(metadata).decode())
    asked = [Requirement(text) for text in table.get_all("Requires-Dist", [])]
    assert len(asked) > len(project()["dependencies"])
    others = {"drain3", "jsonpickle", "cachetools"}
    assert not others & {canonicalize_name(each.name) for each in asked}
    extras = project()["optional-dependencies"]
    needed = closure([*project()["dependencies"], *extras["trainer"]])
    assert not others & needed.keys()
    assert not others & pins().keys()


@pytest.mark.costly
def test_an_installed_wheel_finds_its_runbooks(python: Path, tmp_path: Path) -> None:
    """Installed, far from its sources, Stoker loads the same ladders as in the tree."""
    listed = json.loads(run(python.with_name("stoker"), "runbook", "--json", folder=tmp_path))
    assert {page["name"] for page in listed} == {path.stem for path in ROOT.glob("runbooks/*.md")}
    assert all(Path(page["file"]).is_relative_to(python.parents[1]) for page in listed)


CLIENT = """
import sys
import stoker
run = stoker.attach()
run.step(1, loss=2.0)
with run.checkpoint(1) as folder:
    (folder / "state").write_text("1")
from stoker.contract import checkpoints
checkpoints.flush_and_hash(run.resume_folder / "state")
print(run.resume_step, sorted({name.partition(".")[0] for name in sys.modules} & {"runner", "msgspec", "click"}))
"""


@pytest.mark.costly
def test_the_client_needs_nothing_else(wheel: Path, tmp_path: Path) -> None:
    """`import stoker`, checkpoints and the contract's module work in an environment that has none of Stoker's dependencies."""
    bare = make_environment(tmp_path / "bare", with_dependencies=False)
    install(bare, str(wheel))
    assert run(bare, "-c", CLIENT, folder=tmp_path) == "1 []\n"
    refused = run(bare.with_name("stoker"), "--version", folder=tmp_path, exit_code=1)
    assert "No module named 'click'" in refused


TRAIN = """
import sys
import time
import runner
import stoker
run = stoker.attach()
for step in range(run.resume_step + 1, 6):
    time.sleep(0.1)
    run.step(step, loss=1.0 / step)
    if step == 3:
        with run.checkpoint(step) as folder:
            (folder / "state").write_text("3")
from runner import MINE
print("mine", MINE, [path for path in sys.path if path.endswith("_packages")])
"""


@pytest.mark.e2e
@pytest.mark.slow
def test_a_run_of_the_wheel_reaches_its_end(python: Path, tmp_path: Path) -> None:
    """`stoker run` trains and seals from the wheel alone, and a module `runner` of the script's own stays the script's."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "runner.py").write_text("MINE = 7\n")
    spec = {"name": "a", "command": "{python} train.py", "nodes": 1, "ranks_per_node": 1}
    spec |= {"working_directory": ".", "checkpoints": "sealed", "python": str(python)}
    (tmp_path / "run.yaml").write_text(json.dumps(spec))
    stoker = python.with_name("stoker")
    summary = run(stoker, "run", "run.yaml", folder=tmp_path)
    assert "run is finished" in summary
    assert (tmp_path / "sealed/1.1.0-00000003/manifest.json").is_file()
    (output,) = tmp_path.glob(".stoker/local/runs/1-a/attempts/1.1.0/rank0.out")
    assert output.read_text() == "mine 7 []\n"
    assert run(stoker, "checkpoints", folder=tmp_path).splitlines()[1].split()[:2] == ["3", "1.1.0"]


@pytest.mark.costly
def test_checks_and_diagnoses_work_from_the_wheel(python: Path, tmp_path: Path) -> None:
    """`stoker check` runs its checks, each in a child, and `stoker diagnose` finds a cause in a log."""
    stoker = python.with_name("stoker")
    names = ("clock", "loopback")
    checked = run(stoker, "check", *(f"--check={name}" for name in names), folder=tmp_path)
    assert [line.split()[:2] for line in checked.splitlines()[1:3]] == [[n, "PASS"] for n in names]
    log = "[rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    (tmp_path / "rank3.log").write_text(log)
    assert "cuda_oom" in run(stoker, "diagnose", "rank3.log", folder=tmp_path, exit_code=1)


@pytest.mark.trainer
def test_the_trainer_works_from_the_wheel(python: Path, tmp_path: Path) -> None:
    """The built-in trainer judges its settings from the wheel, and the modules that its ranks are forked with import."""
    trainer = (python, "-P", "-m", "stoker.module", "trainer")
    answer = run(*trainer, "--check", "--recipe", "tiny_cpu", "--ranks-here=0", folder=tmp_path)
    assert json.loads(answer)["ok"] is True
    script = "import stoker.trainer_preload, sys; print(sys.modules['trainer.loop'].__file__)"
    place = run(python, "-P", "-c", script, folder=tmp_path).splitlines()[-1]
    assert Path(place).is_relative_to(python.parents[1])


@pytest.mark.costly
def test_a_module_is_run_as_by_the_interpreter(python: Path, tmp_path: Path) -> None:
    """`stoker.module` gives a module its arguments and exit code, and says how it is used without one."""
    module = (python, "-P", "-m", "stoker.module")
    assert "usage: " in run(*module, folder=tmp_path, exit_code=1)
    refused = run(*module, "healthchecks", "--nonsense", folder=tmp_path, exit_code=64)
    assert "--nonsense" in refused
    assert run(python, "-m", "stoker", "--version", folder=tmp_path).startswith("stoker ")


@pytest.mark.costly
def test_a_script_whose_saves_are_sealed_sees_nothing_of_ours(python: Path, tmp_path: Path) -> None:
    """`stoker.script_saves` runs a script that has a module `runner` of its own."""
    (tmp_path / "runner.py").write_text("MINE = 7\n")
    script = "import sys, runner\nprint(runner.MINE, [path for path in sys.path if '_packages' in path])\n"
    (tmp_path / "train.py").write_text(script)
    command = (python, "-m", "stoker.script_saves", "out/ckpt.pt", "--", "train.py")
    assert run(*command, folder=tmp_path) == "7 []\n"


@pytest.mark.costly
def test_an_editable_installation_has_the_layout_of_the_tree(tmp_path: Path) -> None:
    """`pip install -e` makes the packages importable where they lie, and the command works."""
    source = copy_sources(tmp_path)
    interpreter = make_environment(tmp_path / "editable", with_dependencies=True)
    install(interpreter, "-e", str(source))
    script = "import runner, trainer, stoker.packages as p; print(runner.__file__, p.FOLDER)"
    shown = run(interpreter, "-P", "-c", script, folder=Path("/"))
    assert shown == f"{source}/runner/__init__.py {source}\n"
    version = run(interpreter.with_name("stoker"), "--version", folder=Path("/"))
    assert version.startswith("stoker ")
    child = (interpreter, "-P", "-m", "stoker.module", "healthchecks", "--help")
    assert "usage: " in run(*child, folder=Path("/"))
