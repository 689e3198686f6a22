"""Completion in a shell: commands, options, and names of runs, nodes and incidents."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.cli.main import COMMANDS
from runner.facts import wire
from tests.cli.conftest import Cluster, example_view, stoker


def completed(words: Sequence[str], folder: Path) -> list[str]:
    """Return what the last word may become, as the script for bash asks for it."""
    program = Path(sys.executable).parent / "stoker"
    done = subprocess.run(
        [program],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "_STOKER_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["stoker", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_names_of_commands_and_options_are_completed(folder: Path) -> None:
    """Without a cluster, and without importing the commands that are listed."""
    assert completed(["sta"], folder) == ["status"]
    assert completed([""], folder) == list(COMMANDS)
    assert completed(["logs", "--fol"], folder) == ["--follow"]
    assert completed(["completion", ""], folder) == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["stop", ""], ["old", "tiny"]),
        (["logs", "t"], ["tiny"]),
        (["story", "--run", ""], ["old", "tiny"]),
        (["swap", "n"], ["n1", "n2", "n3"]),
        (["explain", ""], ["i1"]),
        (["logs", "--incident", "i"], ["i1"]),
        (["logs", "--cluster", "tiny", "--node", "n1"], ["n1"]),
        (["logs", "--cluster", "nope", "--node", ""], []),
        (["stop", "x"], []),
    ],
)
def test_names_of_the_cluster_are_completed(
    cluster: Cluster, words: list[str], names: list[str]
) -> None:
    """Of the one that the command line means."""
    assert completed(words, Path(cluster.spec.state).parents[1]) == names


@pytest.mark.costly
def test_whatever_is_wrong_there_are_just_no_names(cluster: Cluster) -> None:
    """A broken cluster file, a store that does not answer, a status that is none, or no run: and no text in the terminal."""
    folder = Path(cluster.spec.state).parents[1]
    empty = folder / "below" / "empty"
    empty.mkdir(parents=True)
    (empty / "cluster.yaml").write_text("name: [")
    assert completed(["stop", ""], empty) == []
    (empty / "cluster.yaml").write_text(
        "name: far\nstore: {kind: redis, address: '192.0.2.1:6379'}\ntoken_file: t\n"
    )
    began = time.monotonic()
    assert completed(["stop", ""], empty) == []
    assert time.monotonic() - began < 30
    cluster.store.put("status", b"{broken")
    assert completed(["stop", ""], folder) == []
    cluster.store.put("status", wire.encode(example_view(runs=())))
    assert completed(["stop", ""], folder) == []


def test_bash_completes_with_the_script_that_is_printed(cluster: Cluster) -> None:
    """The script is loaded by a real bash, which then calls the function that it registered."""
    bash = shutil.which("bash")
    assert bash is not None
    script = stoker("completion", "bash").output
    ask = 'COMP_WORDS=(stoker stop t); COMP_CWORD=2; _stoker_completion stoker; echo "${COMPREPLY[@]}"'
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "-c", f"{script}\n{ask}"],
        cwd=Path(cluster.spec.state).parents[1],
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "tiny", done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    """It asks this program by its variable; another shell is refused with the known ones."""
    result = stoker("completion", shell)
    assert result.exit_code == 0
    assert f"_STOKER_COMPLETE={shell}_complete" in result.output
    assert stoker("completion", "tcsh").exit_code == 2
