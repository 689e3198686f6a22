"""Checkpoints of a script that uses the client: written to a folder that counts once it is sealed.

Under Stoker they are those of docs/contract.md. Without it they are folders `step-<eight digits>`, written under another name and
renamed when they are whole.
"""

import contextlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ALONE = re.compile(r"step-(\d{8,})")
_SEALED = re.compile(r"\d+\.\d+\.\d+-(\d{8,})")


class Checkpoints(NamedTuple):
    """Where the checkpoints of a run lie. `attempt`: "" without Stoker."""

    root: Path
    attempt: str
    generation: int
    run: str
    resume: str

    @classmethod
    def from_environment(cls, fallback: Path) -> "Checkpoints":
        """Read the variables of the contract; without them, or in a run without a folder for checkpoints, `fallback` counts."""
        variables = os.environ
        root = variables.get("STOKER_CHECKPOINTS", "")
        if not root:
            return cls.alone(fallback)
        return cls(
            root=Path(root),
            attempt=variables.get("STOKER_ATTEMPT", "0.0.0"),
            generation=int(variables.get("STOKER_GENERATION", "") or 0),
            run=variables.get("STOKER_RUN", ""),
            resume=variables.get("STOKER_RESUME", ""),
        )

    @classmethod
    def alone(cls, root: Path) -> "Checkpoints":
        """Return those of a process without Stoker."""
        return cls(root, "", 0, "", "")

    def folder(self, step: int) -> Path:
        """Return the folder of a step."""
        name = f"{self.attempt}-{step:08d}" if self.attempt else f"step-{step:08d}"
        return self.root / name

    def unsealed_folder(self, step: int) -> Path:
        """Return the folder to which a step's files are written before they count."""
        folder = self.folder(step)
        return folder if self.attempt else folder.with_name(f".{folder.name}.part")

    def resume_folder(self) -> Path | None:
        """Return what to resume from: what Stoker chose, or without it the newest that is whole."""
        if self.attempt:
            return Path(self.resume) if self.resume else None
        with contextlib.suppress(OSError):
            whole = [path for path in self.root.iterdir() if _ALONE.fullmatch(path.name)]
            return max(whole, key=read_step, default=None)
        return None

    @contextlib.contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """Yield a folder to write to, and make it count at the end of the block."""
        folder, part = self.folder(step), self.unsealed_folder(step)
        if part.exists() and not (part / "manifest.json").exists():
            # Of a rank that died while it wrote.
            shutil.rmtree(part)
        part.mkdir(parents=True, exist_ok=True)
        try:
            yield part
        except BaseException:
            if not (part / "manifest.json").exists():
                shutil.rmtree(part, ignore_errors=True)
            raise
        if self.attempt:
            self._seal(folder, step)
            return
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)

    def _seal(self, folder: Path, step: int) -> None:
        # Of the control plane: it is there where Stoker started this process.
        from stoker.contract import AttemptId, Fenced, checkpoints

        files = {
            str(path.relative_to(folder)): checkpoints.flush_and_hash(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != checkpoints.MANIFEST
        }
        manifest = checkpoints.Manifest(
            run=self.run,
            attempt=AttemptId.parse(self.attempt),
            generation=self.generation,
            step=step,
            files=files,
        )
        try:
            checkpoints.seal(folder, manifest, generation=self.generation)
        except Fenced as error:
            sys.exit(f"stoker: {error}")


class ResumeCheck:
    """Compares the checkpoint to resume from with its manifest, in a thread beside the loading: this rank's share of the files.

    Where a file is not what was sealed, the process ends with the exit code for it, and Stoker takes the checkpoint before.
    """

    def __init__(self, folder: Path, *, share: int, shares: int) -> None:
        # Here, for the import changes `sys.modules` for a moment.
        from stoker.contract import CheckpointRefused, CheckpointUnreadable, checkpoints

        self._checkpoints = checkpoints
        self._refused, self._unreadable = CheckpointRefused, CheckpointUnreadable
        self._folder, self._share, self._shares = folder, share, shares
        self._thread = threading.Thread(target=self._run, name="stoker-resume-check", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Return once the share is compared."""
        self._thread.join()

    def _run(self) -> None:
        checkpoints = self._checkpoints
        try:
            manifest = checkpoints.read_manifest(self._folder)
            for name in checkpoints.files_of_share(manifest, self._share, self._shares):
                # Leaving the block reads and hashes the file.
                with checkpoints.open_checked(self._folder, name, manifest.files):
                    pass
        except self._unreadable as error:
            # It says nothing against the checkpoint.
            _exit(f"cannot read {error}", 1)
        except self._refused as error:
            _exit(f"checkpoint refused: {error}", checkpoints.EXIT_CHECKPOINT_REFUSED)
        except Exception as error:  # noqa: BLE001 - what was not compared is not trained with
            _exit(f"the checkpoint was not compared with its manifest: {error!r}", 1)


def _exit(why: str, code: int) -> None:
    """End the process from a thread."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    print(f"stoker: {why}", file=sys.stderr, flush=True)  # noqa: T201 - the last line of the rank's errors
    os._exit(code)


def read_step(folder: Path) -> int:
    """Return the step in a checkpoint folder's name; 0 where it has none."""
    found = _ALONE.fullmatch(folder.name) or _SEALED.fullmatch(folder.name)
    return int(found[1]) if found is not None else 0
