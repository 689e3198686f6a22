"""Run README's examples for real and write what the terminals show into README.md, between its markers.

`make docs` runs it; `python -m tools.capture quickstart` records the first ten minutes alone. The longer run trains the built-in
GPT on two nodes of two ranks, all processes of this machine. The data of rank 3 is cut off at step 33 (the trainer's own fault
plan); Stoker restarts the gang from its checkpoint. It takes about a minute.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.quickstart import commands, play

README = Path(__file__).parent.parent / "README.md"
STOKER = [sys.executable, "-P", "-m", "runner.cli.main"]
FAULT = {"kind": "shard", "rank": 3, "step": 33}
# Characters; longer lines are cut, since a page is narrower than a terminal.
WIDTH = 118
RUN_YAML = """\
name: gpt
trainer: {{recipe: tiny_cpu, steps: 60, checkpoint_every: 10}}
nodes: 2
ranks_per_node: 2
environment: {{OMP_NUM_THREADS: "1", TRAINER_FAULT_PLAN: {plan}}}
"""


def captured(folder: Path) -> str:
    """Run the commands in `folder`; return them with their output, as a terminal shows both."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"faults": [{**FAULT, "once": str(folder / "struck")}]}))
    folder.joinpath("run.yaml").write_text(RUN_YAML.format(plan=plan))
    blocks = []
    for words in (["run", "run.yaml"], ["explain", "i1"]):
        done = subprocess.run(
            [*STOKER, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(README.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode != 0:
            sys.exit(f"stoker {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
        blocks.append(f"$ stoker {' '.join(words)}\n{done.stdout}")
    return "\n".join(blocks).replace(str(folder), "~/gpt")


def shortened(text: str) -> str:
    """Cut long lines, so that the page needs no scroll bar."""
    lines = [
        line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in text.splitlines()
    ]
    return "\n".join(lines) + "\n"


def replaced(page: str, marker: str, text: str) -> str:
    """Return the page with other text between the marks of this name."""
    begin, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    head, _, rest = page.partition(begin)
    return f"{head}{begin}```\n{shortened(text)}```\n{end}{rest.partition(end)[2]}"


def with_quickstart(page: str) -> str:
    """Return the page with what its first ten minutes print."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PYTHONPATH": str(README.parent), "PATH": programs}
    with tempfile.TemporaryDirectory(prefix="stoker-capture-") as name:
        played = play(page, Path(name).resolve(), environment)
    shown = {
        command: text.replace(str(played.folder), "~/first-run")
        for command, text in played.printed.items()
    }
    _, _, run, _, logs = commands(page)
    # Of other clusters that happen to be on this machine.
    shown[run] = re.sub(r"^cluster .* of this machine .*\n", "", shown[run], flags=re.MULTILINE)
    page = replaced(page, "quickstart", shown[run])
    return replaced(page, "quickstart-logs", f"$ {logs}\n{shown[logs]}")


def main() -> None:
    """Replace the captures in README.md."""
    page = with_quickstart(README.read_text())
    if sys.argv[1:] != ["quickstart"]:
        with tempfile.TemporaryDirectory(prefix="stoker-capture-") as name:
            page = replaced(page, "capture", captured(Path(name).resolve()))
    README.write_text(page)


if __name__ == "__main__":
    main()
