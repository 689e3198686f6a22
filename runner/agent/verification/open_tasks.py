"""The tasks `verify` of a node that are open, and the last answers, in its folder: a later agent instance goes on with them."""

import logging
from collections.abc import Iterable
from pathlib import Path

from runner.atomic_files import write_atomically
from runner.errors import WireError
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task

log = logging.getLogger("stoker.agent")

# Of the file; all tasks and answers it may hold need less. Chosen, not measured.
MAX_FILE_BYTES = 1024 * 1024


def load_tasks(path: Path) -> tuple[list[Task], list[ActionResult]]:
    """Return the open tasks, the one under way first, and the last answers. What is malformed was never written: there are none."""
    tasks, answers = list[Task](), list[ActionResult]()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise WireError(f"more than {MAX_FILE_BYTES} bytes")
        for line in data.splitlines():
            fact = wire.decode(line)
            if isinstance(fact, Task) and fact.task == "verify":
                tasks.append(fact)
            elif isinstance(fact, ActionResult):
                answers.append(fact)
            else:
                raise WireError(f"a {type(fact).__name__} has no place here")
    except FileNotFoundError:
        return [], []
    except (OSError, WireError) as error:
        log.warning("%s cannot be read (%s): what was to be verified is left", path, error)
        return [], []
    return tasks, answers


def save_tasks(path: Path, tasks: Iterable[Task], answers: Iterable[ActionResult]) -> None:
    """Write them. A disk that refuses is logged: this instance knows them all the same."""
    lines = [wire.encode(fact) + b"\n" for fact in (*tasks, *answers)]
    try:
        write_atomically(path, b"".join(lines))
    except OSError as error:
        log.warning("%s cannot be written (%s): a later agent may not go on with it", path, error)
