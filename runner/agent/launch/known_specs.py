"""Known specs: the hash of the spec that each run was started with here. A run's spec does not change."""

import json
from pathlib import Path

from runner.atomic_files import write_atomically
from runner.errors import PermanentError
from runner.facts.messages.assignments import LaunchPlan, spec_hash

SPECS_NAME = "specs.json"
# The newest runs; chosen: more than share one cluster before old ones are long over.
MAX_RUNS = 64


class KnownSpecs:
    """Hashes of specs by the number of their run, in a file of the node's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SPECS_NAME
        self._hashes: dict[int, str] = _read(self._path)

    def check(self, plan: LaunchPlan) -> None:
        """Raise PermanentError for a plan that does not match its hash, or the hash of its run.

        Plans of older supervisors have no hash and are not checked.
        """
        if not plan.spec_hash:
            return
        run, actual = plan.attempt.run, spec_hash(plan)
        if actual != plan.spec_hash:
            raise PermanentError(
                f"attempt {plan.attempt}: its command, environment, folder, interpreter and user have the hash "
                f"{actual[:12]}, the plan says {plan.spec_hash[:12]}; a plan that was changed on its way is not started"
            )
        known = self._hashes.get(run)
        if known is None:
            self._record(run, actual)
        elif known != actual:
            raise PermanentError(
                f"attempt {plan.attempt}: run {run} was started here with spec {known[:12]}, this is {actual[:12]}; "
                f"a run's spec does not change: submit another run. If {self._path} is wrong, delete it"
            )

    def _record(self, run: int, actual: str) -> None:
        newest = sorted({*self._hashes, run})[-MAX_RUNS:]
        hashes = {each: self._hashes.get(each, actual) for each in newest}
        try:
            write_atomically(self._path, json.dumps(hashes))
        except OSError as error:
            raise PermanentError(
                f"the spec of run {run} cannot be recorded in {self._path} ({error}), so nothing is started"
            ) from error
        self._hashes = hashes


def _read(path: Path) -> dict[int, str]:
    try:
        plain = json.loads(path.read_text())
        return {int(run): str(known) for run, known in plain.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise PermanentError(
            f"{path} cannot be read ({error}); it holds the spec of each run. Repair it, or delete it to accept the next plans"
        ) from error
