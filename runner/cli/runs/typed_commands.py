"""A command as it is typed behind `--`, such as `python train.py --lr 3e-4`, and the run.yaml that means the same."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.atomic_files import write_atomically
from runner.errors import UserError
from runner.facts.specs.run import RunSpec
from runner.facts.wording import counted
from runner.folder_modes import make_folder

# Words that YAML, and a shell, read as they are.
_PLAIN = re.compile(r"[\w./=:,@%+{}-]+", re.ASCII)
_WORD = re.compile(r"[a-z][a-z0-9-]*")
_YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
# `python` and `python3` are looked up on PATH by `python` in run.yaml.
_PYTHONS = ("python", "python3")
MAX_NAME_CHARACTERS = 40
DEVICES = Path("/dev")


def run_text(
    words: Sequence[str], *, name: str = "", nodes: int = 1, ranks_per_node: int = 1
) -> str:
    """Return the run.yaml of a command that is started in the working directory; its words are literal.

    A file that ends in .py, and `-m MODULE`, are run with `{python}`, as torchrun does. Raises UserError for a script or a program
    that is not there.
    """
    python, command = _command(words)
    lines = [f"name: {_yaml_name(name or run_name(words))}", f"command: {_yaml_command(command)}"]
    if python:
        lines.append(f"python: {python}")
    elif "{python}" in command:
        lines.append("# {python} is the python3 of PATH; another one: `python: .venv/bin/python`")
    if nodes > 1:
        lines.append(f"nodes: {nodes}")
    if nodes * ranks_per_node > 1:
        lines.append(f"ranks_per_node: {ranks_per_node}")
    return "\n".join(lines) + "\n"


def run_name(words: Sequence[str]) -> str:
    """Name a run after its script, module or program: `train` of `python -u src/train.py --lr 1`."""
    rest = list(words)
    what = Path(rest[0]).name if rest else ""
    if what.startswith("python"):
        rest = rest[1:]
    while len(rest) > 1 and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[1:]
    if rest[:1] == ["-m"]:
        what = "".join(rest[1:2])
    elif rest and rest[0].endswith(".py"):
        what = Path(rest[0]).name.removesuffix(".py")
    slug = re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")[:MAX_NAME_CHARACTERS].strip("-")
    return slug or "run"


def num_gpus() -> int:
    """Return how many GPUs of NVIDIA this machine has."""
    return len([*DEVICES.glob("nvidia[0-9]*")])


def ranks_of(value: str) -> int:
    """Return what `--nproc-per-node` means: a number, or `gpu`, one for each GPU of this machine. Raises UserError."""
    if value == "gpu":
        if num_gpus() == 0:
            raise UserError(
                "--nproc-per-node: gpu, and this machine has no /dev/nvidia0; give a number"
            )
        return num_gpus()
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 1024:
        raise UserError(
            f"--nproc-per-node: {value[:40]!r} is neither a number from 1 to 1024 nor gpu"
        )
    return int(value)


def _command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the value of `python` in run.yaml ("": its default), and the command with braces doubled."""
    if not words or not words[0]:
        raise UserError("no command is given; write it behind --: `stoker run -- python train.py`")
    for word in words:
        if any(not character.isprintable() and character not in "\n\t" for character in word):
            raise UserError(
                f"{word[:40]!r} in the command has characters that cannot be printed; put the command into a script"
            )
    escaped = [word.replace("{", "{{").replace("}", "}}") for word in words]
    first = words[0]
    if first == "-m" and len(words) == 1:
        raise UserError("-m names no module; write it as `stoker run -- -m package.module`")
    if first == "-m" or first.endswith(".py"):
        if first != "-m":
            _require_file(first)
        return "", ["{python}", *escaped]
    if first in _PYTHONS:
        for script in words[1:2]:
            if script.endswith(".py"):
                _require_file(script)
        is_default = first == "python3" or shutil.which(first) is None
        return "" if is_default else first, ["{python}", *escaped[1:]]
    _require_program(first)
    return "", escaped


def _require_file(script: str) -> None:
    if not Path(script).is_file():
        nearby = sorted(path.name for path in Path().glob("*.py"))[:5]
        there = f"; {counted(len(nearby), 'script')} there: {', '.join(nearby)}" if nearby else ""
        raise UserError(f"{script}: no such file in {Path.cwd()}{there}")


def _require_program(program: str) -> None:
    if shutil.which(program) is not None:
        return
    if "/" not in program:
        raise UserError(
            f"{program}: no program of this name on PATH; give its path, or a script that ends in .py"
        )
    what = (
        "is not executable (`chmod +x` makes it so)" if Path(program).exists() else "is not there"
    )
    raise UserError(f"{program}: the file {what}, looked for from {Path.cwd()}")


def _yaml_name(name: str) -> str:
    """Quote a name that YAML would read as a number, a truth value or nothing."""
    return name if _WORD.fullmatch(name) and name not in _YAML_WORDS else json.dumps(name)


def _yaml_command(command: Sequence[str]) -> str:
    """Write a command as a string where a shell would split it the same way, else as a list; JSON is YAML."""
    if all(_PLAIN.fullmatch(word) for word in command):
        return json.dumps(" ".join(command))
    return json.dumps(list(command), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedCommand:
    """A command behind `--`, as the run.yaml that means the same in the working directory."""

    text: str

    @classmethod
    def of(
        cls,
        file: str | None,
        words: Sequence[str],
        *,
        name: str | None,
        nodes: int | None,
        ranks_per_node: str | None,
    ) -> "TypedCommand | None":
        """Return it; None where a RUN.yaml is given instead. Raises UserError for both, for neither, and for a bad command."""
        if file is not None:
            _require_run_file(file, words)
            options = {"--name": name, "--nnodes": nodes, "--nproc-per-node": ranks_per_node}
            for option, value in options.items():
                if value is not None:
                    raise UserError(
                        f"{option} belongs to a command behind --; {file} says it itself: change it there"
                    )
            return None
        if not words:
            raise UserError(
                "neither a RUN.yaml nor a command is given: `stoker run run.yaml`, or `stoker run -- python train.py`; "
                "`stoker init` writes a run.yaml"
            )
        ranks = ranks_of(ranks_per_node) if ranks_per_node is not None else 1
        return cls(text=run_text(words, name=name or "", nodes=nodes or 1, ranks_per_node=ranks))

    @property
    def file(self) -> Path:
        """Where this run.yaml would be; the cluster of that folder serves the run."""
        return Path("run.yaml").absolute()

    def load(self) -> RunSpec:
        """Return the run. Raises SpecError."""
        from runner.load.specs import read_run

        return read_run(self.text, "the command as a run.yaml", Path.cwd())

    def show(self, out: Callable[[str], None]) -> None:
        """Print the run.yaml."""
        out("# This command as a run.yaml; `stoker init` writes one to change.")
        out(self.text)

    def keep(self, folder: Path) -> None:
        """Write the run.yaml into the folder of the run's files."""
        head = f"# As `stoker run -- ...` was typed in {Path.cwd()}; a copy there is `stoker run run.yaml`.\n"
        make_folder(folder)
        # Arguments may be secrets.
        write_atomically(folder / "run.yaml", head + self.text, mode=0o600)


def _require_run_file(file: str, words: Sequence[str]) -> None:
    if words:
        raise UserError(f"both {file} and a command behind -- are given; leave one of them out")
    if file.endswith(".py") or (Path(file).suffix == "" and not Path(file).exists()):
        raise UserError(
            f"{file} is no RUN.yaml; a command of yours goes behind --: `stoker run -- {shlex.quote(file)} ...`"
        )
