"""How long a restart waits for its checkpoint, whatever its size: `python -m bench.survey`.

The action `prepare_attempt` as the supervisor runs it between the end of a gang and the next launch, with a verified checkpoint of
10,000 files and 200 GB: sparse files on the disk of this machine, with a manifest that fits and a code.
"""

import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bench.report import Report
from runner import checkpoints
from runner.act.checkpoints import prepare_attempt
from runner.facts.actions import Action, PrepareAttempt
from runner.facts.ids import AttemptId
from runner.signer import Signer

FILES, FILE_BYTES = 10_000, 20 * 1024**2
ROUNDS = 15
# From the issue: a restart waits for no bytes.
LIMIT_MS = 200.0
KEYS = partial(Signer(b"a token for this measurement").seal_keys, "cluster")
RUN, ATTEMPT, STEP = "large", AttemptId(1, 1, 0), 1000


def main() -> int:
    """Seal the checkpoint, inspect it once as after a seal, then prepare launches; return 1 on a miss."""
    report = Report(
        "survey: a launch prepared beside a large checkpoint",
        f"median of {ROUNDS} actions prepare_attempt, wall time, {FILES:,} files of "
        f"{FILE_BYTES / 1024**2:g} MiB; times of files in the cache of the file system, as after a seal",
    )
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as root:
        folder = _seal(Path(root))
        stamp = checkpoints.inspect(folder, KEYS(RUN), run=RUN).stamp
        times = [_prepare(Path(root), folder, stamp) for _ in range(ROUNDS)]
        least = [_prepare(Path(root) / "empty", None, "") for _ in range(ROUNDS)]
        manifest_bytes = (folder / checkpoints.MANIFEST).stat().st_size
    report.note(f"manifest of {manifest_bytes:,} bytes, {FILES * FILE_BYTES / 1024**3:.0f} GiB")
    report.figure_of("prepare_attempt, 10,000 files", times, "ms", at_most=LIMIT_MS)
    report.figure_of("prepare_attempt, no checkpoint", least, "ms")
    report.figure("per file", 1000 * statistics.median(times) / FILES, "us")
    return 1 if report.num_missed else 0


def _seal(root: Path) -> Path:
    """Write and seal the checkpoint; its hashes are made up, since nothing here reads the files."""
    folder = checkpoints.checkpoint_folder(root, ATTEMPT, STEP)
    folder.mkdir()
    seals = {}
    for number in range(FILES):
        name = f"__{number}_0.distcp"
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(descriptor, FILE_BYTES)
        os.close(descriptor)
        seals[name] = checkpoints.FileSeal(size_bytes=FILE_BYTES, sha256=f"{number:064x}")
    manifest = checkpoints.Manifest(run=RUN, attempt=ATTEMPT, generation=0, step=STEP, files=seals)
    with patch.dict(os.environ, {"STOKER_SEAL_KEYS": KEYS(RUN)[0].hex()}):
        checkpoints.seal(folder, manifest, generation=0)
    return folder


def _prepare(root: Path, expected: Path | None, stamp: str) -> float:
    """Prepare one launch; return how long it took, in milliseconds."""
    work = PrepareAttempt(
        attempt="1.1.1",
        generation=1,
        folder=str(root),
        address="127.0.0.1",
        run_name=RUN,
        uncoded=(),
        verified={expected.name: stamp} if expected is not None else {},
    )
    action = Action(id="a1", action=work.kind, reason="", args=work.plain())
    started = time.perf_counter()
    outcome, detail, _ = prepare_attempt(action, KEYS)
    seconds = time.perf_counter() - started
    chosen = detail["chosen"]
    found = (chosen["path"], chosen["unverified"]) if chosen is not None else None
    wanted = (str(expected), False) if expected is not None else None
    if outcome != "done" or found != wanted:
        raise RuntimeError(f"prepared {outcome}, chose {found}, not {wanted}")
    return 1000 * seconds


if __name__ == "__main__":
    sys.exit(main())
