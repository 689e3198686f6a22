"""The launch environment: what Stoker sets beside torchrun's variables, for this start of the rank."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import SpecError
from runner.facts.ids import AttemptId
from trainer.contract.remedies import Remedies, read_remedies

# Set by a launcher for each rank; without one, a single rank is its own launcher.
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of this rank. Without Stoker: attempt 0.0.0, no checkpoints, nothing to resume."""

    rank: int
    world_size: int
    run: str
    attempt: AttemptId
    generation: int
    checkpoints: Path | None
    resume: Path | None
    remedies: Remedies
    # Fingerprint of what it is to train on, whatever the checkpoint was trained on; ANY_DATA; "": what the checkpoint was.
    data: str = ""


def read_launch(environment: Mapping[str, str] | None = None) -> Launch:
    """Read the variables of the contract; raises SpecError that names the variable and its value."""
    variables = os.environ if environment is None else environment
    folder, resume = variables.get("STOKER_CHECKPOINTS", ""), variables.get("STOKER_RESUME", "")
    try:
        attempt = AttemptId.parse(variables.get("STOKER_ATTEMPT", "0.0.0"))
    except ValueError as error:
        raise SpecError(f"STOKER_ATTEMPT: {error}") from error
    return Launch(
        rank=_whole(variables, "RANK"),
        world_size=_whole(variables, "WORLD_SIZE"),
        run=variables.get("STOKER_RUN", ""),
        attempt=attempt,
        generation=_whole({"STOKER_GENERATION": "0", **variables}, "STOKER_GENERATION"),
        checkpoints=Path(folder) if folder else None,
        resume=Path(resume) if resume else None,
        data=variables.get("STOKER_DATA", ""),
        remedies=read_remedies(variables.get("STOKER_REMEDIES", "") or "{}"),
    )


def _whole(variables: Mapping[str, str], name: str) -> int:
    text = variables.get(name, "")
    if not text.isdecimal():
        raise SpecError(
            f"{name} is {text!r}: a launcher sets it to a whole number, see the contract"
        )
    return int(text)
