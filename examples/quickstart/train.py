"""A training script of plain Python: it prints its steps, and saves and resumes a file of its own."""

import json
import os
import time
from pathlib import Path

rank = os.environ.get("RANK", "0")
save = Path(f"state{rank}.json")
state = json.loads(save.read_text()) if save.exists() else {"step": 0, "weight": 9.0}
Path(f"rank{rank}.pid").write_text(str(os.getpid()))
while state["step"] < 100:
    time.sleep(0.1)  # the work of a step
    state = {"step": state["step"] + 1, "weight": state["weight"] * 0.99}
    print(f"step {state['step']} loss {state['weight']:.3f}", flush=True)
    if state["step"] % 10 == 0:
        Path(f"{save}.part").write_text(json.dumps(state))
        Path(f"{save}.part").rename(save)  # in one step, so that the file is whole at any moment
