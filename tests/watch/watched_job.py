"""A job that runs without Stoker: ranks that print steps, save now and then, and do what a test asks at one step.

`python watched_job.py FOLDER STEPS WHAT AT`: WHAT is nothing, kill, raise, hang or nan. It resumes from its last
save, every 5th step; what happens, happens once. Rank 0 stamps each step with the time in FOLDER/stamps.
"""

import os
import signal
import sys
import time
from pathlib import Path

STEP_SECONDS = 0.1
SAVE_EVERY = 5
HANG_SECONDS = 6.0


def main() -> None:
    """Run one rank."""
    folder, steps, what, at = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    rank = int(os.environ.get("RANK", "0"))
    saved, done = folder / "saved", folder / "done"
    first = int(saved.read_text()) + 1 if saved.exists() else 1
    for step in range(first, steps + 1):
        time.sleep(STEP_SECONDS)
        loss = float("nan") if what == "nan" and step >= at else 4 / step**0.5
        if rank == 0:
            with (folder / "stamps").open("a") as stamps:
                stamps.write(f"{step} {time.time()}\n")
            print(f"step {step}/{steps} loss {loss:.4f} grad_norm 1.0", flush=True)
            if step % SAVE_EVERY == 0:
                scratch = folder / "saved.part"
                scratch.write_text(str(step))
                scratch.replace(saved)
        if step == at and not done.exists():
            happen(what, rank, done)


def happen(what: str, rank: int, done: Path) -> None:
    """Do what was asked for: the last rank dies, and rank 0 waits for it as a collective would."""
    is_last = rank == int(os.environ.get("WORLD_SIZE", "1")) - 1
    if is_last and what in ("kill", "raise"):
        # Rank 0 has printed the step by then.
        time.sleep(0.3)
    if what == "hang":
        time.sleep(HANG_SECONDS)
        done.touch()
    elif what == "kill" and is_last:
        done.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "raise" and is_last:
        done.touch()
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    elif what in ("kill", "raise"):
        time.sleep(60)


if __name__ == "__main__":
    main()
