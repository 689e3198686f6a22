"""Runs of the built-in trainer without Stoker: one rank each, forked from a process that has imported torch."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.trainer.gangs import Gangs, Layout, start_server, stop_server
from trainer.faults.injection_plan import VARIABLE

# Far above the usual time, for a loaded machine.
RUN_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class BareRun:
    """The training losses of a run, and its last validation loss."""

    losses: tuple[float, ...]
    validation_loss: float


@dataclass(frozen=True, slots=True)
class BareRuns:
    """Runs one after the other; the layout is one rank's, whatever the settings say: the numbers are the same."""

    gangs: Gangs
    folder: Path

    def run(
        self, trainer: Mapping[str, Any], *, poisoned: tuple[int, int] | None = None, **changes: Any
    ) -> BareRun:
        """Train to the goal; `poisoned`: first and last data step that hold noise."""
        environment: dict[str, str] = {}
        if poisoned is not None:
            environment = poison(self.folder, *poisoned)
        settings = {**trainer, "checkpoint_every": 0, **changes}
        ended = self.gangs.run(
            settings, layout=Layout(), environment=environment, timeout_seconds=RUN_SECONDS
        )
        validations = ended.of_kind("validation")
        return BareRun(tuple(ended.values("loss")), float(validations[-1]["loss"]))


def poison(folder: Path, first: int, last: int) -> dict[str, str]:
    """Write the plan of a run whose data steps hold noise from `first` to `last`; return the variable that names it."""
    plan = folder / "plan.json"
    faults = [{"kind": "poison", "first": first, "last": last, "seed": first}]
    plan.write_text(json.dumps({"faults": faults}))
    return {VARIABLE: str(plan)}


@contextmanager
def bare_runs() -> Iterator[BareRuns]:
    """Start the process that ranks are forked from; end it afterwards."""
    with tempfile.TemporaryDirectory(prefix="bare-runs-") as name:
        folder = Path(name)
        gangs = start_server(folder)
        try:
            yield BareRuns(gangs, folder)
        finally:
            stop_server(gangs)
