"""`python -m runner.checkpoints.script_saves`: the script runs as `python` would run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.checkpoints.samples import sealed_checkpoint
from tests.checkpoints.script_saves.test_saved_files import saved

SCRIPT = """
import json, os, pickle, sys
import beside

class Point:
    pass

pickle.loads(pickle.dumps(Point()))
print(json.dumps({"argv": sys.argv, "file": __file__, "name": __name__, "path": sys.path[0], "beside": beside.HERE}))
sys.exit(int(os.environ.get("CODE", "0")))
"""


def run(
    folder: Path, *arguments: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    """Run a script in src/ with a module beside it; return the process and what it printed."""
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(SCRIPT)
    (folder / "src" / "beside.py").write_text("HERE = True\n")
    command = [sys.executable, "-m", "runner.checkpoints.script_saves", *arguments]
    variables = {name: v for name, v in os.environ.items() if not name.startswith("STOKER_")}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**variables, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, json.loads(done.stdout) if done.stdout.startswith("{") else {}


def test_without_stoker_the_script_just_runs(tmp_path: Path) -> None:
    """Its arguments, its name, its folder first on the path, and its exit code are those of `python src/train.py`."""
    words = ("out/ckpt.pt", "--fresh=--a", "--fresh=--b=1", "--resume=--c", "--", "src/train.py")
    done, seen = run(tmp_path, *words, "--lr=1", "--", "x", CODE="7")
    assert done.returncode == 7, done
    assert seen == {
        "argv": ["src/train.py", "--lr=1", "--", "x", "--a", "--b=1"],
        "file": "src/train.py",
        "name": "__main__",
        "path": str(tmp_path / "src"),
        "beside": True,
    }
    assert list(tmp_path.iterdir()) == [tmp_path / "src"]


def test_a_script_with_a_whole_save_gets_the_arguments_to_resume(tmp_path: Path) -> None:
    """Those of a fresh start are left out."""
    (tmp_path / "ckpt.pt").write_bytes(saved({"iter_num": 40}))
    done, seen = run(tmp_path, "ckpt.pt", "--fresh=--a", "--resume=--c", "--", "src/train.py")
    assert done.returncode == 0, done
    assert seen["argv"] == ["src/train.py", "--c"]


def test_a_run_without_a_folder_for_checkpoints_is_refused(tmp_path: Path) -> None:
    """Exit code 78: a restart cannot help."""
    own = {"STOKER_CHANNEL": "0", "STOKER_CHECKPOINTS": "", "RANK": "0"}
    done, _ = run(tmp_path, "ckpt.pt", "--", "src/train.py", **own)
    assert done.returncode == 78, done
    assert "run.yaml has no `checkpoints`" in done.stderr


def test_a_damaged_checkpoint_ends_the_rank_with_the_code_of_the_contract(tmp_path: Path) -> None:
    """Exit code 79, so that Stoker takes the one before it; the last line names the file."""
    folder, _ = sealed_checkpoint(tmp_path / "checkpoints", {"ckpt.pt": saved({"iter_num": 5})})
    (folder / "ckpt.pt").write_bytes(b"x" + saved({"iter_num": 5})[1:])
    words = ("ckpt.pt", "--", "src/train.py")
    done, seen = run(tmp_path, *words, STOKER_RESUME=str(folder))
    assert (done.returncode, seen) == (79, {}), done
    assert str(folder / "ckpt.pt") in done.stderr.splitlines()[-1]


def test_a_command_without_a_script_is_refused_with_an_example(tmp_path: Path) -> None:
    """The script comes behind two dashes."""
    done, _ = run(tmp_path, "ckpt.pt", "src/train.py")
    assert done.returncode == 2
    done, _ = run(tmp_path, "ckpt.pt")
    assert "write it behind --, as in: out/ckpt.pt -- train.py" in done.stderr
