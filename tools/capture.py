"""Run README's example for real and write what the terminal shows into README.md, between its `capture` markers.

`make docs` runs it. The run trains the built-in GPT on two nodes of two ranks, all processes of this machine. A data loader of
rank 3 dies at step 33 (the trainer's own fault plan); Stoker restarts the gang from its checkpoint. It takes about a minute.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- capture -->\n", "<!-- /capture -->"
STOKER = [sys.executable, "-P", "-m", "runner.cli.main"]
FAULT = {"kind": "loader", "rank": 3, "step": 33}
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


def main() -> None:
    """Replace the capture in README.md."""
    with tempfile.TemporaryDirectory(prefix="stoker-capture-") as name:
        text = shortened(captured(Path(name).resolve()))
    page = README.read_text()
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    README.write_text(f"{page[:start]}```\n{text}```\n{page[end:]}")


if __name__ == "__main__":
    main()
