"""A command behind `--`, and the run.yaml that means the same."""

import os
from pathlib import Path

import pytest

from runner.cli.runs.typed_commands import run_name, run_text
from runner.errors import UserError
from runner.facts.specs.run import RunSpec
from runner.load.specs import load_run, read_run
from tests.cli.conftest import stoker

SCRIPT = "print('step 1')\n"


@pytest.fixture
def scripts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the working directory, with a script and an interpreter of each name on PATH."""
    (folder / "train.py").write_text(SCRIPT)
    programs = folder / "bin dir"
    programs.mkdir()
    for name in ("python", "python3", "tool"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return folder


def spec_of(*words: str, **options: int) -> RunSpec:
    """Return the run of a command in the working directory."""
    return read_run(run_text(words, **options), "text", Path.cwd())  # type: ignore[arg-type]


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("words", "command", "name"),
    [
        (["train.py", "--lr", "3e-4"], ["{python}", "train.py", "--lr", "3e-4"], "train"),
        (["python", "train.py"], ["{python}", "train.py"], "train"),
        (["python3", "-u", "train.py"], ["{python}", "-u", "train.py"], "train"),
        (["-m", "pkg.Mod", "a b"], ["{python}", "-m", "pkg.Mod", "a b"], "pkg-mod"),
        (["tool", "x|y", ">", "'"], ["tool", "x|y", ">", "'"], "tool"),
        (["tool", '{"a": {rank}}'], ["tool", '{{"a": {{rank}}}}'], "tool"),
        (["tool", "", "é\n\t#: -"], ["tool", "", "é\n\t#: -"], "tool"),
    ],
)
def test_the_words_of_a_command_reach_the_rank_as_they_were_typed(
    words: list[str], command: list[str], name: str
) -> None:
    """Quotes, braces, blanks, line ends and what YAML or a shell would read otherwise are literal."""
    spec = spec_of(*words)
    assert (list(spec.command), spec.name) == (command, name)


def test_python_and_python3_mean_the_interpreter_of_that_name_on_path(scripts: Path) -> None:
    """Where `python` is missing, `python3` is meant, as on many machines."""
    assert spec_of("python", "train.py").python == str(scripts / "bin dir" / "python")
    assert spec_of("python3", "train.py").python == str(scripts / "bin dir" / "python3")
    assert spec_of("train.py").python == str(scripts / "bin dir" / "python3")
    (scripts / "bin dir" / "python").unlink()
    assert spec_of("python", "train.py").python == str(scripts / "bin dir" / "python3")


@pytest.mark.usefixtures("scripts")
def test_nodes_and_ranks_are_those_of_the_options() -> None:
    """As torchrun counts them; without options there is one of each."""
    spec = spec_of("train.py", nodes=3, ranks_per_node=2)
    assert (spec.nodes, spec.ranks_per_node) == (3, 2)
    assert (spec_of("train.py").nodes, spec_of("train.py").ranks_per_node) == (1, 1)


@pytest.mark.parametrize("program", ["true", "123", "null", "no", "1e5", "--", "Ä", "x" * 60])
def test_every_program_gives_a_valid_name(scripts: Path, program: str) -> None:
    """Also one whose name YAML would read as something else than text, and one without a letter of ASCII."""
    file = scripts / program
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    spec = spec_of(f"./{program}")
    assert spec.name == run_name([f"./{program}"])
    assert 0 < len(spec.name) <= 40


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian.py"], "trian.py: no such file in"),
        (["python", "trian.py"], "1 script there: train.py"),
        (["no-such-program"], "no program of this name on PATH"),
        (["./no-such"], "the file is not there"),
        (["./train.sh"], "the file is not there"),
        (["-m"], "-m names no module"),
        (["tool", "\x1b[0m"], "cannot be printed"),
        (["tool", "\udc80"], "cannot be printed"),
        ([""], "no command is given"),
    ],
)
def test_a_command_that_cannot_start_is_refused_at_once(words: list[str], message: str) -> None:
    """Before any process is started."""
    with pytest.raises(UserError, match=message):
        run_text(words)


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "neither a RUN.yaml nor a command is given"),
        (["train.py"], "a command of yours goes behind --: `stoker run -- train.py ...`"),
        (["python", "train.py", "--lr", "3"], "a command of yours goes behind `--`"),
        (["--"], "no command behind `--`"),
        (["run.yaml", "--", "tool"], "both run.yaml and a command"),
        (["run.yaml", "--nnodes", "2"], "--nnodes belongs to a command behind --"),
        (["--nproc-per-node", "two", "--", "tool"], "neither a number from 1 to 1024 nor gpu"),
        (["--name", "A", "--", "tool"], "'A' is not valid"),
        (["--set", "lr=1", "--", "tool"], "has a command, not the built-in trainer"),
    ],
)
def test_a_command_line_that_means_nothing_shows_the_one_that_does(
    folder: Path, words: list[str], message: str
) -> None:
    """With exit code 2, and no state folder."""
    result = stoker("run", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / ".stoker").exists()


def test_init_writes_what_a_command_means_and_overwrites_nothing(scripts: Path) -> None:
    """Without a command it is for train.py; the answer ends with the next command."""
    result = stoker("init")
    assert result.exit_code == 0, result.stderr
    assert result.output.endswith("next: stoker run run.yaml\n")
    assert load_run("run.yaml").command == ("{python}", "train.py")
    written = Path("run.yaml").read_bytes()
    again = stoker("init", "--nproc-per-node", "2", "--", "tool", "{x}")
    assert again.exit_code == 2
    assert "`stoker init --force` replaces it" in again.stderr
    assert Path("run.yaml").read_bytes() == written
    forced = stoker("init", "--force", "--nproc-per-node", "2", "--name", "b", "--", "tool", "{x}")
    assert forced.exit_code == 0, forced.stderr
    spec = load_run("run.yaml")
    assert (spec.name, spec.command, spec.ranks_per_node) == ("b", ("tool", "{{x}}"), 2)
    assert sorted(os.listdir(scripts)) == ["bin dir", "run.yaml", "train.py"]


def test_init_takes_the_only_script_and_asks_for_one_of_several(scripts: Path) -> None:
    """The refusal names them, and writes nothing."""
    (scripts / "train.py").rename(scripts / "fit.py")
    (scripts / "eval.py").write_text(SCRIPT)
    refused = stoker("init")
    assert refused.exit_code == 2
    assert "eval.py, fit.py" in refused.stderr
    assert not (scripts / "run.yaml").exists()
    (scripts / "eval.py").unlink()
    assert stoker("init").exit_code == 0
    assert load_run("run.yaml").name == "fit"


@pytest.mark.usefixtures("scripts")
def test_the_comments_of_a_run_file_name_fields_that_exist() -> None:
    """Each line that people may uncomment is valid."""
    assert stoker("init").exit_code == 0
    text = Path("run.yaml").read_text()
    lines = [line for line in text.splitlines() if line.startswith("# ") and ": " in line]
    fields = [line.removeprefix("# ") for line in lines if not line.endswith(":")]
    fields = [line for line in fields if line.split(":")[0].isidentifier()]
    assert len(fields) == 5
    spec = read_run("\n".join(["name: a", "command: tool", *fields]), "text", Path.cwd())
    assert spec.preload == ("torch", "torch._dynamo")
