"""Where the saves of a script are, and how each is judged: under a pattern that a command names, or below a folder, by adapters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runner.checkpoints.formats import pattern
from runner.checkpoints.formats.adapter import Adapter, number_of
from runner.checkpoints.formats.folder_scan import FolderContents, FolderScan, read_saves
from runner.checkpoints.formats.saves import Incomplete, Save
from runner.checkpoints.formats.table import ADAPTERS
from runner.checkpoints.manifest import read_folder_name

# Key of a manifest's settings under which a sealed copy says what it is a copy of.
SAVE_SETTING = "save"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How a whole save is sealed. `prefix`: folder for its files in the copy, with "/" at its end. `extra`: files beside them."""

    step: int
    prefix: str = ""
    extra: Mapping[str, bytes] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class SaveSource(Protocol):
    """Saves of one script."""

    # Whether a save whose step is sealed already is worth a message.
    reports_repeated: bool
    # Whether a folder of this attempt without a manifest can only be what an earlier sealer of it has left.
    owns_unsealed: bool
    # How long a save that is not whole must rest before that is worth a message.
    patience_seconds: float

    def saves(self) -> list[Save]:
        """List what may be sealed."""
        ...

    def is_finished(self, save: Save) -> bool:
        """Whether a save is whole and nothing more is written to it, by its form. Raises OSError."""
        ...

    def last_file(self, save: Save) -> str:
        """Return the name of what the script writes last into a save; "" where that is not known."""
        ...

    def place(self, save: Save) -> Placement:
        """Judge a save. Raises Incomplete with the reason, and OSError."""
        ...

    def remarks(self) -> list[str]:
        """Return what else is worth a message, each text once."""
        ...


@dataclass(slots=True)
class PatternSource:
    """What a command names. `last_file`: a folder without it is no save yet; "": any may be."""

    saved: str
    named_last_file: str = ""
    step_names: Sequence[str] = pattern.STEP_NAMES
    reports_repeated: bool = True
    owns_unsealed: bool = True
    patience_seconds: float = 0.0

    def saves(self) -> list[Save]:
        """List what may be sealed."""
        return [s for s in pattern.list_saves(self.saved) if s.has(self.named_last_file)]

    def is_finished(self, save: Save) -> bool:
        """Whether its form shows that nothing more is written to it. Raises OSError."""
        return pattern.is_finished(save)

    def last_file(self, save: Save) -> str:
        """Return the name of what is written last; "" where that is not known."""
        return ""

    def place(self, save: Save) -> Placement:
        """Judge a save. Raises Incomplete, and OSError."""
        adapter = self._adapter_of(save)
        if adapter is not None:
            # Its files lie directly in the checkpoint, since the command passes `{resume}` on.
            return Placement(step=adapter.judge(save, reads_all=True))
        reason = pattern.torn(save)
        if reason:
            raise Incomplete(reason)
        step = pattern.step_of(save, self.step_names)
        if step is None:
            known = ", ".join(self.step_names[:3])
            raise Incomplete(
                f"its step is not known; name it in the file ({known}), or give --step-name"
            )
        return Placement(step=step)

    def _adapter_of(self, save: Save) -> Adapter | None:
        """Return the adapter for what is beyond doubt of its trainer: it may ask for more than the form of each file."""
        if not save.is_folder:
            return None
        claiming = (a for a in ADAPTERS if a.claims(save.path.name, set(save.names)))
        adapter = next(claiming, None)
        return adapter if adapter is not None and adapter.is_evident(save) else None

    def remarks(self) -> list[str]:
        """Return what else is worth a message."""
        return []


@dataclass(slots=True)
class FolderSource:
    """What adapters find below a folder, as far as it was written after `since`.

    `since`: nanoseconds since the epoch, by the clock of the file system. `resumed_step`: of the checkpoint that the attempt began
    with; 0 without one.
    """

    folder: Path
    adapters: Sequence[Adapter] = ADAPTERS
    since: int = 0
    resumed_step: int = 0
    reports_repeated: bool = False
    # The script may write one itself.
    owns_unsealed: bool = False
    # The pause between two files of a large checkpoint. Chosen, not measured.
    patience_seconds: float = 10.0
    _scan: FolderScan = field(init=False)
    _adapter_of: dict[Path, Adapter] = field(default_factory=dict)
    _last: FolderContents = field(default_factory=FolderContents)
    # Saves of an earlier attempt for which the trainer deletes those of this one.
    _outranking: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._scan = FolderScan(
            self.folder, self.adapters, is_own=lambda name: read_folder_name(name) is not None
        )

    def saves(self) -> list[Save]:
        """List what may be sealed."""
        self._last = self._scan.scan()
        pairs = list(read_saves(self._last.found))
        self._adapter_of = {save.path: adapter for save, adapter in pairs}
        self._outranking = [
            save.path.name for save, adapter in pairs if self._outranks_new_ones(save, adapter)
        ]
        return [save for save, _ in pairs if save.irregular or self._is_new(save)]

    def _outranks_new_ones(self, save: Save, adapter: Adapter) -> bool:
        if not (adapter.prunes_lowest_steps and self.resumed_step) or self._is_new(save):
            return False
        return number_of(save.path.name) > self.resumed_step

    def _is_new(self, save: Save) -> bool:
        return save.changed_at > self.since

    def is_finished(self, save: Save) -> bool:
        """Whether its form shows that nothing more is written to it. Raises OSError."""
        return False

    def last_file(self, save: Save) -> str:
        """Return the name of what is written last; "" where that is not known."""
        return self._adapter_of[save.path].last_file if save.is_folder else ""

    def place(self, save: Save) -> Placement:
        """Judge a save. Raises Incomplete, and OSError."""
        adapter = self._adapter_of[save.path]
        last = [changed for name, _, changed, _ in save.signature if name == adapter.last_file]
        if save.is_folder and last and last[0] <= self.since:
            raise Incomplete(f"{adapter.last_file} is of an earlier attempt")
        step = adapter.judge(save, reads_all=True)
        return Placement(
            step=step,
            prefix=f"{save.path.name}/" if adapter.keeps_name and save.is_folder else "",
            extra=adapter.marker(save, step),
            settings={SAVE_SETTING: {"format": adapter.name, "name": self._name(save)}},
        )

    def _name(self, save: Save) -> str:
        return save.path.relative_to(self.folder).as_posix()

    def remarks(self) -> list[str]:
        """Return what else is worth a message."""
        found = (
            unknown_remark(self.folder, self._last),
            pruning_remark(self.folder, self._outranking, self.resumed_step),
        )
        return [remark for remark in found if remark]


def pruning_remark(folder: Path, names: Sequence[str], resumed_step: int) -> str:
    """Return what to say of later steps that make a trainer prune its new saves; "" if there are none."""
    if not names:
        return ""
    return (
        f"{folder}: {', '.join(names[:3])}{' and others' * (len(names) > 3)} are of later steps than {resumed_step}, from which "
        "this attempt went on; their trainer keeps the highest steps, so it may delete a new save before it can be sealed: move "
        "them away, or have it keep all (torchtitan: --checkpoint.keep_latest_k 0)"
    )


def unknown_remark(folder: Path, scan: FolderContents) -> str:
    """Return what to say of entries that no adapter knows; "" if there are none."""
    if not scan.unknown:
        return ""
    names = ", ".join(repr(name)[:120] for name in scan.unknown[:3])
    more = " and others" if len(scan.unknown) > 3 else ""
    return (
        f"{folder}: {names}{more} are no checkpoints of a form that is known, and are not sealed; give `checkpoint_format` in "
        "run.yaml if their trainer is in `stoker docs checkpoints`, or save with the client (`stoker docs client`)"
    )
