"""The run as a training script sees it: steps out, requests to stop and to save in, checkpoints that count once sealed."""

import atexit
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.agreement import Agreement, default_store, world_size
from stoker.channel import Channel
from stoker.checkpoint import Checkpoints, ResumeCheck, read_step

# docs/contract.md: stopped at a step boundary, as requested.
EXIT_STOPPED = 75
# Between looks whether all ranks have come. Chosen, not measured.
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.002, 0.05

# Set by a rank as it attaches: what it starts inherits this with the other variables.
_RANK_PID = "STOKER_RANK_PID"

_attached: "Run | None" = None


def attach(*, checkpoints: str | os.PathLike[str] = "checkpoints") -> "Run":
    """Return the run of this process; the same object however often it is called.

    `checkpoints`: the folder for checkpoints where no Stoker started this process. A process that a rank has started is no rank:
    there all is as without Stoker.
    """
    global _attached
    if _attached is None:
        fallback = Path(checkpoints)
        if _belongs_to_a_rank():
            _attached = Run(Channel(), fallback=fallback, checkpoints=Checkpoints.alone(fallback))
        else:
            _attached = Run(Channel.from_environment(), fallback=fallback)
    return _attached


def _belongs_to_a_rank() -> bool:
    """Whether a rank that has attached started this process, which has the rank's variables then and is none."""
    if not os.environ.get("STOKER_ATTEMPT"):
        return False
    return os.environ.setdefault(_RANK_PID, str(os.getpid())) != str(os.getpid())


class Run:
    """One rank of a run. All of it works the same without Stoker, and reports go nowhere then."""

    def __init__(
        self, channel: Channel, *, fallback: Path, checkpoints: Checkpoints | None = None
    ) -> None:
        self._channel = channel
        self._checkpoints = checkpoints or Checkpoints.from_environment(fallback)
        attempt = os.environ.get("STOKER_ATTEMPT", "")
        self._agreement = Agreement(world_size(), attempt, rank=self.rank)
        self._report = channel.report
        self._requests = channel.requests
        # Requests that have yet to take effect: id -> kind and whether to save.
        self._pending: dict[str, tuple[str, bool]] = {}
        # Checkpoints that all ranks write: each meets at points of its own.
        self._num_shared = 0
        self.is_supervised = channel.connected
        # Whether to end the loop, and whether to save a checkpoint, after the step that was reported last.
        self.should_stop = False
        self.should_checkpoint = False
        self._resume_check: ResumeCheck | None = None
        if not self.is_supervised:
            # A step costs next to nothing then.
            self.step = _do_nothing  # type: ignore[method-assign]
            return
        # Remedies that this rank applies, as far as its script has named them.
        self._supported: list[str] = []
        self._report_hello()
        # Until the checkpoint to resume from is compared with its manifest.
        self._resume_check = self._check_resume()
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
        if self._resume_check is not None:
            self._finish_resume_check()
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

    def remedies(self, *names: str) -> dict[str, Any]:
        """Say that this rank applies the remedies of these names, and return those ordered: name -> value.

        docs/contract.md lists them. The script applies them at its start, and reports by `read_back` what took effect.
        """
        if not self.is_supervised:
            return {}
        self._supported += [name for name in names if name not in self._supported]
        self._report_hello()
        ordered = json.loads(os.environ.get("STOKER_REMEDIES", "") or "{}")
        return {name: value for name, value in ordered.items() if name in names}

    def read_back(self, step: int, **values: Any) -> None:
        """Report settings in effect as they were read back after loading, each remedy under its name; `step`: steps done.

        Rank 0 reports, once per start, and prints the names of remedies that are ordered and that no part of the script applies; on
        other ranks the call does nothing.
        """
        if self.rank == 0:
            ordered = json.loads(os.environ.get("STOKER_REMEDIES", "") or "{}")
            ignored = [name for name in ordered if name not in (*self._supported, *values)]
            if ignored and self.is_supervised:
                _warn(f"not applied, since nothing in this script does: {', '.join(ignored)}")
            self._channel.report("settings", step=step, values=values)

    @contextlib.contextmanager
    def checkpoint(self, step: int, *, all_ranks: bool = False) -> Iterator[Path]:
        """Yield the folder to write the checkpoint of `step` to; at the end of the block it is sealed, and reported.

        One rank alone uses it, or with `all_ranks` each, with file names of its own: a rank enters the block once all ranks
        have come to it, and rank 0 seals once all have left it. A block that raises leaves no checkpoint. Raises
        `CheckpointRefused` for a step that is sealed already, OSError when the disk is full or broken, RuntimeError for
        `all_ranks` without a process group, and SystemExit when a newer attempt of the run has begun.
        """
        if self._resume_check is not None:
            self._finish_resume_check()
        self._channel.report("phase", phase="checkpoint")
        self._num_shared += all_ranks
        begin, end = (f"checkpoint/{self._num_shared}/{point}" for point in ("begin", "end"))
        if not all_ranks or self.rank == 0:
            with self._checkpoints.writing(step) as folder:
                if all_ranks:
                    self._meet(begin)
                yield folder
                if all_ranks:
                    self._meet(end)
            self._channel.report("checkpoint", step=step, path=str(self._checkpoints.folder(step)))
        else:
            self._meet(begin)
            yield self._checkpoints.unsealed_folder(step)
            self._meet(end, blocks=False)
        self._channel.report("phase", phase="step")

    def checkpoint_folder(self, step: int) -> Path:
        """Return the folder that the checkpoint of a step has, or will have."""
        return self._checkpoints.folder(step)

    def add_to_checkpoint(self, source: Path, folder: Path, *, name: str = "") -> None:
        """Put the files of a folder, or one file, into a checkpoint's folder: as links where the file system can, else as copies.

        For savers that write to folders of their own and never change a file that they have written. A file that is there
        already stays: several nodes may add the same folder. `name`: under which it is put there; "": a file keeps its own, and
        a folder's files lie in `folder` itself.
        """
        if source.is_dir():
            shutil.copytree(source, folder / name, copy_function=_link_or_copy, dirs_exist_ok=True)
        else:
            _link_or_copy(str(source), str(folder / (name or source.name)))

    def _meet(self, what: str, *, blocks: bool = True) -> None:
        """Note in the ranks' store that this rank has come to a point; `blocks`: return once all have."""
        num_ranks = world_size()
        if num_ranks == 1:
            return
        store = default_store()
        if store is None:
            raise RuntimeError(
                f"stoker: {num_ranks} ranks write one checkpoint, but this process has joined no process group; "
                "call torch.distributed.init_process_group first, or have one rank alone write it"
            )
        key = f"stoker/{os.environ.get('STOKER_ATTEMPT', '')}/{what}"
        arrived, seconds = store.add(key, 1), MIN_POLL_SECONDS
        while blocks and arrived < num_ranks:
            time.sleep(seconds)
            seconds = min(2 * seconds, MAX_POLL_SECONDS)
            arrived = store.add(key, 0)

    def _report_hello(self) -> None:
        self._channel.report(
            "hello",
            requests=["checkpoint", "stop"],
            remedies=self._supported,
            checks_checkpoints=True,
        )

    def _check_resume(self) -> ResumeCheck | None:
        """Begin to compare this rank's share of the checkpoint to resume from; no rank makes a step before all shares are."""
        folder, shares = self._checkpoints.resume, world_size()
        if not folder or self.rank >= shares:
            return None
        return ResumeCheck(Path(folder), share=self.rank, shares=shares)

    def _finish_resume_check(self) -> None:
        check, self._resume_check = self._resume_check, None
        if check is not None:
            check.finish()

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
            # Damaged files raise anything: if it is that, the process ends with the code for it.
            self._finish_resume_check()
            hook(*exception)

        sys.excepthook = note

    def _end(self) -> None:
        """End the process with the exit code of one that was stopped, after all else that is done at its end."""
        if self.should_stop:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(EXIT_STOPPED)


def _warn(text: str) -> None:
    print(f"stoker: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the script's own output


def _do_nothing(*_: Any, **__: Any) -> None:
    pass


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:
        shutil.copy2(source, target)
    return target
