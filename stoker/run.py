"""The run as a training script sees it: steps out, requests to stop and to save in, checkpoints that count once sealed."""

import atexit
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.agreement import Agreement, default_store, world_size
from stoker.channel import Channel
from stoker.checkpoint import Checkpoints, read_step

# docs/contract.md: stopped at a step boundary, as requested.
EXIT_STOPPED = 75

_attached: "Run | None" = None


def attach(*, checkpoints: str | os.PathLike[str] = "checkpoints") -> "Run":
    """Return the run of this process; the same object however often it is called.

    `checkpoints`: the folder for checkpoints where no Stoker started this process.
    """
    global _attached
    if _attached is None:
        _attached = Run(Channel.from_environment(), fallback=Path(checkpoints))
    return _attached


class Run:
    """One rank of a run. All of it works the same without Stoker, and reports go nowhere then."""

    def __init__(self, channel: Channel, *, fallback: Path) -> None:
        self._channel = channel
        self._checkpoints = Checkpoints.from_environment(fallback)
        self._agreement = Agreement(world_size(), os.environ.get("STOKER_ATTEMPT", ""))
        self._report = channel.report
        self._requests = channel.requests
        # Requests that have yet to take effect: id -> kind and whether to save.
        self._pending: dict[str, tuple[str, bool]] = {}
        self.is_supervised = channel.connected
        # Whether to end the loop, and whether to save a checkpoint, after the step that was reported last.
        self.should_stop = False
        self.should_checkpoint = False
        if not self.is_supervised:
            # A step costs next to nothing then.
            self.step = _do_nothing  # type: ignore[method-assign]
            return
        channel.report("hello", requests=["checkpoint", "stop"], remedies=[])
        atexit.register(self._end)
        self._watch_exceptions()

    @property
    def rank(self) -> int:
        """The rank of this process in its gang."""
        text = os.environ.get("RANK", "")
        return int(text) if text.isdecimal() else 0

    @property
    def resume_folder(self) -> Path | None:
        """The checkpoint to resume from; None: there is none, begin at the first step."""
        return self._checkpoints.resume_folder()

    @property
    def resume_step(self) -> int:
        """The step of `resume_folder`; 0 without one."""
        folder = self.resume_folder
        return 0 if folder is None else read_step(folder)

    def step(self, step: int, **numbers: float | None) -> None:
        """Report that step `step` (from 1) is done, and numbers of it: loss, grad_norm, lr, tokens_per_second and others.

        docs/contract.md lists the names. Then `should_stop` and `should_checkpoint` are those of this step.
        """
        self._report("step", step=step, **numbers)
        requests = self._requests()
        if requests or self._pending or self.should_checkpoint:
            self._follow_requests(requests, step)

    def phase(self, name: str) -> None:
        """Report what the rank does from now on: `step`, `evaluate` or `checkpoint`. Long evaluations are no hangs then."""
        self._channel.report("phase", phase=name)

    def validation(self, step: int, loss: float) -> None:
        """Report a held-out loss."""
        self._channel.report("validation", step=step, loss=loss)

    @contextlib.contextmanager
    def checkpoint(self, step: int, *, all_ranks: bool = False) -> Iterator[Path]:
        """Yield the folder to write the checkpoint of `step` to; at the end of the block it is sealed, and reported.

        One rank alone uses it, or with `all_ranks` each, with file names of its own: rank 0 seals once all have left the block.
        A block that raises leaves no checkpoint. Raises `CheckpointRefused` for a step that is sealed already, OSError when the
        disk is full or broken, and SystemExit when a newer attempt of the run has begun.
        """
        self._channel.report("phase", phase="checkpoint")
        seals = not all_ranks or self.rank == 0
        if all_ranks and not seals:
            folder = self._checkpoints.folder(step)
            folder.mkdir(parents=True, exist_ok=True)
            yield folder
            self._meet(f"checkpoint/{step}", blocks=False)
        else:
            with self._checkpoints.writing(step) as folder:
                yield folder
                if all_ranks:
                    self._meet(f"checkpoint/{step}", blocks=True)
            self._channel.report("checkpoint", step=step, path=str(self._checkpoints.folder(step)))
        self._channel.report("phase", phase="step")

    def checkpoint_folder(self, step: int) -> Path:
        """Return the folder that the checkpoint of a step has, or will have."""
        return self._checkpoints.folder(step)

    def add_to_checkpoint(self, source: Path, folder: Path) -> None:
        """Put the files of a folder, or one file, into a checkpoint's folder: as links where the file system can, else as copies.

        For savers that write to folders of their own and never change a file that they have written.
        """
        if source.is_dir():
            shutil.copytree(source, folder, copy_function=_link_or_copy, dirs_exist_ok=True)
        else:
            _link_or_copy(str(source), str(folder / source.name))

    def _meet(self, what: str, *, blocks: bool) -> None:
        """Note in the ranks' store that this rank is there; `blocks`: return once all are."""
        store = default_store()
        if store is None:
            return
        key = f"stoker/{os.environ.get('STOKER_ATTEMPT', '')}/{what}"
        num = store.add(key, 1)
        while blocks and num < world_size():
            _sleep()
            num = store.add(key, 0)

    def _follow_requests(self, requests: list[dict[str, Any]], step: int) -> None:
        for request in requests:
            kind = request.get("request")
            if kind in ("stop", "checkpoint") and isinstance(request.get("id"), str):
                self._pending[request["id"]] = (kind, bool(request.get("checkpoint")))
        self.should_checkpoint = False
        for request_id, (kind, saves) in list(self._pending.items()):
            if not self._agreement.takes_effect(request_id, step):
                continue
            del self._pending[request_id]
            self._channel.report("taken", request=request_id, step=step)
            self.should_stop = self.should_stop or kind == "stop"
            self.should_checkpoint = self.should_checkpoint or kind == "checkpoint" or saves

    def _watch_exceptions(self) -> None:
        """Note whether the process ends by an exception: it was not stopped as requested then."""
        hook = sys.excepthook

        def note(*exception: Any) -> None:
            self.should_stop = False
            hook(*exception)

        sys.excepthook = note

    def _end(self) -> None:
        """End the process with the exit code of one that was stopped, after all else that is done at its end."""
        if self.should_stop:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(EXIT_STOPPED)


def _do_nothing(*_: Any, **__: Any) -> None:
    pass


def _sleep() -> None:
    import time

    time.sleep(0.05)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
